//! `POST /rides`: a command of three steps, each of which is done once: book the ride; charge the card; mark the ride
//! as paid and send its receipt. If a process dies between two of them, a completer continues after the last finished
//! step.

pub(super) mod postgres;
pub(super) mod sqlite;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use axum::response::{IntoResponse, Response};
use semel::flow::outbox::StopHandle;
use semel::flow::phases::{Call, CallFailed, CompleterOptions, Deduplication, Phases, Run, Stopped};
use semel::flow::{Answered, Command, Failure, Idempotent, Reply};
use semel::protocol::OperationId;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::caller::Caller;
use super::payment::{Charge, ChargeMessage, Order, Status};
use super::provider::{Address, Trouble};
use super::refusal::{Unavailable, refusal};
use super::stand::{self, Point};

/// Name of the operation.
pub(super) const RIDE: &str = "rides.create";

/// Kind of the message that requests a receipt.
pub(super) const RECEIPT: &str = "receipt";

/// Maximum length of a place's name, in bytes.
const MAX_PLACE: usize = 100;

/// Poll interval of the completer.
const POLL: Duration = Duration::from_millis(200);

pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS rides (
        id TEXT PRIMARY KEY,
        caller TEXT NOT NULL,
        origin TEXT NOT NULL,
        destination TEXT NOT NULL,
        amount BIGINT NOT NULL CHECK (amount > 0),
        currency TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'booked' CHECK (status IN ('booked', 'paid', 'declined')),
        charge TEXT
    );
    CREATE TABLE IF NOT EXISTS receipts (event_id TEXT PRIMARY KEY, ride TEXT NOT NULL);";

const BOOK: &str = "
    INSERT INTO rides (id, caller, origin, destination, amount, currency) VALUES ($1, $2, $3, $4, $5, $6)
    RETURNING id, origin, destination, amount, currency, status, charge, CAST(0 AS BIGINT)";
const PAY: &str = "
    UPDATE rides SET status = $1, charge = $2 WHERE id = $3
    RETURNING id, origin, destination, amount, currency, status, charge, CAST(0 AS BIGINT)";
pub(super) const FIND: &str = "
    SELECT id, origin, destination, amount, currency, status, charge,
        (SELECT count(*) FROM receipts WHERE ride = rides.id)
    FROM rides WHERE id = $1 AND caller = $2";
/// Stands in for a mail server, which would deduplicate on the event's id as well.
pub(super) const SEND_RECEIPT: &str =
    "INSERT INTO receipts (event_id, ride) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// Request of a client. A real service would know the fare itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    from: String,
    to: String,
    amount: i64,
    currency: String,
    card: String,
}

/// Request and its caller: stored until the ride is settled, so that it can be resumed.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Booking {
    caller: String,
    from: String,
    to: String,
    charge: ChargeMessage,
}

impl Booking {
    fn read(caller: &str, body: &[u8]) -> Result<Booking, String> {
        let asked: Asked = serde_json::from_slice(body).map_err(|error| format!("the body: {error}"))?;
        let Asked { from, to, amount, currency, card } = asked;
        if [&from, &to].iter().any(|place| !(1..=MAX_PLACE).contains(&place.len())) {
            return Err(format!("`from` and `to` have between 1 and {MAX_PLACE} bytes"));
        }
        let Order { amount, currency, card, .. } =
            Order::checked(Order { amount, currency, card, reference: None })?;
        Ok(Booking { caller: caller.to_owned(), from, to, charge: ChargeMessage { amount, currency, card } })
    }
}

/// A ride as it is stored and shown.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ride {
    id: String,
    from: String,
    to: String,
    amount: i64,
    currency: String,
    /// `booked`, `paid` or `declined`.
    status: String,
    /// The provider's id of the charge.
    charge: Option<String>,
    /// Number of receipts sent.
    receipts: i64,
}

fn ride_id(command: OperationId) -> String {
    format!("ride_{command}")
}

/// Transactions of a ride, on either database.
trait Steps {
    /// Books the ride.
    fn book(&mut self, booking: Booking) -> impl Future<Output = Result<Ride, Stopped>> + Send;

    /// Marks the ride as paid, with its receipt requested; or as declined.
    fn conclude(&mut self, charge: Charge) -> impl Future<Output = Result<Ride, Stopped>> + Send;
}

/// Runs the ride from its beginning to its end. It may restart any number of times: a finished step is not repeated,
/// and returns its stored output.
async fn ride<D>(mut run: Run<D>, input: Bytes, provider: Address) -> Result<Reply, Failure>
where
    Run<D>: Steps,
{
    let booking: Booking = serde_json::from_slice(&input)?;
    run.book(booking.clone()).await?;
    let call = move |call: Call| charge(call, provider, booking.charge);
    let charge = run.external("charge", Deduplication::ByKey, call).await?;
    let ride = run.conclude(charge).await?;
    stand::at(Point::AfterSettlement);
    if ride.status != "paid" {
        return Err(Failure::refuse(StatusCode::PAYMENT_REQUIRED, &ride));
    }
    let location = HeaderValue::from_str(&format!("/rides/{}", ride.id))?;
    Ok(Reply::json(StatusCode::CREATED, &ride)?.header(LOCATION, location))
}

/// Calls the provider once. A declined card is an answer, too.
async fn charge(call: Call, provider: Address, order: ChargeMessage) -> Result<Charge, CallFailed> {
    let command = call.operation_id();
    stand::at(Point::BeforeCharge);
    let key = call.permit()?;
    let charged = provider.charge(&key, command, &order).await;
    stand::at(Point::AfterCharge);
    charged.map_err(|trouble| match trouble {
        Trouble::Again { why, .. } | Trouble::Never { why } => CallFailed::Unsure(why),
    })
}

/// Returns the ride's status after a charge.
fn status(charge: &Charge) -> &'static str {
    match charge.status {
        Status::Captured => "paid",
        Status::Declined => "declined",
    }
}

/// Rides, on either database.
#[async_trait]
pub(super) trait Rides: Send + Sync + 'static {
    async fn start(&self, command: &Command, input: Bytes) -> Answered;

    /// Returns the handle that stops the completer, and the future that runs it.
    fn completer(&self) -> (StopHandle, Pin<Box<dyn Future<Output = ()> + Send>>);
}

#[async_trait]
impl<D: Clone + Send + Sync + 'static> Rides for Phases<D> {
    async fn start(&self, command: &Command, input: Bytes) -> Answered {
        Phases::start(self, command, input).await
    }

    fn completer(&self) -> (StopHandle, Pin<Box<dyn Future<Output = ()> + Send>>) {
        let completer =
            Phases::completer(self, CompleterOptions { poll: POLL, ..CompleterOptions::default() });
        let stop = completer.stopper();
        let work = async move {
            completer.run().await;
        };
        (stop, Box::pin(work))
    }
}

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    Idempotent(command): Idempotent,
    body: Bytes,
) -> Response {
    let input = match Booking::read(command.scope.principal().caller(), &body) {
        Ok(booking) => serde_json::to_vec(&booking).unwrap_or_default(),
        Err(why) => return refusal(StatusCode::BAD_REQUEST, &why),
    };
    let answered = shared.rides.start(&command, Bytes::from(input)).await;
    shared.wake();
    answered.into_response()
}

pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    Caller(caller): Caller,
    Path(id): Path<String>,
) -> Result<Response, Unavailable> {
    Ok(match shared.book.find_ride(caller, id).await? {
        Some(ride) => Json(ride).into_response(),
        None => refusal(StatusCode::NOT_FOUND, "no such ride"),
    })
}
