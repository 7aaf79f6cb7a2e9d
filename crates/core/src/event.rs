//! What can happen to a command, what follows from it, and what the sender is to do: words only, nothing here
//! decides. [`transition`](crate::transition::transition) does.

use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::ids::AttemptToken;
use crate::state::{Epoch, Fence, Head, Reason};
use crate::terms::Terms;
use crate::time::Timestamp;

/// One request's wish to run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// Drawn for this attempt alone.
    pub token: AttemptToken,
    /// The terms it would run under.
    pub terms: Terms,
    /// Who would run it.
    pub start: Start,
    /// What is known of the business reference it carries.
    pub reference: Reference,
}

/// What is known of the business reference that a request carries: a name of the client's business for what it
/// asks for, such as an order number, which no two commands of one tenant and operation may share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reference {
    /// It carries none.
    #[default]
    None,
    /// No other command holds it.
    Free,
    /// Another command holds it. Only the store can know, so only the store says so.
    Taken,
}

/// Who runs a claimed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// The claimer, at once.
    Now,
    /// A worker, which must begin within this time.
    Within(Duration),
    /// The claimer, at once; and whoever resumes it, within this time.
    Resumable(Duration),
}

/// What can happen to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A fresh request wants to run it.
    Claim(Attempt),
    /// Somebody who may not run it asks where it stands: a waiter, a replay from memory.
    Look {
        /// What is asked for.
        fingerprint: Fingerprint,
    },
    /// A worker takes up a `Claimed` command.
    Start {
        /// The claim it takes up.
        fence: Fence,
        /// The worker's own token, drawn for this attempt.
        token: AttemptToken,
    },
    /// The executor is still at it.
    Renew {
        /// The executor.
        fence: Fence,
    },
    /// The executor has a final success.
    Complete {
        /// The executor.
        fence: Fence,
    },
    /// The executor has a final failure.
    Fail {
        /// The executor.
        fence: Fence,
        /// Why it is final.
        reason: Reason,
    },
    /// The executor proves that nothing ran.
    Release {
        /// The executor.
        fence: Fence,
        /// How it knows.
        reason: Reason,
    },
    /// The executor proves that nothing more has happened than its phases say, and leaves the rest to a worker.
    Requeue {
        /// The executor.
        fence: Fence,
        /// How it knows.
        reason: Reason,
        /// How long a worker is to wait.
        after: Duration,
    },
    /// The executor has committed its part, and leaves the outcome to the message that it sends with it.
    Defer {
        /// The executor.
        fence: Fence,
        /// How long that may take.
        time: Duration,
    },
    /// The executor cannot know what happened.
    Abandon {
        /// The executor.
        fence: Fence,
        /// Why not.
        reason: Reason,
    },
    /// A part of the command is committed with this, or may be from now on: a finished phase, the items of a bulk request.
    Advance,
    /// Nothing but time: the sweeper's and the reaper's event.
    Age,
    /// Evidence about a command whose outcome is unknown.
    Resolve {
        /// What it says.
        verdict: Verdict,
        /// When that was seen, by the store's clock; `None`: in this moment. What was not there then may have landed since,
        /// also by a later attempt.
        seen: Option<Timestamp>,
        /// The attempt that it is about.
        about: About,
    },
    /// Evidence about the open call of a command in phases, after which the command is resumed.
    ResolvePhase {
        /// The attempt it is about.
        epoch: Epoch,
        /// What it says.
        verdict: PhaseVerdict,
        /// When that was seen, by the store's clock; `None`: in this moment.
        seen: Option<Timestamp>,
        /// How long a worker may take to resume the command.
        within: Duration,
        /// What the store has of the command.
        recorded: Recorded,
    },
    /// Evidence is sought, and if that is in vain, sought again later.
    Postpone {
        /// When to seek again.
        until: Timestamp,
        /// How often it had been sought before. Of several who seek at once, one is the first.
        attempts: u32,
        /// Whether this is another look, or the end of one that was counted.
        counts: bool,
    },
    /// An operator gives up a command that has not run.
    Free,
    /// An operator forgets a settled command.
    Purge,
}

impl Event {
    /// Evidence that is seen in this moment, about no attempt in particular.
    pub const fn resolve(verdict: Verdict) -> Event {
        Event::Resolve { verdict, seen: None, about: About::Command }
    }

    /// Who says so: the executor's fence, where there is an executor.
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
            | Event::Free
            | Event::Purge => None,
        }
    }

    /// The name of the verdict that it brings, if it brings one.
    pub(crate) fn verdict_name(&self) -> Option<&'static str> {
        if let Event::Resolve { verdict, .. } = self {
            return Some(verdict.as_str());
        }
        if let Event::ResolvePhase { verdict, .. } = self { Some(verdict.as_str()) } else { None }
    }

    /// Whether sending it a second time cannot do more than sending it once: a token tells that it is the same.
    ///
    /// What operators and reconcilers say carries none. If its answer is lost, somebody must look first.
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
    /// No attempt in particular: the command.
    #[default]
    Command,
    /// The attempt of this epoch, or one before it: the evidence names it, or was seen before the next one began.
    UpTo(Epoch),
    /// The attempt of this epoch, and only while it is the last one: somebody looked at it and decided.
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

    /// Returns true for evidence that does not count, since another attempt than this epoch's was looked at.
    pub const fn excludes(self, epoch: Epoch) -> bool {
        match self {
            About::Command | About::UpTo(_) => false,
            About::Only(named) => named != epoch,
        }
    }
}

/// What evidence says about a command whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It took place.
    Succeeded,
    /// It was answered with a stable failure.
    FailedFinal,
    /// It did not take place.
    NotExecuted(Proof),
}

/// What evidence says about the open call of a command in phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PhaseVerdict {
    /// The call took place, and its output is known.
    Executed,
    /// The call did not take place.
    NotExecuted(Proof),
    /// No call is open: there is nothing to be said but that the command goes on.
    NothingOpen,
}

impl PhaseVerdict {
    /// Its name in notes.
    pub const fn as_str(&self) -> &'static str {
        match self {
            PhaseVerdict::Executed => "executed",
            PhaseVerdict::NotExecuted(_) => "not_executed",
            PhaseVerdict::NothingOpen => "resume",
        }
    }
}

/// What a store has of a command in phases. Only the store can know, so only the store says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recorded {
    /// Whether the verdict is about the call that is open, or, where it says that none is, whether none is.
    pub fits: bool,
    /// Whether the command's input is kept, so that a worker can resume it.
    pub has_input: bool,
}

/// Why a verdict of "not executed" cannot be overtaken by a call that is still on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The provider deduplicates on a key of ours that is the same in every epoch.
    ProviderDeduplicates,
    /// The provider holds a tombstone: the command was cancelled there under its id.
    ProviderTombstone,
    /// No call can be on its way any more, since the quarantine is over.
    Quarantine,
}

/// What the sender of an event is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The command is yours: run it, under the record's epoch and your token.
    Execute,
    /// Answer with the stored response.
    Replay,
    /// Somebody else has it in hand.
    Wait,
    /// The key belongs to another request.
    Mismatch,
    /// Nobody knows what happened: only evidence helps.
    Reconcile,
    /// The command ran, and its response is gone.
    Expired,
    /// Nobody has it in hand. A fresh request may claim it; the asker may not run it.
    Vacant,
    /// Another command holds the business reference.
    Duplicate,
    /// The event took effect, now or when it was first sent.
    Applied,
    /// The sender is not, or no longer, the one who may say this. Nothing changed on its word.
    Fenced,
    /// An operator's event that this state does not allow.
    Refused(Refusal),
    /// Time had nothing to do here.
    Idle,
}

/// Why an operator's event is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// There is no such record.
    #[error("there is no such record")]
    Absent,
    /// The event does not fit the record's state.
    #[error("the record's state does not allow it")]
    WrongState,
    /// Somebody else was there in between.
    #[error("somebody else was faster")]
    Overtaken,
    /// The evidence is about another attempt than the record's last one.
    #[error("the last attempt is attempt {epoch} by now")]
    OtherAttempt {
        /// The record's last attempt.
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
    /// The record's fingerprint is in a version that this program does not compute: nobody can say whether the request is the
    /// same.
    #[error(
        "the record was made by a program with another version of the fingerprint, which this one does not know"
    )]
    FingerprintVersion,
    /// A call of an attempt could still land.
    #[error("a call of it could still be in flight until {until}")]
    StillInFlight {
        /// Until then.
        until: Timestamp,
    },
}

/// What to write, so that the record says what [`transition`](crate::transition::transition()) decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Nothing.
    Keep,
    /// A new command, in the place of a forgotten one if that still has a row.
    Create(Head),
    /// The same command, changed.
    Update(Head),
    /// Forget the command.
    Delete,
}

/// What becomes of the command's business reference, in the same atomic write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReferenceWrite {
    /// Nothing.
    Keep,
    /// The command holds it from now on, beyond the record's own life.
    Take,
    /// It is free for others, since the command provably had no effect. It is remembered as long as the record is.
    GiveBack,
    /// The command had an effect after all: it holds what it gave back, unless somebody else does by now.
    TakeBack,
}

/// What becomes of the command's request, in the same atomic write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestWrite {
    /// Nothing.
    Keep,
    /// It is kept, since a worker may have to start the command, or since its terms want it.
    Store,
    /// It is erased, since nobody starts the command any more, and its outcome is known.
    Erase,
}

/// What follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    /// What to write.
    pub write: Write,
    /// What to write about the command's business reference.
    pub reference: ReferenceWrite,
    /// What to write about its request.
    pub request: RequestWrite,
    /// What the sender is to do once it is written.
    pub decision: Decision,
}
