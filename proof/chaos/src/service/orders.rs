//! Orders: commands of four phases. Goods are reserved; a provider without deduplication charges; one with
//! deduplication sends a mail; the goods are shipped.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use semel::flow::phases::{Call, CallFailed, Deduplication, Run, Stopped};
use semel::flow::{Answered, Failure, Idempotent, PgRun, Reply, SqliteRun};
use serde_json::{Value, json};

use super::Shared;
use super::bank::Entry;
use super::moods::End;
use super::provider::{Charge, Word, charge};
use crate::settings::{CHARGED, MAILED, RESERVED, SHIPPED};

/// Local phase on either database: one entry, one output.
pub(super) trait Steps {
    fn write(
        &mut self,
        phase: &'static str,
        entry: Entry,
        end: End,
    ) -> impl Future<Output = Result<String, Stopped>> + Send;
}

impl Steps for SqliteRun {
    async fn write(&mut self, phase: &'static str, entry: Entry, end: End) -> Result<String, Stopped> {
        self.local(phase, move |tx| {
            entry.in_file(tx)?;
            entry.end(end)
        })
        .await
    }
}

impl Steps for PgRun {
    async fn write(&mut self, phase: &'static str, entry: Entry, end: End) -> Result<String, Stopped> {
        self.local(phase, move |mut tx| async move {
            entry.on_server(&mut tx).await?;
            entry.end(end)
        })
        .await
    }
}

/// Runs all phases of an order.
pub(super) async fn order<D>(mut run: Run<D>, input: Bytes, shared: Arc<Shared>) -> Result<Reply, Failure>
where
    Run<D>: Steps,
{
    let asked: Value = serde_json::from_slice(&input)?;
    let canary = asked["canary"].as_str().unwrap_or_default().to_owned();
    let end = |phase: &str| shared.moods.of_phase(&format!("{canary} {phase}"));
    let entry = Entry::new(Some(RESERVED), &asked, Some("order.reserved"));
    let reserved = run.write(RESERVED, entry, end(RESERVED)).await?;
    let call = call(&shared, CHARGED, false, &asked);
    let charged: String = run.external(CHARGED, Deduplication::None, call).await?;
    let call = self::call(&shared, MAILED, true, &asked);
    let mailed: String = run.external(MAILED, Deduplication::ByKey, call).await?;
    let entry = Entry::new(Some(SHIPPED), &asked, Some("order.shipped"));
    let shipped = run.write(SHIPPED, entry, end(SHIPPED)).await?;
    let reply = json!({ "effect": charged, "canary": canary, "parts": [reserved, mailed, shipped] });
    Reply::json(StatusCode::CREATED, &reply)
}

/// Returns the call of an external phase.
fn call(
    shared: &Arc<Shared>,
    part: &'static str,
    deduplicated: bool,
    asked: &Value,
) -> impl FnOnce(Call) -> std::pin::Pin<Box<dyn Future<Output = Result<String, CallFailed>> + Send>> + Send + use<>
{
    let (provider, asked) = (shared.provider, asked.clone());
    move |call| {
        Box::pin(async move {
            let operation_id = call.operation_id().to_string();
            let key = call.permit()?;
            let wanted = Charge { key: &key, operation_id: &operation_id, part, deduplicated, asked: &asked };
            match charge(provider, &wanted).await {
                Word::Charged(effect) => Ok(effect),
                Word::Declined | Word::Refused => {
                    let reply = json!({ "effect": null, "canary": asked["canary"], "declined": part });
                    let reply = Reply::json(StatusCode::PAYMENT_REQUIRED, &reply);
                    Err(reply.map_or_else(|_| CallFailed::Unsure("no reply".to_owned()), CallFailed::Final))
                }
                Word::NotExecuted(why) => Err(CallFailed::NotExecuted(why)),
                Word::Unsure(why) => Err(CallFailed::Unsure(why)),
            }
        })
    }
}

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    Idempotent(command): Idempotent,
    body: Bytes,
) -> Answered {
    shared.phases.start(&command, body).await
}
