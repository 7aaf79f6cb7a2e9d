//! Where a command stands, as data: nothing here decides, nothing here does I/O.
//!
//! A [`Head`] is everything the protocol decides on. It is small and `Copy`, so that the stores, the property
//! tests and the model all hand the same value to [`transition`](crate::transition::transition).

use crate::fingerprint::Fingerprint;
use crate::ids::AttemptToken;
use crate::policy::OnLeaseExpired;
use crate::terms::Terms;
use crate::time::Timestamp;

/// The fencing number: rises each time a command is acquired anew.
pub type Epoch = u32;

/// Proves that a write comes from the executor that holds the command now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The epoch in which the executor acquired the command.
    pub epoch: Epoch,
    /// The token of the attempt that acquired it.
    pub token: AttemptToken,
}

/// The state of a command. One that has no record has no state: nobody has asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Reserved, not started: an asynchronous command that waits for a worker.
    Claimed {
        /// If no worker starts it by then, it is given up.
        start_by: Timestamp,
        /// No worker starts it earlier.
        ready_at: Timestamp,
    },
    /// An executor holds the lease.
    Processing {
        /// When the executor's word that it is alive runs out.
        lease_until: Timestamp,
        /// Until when a worker may start it again, for commands whose request is kept for that.
        start_by: Option<Timestamp>,
    },
    /// The effect is committed and the response stored.
    Succeeded {
        /// When the record may be forgotten.
        expires_at: Timestamp,
        /// Whose word it is.
        settled_by: SettledBy,
    },
    /// A stable failure, such as a declined card: repeating the command gives the same answer.
    FailedFinal {
        /// When the record may be forgotten.
        expires_at: Timestamp,
        /// Whose word it is.
        settled_by: SettledBy,
    },
    /// Proven not executed: one fresh request may run it.
    FailedRetryable {
        /// When the record may be forgotten.
        expires_at: Timestamp,
    },
    /// Nobody can prove what happened.
    Unknown {
        /// Since when.
        since: Timestamp,
        /// When to look for evidence next.
        reconcile_after: Timestamp,
        /// How often evidence was sought in vain.
        attempts: u32,
        /// Until when a call of the last attempt could still be on its way.
        quarantine_until: Timestamp,
    },
    /// A tombstone: the command ran, and its response is gone.
    Expired {
        /// When the tombstone goes too.
        forget_at: Timestamp,
    },
}

/// Who settled a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettledBy {
    /// The executor that ran it.
    Executor,
    /// Evidence from elsewhere: a webhook, a look-up, an operator.
    Verdict,
}

/// The name of a [`State`] without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// See [`State::Claimed`].
    Claimed,
    /// See [`State::Processing`].
    Processing,
    /// See [`State::Succeeded`].
    Succeeded,
    /// See [`State::FailedFinal`].
    FailedFinal,
    /// See [`State::FailedRetryable`].
    FailedRetryable,
    /// See [`State::Unknown`].
    Unknown,
    /// See [`State::Expired`].
    Expired,
}

impl StateName {
    /// Every state, in the order of a command's life.
    pub const ALL: [StateName; 7] = [
        StateName::Claimed,
        StateName::Processing,
        StateName::Succeeded,
        StateName::FailedFinal,
        StateName::FailedRetryable,
        StateName::Unknown,
        StateName::Expired,
    ];

    /// The name in columns, JSON, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            StateName::Claimed => "claimed",
            StateName::Processing => "processing",
            StateName::Succeeded => "succeeded",
            StateName::FailedFinal => "failed_final",
            StateName::FailedRetryable => "failed_retryable",
            StateName::Unknown => "unknown",
            StateName::Expired => "expired",
        }
    }

    /// The state of that name.
    pub fn parse(text: &str) -> Option<StateName> {
        StateName::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl State {
    /// The state's name.
    pub const fn name(&self) -> StateName {
        match self {
            State::Claimed { .. } => StateName::Claimed,
            State::Processing { .. } => StateName::Processing,
            State::Succeeded { .. } => StateName::Succeeded,
            State::FailedFinal { .. } => StateName::FailedFinal,
            State::FailedRetryable { .. } => StateName::FailedRetryable,
            State::Unknown { .. } => StateName::Unknown,
            State::Expired { .. } => StateName::Expired,
        }
    }

    /// Whether the command is settled for good, so that its record no longer changes but by expiry and purge.
    pub const fn is_terminal(&self) -> bool {
        match self {
            State::Succeeded { .. } | State::FailedFinal { .. } => true,
            State::Claimed { .. }
            | State::Processing { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => false,
        }
    }

    /// Whether the command waits, runs or is unknown: what became of it is not said yet.
    pub const fn is_open(&self) -> bool {
        match self {
            State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => true,
            State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => false,
        }
    }

    /// When a sweeper has something to do: a lease ends, or the time to start.
    pub const fn due_to_sweep(&self) -> Option<Timestamp> {
        match *self {
            State::Claimed { start_by: due, .. } | State::Processing { lease_until: due, .. } => Some(due),
            State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => None,
        }
    }

    /// When the record may be forgotten, for states that expire: a reaper has something to do.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match *self {
            State::Succeeded { expires_at, .. }
            | State::FailedFinal { expires_at, .. }
            | State::FailedRetryable { expires_at }
            | State::Expired { forget_at: expires_at } => Some(expires_at),
            State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => None,
        }
    }
}

/// Why a record is in its state.
///
/// A record says why from the first schema on: an operator who meets it months later was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A request claimed it.
    Claimed,
    /// A worker started it.
    Started,
    /// Its transaction is committed, and what it comes to is left to the message that it sends.
    Deferred,
    /// The handler has done some of it; the same request, sent again, does the rest.
    PartlyDone,
    /// The handler answered, and its answer is final.
    Answered,
    /// The handler, or the connection to it, proved that nothing ran.
    NotExecuted,
    /// The handler answered with a server error, which says nothing about the effect.
    ServerError,
    /// The handler itself said that it does not know.
    HandlerUnsure,
    /// The handler did not answer in time.
    TimedOut,
    /// The handler failed without an answer, or its answer broke off.
    BrokeOff,
    /// The handler panicked.
    Panicked,
    /// The executor's process was shut down before the handler was done.
    ShutDown,
    /// The executor's lease ended without a word.
    LeaseExpired,
    /// What was left to a message did not come to an end in time.
    DeferralExpired,
    /// The message that its outcome was left to is given up.
    MessageDead,
    /// No worker started it in time.
    NeverStarted,
    /// The claim could not be confirmed, so nothing was started.
    ClaimUnconfirmed,
    /// Evidence says that it was executed.
    VerdictExecuted,
    /// Evidence says that it was not executed.
    VerdictNotExecuted,
    /// Evidence says that it was not executed so far, by somebody who never executes it twice: a call may still land.
    VerdictDeduplicated,
    /// An operator has it resumed: none of its calls was open.
    Resumed,
    /// Its time to live is over.
    Expired,
    /// An operator purged it.
    Purged,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 23] = [
        Reason::Claimed,
        Reason::Started,
        Reason::Deferred,
        Reason::PartlyDone,
        Reason::Answered,
        Reason::NotExecuted,
        Reason::ServerError,
        Reason::HandlerUnsure,
        Reason::TimedOut,
        Reason::BrokeOff,
        Reason::Panicked,
        Reason::ShutDown,
        Reason::LeaseExpired,
        Reason::DeferralExpired,
        Reason::MessageDead,
        Reason::NeverStarted,
        Reason::ClaimUnconfirmed,
        Reason::VerdictExecuted,
        Reason::VerdictNotExecuted,
        Reason::VerdictDeduplicated,
        Reason::Resumed,
        Reason::Expired,
        Reason::Purged,
    ];

    /// The outcome code in columns, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Claimed => "claimed",
            Reason::Started => "started",
            Reason::Deferred => "deferred",
            Reason::PartlyDone => "partly_done",
            Reason::Answered => "answered",
            Reason::NotExecuted => "not_executed",
            Reason::ServerError => "server_error",
            Reason::HandlerUnsure => "handler_unsure",
            Reason::TimedOut => "timed_out",
            Reason::BrokeOff => "broke_off",
            Reason::Panicked => "panicked",
            Reason::ShutDown => "shut_down",
            Reason::LeaseExpired => "lease_expired",
            Reason::DeferralExpired => "deferral_expired",
            Reason::MessageDead => "message_dead",
            Reason::NeverStarted => "never_started",
            Reason::ClaimUnconfirmed => "claim_unconfirmed",
            Reason::VerdictExecuted => "verdict_executed",
            Reason::VerdictNotExecuted => "verdict_not_executed",
            Reason::VerdictDeduplicated => "verdict_deduplicated",
            Reason::Resumed => "resumed",
            Reason::Expired => "expired",
            Reason::Purged => "purged",
        }
    }

    /// Whether the command is taken from its executor, and yet a call of it may have landed, or still land.
    pub const fn proves_nothing(self) -> bool {
        matches!(self, Reason::LeaseExpired | Reason::VerdictDeduplicated)
    }

    /// The reason of that name.
    pub fn parse(text: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// Everything the protocol decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// What was asked for.
    pub fingerprint: Fingerprint,
    /// How often the command was acquired.
    pub epoch: Epoch,
    /// The attempt that acquired it last. It stays after completion, so that a completion whose answer was
    /// lost can be sent again and recognised.
    pub token: AttemptToken,
    /// The terms of that attempt.
    pub terms: Terms,
    /// Where the command stands.
    pub state: State,
    /// Why it stands there.
    pub reason: Reason,
    /// Whether an attempt before that one may have had an effect, or may still have one. What a later attempt proves of itself
    /// says nothing about it.
    pub earlier_may_have_run: bool,
    /// Whether an attempt has committed a part of the command that stays: a finished phase, a transaction whose outcome is
    /// left to a message, items of a bulk request. Such a command is continued or settled, and never taken back.
    pub partly_done: bool,
}

impl Head {
    /// Whether an attempt that is over, this one or an earlier one, may have had an effect, or may still have one.
    pub const fn may_have_run(&self) -> bool {
        self.earlier_may_have_run || self.reason.proves_nothing()
    }

    /// Whether another command may have its business reference: no attempt has left anything behind, nor can one.
    pub const fn left_nothing(&self) -> bool {
        !self.may_have_run() && !self.partly_done
    }

    /// Whether it runs in phases, so that an executor resumes it where the last one was.
    pub const fn is_phased(&self) -> bool {
        matches!(self.terms.on_lease_expired, OnLeaseExpired::Resume)
    }

    /// Whether its request is kept: a worker may have to start it, or to resume it after a verdict on its open call; or its
    /// terms have it kept until its outcome is known.
    pub const fn keeps_request(&self) -> bool {
        match self.state {
            State::Claimed { .. } | State::Processing { start_by: Some(_), .. } => true,
            State::Processing { start_by: None, .. } => self.terms.keep_request,
            State::Unknown { .. } => self.terms.keep_request || self.is_phased(),
            State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => false,
        }
    }

    /// What the executor of the current attempt proves itself with.
    pub const fn fence(&self) -> Fence {
        Fence { epoch: self.epoch, token: self.token }
    }

    /// Whether its outcome was left to a message, and nobody else's word has settled it: whoever delivers the message
    /// may speak for it.
    pub const fn is_left_to_a_message(&self) -> bool {
        matches!(self.reason, Reason::Deferred | Reason::DeferralExpired | Reason::MessageDead)
    }

    /// The same command in another state.
    pub const fn moved(self, state: State, reason: Reason) -> Head {
        Head { state, reason, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintVersion;

    #[test]
    fn names_read_back() {
        for name in StateName::ALL {
            assert_eq!(StateName::parse(name.as_str()), Some(name));
        }
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(StateName::parse("done"), None);
        assert_eq!(Reason::parse(""), None);
    }

    fn states() -> [State; 8] {
        let at = Timestamp::from_millis;
        let settled_by = SettledBy::Executor;
        [
            State::Claimed { start_by: at(1), ready_at: at(0) },
            State::Processing { lease_until: at(2), start_by: None },
            State::Processing { lease_until: at(3), start_by: Some(at(9)) },
            State::Succeeded { expires_at: at(4), settled_by },
            State::FailedFinal { expires_at: at(5), settled_by },
            State::FailedRetryable { expires_at: at(6) },
            State::Unknown { since: at(0), reconcile_after: at(0), attempts: 0, quarantine_until: at(0) },
            State::Expired { forget_at: at(7) },
        ]
    }

    #[test]
    fn what_each_state_is_waited_for() {
        let swept = states().map(|state| state.due_to_sweep().map(Timestamp::as_millis));
        assert_eq!(swept, [Some(1), Some(2), Some(3), None, None, None, None, None]);
        let reaped = states().map(|state| state.expires_at().map(Timestamp::as_millis));
        assert_eq!(reaped, [None, None, None, Some(4), Some(5), Some(6), None, Some(7)]);
    }

    #[test]
    fn what_each_state_keeps() {
        let terminal = states().map(|state| state.is_terminal());
        assert_eq!(terminal, [false, false, false, true, true, false, false, false]);
        let keeps = |keep_request, on_lease_expired| {
            let fingerprint = Fingerprint::from_parts(FingerprintVersion::CURRENT, [0; 32]);
            let terms = Terms { keep_request, on_lease_expired, ..crate::Policy::default().terms() };
            let (token, reason) = (AttemptToken::from_bytes([1; 16]), Reason::Claimed);
            let (epoch, earlier_may_have_run, partly_done) = (1, false, false);
            states().map(|state| {
                Head { fingerprint, epoch, token, terms, state, reason, earlier_may_have_run, partly_done }
                    .keeps_request()
            })
        };
        let (unknown, resume) = (OnLeaseExpired::Unknown, OnLeaseExpired::Resume);
        assert_eq!(keeps(false, unknown), [true, false, true, false, false, false, false, false]);
        assert_eq!(keeps(false, resume), [true, false, true, false, false, false, true, false]);
        assert_eq!(keeps(true, unknown), [true, true, true, false, false, false, true, false]);
    }

    #[test]
    fn a_state_is_shown_by_its_name() {
        assert_eq!(
            states().map(|state| state.name().to_string()).join(" "),
            "claimed processing processing succeeded failed_final failed_retryable unknown expired"
        );
    }
}
