//! Outcomes that need no look at their record first: those of commands that this process claimed itself.
//!
//! The protocol is asked about the record as it was claimed, and what it decides is written only to a row that still has
//! that very head. Where it decides to write nothing, or the row is another by now, nothing was learned: the record is
//! read, and the protocol asked again.

use rusqlite::Connection;
use semel_core::transition::{ReferenceWrite, RequestWrite};
use semel_core::{Answer, Change, Decision, Event, Record, StoreError, Timestamp, Write, transition};

use super::errors::store_error;
use super::queries;
use super::writer::{Done, Work};
use crate::claimed;

/// The records that this process has claimed and not settled yet.
#[derive(Default)]
pub(super) struct Claimed(claimed::Claimed<Record>);

impl Claimed {
    /// Writes an outcome, if that can be done without a look.
    pub(super) fn settle(
        &mut self,
        connection: &Connection,
        work: &Work,
        now: Timestamp,
    ) -> Option<Result<Done, StoreError>> {
        let Work::Apply(id, change) = work else { return None };
        let before = self.0.take(id, change.event())?;
        let is_outcome = matches!(change.event(), Event::Complete { .. } | Event::Fail { .. });
        if !is_outcome || change.note().is_some() {
            return None;
        }
        let settled = settle(connection, &before, change, now).transpose()?;
        Some(settled.map(|answer| Done::Answer(Box::new(answer))))
    }

    /// Remembers what was done, should it become an outcome's turn. The transaction may yet fail.
    pub(super) fn learn(&mut self, work: &Work, done: &Result<Done, StoreError>) {
        let Ok(Done::Answer(answer)) = done else { return };
        let Some(record) = &answer.record else { return };
        match (work, answer.decision) {
            (Work::Claim(_), Decision::Execute) => self.0.remember(record.id, record.clone()),
            (Work::Apply(id, change), Decision::Applied) if matches!(change.event(), Event::Renew { .. }) => {
                self.0.renewed(id, || record.clone());
            }
            _ => {}
        }
    }
}

/// Writes the outcome of the record as it is remembered. `None` if it is another by now, or if it takes more than one write.
fn settle(
    connection: &Connection,
    before: &Record,
    change: &Change,
    now: Timestamp,
) -> Result<Option<Answer>, StoreError> {
    let step = transition(Some(&before.head), change.event(), now);
    let alone = step.reference == ReferenceWrite::Keep && step.request == RequestWrite::Keep;
    // A decision to write nothing would stand on the memory alone.
    let update = matches!(step.write, Write::Update(_)) && alone;
    let record = Record::after(Some(before), step.write, None, change.result(), now).filter(|_| update);
    let Some(after) = record.map(|record| record.observing(step.write, change.observation())) else {
        return Ok(None);
    };
    let written = queries::update(connection, &before.head, &after).map_err(|error| store_error(&error))?;
    Ok(written.then(|| Answer { decision: step.decision, record: Some(after), now, holder: None }))
}
