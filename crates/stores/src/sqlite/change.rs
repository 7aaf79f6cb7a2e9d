//! One change within its transaction: call the protocol, write its decision.
//!
//! Invariant: a change that fails rolls back only itself. A single statement does so by itself; several are
//! wrapped in a savepoint.

use rusqlite::Connection;
use semel_core::store_fence::decide;
use semel_core::transition::{ReferenceWrite, RequestWrite, age as age_of};
use semel_core::{
    AgedRecord, Change, Claim, Decision, Event, Head, Item, Note, OpenCall, OperationId, Record, RecordId,
    Reference, StoreAnswer, StoreError, StoreFence, StoredResult, Timestamp, Transition, Write, transition,
};
use semel_faults::{Point, reached_by_thread};

use super::errors::{store_error, stored};
use super::savepoint::all_or_nothing;
use super::{holds, phases, queries};

/// Applies a change within the transaction.
pub(super) fn apply(
    connection: &Connection,
    id: &RecordId,
    change: &Change,
    now: Timestamp,
) -> Result<StoreAnswer, StoreError> {
    let before = queries::get(connection, id).map_err(|error| store_error(&error))?;
    let event = event_of(connection, before.as_ref(), change).map_err(|error| store_error(&error))?;
    let brought = (change.result(), change.observation());
    let apply = || self::change(connection, before.as_ref(), &event, None, brought, now);
    if change.note().is_none() && change.call().is_none() {
        return apply();
    }
    all_or_nothing(connection, || {
        let done = apply()?;
        if let Some(record) = before.as_ref().filter(|_| done.decision == Decision::Applied) {
            write_more(connection, record.operation_id, change, now)?;
        }
        Ok(done)
    })
}

/// Expires the leases of at most `limit` records.
pub(super) fn sweep(
    connection: &Connection,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<AgedRecord>, StoreError> {
    age(connection, queries::due_to_sweep, limit, now)
}

/// Deletes at most `limit` expired records.
pub(super) fn reap(
    connection: &Connection,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<AgedRecord>, StoreError> {
    age(connection, queries::due_to_reap, limit, now)
}

/// Records the items of a bulk request: from now on a part of the command may be done.
pub(super) fn announce(
    connection: &Connection,
    id: OperationId,
    items: &[Item],
    now: Timestamp,
) -> Result<usize, StoreError> {
    all_or_nothing(connection, || {
        tell_command(connection, id, |head| (!head.partly_done).then_some(Event::Advance), now)?;
        queries::announce(connection, id, items, now).map_err(|error| store_error(&error))
    })
}

/// Writes a note of an access to the request of a command. Returns 0 if none is stored.
pub(super) fn note_reading(
    connection: &Connection,
    id: OperationId,
    note: &Note,
    now: Timestamp,
) -> Result<usize, StoreError> {
    stored(queries::has_request(connection, id).and_then(|kept| match kept {
        true => queries::take_note(connection, Some(id), note, now),
        false => Ok(0),
    }))
}

/// Writes a note about a command without a change.
pub(super) fn note_alone(
    connection: &Connection,
    id: OperationId,
    note: &Note,
    now: Timestamp,
) -> Result<usize, StoreError> {
    stored(queries::take_note(connection, Some(id), note, now))
}

/// Returns the event of a change. A verdict on an open call is decided on the command's recorded steps.
fn event_of(connection: &Connection, before: Option<&Record>, change: &Change) -> rusqlite::Result<Event> {
    match (change.call(), before) {
        (Some(_), Some(before)) => {
            let id = before.operation_id;
            Ok(change.event_for(&queries::progress(connection, id)?, queries::has_request(connection, id)?))
        }
        (Some(_), None) | (None, _) => Ok(*change.event()),
    }
}

/// Writes the other parts of a change that took effect: its note, and its mark of a phase.
fn write_more(
    connection: &Connection,
    id: OperationId,
    change: &Change,
    now: Timestamp,
) -> Result<(), StoreError> {
    if let Some(note) = change.note() {
        queries::take_note(connection, Some(id), note, now).map_err(|error| store_error(&error))?;
    }
    let Some(mark) = change.call().and_then(OpenCall::mark) else { return Ok(()) };
    match phases::write(connection, id, &mark, now).map_err(|error| store_error(&error))? {
        true => Ok(()),
        false => Err(StoreError::Rejected("the phase is not there that the verdict is about".into())),
    }
}

/// Claims by inserting: the unique constraint decides, and only its loser reads the record.
pub(super) fn claim(
    connection: &Connection,
    claim: &Claim,
    now: Timestamp,
) -> Result<StoreAnswer, StoreError> {
    let fence = holds::fence(connection).map_err(|error| store_error(&error))?;
    let has_more = claim.business_reference.is_some() || !claim.former.is_empty() || claim.request.is_some();
    if has_more || fence.is_some() {
        return claim_with_more(connection, claim, fence.as_ref(), now)
            .map_err(|error| store_error(&error))?;
    }
    let event = Event::Claim(claim.attempt);
    let first = transition(None, &event, now);
    let record = Record::after(None, first.write, Some(claim), None, now);
    if let Some(fresh) = &record
        && queries::insert(connection, fresh).map_err(|error| store_error(&error))?
    {
        return Ok(StoreAnswer { decision: first.decision, record, now, holder: None, lapse: None });
    }
    let id = claim.scope.record_id();
    let before = queries::get(connection, &id).map_err(|error| store_error(&error))?;
    change(connection, before.as_ref(), &event, Some(claim), (None, None), now)
}

/// Claims with former names of its operation, a business reference, or a request to store, or under the store's fence.
fn claim_with_more(
    connection: &Connection,
    claim: &Claim,
    fence: Option<&StoreFence>,
    now: Timestamp,
) -> rusqlite::Result<Result<StoreAnswer, StoreError>> {
    let mut before = None;
    for id in claim.record_ids() {
        before = queries::get(connection, &id)?;
        if before.as_ref().is_some_and(|record| age_of(record.head, now).is_some()) {
            break;
        }
    }
    let own = before.as_ref().filter(|record| age_of(record.head, now).is_some());
    let mut other = None;
    for operation in claim.reference_operations().filter(|_| claim.business_reference.is_some()) {
        let holder = queries::reference_holder(connection, claim, operation)?;
        other =
            other.or(holder.filter(|holder| own.map(|own| own.operation_id) != Some(holder.operation_id)));
    }
    let mut attempt = claim.attempt;
    if other.is_some() {
        attempt.reference = Reference::Taken;
    }
    if let Some(fence) = fence {
        attempt.fence = fence.on(claim, own, now);
    }
    let event = Event::Claim(attempt);
    let answer = change(connection, before.as_ref(), &event, Some(claim), (None, None), now);
    Ok(answer.map(|answer| StoreAnswer {
        holder: other.filter(|_| answer.decision == Decision::Duplicate),
        ..answer
    }))
}

/// Applies an event to the command of this operation id, if it has a record and `event` has something to say about it.
pub(super) fn tell_command(
    connection: &Connection,
    id: OperationId,
    event: impl FnOnce(&Head) -> Option<Event>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let before = queries::find(connection, id).map_err(|error| store_error(&error))?;
    let Some(event) = before.as_ref().and_then(|record| event(&record.head)) else { return Ok(()) };
    change(connection, before.as_ref(), &event, None, (None, None), now).map(|_| ())
}

/// Calls the protocol and writes its decision. The transaction is exclusive, so no other change comes
/// between.
fn change(
    connection: &Connection,
    before: Option<&Record>,
    event: &Event,
    claim: Option<&Claim>,
    (result, seen): (Option<&StoredResult>, Option<&str>),
    now: Timestamp,
) -> Result<StoreAnswer, StoreError> {
    let fence = holds::fence(connection).map_err(|error| store_error(&error))?;
    let step = decide(fence.as_ref(), before, event, now);
    let record = Record::after(before, step.write, claim, result, now)
        .map(|record| record.observing(step.write, seen));
    let write = || match write(connection, &step, before, record.as_ref(), claim) {
        Ok(true) => Ok(()),
        Ok(false) => Err(StoreError::Rejected("its row did not take the write".into())),
        Err(error) => Err(store_error(&error)),
    };
    let several = step.reference != ReferenceWrite::Keep
        || step.request != RequestWrite::Keep
        || matches!(step.write, Write::Create(_) | Write::Delete);
    if several {
        all_or_nothing(connection, write)?;
    } else {
        write()?;
    }
    Ok(StoreAnswer { decision: step.decision, record, now, holder: None, lapse: step.lapse })
}

/// Runs the statements of one decision. Returns `false` if a row was not as it was read.
fn write(
    connection: &Connection,
    step: &Transition,
    before: Option<&Record>,
    after: Option<&Record>,
    claim: Option<&Claim>,
) -> rusqlite::Result<bool> {
    let written = match (step.write, before, after) {
        (Write::Keep, _, _) => true,
        (Write::Update(_), Some(before), Some(after)) => queries::update(connection, &before.head, after)?,
        (Write::Delete, Some(before), None) => queries::delete(connection, &before.id, &before.head)?,
        (Write::Create(_), Some(expired), Some(after)) => {
            queries::delete(connection, &expired.id, &expired.head)? && queries::insert(connection, after)?
        }
        (Write::Create(_), None, Some(after)) => queries::insert(connection, after)?,
        (Write::Create(_) | Write::Update(_) | Write::Delete, _, _) => false,
    };
    match (step.reference, after.or(before), claim) {
        (ReferenceWrite::Take, Some(record), Some(claim)) => {
            queries::take_reference(connection, claim, record)?;
        }
        (ReferenceWrite::GiveBack, Some(record), _) => {
            queries::give_reference_back(connection, record.operation_id)?;
        }
        (ReferenceWrite::TakeBack, Some(record), _) => {
            queries::take_references_back(connection, record.operation_id, record.updated_at)?;
        }
        (
            ReferenceWrite::Keep | ReferenceWrite::Take | ReferenceWrite::GiveBack | ReferenceWrite::TakeBack,
            _,
            _,
        ) => {}
    }
    match (step.request, after.or(before), claim.and_then(|claim| claim.request.as_ref())) {
        (RequestWrite::Store, Some(record), Some(request)) => {
            queries::keep_request(connection, record.operation_id, request, record.updated_at)?;
        }
        (RequestWrite::Erase, Some(record), _) => {
            queries::erase_request(connection, record.operation_id)?;
        }
        (RequestWrite::Keep | RequestWrite::Store | RequestWrite::Erase, _, _) => {}
    }
    if let (Write::Delete | Write::Create(_), Some(gone)) = (step.write, before) {
        queries::forget_reference(connection, gone.operation_id)?;
        queries::forget_progress(connection, gone.operation_id)?;
    }
    Ok(written)
}

/// Applies the passage of time to at most `limit` due records, the oldest first. An unreadable or unwritable
/// one is left to its operator, and does not delay the others.
fn age(
    connection: &Connection,
    due: queries::DueQuery,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<AgedRecord>, StoreError> {
    let mut aged = Vec::new();
    let mut after = None;
    for _ in 0..MAX_PAGES {
        let wanted = limit - aged.len();
        let page = due(connection, now, after, wanted).map_err(|error| store_error(&error))?;
        let full = page.len() == wanted;
        after = page.last().copied();
        reached_by_thread(Point::DueRead);
        for (_, id) in page {
            match age_record(connection, &id, now) {
                Ok(changed) => aged.extend(changed),
                Err(StoreError::Corrupt(why)) => {
                    tracing::error!(why, record = %id, "a record cannot be read");
                }
                // Such as by a foreign key of the service's own, which keeps the record.
                Err(StoreError::Rejected(why)) => {
                    tracing::error!(why, record = %id, "a record cannot be changed");
                }
                Err(error) => return Err(error),
            }
        }
        if aged.len() == limit || !full {
            break;
        }
    }
    Ok(aged)
}

/// Applies the passage of time to one record. Returns it if it changed.
fn age_record(
    connection: &Connection,
    id: &RecordId,
    now: Timestamp,
) -> Result<Option<AgedRecord>, StoreError> {
    let before = queries::get_without_response(connection, id).map_err(|error| store_error(&error))?;
    let answer = change(connection, before.as_ref(), &Event::Age, None, (None, None), now)?;
    let before = before.filter(|_| answer.decision == Decision::Applied);
    Ok(before.map(|before| AgedRecord::new(&before, answer.record.as_ref())))
}

/// Maximum number of pages of such records that one call skips.
const MAX_PAGES: usize = 16;
