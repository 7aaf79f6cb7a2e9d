//! Messages at the admin listener: the views and actions of `semel outbox`.

use std::sync::Arc;

use semel_core::Problem;
use semel_core::outbox::{Intervention, Outbox};
use semel_core::problem::ProblemKind;
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::{told, unavailable};
use crate::operate::messages::{WantedMessages, absent, act, done, full, summary};

/// Returns the outbox. A store in memory has none.
fn outbox(call: &AdminCall) -> Result<&Arc<dyn Outbox>, Problem> {
    let none = || Problem::new(ProblemKind::NotFound, "a store in memory has no messages");
    call.admin.outbox.as_ref().ok_or_else(none)
}

pub(crate) async fn list(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let wanted = WantedMessages::read(|name| call.query.flag(name)).map_err(malformed)?;
    let (outbox, limit) = (outbox(&call)?, call.limit()?);
    let filter = wanted.page(&**outbox, call.query.get("after"), limit).await.map_err(unavailable)?;
    let messages = outbox.messages(&filter).await.map_err(unavailable)?;
    let next = messages.last().filter(|_| messages.len() == limit).map(|message| &message.event_id);
    let shown: Vec<Value> = messages.iter().map(summary).collect();
    Ok(AdminAnswer::json(&json!({ "messages": shown, "next": next })))
}

pub(crate) async fn show(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (outbox, with_body) = (outbox(&call)?, call.wants_body()?);
    let (Some(message), now) = outbox.message(&call.id).await.map_err(unavailable)? else {
        return Err(Problem::new(ProblemKind::NotFound, absent(&call.id)));
    };
    let mut shown = full(&message, now);
    if with_body {
        crate::operate::insert_bytes(&mut shown, "payload", &message.payload);
    }
    Ok(AdminAnswer::json(&shown))
}

pub(crate) async fn retry(call: AdminCall) -> Result<AdminAnswer, Problem> {
    intervene(call, Intervention::Retry).await
}

pub(crate) async fn discard(call: AdminCall) -> Result<AdminAnswer, Problem> {
    intervene(call, Intervention::Discard).await
}

async fn intervene(call: AdminCall, intervention: Intervention) -> Result<AdminAnswer, Problem> {
    let (outbox, note) = (outbox(&call)?, call.note("")?);
    let acted = act(&**outbox, &call.id, intervention, note.who, note.why).await.map_err(unavailable)?;
    told(acted, ProblemKind::NotFound, |state| done(&call.id, state))
}
