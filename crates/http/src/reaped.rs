//! Digests of the records that this process deleted at the end of their time to live. A request that finds its record gone, and
//! its digest here, is a late retry, which runs as a new command.
//!
//! Invariant: the memory is bounded, so late retries of older records are not noticed.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use semel_core::RecordId;

/// The number of deleted records that are remembered.
const REMEMBERED: usize = 100_000;

/// Records that this process deleted, the latest [`REMEMBERED`] of them.
#[derive(Default)]
pub(crate) struct ReapedRecords(Mutex<Digests>);

/// The beginnings of record ids, which are digests: 8 bytes tell them apart.
#[derive(Default)]
struct Digests {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

impl ReapedRecords {
    /// Remembers a deleted record.
    pub(crate) fn remember(&self, id: &RecordId) {
        let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = beginning(id);
        if !digests.known.insert(digest) {
            return;
        }
        digests.order.push_back(digest);
        if digests.order.len() > REMEMBERED
            && let Some(oldest) = digests.order.pop_front()
        {
            digests.known.remove(&oldest);
        }
    }

    /// Returns true if this record was deleted here. It is forgotten then: it exists again.
    pub(crate) fn take(&self, id: &RecordId) -> bool {
        let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Its place in the order goes with the others: a record that comes and goes again is rare.
        !digests.known.is_empty() && digests.known.remove(&beginning(id))
    }
}

fn beginning(id: &RecordId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> RecordId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        RecordId::from_bytes(bytes)
    }

    #[test]
    fn a_deleted_record_is_found_once() {
        let reaped = ReapedRecords::default();
        assert!(!reaped.take(&record(1)));
        reaped.remember(&record(1));
        assert!(reaped.take(&record(1)));
        assert!(!reaped.take(&record(1)), "it exists again");
    }

    #[test]
    fn the_oldest_deleted_record_is_forgotten_first() {
        let reaped = ReapedRecords::default();
        for number in 0..=REMEMBERED as u64 {
            reaped.remember(&record(number));
        }
        assert!(!reaped.take(&record(0)));
        assert!(reaped.take(&record(1)) && reaped.take(&record(REMEMBERED as u64)));
    }
}
