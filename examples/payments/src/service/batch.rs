//! `POST /payments:batch`: many payments in one request. Each is a command of its own, so none of them is made twice,
//! whatever happens to the request; a retry executes the rest and returns the outcomes of the others.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use semel::flow::bulk::{BulkItem, Whole};
use semel::{Execution, Outcome};

use super::Shared;
use super::payment::Order;
use super::refusal::refusal;
use super::stand::{self, Point};

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
    let carry_out = |mut item: BulkItem| {
        let shared = shared.clone();
        async move {
            let answered = match Order::read_item(&item.body) {
                Ok(order) => {
                    item.command.business_reference = order.reference.clone();
                    shared.book.accept(&item.command, order).await
                }
                // Permanent: a corrected payment needs another key.
                Err(why) => shared.book.refuse(&item.command, why).await,
            };
            stand::at(Point::AfterCommit);
            shared.wake();
            answered
        }
    };
    match shared.bulk.carry_out(&whole, items, carry_out).await {
        Ok(answer) => answer.into_response::<Body>(),
        Err(_) => {
            let refusal = refusal(StatusCode::SERVICE_UNAVAILABLE, "nothing was begun; send it again");
            (Extension(Outcome::NotExecuted), refusal).into_response()
        }
    }
}
