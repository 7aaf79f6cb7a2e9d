//! The vocabulary of the protocol: events, their effects and the decisions for their senders. Data only:
//! [`transition`](crate::transition::transition) decides.

use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::ids::AttemptToken;
use crate::state::{Epoch, Fence, Head, Reason};
use crate::terms::Terms;
use crate::time::Timestamp;

/// The attempt of one request to run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Token of this attempt alone.
    pub token: AttemptToken,
    /// Terms of this attempt.
    pub terms: Terms,
    /// The executor of the command.
    pub start: Start,
    /// State of the request's business reference.
    pub reference: Reference,
    /// Effect of the store's fence on this claim.
    pub fence: ClaimFence,
}

/// State of a request's business reference: a name from the client's business, such as an order number, that
/// no two commands of one tenant and operation may share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reference {
    /// The request has no reference.
    #[default]
    None,
    /// No other command holds the reference.
    Free,
    /// Another command holds the reference. Only the store knows this, and sets it.
    Taken,
}

/// Effect of the store's fence on one claim. Only the store sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClaimFence {
    /// The claim is decided as without a fence: there is none, or it does not concern this command.
    #[default]
    Open,
    /// The command may have run already, and the operator has not chosen otherwise: nothing begins.
    Closed,
    /// The command may have run already: its outcome is unknown, and evidence is sought before it runs.
    LookUpFirst,
}

/// The executor of a claimed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// The claimer, at once.
    Now,
    /// A worker, which must start within this time.
    Within(Duration),
    /// The claimer, at once; after it, workers that resume the command within this time.
    Resumable(Duration),
}

/// An event in the life of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A new request wants to run the command.
    Claim(Attempt),
    /// A caller that may not run the command reads its state: a waiter, or a replay from memory.
    Look {
        /// Fingerprint of the request.
        fingerprint: Fingerprint,
    },
    /// A worker starts a `Claimed` command.
    Start {
        /// Fence of the claim.
        fence: Fence,
        /// The worker's own token, drawn for this attempt.
        token: AttemptToken,
    },
    /// The executor renews its lease.
    Renew {
        /// Fence of the executor.
        fence: Fence,
    },
    /// The executor has a final success.
    Complete {
        /// Fence of the executor.
        fence: Fence,
    },
    /// The executor has a final failure.
    Fail {
        /// Fence of the executor.
        fence: Fence,
        /// Reason why the failure is final.
        reason: Reason,
    },
    /// The executor proves that nothing ran.
    Release {
        /// Fence of the executor.
        fence: Fence,
        /// Proof that nothing ran.
        reason: Reason,
    },
    /// The executor proves that nothing ran beyond the recorded phases, and leaves the rest to a worker.
    Requeue {
        /// Fence of the executor.
        fence: Fence,
        /// Proof that nothing more ran.
        reason: Reason,
        /// Delay before a worker may start.
        after: Duration,
    },
    /// The executor has committed its part; a message that commits with it decides the outcome.
    Defer {
        /// Fence of the executor.
        fence: Fence,
        /// Time limit for the message to be delivered.
        time: Duration,
    },
    /// The executor cannot know the outcome.
    Abandon {
        /// Fence of the executor.
        fence: Fence,
        /// Reason why the outcome is unknown.
        reason: Reason,
    },
    /// A part of the command is committed with this event, or may be from now on: a finished phase, or items
    /// of a bulk request.
    Advance,
    /// Time passes: the event of the sweeper and the reaper.
    Age,
    /// Evidence about a command whose outcome is unknown.
    Resolve {
        /// Verdict of the evidence.
        verdict: Verdict,
        /// Time at which the evidence was seen, by the store's clock; `None` means now. An effect that was
        /// absent then may have landed since, even by a later attempt.
        seen: Option<Timestamp>,
        /// Attempt that the evidence is about.
        about: About,
    },
    /// Evidence about the open call of a command in phases, after which the command is resumed.
    ResolvePhase {
        /// Attempt that the evidence is about.
        epoch: Epoch,
        /// Verdict on the call.
        verdict: PhaseVerdict,
        /// Time at which the evidence was seen, by the store's clock; `None` means now.
        seen: Option<Timestamp>,
        /// Time in which a worker must resume the command.
        within: Duration,
        /// The store's knowledge of the command.
        recorded: Recorded,
    },
    /// A look-up of evidence begins or ends, and the next one is scheduled.
    Postpone {
        /// Time of the next look-up.
        until: Timestamp,
        /// Number of look-ups before this one. Of several concurrent look-ups, only one counts.
        attempts: u32,
        /// True for a new look-up; false for the end of one that was already counted.
        counts: bool,
    },
    /// The store may have forgotten what became of the command: it was restored, and its fence is being lifted.
    Doubt,
    /// An operator gives up a command that has not run.
    Free,
    /// An operator purges a settled command.
    Purge,
}

impl Event {
    /// Returns a verdict that is seen now and about no attempt in particular.
    pub const fn resolve(verdict: Verdict) -> Event {
        Event::Resolve { verdict, seen: None, about: About::Command }
    }

    /// Returns the executor's fence, if an executor sends this event.
    pub fn fence(&self) -> Option<Fence> {
        match *self {
            Event::Start { fence, .. }
            | Event::Renew { fence }
            | Event::Complete { fence }
            | Event::Fail { fence, .. }
            | Event::Release { fence, .. }
            | Event::Requeue { fence, .. }
            | Event::Defer { fence, .. }
            | Event::Abandon { fence, .. } => Some(fence),
            Event::Claim(_)
            | Event::Look { .. }
            | Event::Advance
            | Event::Age
            | Event::Resolve { .. }
            | Event::ResolvePhase { .. }
            | Event::Postpone { .. }
            | Event::Doubt
            | Event::Free
            | Event::Purge => None,
        }
    }

    /// Returns the name of the event's verdict, if it has one.
    pub(crate) fn verdict_name(&self) -> Option<&'static str> {
        if let Event::Resolve { verdict, .. } = self {
            return Some(verdict.as_str());
        }
        if let Event::ResolvePhase { verdict, .. } = self { Some(verdict.as_str()) } else { None }
    }

    /// Returns true if the event has the same effect when it is sent twice: its token identifies it.
    ///
    /// Events of operators and reconcilers have no token. If the answer to one is lost, the sender must read
    /// the record first.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Event::Claim(_)
            | Event::Look { .. }
            | Event::Start { .. }
            | Event::Renew { .. }
            | Event::Complete { .. }
            | Event::Fail { .. }
            | Event::Release { .. }
            | Event::Requeue { .. }
            | Event::Defer { .. }
            | Event::Abandon { .. }
            | Event::Advance
            | Event::Doubt
            | Event::Age => true,
            Event::Resolve { .. }
            | Event::ResolvePhase { .. }
            | Event::Postpone { .. }
            | Event::Free
            | Event::Purge => false,
        }
    }
}

/// The attempt that evidence is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum About {
    /// The command as a whole.
    #[default]
    Command,
    /// The attempt of this epoch or an earlier one: the evidence names it, or was seen before the next
    /// attempt began.
    UpTo(Epoch),
    /// The attempt of this epoch, only while it is the last one: an operator looked at it and decided.
    Only(Epoch),
}

impl About {
    /// Returns true for evidence about an attempt before the one of this epoch.
    pub const fn is_before(self, epoch: Epoch) -> bool {
        match self {
            About::Command => false,
            About::UpTo(named) | About::Only(named) => named < epoch,
        }
    }

    /// Returns true for evidence that does not count, since it is about another attempt than this epoch's.
    pub const fn excludes(self, epoch: Epoch) -> bool {
        match self {
            About::Command | About::UpTo(_) => false,
            About::Only(named) => named != epoch,
        }
    }
}

/// Verdict of evidence about a command in state `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The command was executed.
    Succeeded,
    /// The command was answered with a stable failure.
    FailedFinal,
    /// The command was not executed.
    NotExecuted(Proof),
}

/// Verdict of evidence about the open call of a command in phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PhaseVerdict {
    /// The call was executed, and its output is known.
    Executed,
    /// The call was not executed.
    NotExecuted(Proof),
    /// No call is open: the command only resumes.
    NothingOpen,
}

impl PhaseVerdict {
    /// Returns the verdict's name in notes.
    pub const fn as_str(&self) -> &'static str {
        match self {
            PhaseVerdict::Executed => "executed",
            PhaseVerdict::NotExecuted(_) => "not_executed",
            PhaseVerdict::NothingOpen => "resume",
        }
    }
}

/// The store's knowledge of a command in phases. Only the store sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recorded {
    /// True if the verdict is about the open call; for `NothingOpen`, true if no call is open.
    pub fits: bool,
    /// True if the command's input is stored, so that a worker can resume it.
    pub has_input: bool,
}

/// Reason why no call that is still in flight can invalidate a verdict of "not executed".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The provider deduplicates on a key that is the same in every epoch.
    ProviderDeduplicates,
    /// The provider holds a tombstone: the command was cancelled there under its id.
    ProviderTombstone,
    /// The quarantine is over: no call can still be in flight.
    Quarantine,
}

/// The next action of an event's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Run the command, under the record's epoch and your token.
    Execute,
    /// Return the stored response.
    Replay,
    /// Wait: the command is running, or waits for a worker.
    Wait,
    /// Refuse: the key belongs to another request.
    Mismatch,
    /// Seek evidence: the outcome is unknown.
    Reconcile,
    /// Refuse: the command ran, and its response is gone.
    Expired,
    /// No executor holds the command. A new request may claim it; the sender of this event may not run it.
    Vacant,
    /// Another command holds the business reference.
    Duplicate,
    /// The event took effect, now or when it was first sent.
    Applied,
    /// The sender no longer holds the command, or never did. The event changed nothing.
    Fenced,
    /// The event is refused for this reason.
    Refused(Refusal),
    /// Time changed nothing.
    Idle,
}

impl Decision {
    /// Returns the decision's name in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Decision::Execute => "execute",
            Decision::Replay => "replay",
            Decision::Wait => "wait",
            Decision::Mismatch => "mismatch",
            Decision::Reconcile => "reconcile",
            Decision::Expired => "expired",
            Decision::Vacant => "vacant",
            Decision::Duplicate => "duplicate",
            Decision::Applied => "applied",
            Decision::Fenced => "fenced",
            Decision::Refused(_) => "refused",
            Decision::Idle => "idle",
        }
    }
}

/// Reason why an event is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// There is no such record.
    #[error("there is no such record")]
    Absent,
    /// The event does not fit the record's state.
    #[error("the record's state does not allow it")]
    WrongState,
    /// Another change of the record came first.
    #[error("another writer was faster")]
    Overtaken,
    /// The evidence is about another attempt than the record's last one.
    #[error("the last attempt is attempt {epoch} by now")]
    OtherAttempt {
        /// Epoch of the record's last attempt.
        epoch: Epoch,
    },
    /// An attempt has committed a part of the command.
    #[error(
        "a part of the command is committed and stays: send its message again, send the request again, or settle it with \
         the response that retries are to get"
    )]
    PartlyDone,
    /// The command runs in phases.
    #[error("the command runs in phases: name the phase whose call is open, which `records show` tells")]
    InPhases,
    /// The verdict is not about the call that is open.
    #[error("the command has no open call of that phase")]
    NotOpen,
    /// The record's fingerprint has a version that this program does not compute, so the requests cannot be
    /// compared.
    #[error(
        "the record was made by a program with another version of the fingerprint, which this one does not know"
    )]
    FingerprintVersion,
    /// The store is fenced: it was restored, and may have forgotten that the command ran.
    #[error("the store is fenced: it was restored, and may have forgotten that the command ran")]
    StoreFenced,
    /// The store may have forgotten phases of the command.
    #[error(
        "the store was restored, and may have forgotten phases of the command: settle the command as a whole, with the \
         response that retries are to get"
    )]
    PhasesForgotten,
    /// A call of an attempt could still land.
    #[error("a call of it could still be in flight until {until}")]
    StillInFlight {
        /// End of the quarantine.
        until: Timestamp,
    },
}

/// The write that makes the record reflect the decision of [`transition`](crate::transition::transition()).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Writes nothing.
    Keep,
    /// Creates a record; it replaces the row of a forgotten command, if there is one.
    Create(Head),
    /// Updates the record of this command.
    Update(Head),
    /// Deletes the record.
    Delete,
}

/// The write to the command's business reference, in the same atomic write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReferenceWrite {
    /// Writes nothing.
    Keep,
    /// Gives the reference to the command; it outlives the record.
    Take,
    /// Frees the reference for other commands, since this one provably had no effect. The record remembers
    /// it.
    GiveBack,
    /// Gives a freed reference back to the command, which had an effect after all, unless another command
    /// holds it by now.
    TakeBack,
}

/// The write to the command's request, in the same atomic write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestWrite {
    /// Writes nothing.
    Keep,
    /// Stores the request: a worker may have to start the command, or its terms ask for it.
    Store,
    /// Erases the request: no worker starts the command any more, and its outcome is known.
    Erase,
}

/// The part of a record that the passage of time had ended before an event came. The event's write carries
/// this out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lapse {
    /// The lease, or the deadline for the start.
    Lease,
    /// The time to live of the record or of its response: the command was settled, and a retry may run it again.
    Retention,
    /// The time to live of a record without a response to lose: the command had not run, or an operator purged it.
    Remainder,
}

/// The effects of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    /// Write to the record.
    pub write: Write,
    /// Write to the command's business reference.
    pub reference: ReferenceWrite,
    /// Write to the command's request.
    pub request: RequestWrite,
    /// Decision for the sender, once the writes are durable.
    pub decision: Decision,
    /// Part of the record that had lapsed before the event, if its write carries that out.
    pub lapse: Option<Lapse>,
}
