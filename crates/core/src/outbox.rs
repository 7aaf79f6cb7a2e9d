//! Messages that commit with a command and are delivered later: their data, the decision after a delivery
//! attempt ([`after_try`], the only place that makes it), and the contract of their store.
//!
//! Delivery is at least once under a stable event id. If a worker dies between delivery and its record of it,
//! the next worker sends the message again under the same event id; receivers deduplicate on that.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::change::Note;
use crate::event::Event;
use crate::ids::{AttemptToken, OperationId};
use crate::operation::OperationName;
use crate::record::Record;
use crate::state::{Head, Reason, State, StateName};
use crate::store_error::StoreError;
use crate::time::Timestamp;

/// State of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Waiting for delivery, now or later.
    Pending,
    /// The receiver has the message.
    Delivered,
    /// Given up: the message waits for an operator, and later messages of its command wait with it.
    Dead,
}

impl MessageState {
    /// Every state.
    pub const ALL: [MessageState; 3] = [MessageState::Pending, MessageState::Delivered, MessageState::Dead];

    /// Returns the state's name in columns and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            MessageState::Pending => "pending",
            MessageState::Delivered => "delivered",
            MessageState::Dead => "dead",
        }
    }

    /// Returns the state with this name.
    pub fn parse(name: &str) -> Option<MessageState> {
        MessageState::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A message as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `operationId:kind`, the same in every attempt: receivers deduplicate on it.
    pub event_id: String,
    /// Command that sends the message.
    pub operation_id: OperationId,
    /// Position among the messages of its command.
    pub position: i64,
    /// Kind of the message.
    pub kind: String,
    /// Content of the message. Lists leave it out.
    pub payload: Bytes,
    /// Size of the payload in bytes.
    pub payload_bytes: u64,
    /// State of the message.
    pub state: MessageState,
    /// Time of the command's commit, by the store's clock, like all times here.
    pub created_at: Timestamp,
    /// If pending: time of the next attempt, or end of the current worker's lease.
    pub due_at: Timestamp,
    /// Number of delivery attempts.
    pub attempts: u32,
    /// Fencing number: rises with every take, and fences writes of earlier workers.
    pub epoch: i64,
    /// Token of the current or last worker; `None` if the message waits for one.
    pub token: Option<AttemptToken>,
    /// The receiver's name for the message, written as soon as the receiver has it.
    pub provider_reference: Option<String>,
    /// Error of the last failed attempt.
    pub last_error: Option<String>,
    /// Time of delivery, or of giving up.
    pub done_at: Option<Timestamp>,
}

impl Message {
    /// Returns the fence that a worker's writes about the message carry.
    pub fn fence(&self) -> Option<MessageFence> {
        let token = self.token?;
        Some(MessageFence { event_id: self.event_id.clone(), epoch: self.epoch, token })
    }

    /// Returns true if a worker holds the message.
    pub fn is_in_hand(&self, now: Timestamp) -> bool {
        self.state == MessageState::Pending && self.token.is_some() && self.due_at > now
    }
}

/// Fence of a worker's writes: they count only until another worker takes the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageFence {
    /// The message.
    pub event_id: String,
    /// Epoch of the take.
    pub epoch: i64,
    /// Token of the worker.
    pub token: AttemptToken,
}

impl MessageFence {
    /// Returns the command that sends the message: the event id begins with its id.
    pub fn operation_id(&self) -> Option<OperationId> {
        self.event_id.split_once(':')?.0.parse().ok()
    }
}

/// Result of a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The receiver has the message.
    Accepted {
        /// The receiver's name for it.
        reference: Option<String>,
    },
    /// A retry may succeed; the receiver may or may not have the message.
    Failed {
        /// Description of the failure.
        why: String,
        /// Backoff that the receiver asks for.
        retry_after: Option<Duration>,
    },
    /// The receiver will never accept the message.
    Refused {
        /// The receiver's reason.
        why: String,
    },
    /// No attempt is made: no worker survived to report the result of the last allowed one.
    Exhausted,
}

/// Limits and waits of delivery retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryTerms {
    /// Number of failed attempts after which a message is dead.
    pub max_attempts: u32,
    /// Wait after the first attempt. It doubles with every further one.
    pub first_delay: Duration,
    /// Longest wait, whatever the receiver asks for.
    pub max_delay: Duration,
}

impl Default for RetryTerms {
    /// Returns twelve attempts in about three hours.
    fn default() -> RetryTerms {
        RetryTerms {
            max_attempts: 12,
            first_delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(4 * 3600),
        }
    }
}

/// Next state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The message is delivered.
    Delivered,
    /// The message is retried after this wait, counted from the store's time.
    Retry {
        /// The wait.
        after: Duration,
    },
    /// The message is given up.
    Dead,
}

/// Decides the next state of a message after its `attempts`-th attempt. `chance`, drawn anew for every
/// attempt, moves a wait between half and all of it, so that messages that failed together are not retried
/// together.
pub fn after_try(attempts: u32, tried: &Tried, terms: &RetryTerms, chance: u32) -> Next {
    match tried {
        Tried::Accepted { .. } => Next::Delivered,
        Tried::Refused { .. } | Tried::Exhausted => Next::Dead,
        Tried::Failed { .. } if attempts >= terms.max_attempts => Next::Dead,
        Tried::Failed { retry_after, .. } => {
            let wait = backoff(terms.first_delay, terms.max_delay, attempts, chance);
            let asked = retry_after.unwrap_or(Duration::ZERO).min(terms.max_delay);
            Next::Retry { after: wait.max(asked) }
        }
    }
}

/// Returns the event for a command whose message is given up, by its worker or by an operator; `None` if its
/// outcome does not depend on that message.
pub fn given_up(head: &Head) -> Option<Event> {
    let abandon = Event::Abandon { fence: head.fence(), reason: Reason::MessageDead };
    head.is_left_to_a_message().then_some(abandon)
}

/// Returns the event for a command whose message an operator discards: as [`given_up`], unless other messages
/// are undelivered and can be sent from now on.
pub fn discarded(head: &Head, has_others: bool) -> Option<Event> {
    match has_others {
        true => sent_after_all(head),
        false => given_up(head),
    }
}

/// Returns the event for a command whose dead message an operator sends again; `None` if there is none. A
/// message commits with the effect that it reports, so it may always be sent.
pub fn sent_after_all(head: &Head) -> Option<Event> {
    match head.state {
        State::Unknown { .. } if head.reason == Reason::MessageDead => {
            Some(Event::Defer { fence: head.fence(), time: Duration::ZERO })
        }
        State::Claimed { .. }
        | State::Processing { .. }
        | State::Succeeded { .. }
        | State::FailedFinal { .. }
        | State::FailedRetryable { .. }
        | State::Unknown { .. }
        | State::Expired { .. } => None,
    }
}

/// Returns the wait after the `attempts`-th attempt: doubled with each, and by chance between half and all of
/// it.
pub(crate) fn backoff(first: Duration, max: Duration, attempts: u32, chance: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    let half = first.saturating_mul(doubled).min(max) / 2;
    half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

/// A worker's take of messages.
#[derive(Clone, Debug)]
pub struct Take {
    /// Token of the worker, new for every take.
    pub token: AttemptToken,
    /// Lease of the worker on the messages.
    pub lease: Duration,
    /// Maximum number of messages.
    pub limit: usize,
    /// Kinds of messages that are left waiting: an operator holds their sinks. Later messages of their commands wait behind
    /// them.
    pub except: Vec<String>,
}

/// Selects the messages of a list. Each `None` matches every message.
#[derive(Clone, Debug)]
pub struct MessageFilter {
    /// State of the messages.
    pub state: Option<MessageState>,
    /// Kind of the messages.
    pub kind: Option<String>,
    /// Upper limit of the messages' creation time, exclusive.
    pub created_before: Option<Timestamp>,
    /// Last event id of the previous page: only messages after it.
    pub after: Option<String>,
    /// Maximum number of messages.
    pub limit: usize,
}

impl Default for MessageFilter {
    fn default() -> MessageFilter {
        MessageFilter { state: None, kind: None, created_before: None, after: None, limit: 100 }
    }
}

/// An operator's action on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intervention {
    /// Try it again now, with a full number of attempts.
    Retry,
    /// Discard it: it is never sent, and later messages no longer wait for it.
    Discard,
}

impl Intervention {
    /// Returns the action's name in notes and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Intervention::Retry => "retry",
            Intervention::Discard => "discard",
        }
    }
}

/// Result of the write of a message's next state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it tells whether anything was written"]
pub enum MessageWrite {
    /// Nothing is written: another worker has taken the message since, or the same write was made before.
    Fenced,
    /// The state is written.
    Written {
        /// Operation of the message's command, if this write made its outcome unknown.
        made_unknown: Option<OperationName>,
    },
}

impl MessageWrite {
    /// Returns the result of a write that changed the message alone, or nothing.
    pub const fn of_message(changed: bool) -> MessageWrite {
        if changed { MessageWrite::Written { made_unknown: None } } else { MessageWrite::Fenced }
    }

    /// Returns the result of a write that changed the message, and its command from `before` to `after`.
    pub fn with_command(before: &Record, after: Option<&Record>) -> MessageWrite {
        let is_unknown = |record: &Record| record.head.state.name() == StateName::Unknown;
        let made_unknown = !is_unknown(before) && after.is_some_and(is_unknown);
        MessageWrite::Written { made_unknown: made_unknown.then(|| before.operation.clone()) }
    }

    /// Returns true if the state is written.
    pub const fn is_written(&self) -> bool {
        matches!(self, MessageWrite::Written { .. })
    }
}

/// Numbers of undelivered messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Number of pending messages.
    pub pending: u64,
    /// Number of dead messages.
    pub dead: u64,
    /// Time at which the oldest pending message was made.
    pub oldest_pending: Option<Timestamp>,
}

/// Keeps messages. Transactions of commands insert them.
///
/// Times are the store's own. A write with a fence changes the one message that was taken under it, or
/// nothing: `false`, or [`MessageWrite::Fenced`], means that another worker has taken the message since, or that
/// the same write was made before.
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// Takes due messages, the longest due first, and counts an attempt for each. Of one command, only the
    /// first undelivered message is ever taken. Messages that another worker is taking at the same time are
    /// skipped without waiting.
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError>;

    /// Writes the receiver's name for a message that it has. From then on the message is not sent again.
    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError>;

    /// Writes the next state of a message, and why. A message that is given up also gives up, in the same
    /// transaction, the command whose outcome depends on it ([`given_up`]), and returns the command's operation if
    /// its outcome was not unknown before.
    async fn settle(
        &self,
        fence: &MessageFence,
        next: Next,
        why: Option<&str>,
    ) -> Result<MessageWrite, StoreError>;

    /// Returns the message of this event id, and the store's time.
    async fn message(&self, event_id: &str) -> Result<(Option<Message>, Timestamp), StoreError>;

    /// Returns the messages that match the filter, ordered by event id, which is roughly by age.
    async fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError>;

    /// Applies an operator's action to a message that is dead, or pending and held by no worker. The same
    /// write stores the note and the consequence for its command ([`given_up`], [`sent_after_all`]). Returns
    /// `false` if the message is in another state, or if the consequence is refused.
    async fn intervene(
        &self,
        event_id: &str,
        intervention: Intervention,
        note: &Note,
    ) -> Result<bool, StoreError>;

    /// Deletes at most `limit` messages that were delivered longer ago than `retention`. Returns their
    /// number.
    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError>;

    /// Returns the numbers of undelivered messages.
    async fn depth(&self) -> Result<Depth, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: RetryTerms = RetryTerms {
        max_attempts: 4,
        first_delay: Duration::from_secs(10),
        max_delay: Duration::from_secs(30),
    };

    fn failed(retry_after: Option<u64>) -> Tried {
        Tried::Failed { why: "no".to_owned(), retry_after: retry_after.map(Duration::from_secs) }
    }

    #[test]
    fn each_delivery_result_has_its_next_step() {
        let seconds = |after: u64| Next::Retry { after: Duration::from_secs(after) };
        let accepted = Tried::Accepted { reference: None };
        let refused = Tried::Refused { why: "no".to_owned() };
        let table = [
            ("accepted at once", 1, accepted.clone(), u32::MAX, Next::Delivered),
            ("accepted in the end", 4, accepted, 0, Next::Delivered),
            ("refused", 1, refused, 0, Next::Dead),
            ("the outcome is unknown, and no try is left", 5, Tried::Exhausted, 0, Next::Dead),
            ("first wait, at most", 1, failed(None), u32::MAX, seconds(10)),
            ("first wait, at least", 1, failed(None), 0, seconds(5)),
            ("second wait", 2, failed(None), u32::MAX, seconds(20)),
            ("third wait, bounded", 3, failed(None), u32::MAX, seconds(30)),
            ("the receiver asks for more", 1, failed(Some(25)), 0, seconds(25)),
            ("the receiver asks for less", 2, failed(Some(1)), u32::MAX, seconds(20)),
            ("the receiver asks for too much", 1, failed(Some(86_400)), 0, seconds(30)),
            ("no try is left", 4, failed(None), 0, Next::Dead),
            ("fewer are allowed than were made", 9, failed(Some(1)), 0, Next::Dead),
        ];
        for (what, attempts, tried, chance, next) in table {
            assert_eq!(after_try(attempts, &tried, &TERMS, chance), next, "{what}");
        }
    }

    #[test]
    fn waits_never_overflow() {
        let terms =
            RetryTerms { max_attempts: u32::MAX, first_delay: Duration::MAX, max_delay: Duration::MAX };
        for attempts in [0, 1, 31, 32, 33, u32::MAX - 1] {
            let next = after_try(attempts, &failed(None), &terms, 0);
            assert!(matches!(next, Next::Retry { .. }), "{attempts}: {next:?}");
        }
    }

    #[test]
    fn every_state_has_its_name() {
        for state in MessageState::ALL {
            assert_eq!(MessageState::parse(state.as_str()), Some(state));
        }
        assert_eq!(MessageState::parse("lost"), None);
    }

    fn message(state: MessageState, token: Option<AttemptToken>) -> Message {
        let at = Timestamp::from_millis(1_000);
        let operation_id = OperationId::from_bytes([7; 16]);
        Message {
            event_id: format!("{operation_id}:paid"),
            operation_id,
            position: 0,
            kind: "paid".to_owned(),
            payload: Bytes::new(),
            payload_bytes: 0,
            state,
            created_at: at,
            due_at: at,
            attempts: 1,
            epoch: 4,
            token,
            provider_reference: None,
            last_error: None,
            done_at: None,
        }
    }

    #[test]
    fn only_a_pending_message_with_a_running_lease_is_in_hand() {
        let token = Some(AttemptToken::from_bytes([3; 16]));
        let [before, end] = [999, 1_000].map(Timestamp::from_millis);
        assert!(message(MessageState::Pending, token).is_in_hand(before));
        assert!(!message(MessageState::Pending, token).is_in_hand(end), "the lease has ended");
        assert!(!message(MessageState::Pending, None).is_in_hand(before), "no worker has it");
        assert!(!message(MessageState::Dead, token).is_in_hand(before), "it is given up");
    }

    #[test]
    fn a_fence_names_the_message_and_its_command() {
        let token = AttemptToken::from_bytes([3; 16]);
        let message = message(MessageState::Pending, Some(token));
        let fence = message.fence().expect("somebody has it");
        assert_eq!((&fence.event_id, fence.epoch, fence.token), (&message.event_id, 4, token));
        assert_eq!(fence.operation_id(), Some(message.operation_id));
        for event_id in ["paid", "x:paid", ""] {
            let other = MessageFence { event_id: event_id.to_owned(), ..fence.clone() };
            assert_eq!(other.operation_id(), None, "{event_id:?}");
        }
        assert_eq!(Message { token: None, ..message }.fence(), None);
    }

    fn head(state: State, reason: Reason) -> Head {
        let fingerprint = crate::Fingerprint::from_parts(crate::fingerprint::FingerprintVersion::V1, [0; 32]);
        let (token, terms) = (AttemptToken::from_bytes([1; 16]), crate::Policy::default().terms());
        Head {
            fingerprint,
            epoch: 1,
            token,
            terms,
            state,
            reason,
            earlier_may_have_run: false,
            partly_done: false,
        }
    }

    #[test]
    fn dead_discarded_and_retried_messages_change_their_command() {
        let at = Timestamp::from_millis(0);
        let unknown = State::Unknown { since: at, reconcile_after: at, attempts: 0, quarantine_until: at };
        let open = head(State::Processing { lease_until: at, start_by: None }, Reason::Deferred);
        let given_up_before = head(unknown, Reason::MessageDead);
        let late = head(unknown, Reason::DeferralExpired);
        let other = head(unknown, Reason::TimedOut);
        let free = head(State::FailedRetryable { expires_at: at }, Reason::VerdictNotExecuted);

        let abandon = |head: &Head| Some(Event::Abandon { fence: head.fence(), reason: Reason::MessageDead });
        let again = |head: &Head| Some(Event::Defer { fence: head.fence(), time: Duration::ZERO });
        for left in [open, given_up_before, late] {
            assert_eq!(given_up(&left), abandon(&left), "{left:?}");
            assert_eq!(discarded(&left, false), abandon(&left), "it was the last: {left:?}");
        }
        for not_left in [other, free] {
            assert_eq!((given_up(&not_left), discarded(&not_left, false)), (None, None), "{not_left:?}");
        }
        assert_eq!(sent_after_all(&given_up_before), again(&given_up_before));
        assert_eq!(discarded(&given_up_before, true), again(&given_up_before), "others are sent now");
        for unmoved in [open, late, other, free] {
            assert_eq!((sent_after_all(&unmoved), discarded(&unmoved, true)), (None, None), "{unmoved:?}");
        }
    }

    #[test]
    fn interventions_have_names_and_message_lists_are_bounded() {
        assert_eq!(
            [Intervention::Retry, Intervention::Discard].map(Intervention::as_str),
            ["retry", "discard"]
        );
        let MessageFilter { state, kind, created_before, after, limit } = MessageFilter::default();
        assert_eq!((state, kind, created_before, after, limit), (None, None, None, None, 100));
    }

    #[test]
    fn without_other_terms_a_message_is_tried_for_about_three_hours() {
        let terms = RetryTerms::default();
        let waits = (1..terms.max_attempts).map(|attempts| {
            match after_try(attempts, &failed(None), &terms, u32::MAX) {
                Next::Retry { after } => after,
                other @ (Next::Delivered | Next::Dead) => panic!("{attempts}: {other:?}"),
            }
        });
        assert_eq!(waits.sum::<Duration>(), Duration::from_secs(10_235), "at most, with every wait whole");
    }
}
