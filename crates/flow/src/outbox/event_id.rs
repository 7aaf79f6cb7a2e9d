//! Event ids: the names of messages.

use semel_core::OperationId;

/// Maximum length of a message's kind.
const MAX_KIND: usize = 100;

/// Name of a message, stable across all attempts at its command: receivers deduplicate on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    text: String,
    kind: String,
}

/// Error for a string that is not a valid kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kind of a message has 1 to {MAX_KIND} letters, digits, dots, dashes or underscores")]
pub struct InvalidKind;

impl EventId {
    /// Returns the event id of this command's message of this kind. A command sends at most one message of each kind.
    pub fn new(command: OperationId, kind: &str) -> Result<EventId, InvalidKind> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if kind.is_empty() || kind.len() > MAX_KIND || !kind.chars().all(allowed) {
            return Err(InvalidKind);
        }
        Ok(EventId { text: format!("{command}:{kind}"), kind: kind.to_owned() })
    }

    /// Returns the id as it is sent: `operationId:kind`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the message's kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
