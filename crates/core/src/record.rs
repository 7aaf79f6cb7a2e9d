//! What a store keeps for one command: the [`Head`] the protocol decides on, and what it carries.

use crate::history::History;
use crate::ids::OperationId;
use crate::operation::OperationName;
use crate::request::StoredRequest;
use crate::response::{Response, StoredResponse};
use crate::scope::{Principal, RecordId, Scope};
use crate::state::{Head, State};
use crate::time::Timestamp;
use crate::transition::{Attempt, Write};

/// What a store keeps for one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The digest of its scope.
    pub id: RecordId,
    /// Its name towards clients, operators and providers.
    pub operation_id: OperationId,
    /// Who asked for it.
    pub principal: Principal,
    /// What was asked for.
    pub operation: OperationName,
    /// The first 8 hex digits of the key's digest, to find a record by a log line.
    pub key_hash_prefix: String,
    /// When it was first claimed.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Where it stands.
    pub head: Head,
    /// What it came to, once it is settled.
    pub result: Option<StoredResult>,
    /// How it came there, for people.
    pub history: History,
}

/// What a settled command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResult {
    /// The response that retries get.
    pub response: StoredResponse,
    /// The status of that response, readable without a key.
    pub status: u16,
    /// The address of what the command made, if it said so.
    pub resource: Option<String>,
}

impl StoredResult {
    /// What is stored of a command that came to this.
    pub fn of(kept: &Response) -> StoredResult {
        let resource = kept.resource().map(str::to_owned);
        StoredResult { response: kept.encode(), status: kept.status.as_u16(), resource }
    }
}

/// A request's wish to run a command, as it goes to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose command it is.
    pub scope: Scope,
    /// The command's id, should this be its first claim.
    pub operation_id: OperationId,
    /// The attempt.
    pub attempt: Attempt,
    /// The business reference that the request carries, where the operation asks for one.
    pub business_reference: Option<String>,
    /// Former names of its operation. A record that is still live under one of them is the record.
    pub former: Vec<OperationName>,
    /// The request, where a worker may have to carry it out, or where it is kept until the outcome is known.
    pub request: Option<StoredRequest>,
}

/// Who holds a business reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The command.
    pub operation_id: OperationId,
    /// Whose command it is.
    pub principal: Principal,
}

impl Claim {
    /// The same claim, with its request kept until the outcome is known. A claim without a request stays as it is.
    #[must_use]
    pub fn kept_while_unknown(mut self) -> Claim {
        self.attempt.terms.keep_request = self.request.is_some();
        self
    }

    /// The ids of the records that this claim may be about, those of former names first, its own last.
    pub fn record_ids(&self) -> impl Iterator<Item = RecordId> {
        let under =
            |name: &OperationName| Scope { operation: name.clone(), ..self.scope.clone() }.record_id();
        self.former.iter().map(under).chain(std::iter::once_with(|| self.scope.record_id()))
    }

    /// The names under which its business reference may be held, its own first.
    pub fn reference_operations(&self) -> impl Iterator<Item = &OperationName> {
        std::iter::once(&self.scope.operation).chain(&self.former)
    }
}

impl Record {
    /// Whether this claim made it: nobody had claimed it before.
    pub fn is_first_of(&self, claim: &Claim) -> bool {
        self.head.token == claim.attempt.token
            && self.operation_id == claim.operation_id
            && self.head.epoch == 1
    }

    /// The record after a write that made its outcome unknown, with what the executor saw; every other stays as it is.
    pub fn observing(self, write: Write, seen: Option<&str>) -> Record {
        match (write, self.head.state, seen) {
            (Write::Update(_), State::Unknown { .. }, Some(seen)) => {
                Record { history: self.history.observing(seen), ..self }
            }
            _ => self,
        }
    }

    /// The record after `write`: `None` if it is to be deleted.
    ///
    /// `claim` is there for a claim, `result` for a change that settles the command. Stores that keep whole
    /// records use this; SQL stores do the same in columns.
    pub fn after(
        before: Option<&Record>,
        write: Write,
        claim: Option<&Claim>,
        result: Option<&StoredResult>,
        now: Timestamp,
    ) -> Option<Record> {
        match write {
            Write::Keep => before.cloned(),
            Write::Delete => None,
            Write::Create(head) => claim.map(|claim| Record {
                id: claim.scope.record_id(),
                operation_id: claim.operation_id,
                principal: claim.scope.principal.clone(),
                operation: claim.scope.operation.clone(),
                key_hash_prefix: claim.scope.key.hash_prefix(),
                created_at: now,
                updated_at: now,
                head,
                result: None,
                history: History::default().then(&head, now),
            }),
            Write::Update(head) => before.map(|before| Record {
                head,
                updated_at: now,
                result: if head.state.is_terminal() {
                    result.cloned().or_else(|| before.result.clone())
                } else {
                    None
                },
                history: before.history.then(&head, now),
                ..before.clone()
            }),
        }
    }
}
