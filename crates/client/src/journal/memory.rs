//! A journal that is lost with the process: for tests.

use std::sync::{Mutex, PoisonError};

use super::{IntentJournal, JournalEntry, JournalError};
use crate::key::CommandKey;

/// Journal in memory. It does not survive a restart.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    entries: Mutex<Vec<JournalEntry>>,
}

impl MemoryJournal {
    /// Makes an empty journal.
    pub fn new() -> MemoryJournal {
        MemoryJournal::default()
    }
}

impl IntentJournal for MemoryJournal {
    fn begin(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|other| other.intent == entry.intent) {
            return Err(JournalError::IntentPending);
        }
        entries.push(entry.clone());
        Ok(())
    }

    fn clear(&self, intent: &str, key: &CommandKey) -> Result<(), JournalError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.intent != intent || entry.key != *key);
        Ok(())
    }

    fn pending(&self) -> Result<Vec<JournalEntry>, JournalError> {
        Ok(self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
