//! Witnesses: memories outside of a store that notice when it was restored from a backup, or otherwise set back.
//!
//! A store keeps a number for each witness, its *beat*, which the witness advances all the time and remembers elsewhere: in its
//! process, or in a file. A store with a lower beat than its witness remembers has lost writes since.

use async_trait::async_trait;

use crate::store_error::StoreError;

/// Id of a witness: random, drawn when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WitnessId([u8; 16]);

impl WitnessId {
    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> WitnessId {
        WitnessId(bytes)
    }

    /// Returns the bytes of the id, for a column.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Point in the life of a store, as one witness sees it. Points are ordered: a store never goes back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorePoint {
    /// Number that rises with every lift of the store's fence: an operator has accepted what was lost before.
    pub generation: i64,
    /// Number of beats of the witness.
    pub beat: u64,
}

impl StorePoint {
    /// Point before every other: a witness that has seen nothing.
    pub const NONE: StorePoint = StorePoint { generation: i64::MIN, beat: 0 };
}

/// Witness of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Id of the witness.
    pub id: WitnessId,
    /// Latest point that it has seen.
    pub seen: StorePoint,
}

/// Result of [`Witnessed::beat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The store has everything that the witness has seen, and is at this point now.
    Kept(StorePoint),
    /// The store is only at this point: it was set back, and nothing was written.
    Behind(StorePoint),
}

/// Keeps the beats of witnesses.
#[async_trait]
pub trait Witnessed: Send + Sync + 'static {
    /// Advances the beat of the witness, durably, unless the store is behind the witness. A store that knows that nothing was
    /// written since the last beat may leave it where it is.
    async fn beat(&self, witness: Witness) -> Result<Beat, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_generation_is_later_whatever_its_beat_is() {
        let point = |generation, beat| StorePoint { generation, beat };
        assert!(StorePoint::NONE < point(0, 0) && point(0, 9) < point(1, 0) && point(1, 0) < point(1, 1));
    }
}
