//! `POST /charges` and the look-ups.
//!
//! A request meets the switches in this order: refused or failed before anything happened; then it is charged; then it
//! is slow; then its answer gets lost, or is an error although it was charged.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::{HeaderName, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::Provider;
use super::connections::HangUp;
use super::entries::{Outcome, Plan};
use super::events::Fate;
use super::key;
use super::ledger::{Charge, Status};
use super::order::Order;
use super::refusal::Refusal;
use super::switches::{Switch, Switches};

/// Time after which a client that waits for a lost answer is disconnected.
const NEVER: Duration = Duration::from_secs(30);

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

#[derive(Deserialize)]
pub(super) struct LookUp {
    reference: Option<String>,
}

pub(super) async fn create(
    State(provider): State<Provider>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let order = Order::read(&body).map_err(Refusal::bad_request)?;
    let key = key::read(&headers)?;
    let (before, slow) = {
        let mut switches = provider.switches();
        (switches.take_first(&[Switch::Refuse, Switch::ErrorBefore]), switches.take_slow())
    };
    let response = match before {
        Some(Switch::Refuse) => {
            let why = "too busy; nothing was charged";
            ([(RETRY_AFTER, "1")], Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)).into_response()
        }
        Some(_) => error("something went wrong"),
        None => charge(&provider, order, key).await?,
    };
    tokio::time::sleep(slow).await;
    if before.is_some() {
        return Ok(response);
    }
    let after = [Switch::TimeoutAfterCharging, Switch::DropResponse, Switch::ErrorAfter];
    let after = provider.switches().take_first(&after);
    Ok(match after {
        None => response,
        Some(Switch::ErrorAfter) => error("something went wrong"),
        Some(Switch::DropResponse) => HangUp.into_response(),
        Some(_) => {
            tokio::time::sleep(NEVER).await;
            HangUp.into_response()
        }
    })
}

async fn charge(provider: &Provider, order: Order, key: Option<String>) -> Result<Response, Refusal> {
    let planning = provider.clone();
    let plan = move |order: &Order| plan(&mut planning.switches(), order);
    match provider.ledger.charge(order, key, plan).await? {
        Outcome::New(charge) => Ok(answer(&charge)),
        Outcome::Known(charge) => Ok(([(REPLAYED, "true")], answer(&charge)).into_response()),
        Outcome::KeyTaken => {
            let why = "this Idempotency-Key was used for another charge; a new charge needs a new key";
            Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, why))
        }
    }
}

fn plan(switches: &mut Switches, order: &Order) -> Plan {
    Plan {
        declines: order.is_declined_by_card() || switches.take(Switch::Decline),
        fate: Fate {
            is_lost: switches.take(Switch::LoseWebhooks),
            is_doubled: switches.take(Switch::DoubleWebhooks),
            is_late: switches.take(Switch::ShuffleWebhooks),
        },
    }
}

fn answer(charge: &Charge) -> Response {
    match charge.status {
        Status::Captured => {
            let location = format!("/charges/{}", charge.id);
            (StatusCode::CREATED, [(LOCATION, location)], Json(charge)).into_response()
        }
        Status::Declined => (StatusCode::PAYMENT_REQUIRED, Json(charge)).into_response(),
    }
}

fn error(why: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": why }))).into_response()
}

pub(super) async fn look_up(
    State(provider): State<Provider>,
    Query(look_up): Query<LookUp>,
) -> Result<Json<Vec<Charge>>, Refusal> {
    let reference = look_up.reference.ok_or_else(|| {
        Refusal::bad_request("a look-up needs a reference: /charges?reference=R; /ledger has everything")
    })?;
    Ok(Json(provider.ledger.find_reference(reference).await?))
}

pub(super) async fn show(
    State(provider): State<Provider>,
    Path(id): Path<String>,
) -> Result<Json<Charge>, Refusal> {
    let found = provider.ledger.find(id).await?;
    found.map(Json).ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "there is no such charge"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Options;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_ever_is_hung_up_on() {
        let folder = tempfile::TempDir::new().expect("there is room for a test");
        let switches = Switches::from_json(r#"{"timeout_after_charging": 1}"#).expect("they are right");
        let options = Options { ledger: folder.path().join("ledger.db"), webhook: None, switches };
        let provider = Provider::open(options).await.expect("it opens");
        let order = Bytes::from_static(br#"{"reference": "r", "amount": 1, "currency": "EUR", "card": "c"}"#);
        let begun = tokio::time::Instant::now();
        let response = create(State(provider), HeaderMap::new(), order).await.into_response();
        assert!(response.extensions().get::<HangUp>().is_some(), "{response:?}");
        assert_eq!(begun.elapsed().as_secs(), NEVER.as_secs());
    }
}
