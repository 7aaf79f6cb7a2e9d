//! Backup and fence of the store, and the times of its records compared with the fence.

use semel_core::{State, Timestamp};

use super::{Holder, KEYS, Row, aged};
use crate::configuration::NOW;

/// Backup and fence of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Past {
    /// Remaining number of restores.
    pub restores: u8,
    /// The backup, if one was taken.
    pub backup: Option<Box<Backup>>,
    /// Fence of the store.
    pub fence: Fencing,
}

/// Copy of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backup {
    /// See [`World::rows`](super::World::rows).
    pub rows: [Option<Row>; KEYS],
    /// See [`World::reference`](super::World::reference).
    pub reference: Option<Holder>,
}

/// Fence of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fencing {
    /// The store was never restored.
    Never,
    /// The store was restored, and its fence is in force.
    InForce,
    /// The store was restored, and missing keys count as new.
    Lifted,
}

/// Time of an entry in a record, compared with the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Before the fence.
    Before,
    /// Since the fence; also in a store without a fence.
    Since,
}

impl Era {
    /// Returns a time in this era.
    pub(crate) fn moment(self) -> Timestamp {
        match self {
            Era::Before => Timestamp::from_millis(NOW.as_millis() - 1),
            Era::Since => NOW,
        }
    }

    /// Returns the era of the state that a record has after a write of `state`; `stays` is that of its last state if the record
    /// stays in it. `Record::after` decides the same about times.
    pub(crate) fn after(state: &State, stays: Option<Era>) -> Era {
        match (state, stays) {
            (State::Unknown { since, .. }, _) if *since < NOW => Era::Before,
            (State::Unknown { .. }, _) => Era::Since,
            (_, stays) => stays.unwrap_or(Era::Since),
        }
    }
}

impl Past {
    /// Returns the past of a store without a backup.
    pub fn none(restores: u8) -> Past {
        Past { restores, backup: None, fence: Fencing::Never }
    }

    /// Returns true if the store was restored.
    pub fn is_restored(&self) -> bool {
        self.fence != Fencing::Never
    }

    /// Returns true if the store is fenced.
    pub fn is_fenced(&self) -> bool {
        self.fence == Fencing::InForce
    }

    /// Advances the clock of the backup by a tick.
    pub(crate) fn age(&mut self) {
        let rows = self.backup.iter_mut().flat_map(|backup| &mut backup.rows).flatten();
        rows.for_each(|row| row.state = aged(row.state));
    }
}
