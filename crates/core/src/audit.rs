//! The audit log: every manual action on a command, with its author, time and reason. A note is written in
//! the same write as its change ([`Change::noted`](crate::Change::noted)), and is never deleted. Reading stored content is an
//! action, too, and its note is written first.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;

use crate::change::{Note, NoteTaken};
use crate::ids::OperationId;
use crate::store_error::StoreError;

/// Position of a note in the log, opaque to callers. Later notes have higher positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditId(pub u128);

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Error for a text that is no position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not the id of a note")]
pub struct NotAnAuditId;

impl FromStr for AuditId {
    type Err = NotAnAuditId;

    fn from_str(text: &str) -> Result<AuditId, NotAnAuditId> {
        let is_plain = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_plain);
        number.map(AuditId).ok_or(NotAnAuditId)
    }
}

/// A note in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Position of the note.
    pub id: AuditId,
    /// Command of the note, whose record may be gone; `None` for a note about the store, such as a hold.
    pub operation_id: Option<OperationId>,
    /// The note and its time.
    pub taken: NoteTaken,
}

/// Reads the notes about all commands, and takes those without a change. Every store that keeps records keeps notes.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Returns at most `limit` notes, the newest first; with `before`, only notes older than that one.
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;

    /// Writes a note about this command without changing it, such as before its response is shown. The command's record may be
    /// gone. After a lost answer, the note may be there twice.
    async fn take_note(&self, operation_id: OperationId, note: &Note) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_id_round_trips_as_text_and_refuses_other_text() {
        for number in [0, 1, 0xf00, u128::MAX] {
            assert_eq!(AuditId(number).to_string().parse(), Ok(AuditId(number)));
        }
        for text in ["", "+1", "-1", "x", " 1", &"f".repeat(33)] {
            assert_eq!(text.parse::<AuditId>(), Err(NotAnAuditId), "{text:?}");
        }
    }
}
