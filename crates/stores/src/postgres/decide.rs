//! The protocol's decision about a job whose record has been read, and the resulting writes.

use std::collections::HashSet;

use semel_core::transition::{ReferenceWrite, RequestWrite};
use semel_core::{Decision, Event, Record, RecordId, Snapshot, StoreAnswer, Write, transition};

use super::group::{self, Side, SideWrite, Update, Writes};
use super::job::{JobResult, Pending, Work};
use super::rows::Versioned;

/// Result of one decision.
pub(super) enum JobDecision<'a> {
    /// The job was answered: there is nothing to write.
    Now,
    /// The job must be retried.
    Again(Box<Pending>),
    /// The decision must be written.
    Write(Box<Decided<'a>>),
}

/// A decided change, to be written.
pub(super) struct Decided<'a> {
    pub(super) pending: Pending,
    pub(super) before: &'a Versioned,
    pub(super) write: Write,
    pub(super) reference: ReferenceWrite,
    pub(super) request: RequestWrite,
    pub(super) answer: StoreAnswer,
}

/// Decides one job. One record is written once per round: a second change of it waits.
pub(super) fn decide<'a>(
    pending: Pending,
    read: &'a group::Read,
    written: &mut HashSet<RecordId>,
) -> JobDecision<'a> {
    let now = read.now;
    let Some(id) = pending.job.work.record_id() else {
        pending.reply(Ok(JobResult::Snapshot(Box::new(Snapshot { record: None, now }))));
        return JobDecision::Now;
    };
    let before = match read.found.get(&id) {
        None => None,
        Some(Ok(before)) => Some(before),
        Some(Err(error)) => {
            pending.reply(Err(error.store_error()));
            return JobDecision::Now;
        }
    };
    let (event, claim, result, seen) = match &pending.job.work {
        Work::Claim(claim) => (Event::Claim(claim.attempt), Some(&**claim), None, None),
        Work::Apply(_, change) => (*change.event(), None, change.result(), change.observation()),
        Work::Get(_) | Work::Now => {
            let record = before.map(|before| before.record.clone());
            pending.reply(Ok(JobResult::Snapshot(Box::new(Snapshot { record, now }))));
            return JobDecision::Now;
        }
    };
    let step = transition(before.map(|before| &before.record.head), &event, now);
    let after = Record::after(before.map(|before| &before.record), step.write, claim, result, now)
        .map(|record| record.observing(step.write, seen));
    let answer = StoreAnswer { decision: step.decision, record: after, now, holder: None, lapse: step.lapse };
    let write = match (step.write, before) {
        // The write is there, by a commit without an answer: it is confirmed.
        (Write::Keep, Some(before))
            if pending.doubt.is_some() && is_own(&pending.job.work, before, &answer.decision) =>
        {
            Write::Update(before.record.head)
        }
        (write, _) => write,
    };
    match (write, before) {
        (Write::Keep, _) => {
            pending.reply(Ok(JobResult::Answer(Box::new(answer))));
            JobDecision::Now
        }
        // The row has vanished: the claim may be the first after all.
        (Write::Create(_) | Write::Update(_) | Write::Delete, None) => {
            JobDecision::Again(Box::new(Pending { must_read: false, ..pending }))
        }
        (Write::Create(_) | Write::Update(_) | Write::Delete, Some(before)) => {
            if !written.insert(id) {
                return JobDecision::Again(Box::new(pending));
            }
            JobDecision::Write(Box::new(Decided {
                pending,
                before,
                write,
                reference: step.reference,
                request: step.request,
                answer,
            }))
        }
    }
}

/// Returns true if the record's state comes from the sender's own write. A claim for a worker gets `Wait`
/// even then.
fn is_own(work: &Work, before: &Versioned, decision: &Decision) -> bool {
    match work {
        Work::Claim(claim) => before.record.head.token == claim.attempt.token,
        Work::Apply(..) => matches!(decision, Decision::Execute | Decision::Applied),
        Work::Get(_) | Work::Now => false,
    }
}

impl Decided<'_> {
    /// Adds the writes of this decision.
    pub(super) fn plan<'a>(&'a self, writes: &mut Writes<'a>) {
        let before = &self.before.record;
        match (self.write, &self.answer.record) {
            (Write::Update(_) | Write::Create(_), Some(after)) => {
                writes.updates.push(Update { before: self.before, after });
            }
            (Write::Delete, _) => writes.deletes.push(self.before),
            (Write::Keep | Write::Update(_) | Write::Create(_), _) => {}
        }
        let command = self.answer.record.as_ref().unwrap_or(before).operation_id;
        let mut side = |command, what| writes.sides.push(Side { with: before.id, command, what });
        match self.reference {
            ReferenceWrite::GiveBack => side(command, SideWrite::GiveBack),
            ReferenceWrite::TakeBack => side(command, SideWrite::TakeBack),
            // A claim with a reference goes alone.
            ReferenceWrite::Keep | ReferenceWrite::Take => {}
        }
        match self.request {
            RequestWrite::Erase => side(command, SideWrite::EraseRequest),
            // A claim with a request goes alone.
            RequestWrite::Keep | RequestWrite::Store => {}
        }
        if matches!(self.write, Write::Delete | Write::Create(_)) {
            side(before.operation_id, SideWrite::Forget);
        }
        // A change about an open call goes alone.
        if let (Work::Apply(_, change), Decision::Applied) = (&self.pending.job.work, self.answer.decision)
            && let Some(note) = change.note()
        {
            side(before.operation_id, SideWrite::Note(note));
        }
    }
}
