//! Stored response of a command, and payload of a message, as an operator sees them: read only on demand, and never without a
//! note of the reader and the reason.

use semel_core::outbox::{Message, Outbox};
use semel_core::{AuditLog, Note, OperationId, Record, Records, Response, StoreError};
use serde_json::{Value, json};

use super::{fields, insert_bytes, messages, records};

/// Action in the audit log for reading a response.
pub const RESPONSE: &str = "response";
/// Beginning of the action in the audit log for reading a payload; the kind of the message follows.
const PAYLOAD: &str = "outbox payload";

/// Result of reading stored content.
pub enum ContentLookup<T> {
    /// The content.
    Kept(T),
    /// No such command or message exists.
    Absent(String),
    /// No content is stored, for this reason.
    NotKept(String),
    /// The stored content cannot be read, for this reason.
    Unreadable(String),
}

/// Reads the stored response of a command, and records a note. Without a response, no note is recorded.
pub async fn read_response(
    store: &dyn Records,
    audit: &dyn AuditLog,
    id: OperationId,
    note: &Note,
) -> Result<ContentLookup<Response>, StoreError> {
    let Some(record) = store.find(id).await?.record else {
        return Ok(ContentLookup::Absent(records::absent(id)));
    };
    let Some(result) = &record.result else { return Ok(ContentLookup::NotKept(not_kept(&record))) };
    match result.response.decode() {
        Ok(response) => {
            audit.take_note(id, note).await?;
            Ok(ContentLookup::Kept(response))
        }
        Err(why) => Ok(ContentLookup::Unreadable(why.to_string())),
    }
}

/// Reads the payload of a message, and records a note about its command.
pub async fn read_payload(
    outbox: &dyn Outbox,
    audit: &dyn AuditLog,
    event_id: &str,
    who: String,
    why: String,
) -> Result<ContentLookup<Message>, StoreError> {
    let (Some(message), _) = outbox.message(event_id).await? else {
        return Ok(ContentLookup::Absent(messages::absent(event_id)));
    };
    let note = Note { who, action: format!("{PAYLOAD} {}", message.kind), why };
    audit.take_note(message.operation_id, &note).await?;
    Ok(ContentLookup::Kept(message))
}

/// Returns the reason for which this command has no stored response.
fn not_kept(record: &Record) -> String {
    let (id, state) = (record.operation_id, record.head.state.name());
    format!("{id} is {state}, and a command has a response while it is succeeded or failed_final")
}

/// Returns a response as JSON. The names are stable.
pub fn response_to_json(id: OperationId, response: &Response) -> Value {
    let mut shown = json!({
        "operationId": id.to_string(),
        "status": response.status.as_u16(),
        "headers": fields(&response.headers),
    });
    match &response.body {
        Some(body) => insert_bytes(&mut shown, "body", body),
        None => shown["body"] = Value::Null,
    }
    shown
}

/// Returns the payload of a message as JSON. The names are stable.
pub fn payload_to_json(message: &Message) -> Value {
    let mut shown = json!({ "eventId": message.event_id });
    insert_bytes(&mut shown, "payload", &message.payload);
    shown
}
