//! The fence of a store that may have forgotten commands: one that was restored from a backup. A store sets it on each claim,
//! and [`transition`] decides by it.
//!
//! Invariant: under a fence no command begins that the lost part of the store may have begun: neither one without a record, nor
//! one that counts as not executed by a record from before the fence.

use std::time::Duration;

use crate::event::ClaimFence;
use crate::hold::HoldTarget;
use crate::key::IdempotencyKey;
use crate::operation::OperationName;
use crate::record::{Claim, Record};
use crate::state::{Head, Reason, State};
use crate::time::Timestamp;
use crate::transition::{Decision, Event, ReferenceWrite, RequestWrite, Transition, Write, age, transition};

/// Largest difference between a client's clock and the store's with which a key's own time proves that it is younger than the
/// fence.
pub const CLOCK_DIFFERENCE: Duration = Duration::from_secs(10 * 60);

/// The fence of a store, with the operator's choices for operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFence {
    since: Timestamp,
    look_up_first: Vec<String>,
    younger_keys: Vec<String>,
}

impl StoreFence {
    /// Returns the fence that these holds make; `None` if the store is not fenced.
    pub fn of<'a>(holds: impl IntoIterator<Item = (&'a HoldTarget, Timestamp)>) -> Option<StoreFence> {
        let (mut since, mut look_up_first, mut younger_keys) = (None, Vec::new(), Vec::new());
        for (target, at) in holds {
            match target {
                HoldTarget::Store => since = Some(at),
                HoldTarget::LookUpFirst(name) => look_up_first.push(name.clone()),
                HoldTarget::YoungerKeys(name) => younger_keys.push(name.clone()),
                HoldTarget::Operation(_)
                | HoldTarget::Tenant(_)
                | HoldTarget::Sink(_)
                | HoldTarget::Reconciler => {}
            }
        }
        Some(StoreFence { since: since?, look_up_first, younger_keys })
    }

    /// Returns the time at which the store was fenced.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns true if some operation's missing keys are looked up first.
    pub fn looks_up(&self) -> bool {
        !self.look_up_first.is_empty()
    }

    /// Returns the effect on this claim, whose record is `before` at `now`.
    pub fn on(&self, claim: &Claim, before: Option<&Record>, now: Timestamp) -> ClaimFence {
        let names = || std::iter::once(claim.scope.operation()).chain(&claim.former);
        let live = before.and_then(|record| Some((record, age(record.head, now)?)));
        // Neither evidence about this command nor the age of its key says anything about a lost one with the same reference.
        let has_reference = claim.business_reference.is_some();
        match live {
            Some((_, head)) if !matches!(head.state, State::FailedRetryable { .. }) => ClaimFence::Open,
            None | Some(_) if has_reference => ClaimFence::Closed,
            None if is_named(&self.younger_keys, names()) && self.is_older_than(claim.scope.key(), now) => {
                ClaimFence::Open
            }
            Some((record, head)) if self.is_freed_since(record, head) => ClaimFence::Open,
            None | Some(_) if is_named(&self.look_up_first, names()) => ClaimFence::LookUpFirst,
            None | Some(_) => ClaimFence::Closed,
        }
    }

    /// Returns true for a command that was created or proven not executed since the fence.
    fn is_freed_since(&self, record: &Record, head: Head) -> bool {
        let by_verdict = matches!(head.reason, Reason::VerdictNotExecuted | Reason::VerdictDeduplicated);
        record.created_at >= self.since || record.state_since >= self.since && by_verdict
    }

    /// Returns true for a command that was open before the fence: the store may have forgotten later attempts at it.
    fn casts_doubt_on(&self, record: &Record) -> bool {
        record.head.state.is_open()
            && record.state_since < self.since
            && !record.head.is_in_doubt()
            && !record.head.is_left_to_a_message()
    }

    /// Returns true if the key names a time at which this fence was in force, so that no lost claim had it.
    fn is_older_than(&self, key: &IdempotencyKey, now: Timestamp) -> bool {
        drawn_at(key).is_some_and(|drawn| {
            drawn > self.since.plus(CLOCK_DIFFERENCE) && drawn <= now.plus(CLOCK_DIFFERENCE)
        })
    }
}

/// Decides the effects of `event` on the command with the record `before`, in a store with this fence. A command that was open
/// before the fence becomes unknown first, with the same write.
///
/// Stores call this function in place of [`transition`].
pub fn decide(
    fence: Option<&StoreFence>,
    before: Option<&Record>,
    event: &Event,
    now: Timestamp,
) -> Transition {
    let head = before.map(|record| &record.head);
    let Some(record) = before.filter(|record| fence.is_some_and(|fence| fence.casts_doubt_on(record))) else {
        return transition(head, event, now);
    };
    let doubt = transition(Some(&record.head), &Event::Doubt, now);
    let Write::Update(doubted) = doubt.write else { return transition(head, event, now) };
    let step = transition(Some(&doubted), event, now);
    Transition {
        write: if step.write == Write::Keep { doubt.write } else { step.write },
        reference: if step.reference == ReferenceWrite::Keep { doubt.reference } else { step.reference },
        request: if step.request == RequestWrite::Keep { doubt.request } else { step.request },
        decision: if *event == Event::Age { Decision::Applied } else { step.decision },
        lapse: doubt.lapse.or(step.lapse),
    }
}

fn is_named<'a>(names: &[String], mut wanted: impl Iterator<Item = &'a OperationName>) -> bool {
    !names.is_empty() && wanted.any(|wanted| names.iter().any(|name| name == wanted.as_str()))
}

/// Returns the time in a key that is a UUID of version 7 in its usual spelling.
fn drawn_at(key: &IdempotencyKey) -> Option<Timestamp> {
    let text = key.as_str().as_bytes();
    let is_uuid = text.len() == 36
        && text.iter().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => *byte == b'7',
            19 => matches!(byte.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'),
            _ => byte.is_ascii_hexdigit(),
        });
    if !is_uuid {
        return None;
    }
    let millis = i64::from_str_radix(&format!("{}{}", key.as_str().get(..8)?, key.as_str().get(9..13)?), 16);
    millis.ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRules;

    fn key(text: &str) -> IdempotencyKey {
        KeyRules::default().parse([text.as_bytes()]).expect("it is a key").expect("there is one")
    }

    #[test]
    fn only_a_uuid_of_version_7_names_the_time_at_which_a_key_was_drawn() {
        let drawn = |text: &str| drawn_at(&key(text)).map(Timestamp::as_millis);
        assert_eq!(drawn("019aa0d0-8c00-7abc-8def-0123456789ab"), Some(0x019a_a0d0_8c00));
        assert_eq!(drawn("019AA0D0-8C00-7ABC-8DEF-0123456789AB"), Some(0x019a_a0d0_8c00));
        for other in [
            "019aa0d0-8c00-4abc-8def-0123456789ab",
            "019aa0d0-8c00-7abc-7def-0123456789ab",
            "019aa0d08c007abc8def0123456789ab",
            "019aa0d0-8c00-7abc-8def-0123456789ag",
            "019aa0d0-8c00-7abc-8def-0123456789abc",
        ] {
            assert_eq!(drawn(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_is_younger_only_beyond_the_difference_of_clocks_and_not_in_the_future() {
        let (since, margin) = (Timestamp::from_millis(0x019a_a0d0_0000), CLOCK_DIFFERENCE);
        let fence = StoreFence::of([(&HoldTarget::Store, since)]).expect("it is fenced");
        let at = |time: Timestamp| {
            let digits = format!("{:012x}", time.as_millis());
            key(&format!("{}-{}-7abc-8def-0123456789ab", &digits[..8], &digits[8..]))
        };
        let now = since.plus(Duration::from_secs(3600));
        let milli = Duration::from_millis(1);
        for (drawn, is_younger) in [
            (since, false),
            (since.plus(margin), false),
            (since.plus(margin + milli), true),
            (now.plus(margin), true),
            (now.plus(margin + milli), false),
        ] {
            assert_eq!(fence.is_older_than(&at(drawn), now), is_younger, "{drawn:?}");
        }
    }

    #[test]
    fn holds_of_operations_make_no_fence_without_that_of_the_store() {
        let at = Timestamp::from_millis(7);
        let look_up = HoldTarget::LookUpFirst("a".to_owned());
        assert_eq!(StoreFence::of([(&look_up, at), (&HoldTarget::Reconciler, at)]), None);
        let fence = StoreFence::of([(&look_up, at), (&HoldTarget::Store, at)]).expect("it is fenced");
        assert!(fence.looks_up());
        assert_eq!(fence.since(), at);
    }
}
