//! The state of a command, as data: nothing here decides or does I/O.
//!
//! A [`Head`] is everything the protocol decides on. It is small and `Copy`, so that the stores, the property
//! tests and the model all pass the same value to [`transition`](crate::transition::transition).

use crate::fingerprint::Fingerprint;
use crate::ids::AttemptToken;
use crate::policy::OnLeaseExpired;
use crate::terms::Terms;
use crate::time::Timestamp;

/// Fencing number: rises each time a command is acquired anew.
pub type Epoch = u32;

/// Proof that a write comes from the executor that holds the command now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Epoch in which the executor acquired the command.
    pub epoch: Epoch,
    /// Token of the attempt that acquired it.
    pub token: AttemptToken,
}

/// The state of a command. A command without a record has no state: no request has asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Reserved, not started: an asynchronous command that waits for a worker.
    Claimed {
        /// Deadline for the start; after it, the command is given up.
        start_by: Timestamp,
        /// Earliest start.
        ready_at: Timestamp,
    },
    /// An executor holds the lease.
    Processing {
        /// Lease expiry.
        lease_until: Timestamp,
        /// Deadline for a restart by a worker, for commands whose request is stored for that.
        start_by: Option<Timestamp>,
    },
    /// The effect is committed and the response stored.
    Succeeded {
        /// Expiry of the record.
        expires_at: Timestamp,
        /// Settler of the command.
        settled_by: SettledBy,
    },
    /// A stable failure, such as a declined card: repeating the command gives the same answer.
    FailedFinal {
        /// Expiry of the record.
        expires_at: Timestamp,
        /// Settler of the command.
        settled_by: SettledBy,
    },
    /// Proven not executed: one new request may run it.
    FailedRetryable {
        /// Expiry of the record.
        expires_at: Timestamp,
    },
    /// The outcome cannot be proven.
    Unknown {
        /// Time at which the outcome became unknown.
        since: Timestamp,
        /// Time of the next look-up of evidence.
        reconcile_after: Timestamp,
        /// Number of look-ups without evidence.
        attempts: u32,
        /// End of the quarantine: until then a call of the last attempt may still be in flight.
        quarantine_until: Timestamp,
    },
    /// A tombstone: the command ran, and its response is gone.
    Expired {
        /// Deletion time of the tombstone.
        forget_at: Timestamp,
    },
}

/// Settler of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettledBy {
    /// The executor that ran the command.
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

    /// Returns the name in columns, JSON, metrics and logs.
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

    /// Returns the state of that name.
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
    /// Returns the state's name.
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

    /// Returns true if the command is settled for good: only expiry and purge still change its record.
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

    /// Returns true if the outcome is still open: the command waits, runs or is unknown.
    pub const fn is_open(&self) -> bool {
        match self {
            State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => true,
            State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => false,
        }
    }

    /// Returns the time at which a sweeper has work: the lease expiry, or the start deadline.
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

    /// Returns the expiry of the record, for states that expire: a reaper has work then.
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

/// Reason why a record is in its state.
///
/// Every schema since the first stores it, for operators who read the record months later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A request claimed the command.
    Claimed,
    /// A worker started the command.
    Started,
    /// The command's transaction is committed, and its outcome depends on the message that it sends.
    Deferred,
    /// The handler has done a part of the command; a retry of the same request does the rest.
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
    /// The executor's lease expired.
    LeaseExpired,
    /// The message that the outcome depends on was not delivered in time.
    DeferralExpired,
    /// The message that the outcome depends on was given up.
    MessageDead,
    /// No worker started the command in time.
    NeverStarted,
    /// The claim could not be confirmed, so nothing was started.
    ClaimUnconfirmed,
    /// Evidence says that the command was executed.
    VerdictExecuted,
    /// Evidence says that the command was not executed.
    VerdictNotExecuted,
    /// Evidence of a provider that deduplicates says "not executed so far": a call may still land.
    VerdictDeduplicated,
    /// An operator resumed the command: none of its calls was open.
    Resumed,
    /// The record's time to live is over.
    Expired,
    /// An operator purged the command.
    Purged,
    /// The store was restored, and may have forgotten what became of the command.
    StoreRestored,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 24] = [
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
        Reason::StoreRestored,
    ];

    /// Returns the outcome code in columns, JSON and logs.
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
            Reason::StoreRestored => "store_restored",
        }
    }

    /// Returns true if a command can be unknown for this reason.
    pub const fn is_of_unknown(self) -> bool {
        match self {
            Reason::NotExecuted
            | Reason::ServerError
            | Reason::HandlerUnsure
            | Reason::TimedOut
            | Reason::BrokeOff
            | Reason::Panicked
            | Reason::ShutDown
            | Reason::LeaseExpired
            | Reason::DeferralExpired
            | Reason::MessageDead
            | Reason::NeverStarted
            | Reason::StoreRestored => true,
            Reason::Claimed
            | Reason::Started
            | Reason::Deferred
            | Reason::PartlyDone
            | Reason::Answered
            | Reason::ClaimUnconfirmed
            | Reason::VerdictExecuted
            | Reason::VerdictNotExecuted
            | Reason::VerdictDeduplicated
            | Reason::Resumed
            | Reason::Expired
            | Reason::Purged => false,
        }
    }

    /// Returns true if the command was taken from its executor while a call may have landed, or may still
    /// land.
    pub const fn proves_nothing(self) -> bool {
        matches!(self, Reason::LeaseExpired | Reason::VerdictDeduplicated)
    }

    /// Returns the reason of that name.
    pub fn parse(text: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// Everything that the protocol decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Number of acquisitions of the command.
    pub epoch: Epoch,
    /// Token of the last attempt that acquired the command. It stays after completion, so that a completion
    /// whose answer was lost is recognised when it is sent again.
    pub token: AttemptToken,
    /// Terms of that attempt.
    pub terms: Terms,
    /// State of the command.
    pub state: State,
    /// Reason for the state.
    pub reason: Reason,
    /// True if an earlier attempt may have had an effect, or may still have one. A later attempt's proof
    /// about itself says nothing about it.
    pub earlier_may_have_run: bool,
    /// True if an attempt has committed a part of the command: a finished phase, a transaction whose outcome
    /// depends on a message, items of a bulk request. Such a command is resumed or settled, and never undone.
    pub partly_done: bool,
}

impl Head {
    /// Returns true if an attempt that is over, this or an earlier one, may have had an effect, or may still
    /// have one.
    pub const fn may_have_run(&self) -> bool {
        self.earlier_may_have_run || self.reason.proves_nothing()
    }

    /// Returns true if another command may have the business reference: no attempt left an effect, or still
    /// can.
    pub const fn left_nothing(&self) -> bool {
        !self.may_have_run() && !self.partly_done
    }

    /// Returns true if the command runs in phases, so that an executor resumes it where the last one stopped.
    pub const fn is_phased(&self) -> bool {
        matches!(self.terms.on_lease_expired, OnLeaseExpired::Resume)
    }

    /// Returns true if the request is stored: a worker may have to start the command, or to resume it after a
    /// verdict on its open call; or its terms store it until the outcome is known.
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

    /// Returns the time since which the command is in this state, after a write at `now` to a record with the
    /// head and time of `before`.
    pub(crate) fn since(&self, before: Option<(&Head, Timestamp)>, now: Timestamp) -> Timestamp {
        let stays = |before: &Head| (self.state.name(), self.epoch) == (before.state.name(), before.epoch);
        match (self.state, before) {
            (State::Unknown { since, .. }, _) => since,
            (_, Some((before, since))) if stays(before) => since,
            (_, Some(_) | None) => now,
        }
    }

    /// Returns the fence of the executor of the current attempt.
    pub const fn fence(&self) -> Fence {
        Fence { epoch: self.epoch, token: self.token }
    }

    /// Returns true if the outcome depends on a message and is not settled otherwise: the worker that
    /// delivers the message may settle it.
    pub const fn is_left_to_a_message(&self) -> bool {
        matches!(self.reason, Reason::Deferred | Reason::DeferralExpired | Reason::MessageDead)
    }

    /// Returns true if the outcome is unknown because the store may have forgotten attempts at the command: an attempt's own
    /// word that nothing ran says nothing about them.
    pub const fn is_in_doubt(&self) -> bool {
        matches!((self.state, self.reason), (State::Unknown { .. }, Reason::StoreRestored))
    }

    /// Returns the head of this command in another state.
    pub const fn moved(self, state: State, reason: Reason) -> Head {
        Head { state, reason, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintVersion;

    #[test]
    fn state_and_reason_names_parse_back() {
        for name in StateName::ALL {
            assert_eq!(StateName::parse(name.as_str()), Some(name));
        }
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(StateName::parse("done"), None);
        assert_eq!(Reason::parse(""), None);
    }

    /// Returns these variants of a type, which are all of them: with one left out, its match does not compile.
    macro_rules! every {
        ($type:ident: $($variant:ident)*) => {{
            let _ = |value: $type| match value { $($type::$variant => ()),* };
            [$($type::$variant),*]
        }};
    }

    #[test]
    fn the_list_of_reasons_has_every_reason() {
        let every = every!(Reason:
            Claimed Started Deferred PartlyDone Answered NotExecuted ServerError HandlerUnsure TimedOut BrokeOff
            Panicked ShutDown LeaseExpired DeferralExpired MessageDead NeverStarted ClaimUnconfirmed VerdictExecuted
            VerdictNotExecuted VerdictDeduplicated Resumed Expired Purged StoreRestored
        );
        assert_eq!(every, Reason::ALL);
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
    fn each_state_has_its_sweep_and_expiry_time() {
        let swept = states().map(|state| state.due_to_sweep().map(Timestamp::as_millis));
        assert_eq!(swept, [Some(1), Some(2), Some(3), None, None, None, None, None]);
        let reaped = states().map(|state| state.expires_at().map(Timestamp::as_millis));
        assert_eq!(reaped, [None, None, None, Some(4), Some(5), Some(6), None, Some(7)]);
    }

    #[test]
    fn each_state_keeps_or_erases_its_request() {
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
