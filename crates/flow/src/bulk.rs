//! Many commands in one request: one key for the request, one record for each item.
//!
//! ```text
//! read (refused whole, or taken whole) ─ announce the items ─ carry out each under a key of its own ─ one answer
//!                                                             └─ settled before: not run again
//! ```
//!
//! The request is an ordinary command of the layer. It is declared safe to repeat (`on_lease_expired = rerun`) because
//! each item is a command of its own: the item's key is made of the request's scope and the item's `clientItemId`. A
//! retry of the request executes the unfinished items and returns the stored answers of the others.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_core::{
    Command, Decision, FingerprintInput, Item, KeyRules, OperationId, OperationName, Outcome, Policy,
    Principal, Problem, Record, RecordId, Scope, Store, StoreError, Transacted,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use crate::reply::Answered;

/// Maximum length of a `clientItemId`.
const MAX_ITEM_ID: usize = 128;

/// Minimum retention of an item's record.
const ITEM_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// Executes requests that consist of many items.
#[derive(Clone)]
pub struct Bulk {
    store: Arc<dyn Store>,
    operation: OperationName,
    policy: Arc<Policy>,
    max_items: usize,
    parallel: usize,
}

/// The request that contains the items, as described by the layer's `Execution`.
#[derive(Clone, Debug)]
pub struct Whole {
    /// Id of the request's record. The item keys are derived from it, since it outlives the record.
    pub record_id: RecordId,
    /// Operation id of the request.
    pub operation_id: OperationId,
    /// Caller of the request.
    pub principal: Principal,
}

/// One item of a request, with its command.
#[derive(Clone, Debug)]
pub struct BulkItem {
    /// The client's name for the item.
    pub client_item_id: String,
    /// Command of the item, to be passed to `transact`.
    pub command: Command,
    /// JSON text of the item as the client sent it.
    pub body: Bytes,
}

/// Error that rejects a request as a whole: no item was executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BulkError {
    /// The body is not JSON with a list of `items`.
    #[error("the body must be a JSON object with a list of `items`: {0}")]
    Unreadable(String),
    /// The list of items is empty.
    #[error("there are no items")]
    Empty,
    /// The list has too many items.
    #[error("there are {found} items, and at most {allowed} are taken in one request")]
    TooMany {
        /// Number of items in the request.
        found: usize,
        /// Maximum number of items.
        allowed: usize,
    },
    /// An item has no valid name.
    #[error(
        "item {position}: its clientItemId must have 1 to {MAX_ITEM_ID} letters, digits, dots, dashes, colons or \
         underscores"
    )]
    Name {
        /// Position of the item, from 0.
        position: usize,
    },
    /// Two items have the same name.
    #[error("item {position}: its clientItemId {name:?} is that of another item")]
    Twice {
        /// Position of the second item, from 0.
        position: usize,
        /// The duplicate name.
        name: String,
    },
}

#[derive(Deserialize)]
struct BulkRequest<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    client_item_id: String,
}

impl Bulk {
    /// Creates a bulk executor for items of this operation on this store. The items use `policy`, with a TTL of at
    /// least 30 days: a request is retried until all items are done, and successful items must not expire before that.
    /// Items share business references with the named operation, so pass the operation that executes single items.
    pub fn new(store: Arc<dyn Store>, operation: OperationName, policy: Policy) -> Bulk {
        // A request may be retried for a long time: the records of successful items must outlive these retries.
        let policy = Policy { ttl: policy.ttl.max(ITEM_TTL), ..policy };
        Bulk { store, operation, policy: Arc::new(policy), max_items: 100, parallel: 8 }
    }

    /// Sets the maximum number of items in one request; 100 by default.
    pub fn max_items(self, max_items: usize) -> Bulk {
        Bulk { max_items, ..self }
    }

    /// Sets the number of items of one request that run concurrently; 8 by default.
    pub fn parallel(self, parallel: usize) -> Bulk {
        Bulk { parallel: parallel.max(1), ..self }
    }

    /// Parses a request. An invalid item rejects the whole request.
    pub fn read(&self, whole: &Whole, body: &Bytes) -> Result<Vec<BulkItem>, BulkError> {
        let request: BulkRequest<'_> =
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
        // Stable across retries of the request, and different for every other request.
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
            scope: Scope::new(
                whole.principal.clone(),
                self.operation.clone(),
                KeyRules::default().parse([key.as_bytes()]).ok()??,
            ),
            fingerprint: input.fingerprint_for(self.store.formats()),
            business_reference: None,
            former: Arc::default(),
            policy: self.policy.clone(),
            trace: None,
        })
    }

    /// Executes the items concurrently and collects their outcomes. `carry_out` is called for every item; `transact`
    /// does not rerun the settled ones.
    ///
    /// Fails if the items cannot be announced: no item was executed then.
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
                // The item panicked, before or after its COMMIT.
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

/// Outcomes of the items of a request.
#[derive(Debug, Serialize)]
pub struct BulkAnswer {
    /// Outcome of each item, in the order of the request.
    pub items: Vec<ItemAnswer>,
}

/// Answer for one item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemAnswer {
    /// The client's name for the item.
    pub client_item_id: String,
    /// Outcome of the item.
    pub outcome: ItemOutcome,
    /// True if a retry of the request may change the outcome.
    pub retryable: bool,
    /// Status of the item's response, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Operation id of the item's command, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// Body of the item's response, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
}

/// Outcome of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemOutcome {
    /// The item took effect.
    Succeeded,
    /// The item failed permanently.
    Failed,
    /// The item is committed, and its outcome is left to a message.
    Accepted,
    /// Another request or process is executing the item.
    InProgress,
    /// The item was not executed; a retry of the request executes it.
    NotExecuted,
    /// The outcome cannot be proven.
    Unknown,
    /// Another command holds the item's business reference: the item was not executed.
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
                // The status is readable even if the response is not.
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
    /// Returns true if a retry of the request cannot change any outcome.
    pub fn is_complete(&self) -> bool {
        !self.items.iter().any(|item| item.retryable)
    }

    /// Returns true if every item provably had no effect, in this attempt and before.
    fn did_nothing(&self) -> bool {
        let nothing =
            |item: &ItemAnswer| matches!(item.outcome, ItemOutcome::NotExecuted | ItemOutcome::Duplicate);
        self.items.iter().all(nothing)
    }

    /// Returns the handler's response: 200, final, if every item is done; otherwise 207 with the key released, so that
    /// a retry of the request executes the rest. The request keeps its business reference: another key would execute
    /// every item again.
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
    /// Returns the handler's response: 422, which is stored, since a retry of the same request would be just as
    /// invalid.
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        let problem = Problem::new(ProblemKind::InvalidBulk, self.to_string());
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
