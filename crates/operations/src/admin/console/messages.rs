//! Outbox: messages that wait, that are dead, and one of them.

use std::sync::Arc;

use askama::Template;
use semel_core::outbox::{Message, MessageState};
use semel_core::problem::ProblemKind;
use semel_core::{Outbox, Problem};

use super::view::{ROWS, acts, encoded, exact, fragment, more, time};
use crate::admin::call::{AdminAnswer, AdminCall, malformed};
use crate::admin::unavailable;
use crate::operate::filters::FilterSpelling;
use crate::operate::messages::{WantedMessages, absent};

/// Filters of the list.
const LIST: &[&str] = &["state", "kind", "olderThan", "after"];

/// Message in a list.
pub(super) struct MessageRow {
    pub(super) event_id: String,
    /// Id as a part of a path.
    pub(super) path: String,
    pub(super) operation_id: String,
    pub(super) kind: String,
    pub(super) state: &'static str,
    pub(super) attempts: u32,
    pub(super) created_at: String,
    pub(super) done_at: Option<String>,
    pub(super) last_error: Option<String>,
}

impl MessageRow {
    pub(super) fn of(message: &Message) -> MessageRow {
        MessageRow {
            event_id: message.event_id.clone(),
            path: encoded(&message.event_id),
            operation_id: message.operation_id.to_string(),
            kind: message.kind.clone(),
            state: message.state.as_str(),
            attempts: message.attempts,
            created_at: time(message.created_at),
            done_at: message.done_at.map(time),
            last_error: message.last_error.clone(),
        }
    }
}

/// Numbers of messages in the outbox.
struct OutboxDepth {
    pending: String,
    dead: String,
    oldest: Option<String>,
}

#[derive(Template)]
#[template(path = "outbox.html")]
struct OutboxPage {
    has_outbox: bool,
    depth: Option<OutboxDepth>,
    rows: Vec<MessageRow>,
    state: String,
    kind: String,
    older_than: String,
    states: Vec<&'static str>,
    more: Option<String>,
    continues: bool,
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    row: MessageRow,
    position: i64,
    payload_bytes: String,
    provider_reference: Option<String>,
    /// Time of the next attempt, of a message that waits.
    due_at: Option<String>,
    /// End of the lease of the worker that has it.
    in_hand_until: Option<String>,
    /// True if no worker has it, and it is not delivered.
    is_free: bool,
    acts: bool,
}

/// Shows the messages of a filter.
pub(super) async fn list(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let given = |name| call.query.get(name).unwrap_or_default();
    let mut page = OutboxPage {
        has_outbox: call.admin.outbox.is_some(),
        depth: None,
        rows: Vec::new(),
        state: given("state"),
        kind: given("kind"),
        older_than: given("olderThan"),
        states: MessageState::ALL.iter().map(|state| state.as_str()).collect(),
        more: None,
        continues: call.query.get("after").is_some(),
    };
    let Some(outbox) = &call.admin.outbox else { return fragment(&page) };
    let wanted = |name: &str| call.query.flag(name).filter(|text| !text.is_empty());
    let wanted = WantedMessages::read(FilterSpelling::Parameters, wanted).map_err(malformed)?;
    let _turn = call.turn().await?;
    let filter = wanted.page(&**outbox, call.query.get("after"), ROWS).await.map_err(unavailable)?;
    let messages = outbox.messages(&filter).await.map_err(unavailable)?;
    let depth = outbox.depth().await.map_err(unavailable)?;
    page.depth = Some(OutboxDepth {
        pending: exact(depth.pending),
        dead: exact(depth.dead),
        oldest: depth.oldest_pending.map(time),
    });
    let last = messages.last().filter(|_| messages.len() == ROWS);
    page.more = last.map(|last| more(&call, LIST, ("after", &last.event_id)));
    page.rows = messages.iter().map(MessageRow::of).collect();
    fragment(&page)
}

/// Shows one message, without its content.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let none = || Problem::new(ProblemKind::NotFound, "a store in memory has no messages");
    let outbox: &Arc<dyn Outbox> = call.admin.outbox.as_ref().ok_or_else(none)?;
    let (Some(message), now) = outbox.message(&call.id).await.map_err(unavailable)? else {
        return Err(Problem::new(ProblemKind::NotFound, absent(&call.id)));
    };
    let is_pending = message.state == MessageState::Pending;
    let in_hand = message.is_in_hand(now);
    fragment(&MessagePage {
        row: MessageRow::of(&message),
        position: message.position,
        payload_bytes: exact(message.payload_bytes),
        provider_reference: message.provider_reference.clone(),
        due_at: Some(message.due_at).filter(|_| is_pending && !in_hand).map(time),
        in_hand_until: Some(message.due_at).filter(|_| in_hand).map(time),
        is_free: message.state != MessageState::Delivered && !in_hand,
        acts: acts(&call),
    })
}
