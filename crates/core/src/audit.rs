//! The audit log as a whole: who did what by hand, to which command, when and why. A note gets into it with the change that
//! it is about ([`Change::noted`](crate::Change::noted)), in the same write, and never leaves it.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;

use crate::change::NoteTaken;
use crate::ids::OperationId;
use crate::store_error::StoreError;

/// The place of a note in the log: later notes have higher ones. Opaque to whoever turns pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditId(pub u128);

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A text that is no place in the log.
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
    /// Its place.
    pub id: AuditId,
    /// The command that it is about, whether or not there still is a record of it.
    pub operation_id: OperationId,
    /// The note, and when it was taken.
    pub taken: NoteTaken,
}

/// Reads the notes about all commands. What keeps records keeps them, too.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// At most `limit` notes, the newest first; with `before`, only those that were taken before that one.
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_log_reads_back_and_nothing_else_does() {
        for number in [0, 1, 0xf00, u128::MAX] {
            assert_eq!(AuditId(number).to_string().parse(), Ok(AuditId(number)));
        }
        for text in ["", "+1", "-1", "x", " 1", &"f".repeat(33)] {
            assert_eq!(text.parse::<AuditId>(), Err(NotAnAuditId), "{text:?}");
        }
    }
}
