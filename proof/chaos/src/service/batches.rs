//! Batches: bulk requests with one row per item.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use semel::flow::bulk::{BulkItem, Whole};
use semel::{Execution, Outcome};
use serde_json::Value;

use super::Shared;
use super::bank::Entry;

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(execution): Extension<Execution>,
    body: Bytes,
) -> Response {
    let whole = Whole {
        record_id: execution.record_id(),
        operation_id: execution.operation_id(),
        principal: execution.principal().clone(),
    };
    let items = match shared.bulk.read(&whole, &body) {
        Ok(items) => items,
        Err(refused) => return refused.into_response::<Body>(),
    };
    let carry_out = |item: BulkItem| {
        let shared = shared.clone();
        async move {
            let asked: Value = serde_json::from_slice(&item.body).unwrap_or_default();
            let name = format!("{} {}", asked["canary"], item.client_item_id);
            let entry = Entry::new(Some(&item.client_item_id), &asked, None);
            shared.bank.transact(&item.command, entry, shared.moods.of_item(&name), None).await
        }
    };
    match shared.bulk.carry_out(&whole, items, carry_out).await {
        Ok(answer) => answer.into_response::<Body>(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response(),
    }
}
