//! Promises about an order of several parts, and the situations that the model must reach.

use semel_core::{Reason, State};
use stateright::Property;

use super::{Kind, Parts, World};

/// Promise about an order of several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsPromise {
    /// Each part of an order takes place at most once, whatever keys ask for it.
    EachPartOnce,
    /// A committed message is delivered, or waits for delivery.
    NoMessageLost,
    /// A success has all of its parts.
    SuccessIsWhole,
}

impl PartsPromise {
    /// Every promise.
    pub const ALL: [PartsPromise; 3] =
        [PartsPromise::EachPartOnce, PartsPromise::NoMessageLost, PartsPromise::SuccessIsWhole];

    /// Returns the promise in words.
    pub const fn name(self) -> &'static str {
        match self {
            PartsPromise::EachPartOnce => "each part of an order takes place at most once",
            PartsPromise::NoMessageLost => "no message that was committed is lost",
            PartsPromise::SuccessIsWhole => "a success has all of its parts",
        }
    }

    pub(super) fn property(self) -> Property<Parts> {
        let holds: fn(&Parts, &World) -> bool = match self {
            PartsPromise::EachPartOnce => |_, world| world.parts.iter().all(|times| *times <= 1),
            PartsPromise::NoMessageLost => |_, world| !world.lost_message,
            PartsPromise::SuccessIsWhole => |parts, world| {
                let whole = world.parts[..parts.kind.parts()].iter().all(|times| *times > 0);
                whole
                    || !world
                        .rows
                        .iter()
                        .flatten()
                        .any(|row| matches!(row.head.state, State::Succeeded { .. }))
            },
        };
        Property::always(self.name(), holds)
    }
}

/// Predicate on a world.
type Holds = fn(&Parts, &World) -> bool;

/// Situations that the model must reach for each kind, as proof that it tries what it is about.
pub const SIGHTS: [(&str, Kind, Holds); 9] = [
    ("a call in phases that was executed, and a success after it", Kind::Phased, |parts, world| {
        parts.kind == Kind::Phased && succeeded(world, 2)
    }),
    ("a command in phases that waits after a verdict of executed", Kind::Phased, |_, world| {
        reason(world, Reason::VerdictExecuted)
    }),
    ("a command in phases that waits after a verdict of not executed", Kind::Phased, |_, world| {
        reason(world, Reason::VerdictNotExecuted)
    }),
    ("a command in phases that is resumed with no call open", Kind::Phased, |_, world| {
        reason(world, Reason::Resumed)
    }),
    ("a final failure after a committed phase", Kind::Phased, |parts, world| {
        parts.kind == Kind::Phased && failed(world)
    }),
    ("a verdict that was seen in an earlier attempt", Kind::Phased, |_, world| {
        world
            .seen
            .iter()
            .flatten()
            .any(|seen| world.rows[usize::from(seen.key)].is_some_and(|row| row.head.epoch > seen.epoch))
    }),
    ("a dead message of a deferred command", Kind::Deferred, |_, world| reason(world, Reason::MessageDead)),
    ("a bulk request that is partly done", Kind::Bulk, |_, world| reason(world, Reason::PartlyDone)),
    ("a bulk request that goes on", Kind::Bulk, |parts, world| {
        parts.kind == Kind::Bulk && succeeded(world, 2)
    }),
];

fn succeeded(world: &World, epoch: u32) -> bool {
    let is = |row: &super::Row| matches!(row.head.state, State::Succeeded { .. }) && row.head.epoch >= epoch;
    world.rows.iter().flatten().any(is)
}

fn failed(world: &World) -> bool {
    let is = |row: &super::Row| matches!(row.head.state, State::FailedFinal { .. }) && row.head.partly_done;
    world.rows.iter().flatten().any(is)
}

fn reason(world: &World, reason: Reason) -> bool {
    world.rows.iter().flatten().any(|row| row.head.reason == reason)
}
