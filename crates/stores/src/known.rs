//! Records as this process last wrote them, so that their settlement needs no read.
//!
//! A known record is a guess: each store writes only to a record that is still exactly as it is known.

use std::collections::HashMap;

use semel_core::{Event, RecordId};

/// Maximum number of known records. A dropped record is read again.
const MAX_KNOWN: usize = 1 << 14;

/// Records that this process has claimed and not settled.
pub(crate) struct KnownRecords<T>(HashMap<RecordId, T>);

impl<T> Default for KnownRecords<T> {
    fn default() -> KnownRecords<T> {
        KnownRecords(HashMap::new())
    }
}

impl<T> KnownRecords<T> {
    /// Adds a record that was just claimed.
    pub(crate) fn remember(&mut self, id: RecordId, record: T) {
        if self.0.len() >= MAX_KNOWN {
            // A process with this many unsettled claims has bigger problems than a second read.
            self.0.clear();
        }
        self.0.insert(id, record);
    }

    /// Replaces a known record by its state after a renewal.
    pub(crate) fn renewed(&mut self, id: &RecordId, record: impl FnOnce() -> T) {
        if let Some(known) = self.0.get_mut(id) {
            *known = record();
        }
    }

    /// Removes and returns the record that this event is about. A renewal leaves it in place and returns nothing.
    pub(crate) fn take(&mut self, id: &RecordId, event: &Event) -> Option<T> {
        match event {
            Event::Renew { .. } => None,
            _ => self.0.remove(id),
        }
    }
}
