//! Journals: they keep the key of a command across a restart of the process. Called by the client, off the runtime.
//!
//! An entry is durable before its command is sent for the first time. Only the command's own outcome clears it.

mod file;
mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::error::Error;

pub use file::FileJournal;
pub use memory::MemoryJournal;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteJournal;

use crate::key::CommandKey;

/// Command whose outcome is not known yet. `Debug` does not show its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The caller's name for the purpose of the command, such as `invoice 4711`.
    pub intent: String,
    /// The idempotency key of every attempt.
    pub key: CommandKey,
    /// SHA-256 of the request, as lower-case hexadecimal digits.
    pub digest: String,
    /// The origin that the command is for.
    pub origin: String,
    /// The client's name for itself.
    pub caller: String,
    /// The time of the wall clock before the first send, in milliseconds since 1970.
    pub at: u64,
}

/// Store of entries. Its methods may block: the client calls them on a thread for that.
pub trait IntentJournal: Send + Sync + 'static {
    /// Writes an entry, which is durable on return.
    ///
    /// # Errors
    /// [`JournalError::IntentPending`] if the intent has an entry, [`JournalError::Unavailable`] if it cannot be written.
    fn begin(&self, entry: &JournalEntry) -> Result<(), JournalError>;

    /// Removes the entry of an intent if it has this key; does nothing otherwise. A slow call must not remove the entry of
    /// a newer command.
    ///
    /// # Errors
    /// [`JournalError::Unavailable`] if the journal cannot be written.
    fn clear(&self, intent: &str, key: &CommandKey) -> Result<(), JournalError>;

    /// Returns all entries in the order of `begin`.
    ///
    /// # Errors
    /// [`JournalError::Unavailable`] if the journal cannot be read, or is damaged.
    fn pending(&self) -> Result<Vec<JournalEntry>, JournalError>;
}

/// Error of a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The intent has an entry.
    #[error("the journal has an entry for this intent")]
    IntentPending,
    /// The journal cannot be read or written.
    #[error("the journal cannot be used: {0}")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl JournalError {
    /// Makes the error of a journal that cannot be read or written. The cause must not have a key in it.
    pub fn unavailable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> JournalError {
        JournalError::Unavailable(cause.into())
    }
}
