//! Payments of the service, in the database that has the records of its commands. Each change is one transaction with
//! the record; only the differences between SQLite and PostgreSQL are in `book/`.

pub(super) mod postgres;
pub(super) mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::StatusCode;
use semel::Backend;
use semel::flow::{Answered, Command, Failure, Settled};
use semel::protocol::outbox::Outbox;
use semel::protocol::{Note, OperationId};
use serde_json::json;

use super::payment::{Charge, Order, Payment};
use super::refusal::Unavailable;
use super::rides::{Ride, Rides};

/// Kind of the message that requests a charge.
pub(super) const CHARGE: &str = "charge";

/// Maximum number of listed payments.
const MAX_LISTED: i64 = 50;

/// Parameters appear in the order of their numbers, which is what SQLite goes by.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS payments (
        id TEXT PRIMARY KEY,
        caller TEXT NOT NULL,
        amount BIGINT NOT NULL CHECK (amount > 0),
        currency TEXT NOT NULL,
        card TEXT NOT NULL,
        reference TEXT,
        created_at TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'captured', 'declined')),
        charge TEXT
    );
    CREATE INDEX IF NOT EXISTS payments_by_caller ON payments (caller, id);";

/// Inserts the payment of a command, under the command's id. A command that was declared not executed and is retried
/// finds the payment of its first attempt.
const ACCEPT: &str = "
    INSERT INTO payments (id, caller, amount, currency, card, reference, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (id) DO UPDATE SET status = 'pending', charge = NULL
    RETURNING id, amount, currency, card, reference, status, charge, created_at";

/// Settles a payment. A charge of another amount does not match it.
const SETTLE: &str = "
    UPDATE payments SET status = $1, charge = $2 WHERE id = $3 AND amount = $4 AND currency = $5
    RETURNING id, amount, currency, card, reference, status, charge, created_at";

const FIND: &str = "
    SELECT id, amount, currency, card, reference, status, charge, created_at FROM payments
    WHERE id = $1 AND caller = $2";

/// Lists payments. Ids begin with the time.
const LIST: &str = "
    SELECT id, amount, currency, card, reference, status, charge, created_at FROM payments
    WHERE caller = $1 ORDER BY id DESC LIMIT $2";

/// Stores payments.
#[async_trait]
pub(super) trait Book: Send + Sync + 'static {
    /// Executes the command: the payment is pending, and a message requests its charge.
    async fn accept(&self, command: &Command, order: Order) -> Answered;

    /// Executes the command by refusing it permanently.
    async fn refuse(&self, command: &Command, why: String) -> Answered;

    /// Settles the payment of this command by the provider's answer, in one transaction with its record. A note marks
    /// it as evidence from elsewhere.
    async fn settle(&self, command: OperationId, charge: Charge, evidence: Option<Note>) -> Settled;

    /// Returns a payment of this caller.
    async fn find(&self, caller: String, id: String) -> Result<Option<Payment>, Unavailable>;

    /// Returns the latest payments of this caller.
    async fn list(&self, caller: String) -> Result<Vec<Payment>, Unavailable>;

    /// Returns a ride of this caller.
    async fn find_ride(&self, caller: String, id: String) -> Result<Option<Ride>, Unavailable>;

    /// Sends the receipt of a ride, once for each event.
    async fn send_receipt(&self, event_id: String, ride: String) -> Result<(), Unavailable>;
}

/// Returns the permanent refusal of an invalid command.
fn refused(why: &str) -> Failure {
    Failure::refuse(StatusCode::BAD_REQUEST, &json!({ "error": why }))
}

/// An open database.
pub(super) struct Opened {
    pub(super) book: Arc<dyn Book>,
    pub(super) rides: Arc<dyn Rides>,
    pub(super) store: Arc<dyn Backend>,
    pub(super) outbox: Arc<dyn Outbox>,
}

/// Error that prevents the service from opening.
pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;
