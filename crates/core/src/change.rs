//! A change of a record: an event other than a claim, with what it carries and who did it by hand.

use std::time::Duration;

use bytes::Bytes;

use crate::ids::AttemptToken;
use crate::progress::{InvalidOutput, OpenCall, Progress};
use crate::record::StoredResult;
use crate::state::{Epoch, Fence, Reason};
use crate::time::Timestamp;
use crate::transition::{About, Event, PhaseVerdict, Proof, Recorded, Verdict};

/// An event other than a claim, with what it carries. Made only by its constructors, so that a settlement
/// without a result cannot be built.
#[derive(Clone, Debug)]
pub struct Change {
    event: Event,
    result: Option<StoredResult>,
    note: Option<Note>,
    call: Option<OpenCall>,
    seen: Option<String>,
}

/// How long a worker may take to resume a command in phases after a verdict on its open call.
const RESUMED_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Who did something to a record by hand, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The person, or the tool, that did it.
    pub who: String,
    /// What was done.
    pub action: String,
    /// Why.
    pub why: String,
}

impl Note {
    /// Whether the note says that its command took place; `None` if it says nothing about that.
    pub fn says_executed(&self) -> Option<bool> {
        let said = |verdict: Verdict| self.action.split(' ').nth(1) == Some(verdict.as_str());
        match self.action.split(' ').next() {
            Some("resolve") if said(Verdict::Succeeded) => Some(true),
            Some("resolve") if self.action.contains(' ') => Some(false),
            // What was given up had not run.
            Some("release") => Some(false),
            Some(_) | None => None,
        }
    }
}

/// A note as it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteTaken {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The note.
    pub note: Note,
}

impl Change {
    /// A worker takes up a `Claimed` command under a token of its own.
    pub fn start(fence: Fence, token: AttemptToken) -> Change {
        Change::of(Event::Start { fence, token })
    }

    /// The executor is still at it.
    pub fn renew(fence: Fence) -> Change {
        Change::of(Event::Renew { fence })
    }

    /// The executor has a final success.
    pub fn complete(fence: Fence, result: StoredResult) -> Change {
        Change { result: Some(result), ..Change::of(Event::Complete { fence }) }
    }

    /// The executor has a final failure.
    pub fn fail(fence: Fence, reason: Reason, result: StoredResult) -> Change {
        Change { result: Some(result), ..Change::of(Event::Fail { fence, reason }) }
    }

    /// The executor proves that nothing ran.
    pub fn release(fence: Fence, reason: Reason) -> Change {
        Change::of(Event::Release { fence, reason })
    }

    /// The executor proves that nothing more has happened than its phases say, and leaves the rest to a worker.
    pub fn requeue(fence: Fence, reason: Reason, after: Duration) -> Change {
        Change::of(Event::Requeue { fence, reason, after })
    }

    /// The executor has committed its part, and leaves the outcome to the message that it sends with it.
    pub fn defer(fence: Fence, time: Duration) -> Change {
        Change::of(Event::Defer { fence, time })
    }

    /// The executor cannot know what happened.
    pub fn abandon(fence: Fence, reason: Reason) -> Change {
        Change::of(Event::Abandon { fence, reason })
    }

    /// Evidence that the command was carried out, with the response that retries are to get. A status of 400
    /// or more is a stable failure.
    pub fn resolve_executed(result: StoredResult) -> Change {
        let verdict = if result.status < 400 { Verdict::Succeeded } else { Verdict::FailedFinal };
        Change { result: Some(result), ..Change::of(Event::resolve(verdict)) }
    }

    /// Evidence that the command was not carried out.
    pub fn resolve_not_executed(proof: Proof) -> Change {
        Change::of(Event::resolve(Verdict::NotExecuted(proof)))
    }

    /// Evidence that the call which the attempt `epoch` of a command in phases left open took place. The command is resumed
    /// after it.
    ///
    /// # Errors
    /// If no run could read the output.
    pub fn resolve_call_executed(epoch: Epoch, phase: &str, output: Bytes) -> Result<Change, InvalidOutput> {
        let call = OpenCall::executed(phase, output)?;
        Ok(Change::on_call(epoch, PhaseVerdict::Executed, call))
    }

    /// Evidence that the call which the attempt `epoch` of a command in phases left open did not take place. The command is
    /// resumed, and makes it anew.
    pub fn resolve_call_not_executed(epoch: Epoch, phase: &str, proof: Proof) -> Change {
        let call = OpenCall::NotExecuted { phase: phase.to_owned() };
        Change::on_call(epoch, PhaseVerdict::NotExecuted(proof), call)
    }

    /// A command in phases that was given up in the attempt `epoch`, with no call open, is resumed.
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

    /// The same evidence, seen at this moment by the store's clock, and not only now.
    pub fn seen_at(self, seen: Timestamp) -> Change {
        let seen = Some(seen);
        let mut event = self.event;
        if let Event::Resolve { seen: known, .. } | Event::ResolvePhase { seen: known, .. } = &mut event {
            *known = seen;
        }
        Change { event, ..self }
    }

    /// The same evidence, about this attempt.
    pub fn about(self, about: About) -> Change {
        let Event::Resolve { verdict, seen, .. } = self.event else { return self };
        Change { event: Event::Resolve { verdict, seen, about }, ..self }
    }

    /// Evidence is sought for the time after `attempts` others, and if that is in vain, sought again later.
    pub fn postpone(until: Timestamp, attempts: u32) -> Change {
        let event = Event::Postpone { until, attempts, counts: true };
        Change::of(event)
    }

    /// A look that was counted as the `attempts`-th is in vain, and the next one is at another time than was thought.
    pub fn put_off(until: Timestamp, attempts: u32) -> Change {
        let event = Event::Postpone { until, attempts, counts: false };
        Change::of(event)
    }

    /// An operator gives up a command that has not run.
    pub fn free() -> Change {
        Change::of(Event::Free)
    }

    /// An operator forgets a settled command.
    pub fn purge() -> Change {
        Change::of(Event::Purge)
    }

    /// The same, with a note for the record's history. It is kept in the same write, for good, if the change
    /// takes effect. The note of a verdict says which.
    pub fn noted(self, note: Note) -> Change {
        let verdict = self.event.verdict_name().map(|verdict| format!(" {verdict}"));
        let action = note.action + verdict.as_deref().unwrap_or_default();
        Change { note: Some(Note { action, ..note }), ..self }
    }

    /// The same, with another form of its result, if it has one: sealed, for a store.
    pub fn with_result(&self, result: StoredResult) -> Change {
        let result = self.result.is_some().then_some(result);
        Change { result, ..self.clone() }
    }

    /// The same, with another form of the output of its open call, if it has one: sealed, for a store.
    pub(crate) fn with_call_output(&self, sealed: Bytes) -> Change {
        let mut change = self.clone();
        if let Some(OpenCall::Executed { output, .. }) = &mut change.call {
            *output = sealed;
        }
        change
    }

    /// The same, with what the executor saw of a call whose outcome it cannot know. It is part of the record's history.
    pub fn observing(self, seen: impl Into<String>) -> Change {
        Change { seen: Some(seen.into()), ..self }
    }

    /// What the executor saw. A store hands it to [`Record::observing`](crate::Record::observing) with what it writes.
    pub fn observation(&self) -> Option<&str> {
        self.seen.as_deref()
    }

    /// The note that goes with it.
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// The open call that it is a verdict on. A store that has one decides on [`event_for`](Change::event_for), and writes
    /// the call's [mark](OpenCall::mark) with an applied decision.
    pub fn call(&self) -> Option<&OpenCall> {
        self.call.as_ref()
    }

    /// The event, for a command of which the store has these steps, and its input or not.
    pub fn event_for(&self, steps: &[Progress], has_input: bool) -> Event {
        match (self.event, &self.call) {
            (Event::ResolvePhase { epoch, verdict, seen, within, .. }, Some(call)) => {
                let recorded = Recorded { fits: call.fits(steps), has_input };
                Event::ResolvePhase { epoch, verdict, seen, within, recorded }
            }
            (event, _) => event,
        }
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// What the record takes with it into a terminal state.
    pub fn result(&self) -> Option<&StoredResult> {
        self.result.as_ref()
    }
}
