//! Transactions of the service, on either database: one row, its message, and one of several ends.

use std::time::Duration;

use axum::http::StatusCode;
use semel::flow::postgres::PgTx;
use semel::flow::sqlite::SqliteTx;
use semel::flow::{
    Answered, Command, Failure, PostgresTransactions, Reply, Settled, SqliteTransactions, sqlx,
};
use semel::protocol::OperationId;
use serde_json::{Value, json};

use super::moods::End;
use semel_chaos::reading::EFFECT;

/// Table of rows. No constraint prevents two rows of one command: Semel must prevent them.
pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS chaos_rows (operation_id TEXT NOT NULL, part TEXT, \
                                effect TEXT NOT NULL, canary TEXT NOT NULL, reference TEXT, event_id TEXT)";
const INSERT: &str = "INSERT INTO chaos_rows (operation_id, part, effect, canary, reference, event_id) \
                      VALUES ($1, $2, $3, $4, $5, $6)";

/// Row, with the message that is committed with it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    part: Option<String>,
    effect: String,
    canary: String,
    reference: Option<String>,
    kind: Option<&'static str>,
    payload: Vec<u8>,
}

impl Entry {
    /// Returns the entry of this part of a command, with a unique effect.
    pub(super) fn new(part: Option<&str>, asked: &Value, kind: Option<&'static str>) -> Entry {
        let text = |name: &str| asked[name].as_str().map(str::to_owned);
        let effect: String =
            semel::protocol::ids::secret()[..8].iter().map(|it| format!("{it:02x}")).collect();
        Entry {
            part: part.map(str::to_owned),
            effect: format!("{EFFECT}{effect}"),
            canary: text("canary").unwrap_or_default(),
            reference: text("reference"),
            kind,
            payload: asked.to_string().into_bytes(),
        }
    }

    pub(super) fn in_file(&self, tx: &SqliteTx<'_>) -> Result<(), Failure> {
        let id = tx.operation_id().to_string();
        let event_id = self.kind.map(|kind| format!("{id}:{kind}"));
        tx.execute(INSERT, (&id, &self.part, &self.effect, &self.canary, &self.reference, &event_id))?;
        if let Some(kind) = self.kind {
            tx.push(kind, &self.payload)?;
        }
        Ok(())
    }

    pub(super) async fn on_server(&self, tx: &mut PgTx) -> Result<(), Failure> {
        let id = tx.operation_id().to_string();
        let event_id = self.kind.map(|kind| format!("{id}:{kind}"));
        let insert = sqlx::query(INSERT).bind(id).bind(&self.part).bind(&self.effect).bind(&self.canary);
        insert.bind(&self.reference).bind(event_id).execute(&mut **tx).await?;
        if let Some(kind) = self.kind {
            tx.push(kind, &self.payload).await?;
        }
        Ok(())
    }

    /// Ends the work that wrote the entry. Returns the effect if it ends well.
    #[allow(clippy::panic, reason = "code of others panics, too")]
    pub(super) fn end(&self, end: End) -> Result<String, Failure> {
        match end {
            End::Well => Ok(self.effect.clone()),
            End::Refuses => Err(Failure::refuse(StatusCode::PAYMENT_REQUIRED, &self.undone("refused"))),
            End::Fails => Err(self.retryable("failed")?),
            End::EndsAndRefuses => Err(Failure::refuse(StatusCode::PAYMENT_REQUIRED, &self.undone("ended"))),
            End::EndsAndFails => Err(self.retryable("ended")?),
            End::Panics => panic!("the work of a command panics on purpose"),
        }
    }

    fn retryable(&self, end: &str) -> Result<Failure, Failure> {
        Ok(Failure::Retryable(Reply::json(StatusCode::SERVICE_UNAVAILABLE, &self.undone(end))?))
    }

    /// Returns an answer that reports the entry as rolled back. The prefix of effects is left out, since there is
    /// none.
    fn undone(&self, end: &str) -> Value {
        let undone = self.effect.trim_start_matches(EFFECT);
        json!({ "effect": null, "canary": self.canary, "undone": undone, "end": end })
    }

    fn reply(&self, effect: &str, deferral: Option<Duration>) -> Result<Reply, Failure> {
        match deferral {
            None => Reply::json(StatusCode::CREATED, &json!({ "effect": effect, "canary": self.canary })),
            Some(time) => {
                Ok(Reply::json(StatusCode::ACCEPTED, &json!({ "canary": self.canary }))?.deferred(time))
            }
        }
    }
}

/// Transactions of the service.
#[derive(Clone)]
pub(super) enum Bank {
    Sqlite(SqliteTransactions),
    Postgres(PostgresTransactions),
}

impl Bank {
    /// Executes a command with one entry. With a deferral, the entry's message settles it.
    pub(super) async fn transact(
        &self,
        command: &Command,
        entry: Entry,
        end: End,
        deferral: Option<Duration>,
    ) -> Answered {
        match self {
            Bank::Sqlite(semel) => {
                let work = move |tx: &SqliteTx<'_>| {
                    entry.in_file(tx)?;
                    if end.ends() {
                        // The connection refuses this, and the code ignores the error.
                        let _ = tx.execute_batch("COMMIT");
                    }
                    entry.reply(&entry.end(end)?, deferral)
                };
                semel.transact(command, work).await
            }
            Bank::Postgres(semel) => {
                let work = move |mut tx: PgTx| async move {
                    entry.on_server(&mut tx).await?;
                    if end.ends() {
                        let _ = sqlx::raw_sql("COMMIT").execute(&mut *tx).await;
                    }
                    entry.reply(&entry.end(end)?, deferral)
                };
                semel.transact(command, work).await
            }
        }
    }

    /// Settles a deferred command.
    pub(super) async fn settle(
        &self,
        command: OperationId,
        reply: Value,
        status: StatusCode,
        end: End,
    ) -> Settled {
        let work = move || match end {
            End::Well => Reply::json(status, &reply),
            _ => Err(Failure::Retryable(Reply::new(StatusCode::SERVICE_UNAVAILABLE))),
        };
        match self {
            Bank::Sqlite(semel) => semel.settle(command, move |_| work()).await,
            Bank::Postgres(semel) => semel.settle(command, move |_| async move { work() }).await,
        }
    }
}
