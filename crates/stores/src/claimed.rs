//! What a process remembers of the commands that it claimed itself, so that their outcomes need no look at their records
//! first. What is remembered is a guess: each store writes only to a record that is still as it was remembered.

use std::collections::HashMap;

use semel_core::{Event, RecordId};

/// How many are remembered. What is forgotten is read again.
const MAX_REMEMBERED: usize = 1 << 14;

/// Records as this process wrote them last, while they are claimed.
pub(crate) struct Claimed<T>(HashMap<RecordId, T>);

impl<T> Default for Claimed<T> {
    fn default() -> Claimed<T> {
        Claimed(HashMap::new())
    }
}

impl<T> Claimed<T> {
    /// A record was claimed.
    pub(crate) fn remember(&mut self, id: RecordId, record: T) {
        if self.0.len() >= MAX_REMEMBERED {
            // Whoever claims so much without settling it has other worries than a second look.
            self.0.clear();
        }
        self.0.insert(id, record);
    }

    /// A renewal was written: the record is another now, if it is remembered.
    pub(crate) fn renewed(&mut self, id: &RecordId, record: impl FnOnce() -> T) {
        if let Some(known) = self.0.get_mut(id) {
            *known = record();
        }
    }

    /// The record that this event is about, which is not remembered any more after it. A renewal leaves it as it is.
    pub(crate) fn take(&mut self, id: &RecordId, event: &Event) -> Option<T> {
        match event {
            Event::Renew { .. } => None,
            _ => self.0.remove(id),
        }
    }
}
