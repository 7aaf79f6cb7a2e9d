//! Many commands in one request: one key for the request, one record for each item.
//!
//! ```text
//! read (refused whole, or taken whole) ─ announce the items ─ carry out each under a key of its own ─ one answer
//!                                                             └─ settled before: not run again
//! ```
//!
//! The request itself is an ordinary command of the layer, declared safe to repeat (`on_lease_expired = rerun`), which it is,
//! since each item is a command of its own: its key is made of the request's scope and the item's `clientItemId`. A
//! retry of the request, after a crash or after an answer that says that something is left to do, carries out what is left,
//! and gives the stored answers of the rest.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use semel_core::policy::Profile;
use semel_core::problem::Kind;
use semel_core::{
    Command, Decision, FingerprintInput, Item, KeyRules, OperationId, OperationName, Outcome, Policy,
    Principal, Problem, Record, RecordId, Scope, Store, StoreError, Transacted,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use crate::reply::Answered;

/// The longest `clientItemId`.
const MAX_ITEM_ID: usize = 128;

/// How long what became of an item is kept at least.
const ITEM_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// Carries out requests of many items.
#[derive(Clone)]
pub struct Bulk {
    store: Arc<dyn Store>,
    operation: OperationName,
    policy: Arc<Policy>,
    max_items: usize,
    parallel: usize,
}

/// The request that the items came in: what the layer's `Execution` says of it.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The id of its record: what the keys of its items are made of, since it outlives the record.
    pub record_id: RecordId,
    /// Its operation id.
    pub operation_id: OperationId,
    /// Who is asking.
    pub principal: Principal,
}

/// One item, and the command that it is.
#[derive(Clone, Debug)]
pub struct BulkItem {
    /// What the client calls it.
    pub client_item_id: String,
    /// What to carry out: hand it to `transact`.
    pub command: Command,
    /// The item as it was sent, in JSON.
    pub body: Bytes,
}

/// What is wrong with a request as a whole. Nothing of it was carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BulkError {
    /// It is not JSON with a list of `items`.
    #[error("the body must be a JSON object with a list of `items`: {0}")]
    Unreadable(String),
    /// There are none.
    #[error("there are no items")]
    Empty,
    /// There are too many.
    #[error("there are {found} items, and at most {allowed} are taken in one request")]
    TooMany {
        /// So many were sent.
        found: usize,
        /// So many are allowed.
        allowed: usize,
    },
    /// An item has no usable name.
    #[error(
        "item {position}: its clientItemId must have 1 to {MAX_ITEM_ID} letters, digits, dots, dashes, colons or \
         underscores"
    )]
    Name {
        /// Which, from 0.
        position: usize,
    },
    /// Two items have one name.
    #[error("item {position}: its clientItemId {name:?} is that of another item")]
    Twice {
        /// The second of them, from 0.
        position: usize,
        /// The name.
        name: String,
    },
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    client_item_id: String,
}

impl Bulk {
    /// Items of this operation, on this store. Their policy is `policy`, but that what became of them is kept for 30 days at
    /// least: a request is retried until nothing is left to do, and what succeeded must not be forgotten by then. Their
    /// business references, if they have any,
    /// are those of the operation, so name it as the operation that carries out single ones.
    pub fn new(store: Arc<dyn Store>, operation: OperationName, policy: Policy) -> Bulk {
        // What is left of a request may be tried for long: what succeeded is remembered longer than that.
        let policy = Policy { ttl: policy.ttl.max(ITEM_TTL), ..policy };
        Bulk { store, operation, policy: Arc::new(policy), max_items: 100, parallel: 8 }
    }

    /// How many items one request may have; 100 by default.
    pub fn max_items(self, max_items: usize) -> Bulk {
        Bulk { max_items, ..self }
    }

    /// How many items of one request are carried out at a time; 8 by default.
    pub fn parallel(self, parallel: usize) -> Bulk {
        Bulk { parallel: parallel.max(1), ..self }
    }

    /// Reads a request, whole or not at all.
    pub fn read(&self, whole: &Whole, body: &Bytes) -> Result<Vec<BulkItem>, BulkError> {
        let request: Request<'_> =
            serde_json::from_slice(body).map_err(|error| BulkError::Unreadable(error.to_string()))?;
        if request.items.is_empty() {
            return Err(BulkError::Empty);
        }
        if request.items.len() > self.max_items {
            return Err(BulkError::TooMany { found: request.items.len(), allowed: self.max_items });
        }
        let mut names = HashSet::new();
        let mut items = Vec::with_capacity(request.items.len());
        for (position, item) in request.items.into_iter().enumerate() {
            let named = serde_json::from_str::<Named>(item.get());
            let name = named.map_err(|_| BulkError::Name { position })?.client_item_id;
            if !names.insert(name.clone()) {
                return Err(BulkError::Twice { position, name });
            }
            let command = self.command(whole, &name, item.get()).ok_or(BulkError::Name { position })?;
            let body = body.slice_ref(item.get().as_bytes());
            items.push(BulkItem { client_item_id: name, command, body });
        }
        Ok(items)
    }

    fn command(&self, whole: &Whole, name: &str, body: &str) -> Option<Command> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if name.is_empty() || name.len() > MAX_ITEM_ID || !name.chars().all(allowed) {
            return None;
        }
        // The same in every attempt at the request, and of no other request.
        let key = format!("{}:item:{name}", whole.record_id);
        let input = FingerprintInput {
            method: "ITEM",
            path: name,
            query: None,
            content_type: Some(b"application/json"),
            content_encoding: None,
            body: body.as_bytes(),
            exclude: &[],
        };
        Some(Command {
            scope: Scope {
                principal: whole.principal.clone(),
                operation: self.operation.clone(),
                key: KeyRules::default().parse([key.as_bytes()]).ok()??,
            },
            fingerprint: input.fingerprint(),
            business_reference: None,
            former: Arc::default(),
            policy: self.policy.clone(),
        })
    }

    /// Carries out the items, several at a time, and gathers what became of them. Those that are settled are not run again:
    /// `carry_out` is asked for each, and `transact` knows.
    ///
    /// Fails if the items cannot be announced: nothing was carried out then.
    pub async fn carry_out<F, R>(
        &self,
        whole: &Whole,
        items: Vec<BulkItem>,
        carry_out: F,
    ) -> Result<BulkAnswer, StoreError>
    where
        F: Fn(BulkItem) -> R,
        R: Future<Output = Answered> + Send + 'static,
    {
        let announced: Vec<Item> = items
            .iter()
            .map(|item| Item { name: item.client_item_id.clone(), record: item.command.scope.record_id() })
            .collect();
        self.store.announce(whole.operation_id, &announced).await?;
        let mut answers: Vec<ItemAnswer> = Vec::with_capacity(items.len());
        let mut running: JoinSet<(usize, Answered)> = JoinSet::new();
        let mut left = items.into_iter().enumerate();
        let mut ended: Vec<Option<Answered>> = announced.iter().map(|_| None).collect();
        loop {
            while running.len() < self.parallel
                && let Some((position, item)) = left.next()
            {
                let carrying_out = carry_out(item);
                running.spawn(async move { (position, carrying_out.await) });
            }
            match running.join_next().await {
                Some(Ok((position, answered))) => ended[position] = Some(answered),
                // It panicked, and it is not known when.
                Some(Err(error)) => tracing::error!(%error, "an item of a bulk request panicked"),
                None => break,
            }
        }
        for (item, answered) in announced.into_iter().zip(ended) {
            let answered = answered.as_ref().map(Answered::outcome);
            answers.push(ItemAnswer::new(&item.name, answered.unwrap_or(&Transacted::InDoubt)));
        }
        Ok(BulkAnswer { items: answers })
    }
}

/// What became of the items of a request.
#[derive(Debug, Serialize)]
pub struct BulkAnswer {
    /// Each, in the order they were sent in.
    pub items: Vec<ItemAnswer>,
}

/// What became of one item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemAnswer {
    /// What the client calls it.
    pub client_item_id: String,
    /// What became of it.
    pub outcome: ItemOutcome,
    /// Whether sending the request again may bring it further.
    pub retryable: bool,
    /// The status of its answer, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Its own command, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// The body of its answer, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemOutcome {
    /// It took effect.
    Succeeded,
    /// It failed for good.
    Failed,
    /// It is committed, and its outcome is left to a message.
    Accepted,
    /// Somebody else has it in hand.
    InProgress,
    /// Nothing happened; sending the request again tries it again.
    NotExecuted,
    /// Nobody can prove what happened.
    Unknown,
    /// Another command holds its business reference: nothing happened.
    Duplicate,
}

impl ItemAnswer {
    fn new(client_item_id: &str, transacted: &Transacted) -> ItemAnswer {
        let answer = |outcome, retryable| ItemAnswer {
            client_item_id: client_item_id.to_owned(),
            outcome,
            retryable,
            status: None,
            operation_id: None,
            body: None,
        };
        let json = |bytes: Option<&Bytes>| serde_json::from_slice::<Box<RawValue>>(bytes?).ok();
        let settled = |status: StatusCode| match status.as_u16() {
            ..400 => ItemOutcome::Succeeded,
            400.. => ItemOutcome::Failed,
        };
        let of = |record: &Record, answer: ItemAnswer| ItemAnswer {
            operation_id: Some(record.operation_id.to_string()),
            ..answer
        };
        match transacted {
            Transacted::Executed { record, response, .. } => ItemAnswer {
                status: Some(response.status.as_u16()),
                body: json(response.body.as_ref()),
                ..of(record, answer(settled(response.status), false))
            },
            Transacted::Deferred { record, response } => ItemAnswer {
                status: Some(response.status.as_u16()),
                body: json(response.body.as_ref()),
                ..of(record, answer(ItemOutcome::Accepted, true))
            },
            Transacted::Decided { decision: Decision::Replay, record: Some(record), .. } => {
                let stored = record.result.as_ref().and_then(|result| result.response.decode().ok());
                // Also of a response that cannot be read, the status can.
                let status = record.result.as_ref().map(|result| result.status);
                let status = status.and_then(|status| StatusCode::from_u16(status).ok());
                let outcome = status.map_or(ItemOutcome::Succeeded, settled);
                ItemAnswer {
                    status: status.map(|status| status.as_u16()),
                    body: stored.as_ref().and_then(|stored| json(stored.body.as_ref())),
                    ..of(record, answer(outcome, false))
                }
            }
            Transacted::Decided { decision, record, .. } => {
                let told = match decision {
                    Decision::Wait | Decision::Vacant => answer(ItemOutcome::InProgress, true),
                    Decision::Duplicate => answer(ItemOutcome::Duplicate, false),
                    Decision::Reconcile => answer(ItemOutcome::Unknown, true),
                    Decision::Execute
                    | Decision::Replay
                    | Decision::Mismatch
                    | Decision::Expired
                    | Decision::Applied
                    | Decision::Fenced
                    | Decision::Refused(_)
                    | Decision::Idle => answer(ItemOutcome::Unknown, false),
                };
                match record {
                    Some(record) => of(record, told),
                    None => told,
                }
            }
            Transacted::RolledBack { response, problem: _ } => ItemAnswer {
                status: Some(response.status.as_u16()),
                body: json(response.body.as_ref()),
                ..answer(ItemOutcome::NotExecuted, true)
            },
            Transacted::Unavailable => answer(ItemOutcome::NotExecuted, true),
            Transacted::InDoubt => answer(ItemOutcome::Unknown, true),
        }
    }
}

impl BulkAnswer {
    /// Whether there is nothing left that sending the request again could bring further.
    pub fn is_complete(&self) -> bool {
        !self.items.iter().any(|item| item.retryable)
    }

    /// Whether every item provably did nothing, in this attempt and before.
    fn did_nothing(&self) -> bool {
        let nothing =
            |item: &ItemAnswer| matches!(item.outcome, ItemOutcome::NotExecuted | ItemOutcome::Duplicate);
        self.items.iter().all(nothing)
    }

    /// The handler's response: 200, final, if nothing is left to do; otherwise 207, with the key free, so that the same
    /// request, sent again, does the rest. Its business reference stays its own: another key would do everything again.
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        let (complete, did_nothing) = (self.is_complete(), self.did_nothing());
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = json(StatusCode::OK, "application/json", body);
        if !complete {
            *response.status_mut() = StatusCode::MULTI_STATUS;
            let outcome = if did_nothing { Outcome::NotExecuted } else { Outcome::PartlyDone };
            response.extensions_mut().insert(outcome);
        }
        response
    }
}

impl BulkError {
    /// The handler's response: 422, which is kept, since the same request would be as wrong the next time.
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        let problem = Problem::new(Kind::InvalidBulk, self.to_string());
        let body = problem.to_json(Profile::Ietf).into_bytes();
        json(problem.status(Profile::Ietf), "application/problem+json", body)
    }
}

fn json<B: From<Bytes>>(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<B> {
    let mut response = Response::new(B::from(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
