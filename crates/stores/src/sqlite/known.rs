//! Settlements without a read of their record: those of commands that this process claimed itself.
//!
//! The protocol decides on the record as it was claimed, and the decision is written only to a row that still
//! has that very head. If the decision is to write nothing, or the row has changed, the record is read and
//! the protocol called again.

use rusqlite::Connection;
use semel_core::transition::{ReferenceWrite, RequestWrite};
use semel_core::{
    Change, Decision, Event, Record, RecordId, StoreAnswer, StoreError, Timestamp, Write, transition,
};

use super::errors::store_error;
use super::queries;
use crate::known;

/// Records that this process has claimed and not settled.
#[derive(Default)]
pub(super) struct ClaimedRecords(known::KnownRecords<Record>);

impl ClaimedRecords {
    /// Writes a settlement without a read of its record. Returns `None` if that is not possible.
    pub(super) fn settle(
        &mut self,
        connection: &Connection,
        id: &RecordId,
        change: &Change,
        now: Timestamp,
    ) -> Result<Option<StoreAnswer>, StoreError> {
        let Some(before) = self.0.take(id, change.event()) else { return Ok(None) };
        let is_outcome = matches!(change.event(), Event::Complete { .. } | Event::Fail { .. });
        if !is_outcome || change.note().is_some() {
            return Ok(None);
        }
        settle(connection, &before, change, now)
    }

    /// Remembers the record of a claim that its sender executes. The transaction may yet fail.
    pub(super) fn claimed(&mut self, answer: &StoreAnswer) {
        if let (Decision::Execute, Some(record)) = (answer.decision, &answer.record) {
            self.0.remember(record.id, record.clone());
        }
    }

    /// Remembers the record after a renewal. The transaction may yet fail.
    pub(super) fn applied(&mut self, change: &Change, answer: &StoreAnswer) {
        if let (Event::Renew { .. }, Decision::Applied, Some(record)) =
            (change.event(), answer.decision, &answer.record)
        {
            self.0.renewed(&record.id, || record.clone());
        }
    }
}

/// Writes the settlement of a known record. Returns `None` if the row has changed, or if it takes more than
/// one write.
fn settle(
    connection: &Connection,
    before: &Record,
    change: &Change,
    now: Timestamp,
) -> Result<Option<StoreAnswer>, StoreError> {
    let step = transition(Some(&before.head), change.event(), now);
    let alone = step.reference == ReferenceWrite::Keep && step.request == RequestWrite::Keep;
    // A decision to write nothing would rest on memory alone.
    let update = matches!(step.write, Write::Update(_)) && alone;
    let record = Record::after(Some(before), step.write, None, change.result(), now).filter(|_| update);
    let Some(after) = record.map(|record| record.observing(step.write, change.observation())) else {
        return Ok(None);
    };
    let written = queries::update(connection, &before.head, &after).map_err(|error| store_error(&error))?;
    Ok(written.then(|| StoreAnswer {
        decision: step.decision,
        record: Some(after),
        now,
        holder: None,
        lapse: None,
    }))
}
