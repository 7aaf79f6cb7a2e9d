//! The record of one command: the [`Head`] that the protocol decides on, and the data around it.

use crate::history::History;
use crate::ids::OperationId;
use crate::operation::OperationName;
use crate::request::StoredRequest;
use crate::response::{Response, StoredResponse};
use crate::scope::{Principal, RecordId, Scope};
use crate::state::{Head, State};
use crate::time::Timestamp;
use crate::trace::TraceContext;
use crate::transition::{Attempt, Write};

/// A store's record of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Digest of the command's scope.
    pub id: RecordId,
    /// Id of the command towards clients, operators and providers.
    pub operation_id: OperationId,
    /// Principal that sent the command.
    pub principal: Principal,
    /// Operation of the command.
    pub operation: OperationName,
    /// First 8 hex digits of the key's digest, to find a record by a log line.
    pub key_hash_prefix: String,
    /// Time of the first claim.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time at which the command entered its state. A lease renewal or a look-up without evidence does not
    /// move it; a new attempt does.
    pub state_since: Timestamp,
    /// State of the command.
    pub head: Head,
    /// Result of the command, once it is settled.
    pub result: Option<StoredResult>,
    /// Steps of the command, for people.
    pub history: History,
    /// Trace of the request that claimed the command first, if it was traced.
    pub trace: Option<TraceContext>,
}

/// Result of a settled command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResult {
    /// Response for retries.
    pub response: StoredResponse,
    /// Status of that response, readable without a key.
    pub status: u16,
    /// Address of the created resource, if the response has one.
    pub resource: Option<String>,
}

impl StoredResult {
    /// Returns the stored form of a response.
    pub fn of(kept: &Response) -> StoredResult {
        let resource = kept.resource().map(str::to_owned);
        StoredResult { response: kept.encode(), status: kept.status.as_u16(), resource }
    }
}

/// A request's claim on a command, as sent to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Scope of the command.
    pub scope: Scope,
    /// Id of the command if this is its first claim.
    pub operation_id: OperationId,
    /// The attempt.
    pub attempt: Attempt,
    /// Business reference of the request, if the operation reads one.
    pub business_reference: Option<String>,
    /// Former names of the operation. A record that is still live under one of them is the command's record.
    pub former: Vec<OperationName>,
    /// The request, if a worker may have to execute it, or if it is stored until the outcome is known.
    pub request: Option<StoredRequest>,
    /// Trace of the request, if it is traced.
    pub trace: Option<TraceContext>,
}

/// Holder of a business reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Id of the command.
    pub operation_id: OperationId,
    /// Principal of the command.
    pub principal: Principal,
}

impl Claim {
    /// Sets the request to be stored until the outcome is known. A claim without a request stays unchanged.
    #[must_use]
    pub fn kept_while_unknown(mut self) -> Claim {
        self.attempt.terms.keep_request = self.request.is_some();
        self
    }

    /// Returns the ids of the records that this claim may be about: those of former names first, its own
    /// last.
    pub fn record_ids(&self) -> impl Iterator<Item = RecordId> {
        let under = |name: &OperationName| self.scope.record_id_under(name);
        self.former.iter().map(under).chain(std::iter::once(self.scope.record_id()))
    }

    /// Returns the operation names under which the business reference may be held, its own first.
    pub fn reference_operations(&self) -> impl Iterator<Item = &OperationName> {
        std::iter::once(self.scope.operation()).chain(&self.former)
    }
}

impl Record {
    /// Returns true if this claim created the record.
    pub fn is_first_of(&self, claim: &Claim) -> bool {
        self.head.token == claim.attempt.token
            && self.operation_id == claim.operation_id
            && self.head.epoch == 1
    }

    /// Adds the executor's observation if `write` made the outcome unknown; otherwise returns the record
    /// unchanged.
    pub fn observing(self, write: Write, seen: Option<&str>) -> Record {
        match (write, self.head.state, seen) {
            (Write::Update(_), State::Unknown { .. }, Some(seen)) => {
                Record { history: self.history.observing(seen), ..self }
            }
            _ => self,
        }
    }

    /// Returns the record after `write`; `None` if it is to be deleted.
    ///
    /// `claim` is set for a claim, `result` for a change that settles the command. Stores that keep whole
    /// records use this function; SQL stores do the same in columns.
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
                principal: claim.scope.principal().clone(),
                operation: claim.scope.operation().clone(),
                key_hash_prefix: claim.scope.key().hash_prefix(),
                created_at: now,
                updated_at: now,
                state_since: head.since(None, now),
                head,
                result: None,
                history: History::default().then(&head, now),
                trace: claim.trace,
            }),
            Write::Update(head) => before.map(|before| Record {
                head,
                updated_at: now,
                state_since: head.since(Some((&before.head, before.state_since)), now),
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
