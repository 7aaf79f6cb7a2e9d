//! Evidence about payments: the reconciler asks the provider about unknown ones, and the provider sends events to `POST
//! /webhooks/provider`. Either way the transaction that changes the payment settles its command.
//!
//! A missing charge proves nothing: the message that requests it is still being retried, or was given up and an
//! operator may retry it. So nothing here ever says "not executed".

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use semel::Backend;
use semel::flow::Settled;
use semel::flow::reconcile::http::LookUpReading;
use semel::flow::reconcile::webhook::EventReading;
use semel::flow::reconcile::{
    HttpLookUp, ReconcileTerms, Reconciler, ReconcilerOptions, Settle, WebhookSource, Webhooks,
};
use semel::protocol::transition::Refusal;
use semel::protocol::{Change, Decision, JsonPointer, OperationName, Record, StoreAnswer, StoreError};

use super::book::{Book, Error};
use super::payment::Charge;
use super::provider::Address;
use super::rides::RIDE;
use super::{PAYMENT, Shared};

/// Name of the provider as a source of evidence.
const PROVIDER: &str = "provider";

/// Settles payments in the book, with their records.
struct InTheBook(Arc<dyn Book>);

#[async_trait]
impl Settle for InTheBook {
    async fn settle(&self, record: &Record, change: &Change) -> Result<StoreAnswer, StoreError> {
        let charge =
            charge(change).ok_or_else(|| StoreError::Rejected("what was found is no charge".into()))?;
        let settled = self.0.settle(record.operation_id, charge, change.note().cloned()).await;
        let told = |decision, record: Box<Record>| {
            let now = record.updated_at;
            Ok(StoreAnswer { decision, record: Some(*record), now, holder: None, lapse: None })
        };
        match settled {
            Settled::Now(record) => told(Decision::Applied, record),
            Settled::Before(record) => told(Decision::Refused(Refusal::WrongState), record),
            // A charge that does not match changes nothing, and blocks no other evidence.
            Settled::Absent | Settled::RolledBack => {
                told(Decision::Refused(Refusal::WrongState), Box::new(record.clone()))
            }
            Settled::Unavailable => Err(StoreError::Unavailable("the payment cannot be written".into())),
            Settled::InDoubt => Err(StoreError::Ambiguous("nobody knows whether it was written".into())),
        }
    }
}

/// Returns the charge in a verdict.
fn charge(change: &Change) -> Option<Charge> {
    let response = change.result()?.response.decode().ok()?;
    serde_json::from_slice(&response.body?).ok()
}

/// Creates the reconciler that asks the provider about unknown payments.
pub(super) fn reconciler(
    book: Arc<dyn Book>,
    store: Arc<dyn Backend>,
    provider: &Address,
    timeout: Duration,
) -> Result<Reconciler, Error> {
    let reading = LookUpReading {
        result: Some(JsonPointer::parse("/0")?),
        reference: Some(JsonPointer::parse("/reference")?),
        status: Some(JsonPointer::parse("/status")?),
        executed: vec!["captured".to_owned()],
        failed: vec!["declined".to_owned()],
        ..LookUpReading::default()
    };
    let look_up = HttpLookUp::new(&provider.url("/charges?reference={operation_id}"), reading)?;
    let options = ReconcilerOptions {
        timeout,
        // Often, so that one can watch.
        interval: Duration::from_secs(1),
        terms: ReconcileTerms { first_delay: Duration::from_secs(1), ..ReconcileTerms::default() },
        ..ReconcilerOptions::default()
    };
    let reconciler = Reconciler::new(store.clone(), store, Arc::new(look_up), options);
    Ok(reconciler.settle_with(Arc::new(InTheBook(book))))
}

/// Creates the receiver of events that are signed with this secret.
pub(super) fn webhooks(reconciler: Arc<Reconciler>, secret: &str) -> Result<Webhooks, Error> {
    let reading = EventReading {
        event_id: Some(JsonPointer::parse("/id")?),
        operation_id: JsonPointer::parse("/data/reference")?,
        attempt: None,
        verdict: JsonPointer::parse("/type")?,
        executed: vec!["charge.captured".to_owned()],
        failed: vec!["charge.declined".to_owned()],
        not_executed: None,
        response: Some(JsonPointer::parse("/data")?),
        response_status: StatusCode::CREATED,
        failed_status: StatusCode::PAYMENT_REQUIRED,
    };
    // Events about a ride are accepted, and change nothing: its executor retries the call until it is answered.
    let operations = vec![OperationName::new(PAYMENT)?, OperationName::new(RIDE)?];
    let source = WebhookSource::new(PROVIDER, vec![secret.as_bytes().to_vec()], operations, reading);
    Ok(Webhooks::new(reconciler).source(source)?)
}

/// Handles `POST /webhooks/provider`.
pub(super) async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(webhooks) = &shared.webhooks else { return StatusCode::NOT_FOUND.into_response() };
    let received = webhooks.receive(PROVIDER, &headers, &body).await;
    (received.status(), [(CONTENT_TYPE, "application/json")], received.body()).into_response()
}
