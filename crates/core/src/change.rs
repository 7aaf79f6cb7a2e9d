//! A change of a record: an event other than a claim, with its result and its note.

use std::time::Duration;

use bytes::Bytes;

use crate::ids::AttemptToken;
use crate::progress::{InvalidOutput, OpenCall, Progress};
use crate::record::StoredResult;
use crate::state::{Epoch, Fence, Reason};
use crate::time::Timestamp;
use crate::transition::{About, Event, PhaseVerdict, Proof, Recorded, Verdict};

/// An event other than a claim, with its data. Only the constructors build one, so that a settlement always
/// has a result.
#[derive(Clone, Debug)]
pub struct Change {
    event: Event,
    result: Option<StoredResult>,
    note: Option<Note>,
    call: Option<OpenCall>,
    seen: Option<String>,
}

/// Time in which a worker must resume a command in phases after a verdict on its open call.
const RESUMED_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Note about a manual action on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Person or tool that acted.
    pub who: String,
    /// The action.
    pub action: String,
    /// Reason for the action.
    pub why: String,
}

impl Note {
    /// Returns true if the note says that its command was executed, false if it says the opposite, and `None`
    /// if it says neither.
    pub fn says_executed(&self) -> Option<bool> {
        let said = |verdict: Verdict| self.action.split(' ').nth(1) == Some(verdict.as_str());
        match self.action.split(' ').next() {
            Some("resolve") if said(Verdict::Succeeded) => Some(true),
            Some("resolve") if self.action.contains(' ') => Some(false),
            // A released command had not run.
            Some("release") => Some(false),
            Some(_) | None => None,
        }
    }
}

/// A note as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteTaken {
    /// Time of the note, by the store's clock.
    pub at: Timestamp,
    /// The note.
    pub note: Note,
}

impl Change {
    /// Starts a `Claimed` command under the worker's own token.
    pub fn start(fence: Fence, token: AttemptToken) -> Change {
        Change::of(Event::Start { fence, token })
    }

    /// Renews the executor's lease.
    pub fn renew(fence: Fence) -> Change {
        Change::of(Event::Renew { fence })
    }

    /// Settles the command with a final success.
    pub fn complete(fence: Fence, result: StoredResult) -> Change {
        Change { result: Some(result), ..Change::of(Event::Complete { fence }) }
    }

    /// Settles the command with a final failure.
    pub fn fail(fence: Fence, reason: Reason, result: StoredResult) -> Change {
        Change { result: Some(result), ..Change::of(Event::Fail { fence, reason }) }
    }

    /// Releases the command: the executor proves that nothing ran.
    pub fn release(fence: Fence, reason: Reason) -> Change {
        Change::of(Event::Release { fence, reason })
    }

    /// Requeues the command: the executor proves that nothing ran beyond the recorded phases, and leaves the
    /// rest to a worker.
    pub fn requeue(fence: Fence, reason: Reason, after: Duration) -> Change {
        Change::of(Event::Requeue { fence, reason, after })
    }

    /// Defers the outcome: the executor has committed its part, and a message that commits with it decides
    /// the outcome.
    pub fn defer(fence: Fence, time: Duration) -> Change {
        Change::of(Event::Defer { fence, time })
    }

    /// Abandons the command: the executor cannot know the outcome.
    pub fn abandon(fence: Fence, reason: Reason) -> Change {
        Change::of(Event::Abandon { fence, reason })
    }

    /// Settles the command by evidence that it was executed; retries get `result`. A status of 400 or more is
    /// a stable failure.
    pub fn resolve_executed(result: StoredResult) -> Change {
        let verdict = if result.status < 400 { Verdict::Succeeded } else { Verdict::FailedFinal };
        Change { result: Some(result), ..Change::of(Event::resolve(verdict)) }
    }

    /// Resolves the command by evidence that it was not executed.
    pub fn resolve_not_executed(proof: Proof) -> Change {
        Change::of(Event::resolve(Verdict::NotExecuted(proof)))
    }

    /// Resolves the open call of the attempt `epoch` of a command in phases as executed. The command resumes
    /// after that call.
    ///
    /// # Errors
    /// If no run could read the output.
    pub fn resolve_call_executed(epoch: Epoch, phase: &str, output: Bytes) -> Result<Change, InvalidOutput> {
        let call = OpenCall::executed(phase, output)?;
        Ok(Change::on_call(epoch, PhaseVerdict::Executed, call))
    }

    /// Resolves the open call of the attempt `epoch` of a command in phases as not executed. The command
    /// resumes and repeats the call.
    pub fn resolve_call_not_executed(epoch: Epoch, phase: &str, proof: Proof) -> Change {
        let call = OpenCall::NotExecuted { phase: phase.to_owned() };
        Change::on_call(epoch, PhaseVerdict::NotExecuted(proof), call)
    }

    /// Resumes a command in phases that was given up in the attempt `epoch` without an open call.
    pub fn resume(epoch: Epoch) -> Change {
        Change::on_call(epoch, PhaseVerdict::NothingOpen, OpenCall::None)
    }

    fn on_call(epoch: Epoch, verdict: PhaseVerdict, call: OpenCall) -> Change {
        let (within, recorded) = (RESUMED_WITHIN, Recorded::default());
        let event = Event::ResolvePhase { epoch, verdict, seen: None, within, recorded };
        Change { call: Some(call), ..Change::of(event) }
    }

    const fn of(event: Event) -> Change {
        Change { event, result: None, note: None, call: None, seen: None }
    }

    /// Sets the time at which the evidence was seen, by the store's clock, instead of now.
    pub fn seen_at(self, seen: Timestamp) -> Change {
        let seen = Some(seen);
        let mut event = self.event;
        if let Event::Resolve { seen: known, .. } | Event::ResolvePhase { seen: known, .. } = &mut event {
            *known = seen;
        }
        Change { event, ..self }
    }

    /// Sets the attempt that the evidence is about.
    pub fn about(self, about: About) -> Change {
        let Event::Resolve { verdict, seen, .. } = self.event else { return self };
        Change { event: Event::Resolve { verdict, seen, about }, ..self }
    }

    /// Counts a look-up of evidence after `attempts` earlier ones, and schedules the next one in case it
    /// finds nothing.
    pub fn postpone(until: Timestamp, attempts: u32) -> Change {
        let event = Event::Postpone { until, attempts, counts: true };
        Change::of(event)
    }

    /// Reschedules the next look-up after the `attempts`-th one, already counted, has found nothing.
    pub fn put_off(until: Timestamp, attempts: u32) -> Change {
        let event = Event::Postpone { until, attempts, counts: false };
        Change::of(event)
    }

    /// Makes the outcome of a command that waits or runs unknown: the store was restored, and may have forgotten its end.
    pub fn doubt() -> Change {
        Change::of(Event::Doubt)
    }

    /// Gives up a command that has not run, on an operator's request.
    pub fn free() -> Change {
        Change::of(Event::Free)
    }

    /// Purges a settled command, on an operator's request.
    pub fn purge() -> Change {
        Change::of(Event::Purge)
    }

    /// Adds a note for the audit log. If the change takes effect, the note is stored in the same write and
    /// never deleted. The note of a verdict names the verdict.
    pub fn noted(self, note: Note) -> Change {
        let verdict = self.event.verdict_name().map(|verdict| format!(" {verdict}"));
        let action = note.action + verdict.as_deref().unwrap_or_default();
        Change { note: Some(Note { action, ..note }), ..self }
    }

    /// Returns a copy with its result, if any, in another form: sealed, for a store.
    pub fn with_result(&self, result: StoredResult) -> Change {
        let result = self.result.is_some().then_some(result);
        Change { result, ..self.clone() }
    }

    /// Returns a copy with the output of its open call, if any, in another form: sealed, for a store.
    pub(crate) fn with_call_output(&self, sealed: Bytes) -> Change {
        let mut change = self.clone();
        if let Some(OpenCall::Executed { output, .. }) = &mut change.call {
            *output = sealed;
        }
        change
    }

    /// Adds the executor's observation of a call with an unknown outcome. The record's history keeps it.
    pub fn observing(self, seen: impl Into<String>) -> Change {
        Change { seen: Some(seen.into()), ..self }
    }

    /// Returns the executor's observation. A store passes it to
    /// [`Record::observing`](crate::Record::observing) with its write.
    pub fn observation(&self) -> Option<&str> {
        self.seen.as_deref()
    }

    /// Returns the note of this change.
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// Returns the open call that this change is a verdict on. A store decides such a change on
    /// [`event_for`](Change::event_for), and writes the call's [mark](OpenCall::mark) with an applied
    /// decision.
    pub fn call(&self) -> Option<&OpenCall> {
        self.call.as_ref()
    }

    /// Returns the event for a command with these stored steps; `has_input` is true if the store has its
    /// input.
    pub fn event_for(&self, steps: &[Progress], has_input: bool) -> Event {
        match (self.event, &self.call) {
            (Event::ResolvePhase { epoch, verdict, seen, within, .. }, Some(call)) => {
                let recorded = Recorded { fits: call.fits(steps), has_input };
                Event::ResolvePhase { epoch, verdict, seen, within, recorded }
            }
            (event, _) => event,
        }
    }

    /// Returns the event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Returns the result that the record gets in a terminal state.
    pub fn result(&self) -> Option<&StoredResult> {
        self.result.as_ref()
    }
}
