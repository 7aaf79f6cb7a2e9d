//! Completions without a read of their record: those of commands that this store claimed itself, while their
//! lease holds. The protocol's decision about a completion is the same at every moment of the lease, except
//! for the times it writes. So it is made as of the claim; the database adds its own time, and writes only if
//! the record is unchanged since the claim and its lease has not expired. Otherwise the record is read, and
//! the protocol is called again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::transition::{ReferenceWrite, RequestWrite};
use semel_core::{Change, Event, Record, RecordId, State, StoreAnswer, Timestamp, Write, transition};

use super::rows::Versioned;
use crate::known;

/// Records that this store has claimed and not completed yet.
#[derive(Clone, Default)]
pub(super) struct ClaimedRecords(Arc<Mutex<known::KnownRecords<Versioned>>>);

impl ClaimedRecords {
    fn records(&self) -> MutexGuard<'_, known::KnownRecords<Versioned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a record as it was just written.
    pub(super) fn remember(&self, record: &Record, revision: i64) {
        self.records().remember(record.id, Versioned { record: record.clone(), revision });
    }

    /// Updates a record after a renewal: it is one revision further.
    pub(super) fn renewed(&self, record: &Record, revision: i64) {
        self.records().renewed(&record.id, || Versioned { record: record.clone(), revision });
    }

    /// Returns the completion, if it can be decided without a read. After any change except a renewal, the
    /// record is forgotten.
    pub(super) fn complete(&self, id: &RecordId, change: &Change) -> Option<KnownCompletion> {
        let before = self.records().take(id, change.event())?;
        match change.event() {
            Event::Complete { .. } if change.note().is_none() => KnownCompletion::new(before, change),
            _ => None,
        }
    }
}

/// A completion, decided as of the last write of its record.
pub(super) struct KnownCompletion {
    pub(super) before: Versioned,
    /// The record after the completion, as of that write.
    pub(super) after: Record,
    /// Time from the completion to the expiry, in milliseconds.
    pub(super) expires_in: i64,
    /// Last line of the history, without its leading time.
    pub(super) step: String,
}

impl KnownCompletion {
    fn new(before: Versioned, change: &Change) -> Option<KnownCompletion> {
        let then = before.record.updated_at;
        let after = decided(&before.record, change, then)?;
        let State::Succeeded { expires_at, .. } = after.head.state else { return None };
        // The history has grown by exactly one line, which begins with the time.
        let line =
            after.history.as_text().strip_prefix(before.record.history.as_text())?.strip_prefix('\n')?;
        let step = line.strip_prefix(&then.as_millis().to_string())?.to_owned();
        let expires_in = expires_at.as_millis() - then.as_millis();
        Some(KnownCompletion { before, after, expires_in, step })
    }

    /// Returns the answer to the completion, written at `now`.
    pub(super) fn answer(&self, change: &Change, now: Timestamp) -> StoreAnswer {
        let decision = transition(Some(&self.before.record.head), change.event(), now).decision;
        let record = decided(&self.before.record, change, now);
        StoreAnswer { decision, record, now, holder: None, lapse: None }
    }
}

/// Returns the record after a change that writes nothing beside it.
fn decided(before: &Record, change: &Change, now: Timestamp) -> Option<Record> {
    let step = transition(Some(&before.head), change.event(), now);
    if (step.reference, step.request) != (ReferenceWrite::Keep, RequestWrite::Keep) {
        return None;
    }
    match step.write {
        Write::Update(_) => Record::after(Some(before), step.write, None, change.result(), now),
        Write::Keep | Write::Create(_) | Write::Delete => None,
    }
}
