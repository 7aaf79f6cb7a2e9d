//! Messages at the admin listener: the views and actions of `semel outbox`.

use std::sync::Arc;

use semel_core::Problem;
use semel_core::outbox::{Intervention, Outbox};
use semel_core::problem::ProblemKind;
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::{refused, told, unavailable};
use crate::operate::content::{self, ContentLookup};
use crate::operate::filters::FilterSpelling;
use crate::operate::messages::{WantedMessages, absent, act, done, full, summary};

/// Returns the outbox. A store in memory has none.
fn outbox(call: &AdminCall) -> Result<&Arc<dyn Outbox>, Problem> {
    let none = || Problem::new(ProblemKind::NotFound, "a store in memory has no messages");
    call.admin.outbox.as_ref().ok_or_else(none)
}

pub(crate) async fn list(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let wanted =
        WantedMessages::read(FilterSpelling::Parameters, |name| call.query.flag(name)).map_err(malformed)?;
    let (outbox, limit) = (outbox(&call)?, call.limit()?);
    let _turn = call.turn().await?;
    let filter = wanted.page(&**outbox, call.query.get("after"), limit).await.map_err(unavailable)?;
    let messages = outbox.messages(&filter).await.map_err(unavailable)?;
    let next = messages.last().filter(|_| messages.len() == limit).map(|message| &message.event_id);
    let shown: Vec<Value> = messages.iter().map(summary).collect();
    Ok(AdminAnswer::json(&json!({ "messages": shown, "next": next })))
}

pub(crate) async fn show(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (Some(message), now) = outbox(&call)?.message(&call.id).await.map_err(unavailable)? else {
        return Err(Problem::new(ProblemKind::NotFound, absent(&call.id)));
    };
    Ok(AdminAnswer::json(&full(&message, now)))
}

/// Shows the payload of a message, and records a note of the reader and the reason.
pub(crate) async fn payload(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (outbox, note) = (outbox(&call)?, call.note("")?);
    let read = content::read_payload(&**outbox, &*call.admin.audit, &call.id, note.who, note.why).await;
    match read.map_err(unavailable)? {
        ContentLookup::Kept(message) => Ok(AdminAnswer::json(&content::payload_to_json(&message))),
        ContentLookup::Absent(why) | ContentLookup::NotKept(why) => {
            Err(Problem::new(ProblemKind::NotFound, why))
        }
        ContentLookup::Unreadable(why) => Err(refused(&why)),
    }
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
