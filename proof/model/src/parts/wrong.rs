//! Wrong protocols for commands of several parts, each close to the real one. The model must refute every one of
//! them.

use semel_core::policy::OnLeaseExpired;
use semel_core::transition::Transition;
use semel_core::{Event, Head, Reason, Timestamp, transition};

use super::{Kind, PartsPromise};

/// Wrong protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsVariant {
    /// A verdict on the open call settles or frees the whole command.
    VerdictOnWhole,
    /// The record does not remember that a part is committed.
    ForgetsParts,
    /// A verdict ends the messages of the command.
    EndsMessages,
    /// A verdict counts for the last attempt, also if it is about an earlier one.
    AnyAttempt,
    /// A deferred command whose message died may run again.
    RerunsDeferred,
    /// A bulk request that is partly done counts as not executed, and its items are not announced.
    PartsAreNothing,
    /// The items of a bulk request are not announced.
    AnnouncesNothing,
}

/// Case: a variant, and the promise that it breaks.
#[derive(Clone, Copy, Debug)]
pub struct PartsCase {
    /// The variant.
    pub variant: PartsVariant,
    /// Name of the case.
    pub name: &'static str,
    /// Description of the fault.
    pub what: &'static str,
    /// Kind of command that refutes the variant.
    pub kind: Kind,
    /// The promise that it breaks.
    pub breaks: PartsPromise,
}

const fn case(
    variant: PartsVariant,
    name: &'static str,
    what: &'static str,
    kind: Kind,
    breaks: PartsPromise,
) -> PartsCase {
    PartsCase { variant, name, what, kind, breaks }
}

/// Cases of all variants.
pub const ALL: [PartsCase; 8] = [
    case(
        PartsVariant::VerdictOnWhole,
        "verdict-settles-all",
        "\"executed\" of the open call settles the whole command",
        Kind::Phased,
        PartsPromise::SuccessIsWhole,
    ),
    case(
        PartsVariant::VerdictOnWhole,
        "verdict-frees-all",
        "\"not executed\" of the open call gives the reference back",
        Kind::Phased,
        PartsPromise::EachPartOnce,
    ),
    case(
        PartsVariant::ForgetsParts,
        "forgets-parts",
        "a final failure gives the reference back after a committed phase",
        Kind::Phased,
        PartsPromise::EachPartOnce,
    ),
    case(
        PartsVariant::EndsMessages,
        "ends-messages",
        "a verdict deletes the undelivered messages of finished phases",
        Kind::Phased,
        PartsPromise::NoMessageLost,
    ),
    case(
        PartsVariant::AnyAttempt,
        "any-attempt",
        "a verdict that was seen in an earlier attempt counts for the last one",
        Kind::Phased,
        PartsPromise::EachPartOnce,
    ),
    case(
        PartsVariant::RerunsDeferred,
        "reruns-deferred",
        "a deferred command whose message died is declared not executed, and runs again",
        Kind::Deferred,
        PartsPromise::EachPartOnce,
    ),
    case(
        PartsVariant::PartsAreNothing,
        "parts-are-nothing",
        "a bulk request that is partly done is reported as not executed",
        Kind::Bulk,
        PartsPromise::EachPartOnce,
    ),
    case(
        PartsVariant::AnnouncesNothing,
        "announces-nothing",
        "a bulk request that broke off after an item is declared not executed",
        Kind::Bulk,
        PartsPromise::EachPartOnce,
    ),
];

/// Returns the transition of the real protocol, as changed by the variant.
pub(super) fn decide(
    variant: Option<PartsVariant>,
    head: Option<&Head>,
    event: &Event,
    now: Timestamp,
) -> Transition {
    let (Some(variant), Some(head)) = (variant, head) else { return transition(head, event, now) };
    let mut head = *head;
    match variant {
        PartsVariant::VerdictOnWhole => {
            if matches!(event, Event::Resolve { .. }) {
                head.terms.on_lease_expired = OnLeaseExpired::Unknown;
                head.partly_done = false;
            }
        }
        PartsVariant::ForgetsParts => head.partly_done = false,
        PartsVariant::PartsAreNothing if !matches!(event, Event::Claim(_)) => head.partly_done = false,
        PartsVariant::RerunsDeferred => {
            if matches!(event, Event::Resolve { .. }) && head.reason == Reason::MessageDead {
                head.reason = Reason::TimedOut;
                head.partly_done = false;
            }
        }
        PartsVariant::EndsMessages
        | PartsVariant::AnyAttempt
        | PartsVariant::PartsAreNothing
        | PartsVariant::AnnouncesNothing => {}
    }
    transition(Some(&head), event, now)
}
