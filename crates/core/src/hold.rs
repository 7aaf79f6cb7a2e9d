//! Holds: an operator stops one operation, tenant, sink or the reconciler, and lets it go on later. Commands under a hold are
//! not begun; answers from their records go on.
//!
//! Invariant: every hold and every lift has a note in the audit log, in the same write.

use async_trait::async_trait;

use crate::change::Note;
use crate::store_error::StoreError;
use crate::time::Timestamp;

/// Largest number of characters in the name of a held target: that of the longest tenant.
const MAX_NAME: usize = 255;

/// Part of the system that an operator holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldTarget {
    /// Commands of this operation.
    Operation(String),
    /// Commands of this tenant.
    Tenant(String),
    /// Delivery of messages of this kind.
    Sink(String),
    /// Look-ups of the reconciler.
    Reconciler,
    /// The whole store, which may have forgotten commands: it is fenced. See [`StoreFence`](crate::StoreFence).
    Store,
    /// Choice under a fence: the outcome of missing keys of this operation is unknown, and looked up before they run.
    LookUpFirst(String),
    /// Choice under a fence: missing keys of this operation run if they are provably younger than the fence.
    YoungerKeys(String),
}

impl HoldTarget {
    /// The names of all kinds of targets.
    pub const KINDS: [&'static str; 7] =
        ["operation", "tenant", "sink", "reconciler", "store", "look-up-first", "younger-keys"];

    /// Returns true if targets of this kind have a name.
    pub fn is_named(kind: &str) -> bool {
        !matches!(kind, "reconciler" | "store")
    }

    /// Returns the target of this kind and name; `None` for an unknown kind, a missing or an unusable name. The reconciler and
    /// the store have the empty name.
    pub fn new(kind: &str, name: &str) -> Option<HoldTarget> {
        let is_name =
            !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
        match (kind, is_name) {
            ("operation", true) => Some(HoldTarget::Operation(name.to_owned())),
            ("tenant", true) => Some(HoldTarget::Tenant(name.to_owned())),
            ("sink", true) => Some(HoldTarget::Sink(name.to_owned())),
            ("look-up-first", true) => Some(HoldTarget::LookUpFirst(name.to_owned())),
            ("younger-keys", true) => Some(HoldTarget::YoungerKeys(name.to_owned())),
            ("reconciler", _) if name.is_empty() => Some(HoldTarget::Reconciler),
            ("store", _) if name.is_empty() => Some(HoldTarget::Store),
            _ => None,
        }
    }

    /// Returns the kind of the target in columns, JSON and logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            HoldTarget::Operation(_) => "operation",
            HoldTarget::Tenant(_) => "tenant",
            HoldTarget::Sink(_) => "sink",
            HoldTarget::Reconciler => "reconciler",
            HoldTarget::Store => "store",
            HoldTarget::LookUpFirst(_) => "look-up-first",
            HoldTarget::YoungerKeys(_) => "younger-keys",
        }
    }

    /// Returns the name of the target; the reconciler and the store have none.
    pub fn name(&self) -> &str {
        match self {
            HoldTarget::Operation(name)
            | HoldTarget::Tenant(name)
            | HoldTarget::Sink(name)
            | HoldTarget::LookUpFirst(name)
            | HoldTarget::YoungerKeys(name) => name,
            HoldTarget::Reconciler | HoldTarget::Store => "",
        }
    }
}

impl std::fmt::Display for HoldTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            "" => f.write_str(self.kind()),
            name => write!(f, "{} {name}", self.kind()),
        }
    }
}

/// A hold in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Held target.
    pub target: HoldTarget,
    /// Time at which it was held, by the store's clock.
    pub since: Timestamp,
    /// Operator who held it.
    pub who: String,
    /// Reason for the hold.
    pub why: String,
}

/// Largest number of holds in force at one time. One more is refused.
pub const MAX_HOLDS: usize = 1000;

/// Result of [`Holds::hold`] and [`Holds::lift`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldChange {
    /// The hold was written, or removed, with its note.
    Done,
    /// The target was held already, or was not held. Nothing changed.
    AlreadySo,
    /// [`MAX_HOLDS`] are in force. Nothing changed.
    TooMany,
}

/// Keeps the holds of a store. Every process on the store reads them.
#[async_trait]
pub trait Holds: Send + Sync + 'static {
    /// Returns the holds in force, ordered by kind and name.
    async fn holds(&self) -> Result<Vec<Hold>, StoreError>;

    /// Holds the target, and writes `note` in the same transaction. The hold takes author and reason from the note.
    async fn hold(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError>;

    /// Lifts the hold of the target, and writes `note` in the same transaction.
    async fn lift(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_round_trip_through_kind_and_name() {
        for kind in HoldTarget::KINDS {
            let name = if HoldTarget::is_named(kind) { "payments.create" } else { "" };
            let target = HoldTarget::new(kind, name).expect("it is a target");
            assert_eq!((target.kind(), target.name()), (kind, name));
        }
        assert_eq!(HoldTarget::Reconciler.to_string(), "reconciler");
        assert_eq!(HoldTarget::Tenant("acme".into()).to_string(), "tenant acme");
    }

    #[test]
    fn unknown_kinds_and_unusable_names_are_no_targets() {
        let long = "x".repeat(MAX_NAME + 1);
        for (kind, name) in [
            ("operation", ""),
            ("tenant", "a\nb"),
            ("sink", &long),
            ("reconciler", "x"),
            ("store", "x"),
            ("caller", "x"),
        ] {
            assert_eq!(HoldTarget::new(kind, name), None, "{kind} {name}");
        }
    }
}
