//! Completions that need no look at their record first: those of commands that this store claimed itself, while their
//! lease holds.
//!
//! What the protocol says to a completion is the same at every moment of the lease, but for the moments it writes. So
//! it is asked as of the moment of the claim, the database adds its own present, and writes only if the record is
//! still the one that was claimed and its lease has not ended. Otherwise the record is read, and the protocol asked
//! again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::transition::{ReferenceWrite, RequestWrite};
use semel_core::{Change, Event, Record, RecordId, State, StoreAnswer, Timestamp, Write, transition};

use super::rows::Versioned;
use crate::known;

/// The records that this store has claimed and not completed yet.
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

    /// A renewal was written: the record is one revision further.
    pub(super) fn renewed(&self, record: &Record, revision: i64) {
        self.records().renewed(&record.id, || Versioned { record: record.clone(), revision });
    }

    /// What a completion comes to, if that can be said without a look. After any change but a renewal, the record is
    /// not remembered any more.
    pub(super) fn complete(&self, id: &RecordId, change: &Change) -> Option<KnownCompletion> {
        let before = self.records().take(id, change.event())?;
        match change.event() {
            Event::Complete { .. } if change.note().is_none() => KnownCompletion::new(before, change),
            _ => None,
        }
    }
}

/// A completion, decided as of the moment that its record was last written.
pub(super) struct KnownCompletion {
    pub(super) before: Versioned,
    /// The record after it, as of that moment.
    pub(super) after: Record,
    /// How long after the completion it expires, in milliseconds.
    pub(super) expires_in: i64,
    /// The last line of its history, without the moment it begins with.
    pub(super) step: String,
}

impl KnownCompletion {
    fn new(before: Versioned, change: &Change) -> Option<KnownCompletion> {
        let then = before.record.updated_at;
        let after = decided(&before.record, change, then)?;
        let State::Succeeded { expires_at, .. } = after.head.state else { return None };
        // The history has grown by exactly one line, which begins with the moment.
        let line =
            after.history.as_text().strip_prefix(before.record.history.as_text())?.strip_prefix('\n')?;
        let step = line.strip_prefix(&then.as_millis().to_string())?.to_owned();
        let expires_in = expires_at.as_millis() - then.as_millis();
        Some(KnownCompletion { before, after, expires_in, step })
    }

    /// The answer, now that it was written at `now`.
    pub(super) fn answer(&self, change: &Change, now: Timestamp) -> StoreAnswer {
        let decision = transition(Some(&self.before.record.head), change.event(), now).decision;
        let record = decided(&self.before.record, change, now);
        StoreAnswer { decision, record, now, holder: None }
    }
}

/// The record after a change that writes nothing beside it.
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
