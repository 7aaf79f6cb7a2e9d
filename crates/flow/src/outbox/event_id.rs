//! The name of a message.

use semel_core::OperationId;

/// The longest kind of a message.
const MAX_KIND: usize = 100;

/// The name of a message, the same in every attempt at its command: whoever receives it may deduplicate on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    text: String,
    kind: String,
}

/// A kind that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kind of a message has 1 to {MAX_KIND} letters, digits, dots, dashes or underscores")]
pub struct InvalidKind;

impl EventId {
    /// The message of this kind of this command. A command sends at most one of each kind.
    pub fn new(command: OperationId, kind: &str) -> Result<EventId, InvalidKind> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if kind.is_empty() || kind.len() > MAX_KIND || !kind.chars().all(allowed) {
            return Err(InvalidKind);
        }
        Ok(EventId { text: format!("{command}:{kind}"), kind: kind.to_owned() })
    }

    /// As it is sent: `operationId:kind`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it is about.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
