//! Messages as operators see them, and the actions on one.

use std::time::Duration;

use semel_core::outbox::{Intervention, Message, MessageFilter, MessageState, Outbox};
use semel_core::{Note, StoreError, Timestamp};
use serde_json::{Value, json};

use super::filters::FilterSpelling;
use super::{Acted, before};

/// Filter of a list of messages.
#[derive(Clone, Debug, Default)]
pub struct WantedMessages {
    state: Option<MessageState>,
    kind: Option<String>,
    older_than: Option<Duration>,
}

impl WantedMessages {
    /// Parses the filter.
    ///
    /// # Errors
    /// Returns a description of the invalid part.
    pub fn read(
        spelling: FilterSpelling,
        mut given: impl FnMut(&str) -> Option<String>,
    ) -> Result<WantedMessages, String> {
        let state = given("state").map(|name| {
            let known = MessageState::ALL.map(MessageState::as_str).join(", ");
            MessageState::parse(&name).ok_or_else(|| format!("{name:?} is not a state: {known}"))
        });
        Ok(WantedMessages {
            state: state.transpose()?,
            kind: given("kind"),
            older_than: given("older-than").map(|text| spelling.age("older-than", &text)).transpose()?,
        })
    }

    /// Returns the store's filter for one page.
    pub async fn page(
        self,
        outbox: &dyn Outbox,
        after: Option<String>,
        limit: usize,
    ) -> Result<MessageFilter, StoreError> {
        let WantedMessages { state, kind, older_than } = self;
        let created_before = match older_than {
            // No message has this id: the call only reads the time.
            Some(age) => Some(before(outbox.message("").await?.1, age)),
            None => None,
        };
        Ok(MessageFilter { state, kind, created_before, after, limit })
    }
}

/// Returns a message as a list shows it, as JSON. The names are stable.
pub fn summary(message: &Message) -> Value {
    json!({
        "eventId": message.event_id,
        "operationId": message.operation_id.to_string(),
        "kind": message.kind,
        "position": message.position,
        "state": message.state.as_str(),
        "attempts": message.attempts,
        "createdAt": message.created_at.to_rfc3339(),
        "doneAt": message.done_at.map(Timestamp::to_rfc3339),
        "lastError": message.last_error,
        "providerReference": message.provider_reference,
        "payloadBytes": message.payload_bytes,
    })
}

/// Returns everything about a message except its content, as JSON. The names are stable.
pub fn full(message: &Message, now: Timestamp) -> Value {
    let mut shown = summary(message);
    if message.state == MessageState::Pending {
        let when = if message.is_in_hand(now) { "inHandUntil" } else { "dueAt" };
        shown[when] = message.due_at.to_rfc3339().into();
    }
    shown
}

/// Returns the text about a message that does not exist.
pub fn absent(id: &str) -> String {
    format!("there is no message {id}: it was never sent, or it was delivered long ago, or discarded")
}

/// Performs the action and records a note with the operator and the reason, in one write.
pub async fn act(
    outbox: &dyn Outbox,
    id: &str,
    intervention: Intervention,
    who: String,
    why: String,
) -> Result<Acted<MessageState>, StoreError> {
    let name = intervention.as_str();
    let note = Note { who, action: format!("outbox {name}"), why };
    if outbox.intervene(id, intervention, &note).await? {
        return Ok(Acted::Done(match intervention {
            Intervention::Retry => Some(MessageState::Pending),
            Intervention::Discard => None,
        }));
    }
    let (Some(message), now) = outbox.message(id).await? else { return Ok(Acted::Absent(absent(id))) };
    Ok(Acted::Refused(if message.is_in_hand(now) {
        format!("a worker holds {id}, until {} at the latest: try again then", message.due_at)
    } else {
        format!("{id} is {}: {name} does not apply to it", message.state.as_str())
    }))
}

/// Returns the state of a message after an action, as JSON. The names are stable.
pub fn done(id: &str, state: Option<MessageState>) -> Value {
    json!({ "eventId": id, "state": state.map(MessageState::as_str) })
}
