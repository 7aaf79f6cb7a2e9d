//! Ids drawn from the seed of a run.

use std::sync::{Mutex, PoisonError};

use semel_core::{AttemptToken, Ids, OperationId, Timestamp};
use semel_testkit::Chance;

/// Ids of one process, drawn from its seed.
pub(crate) struct SeededIds(Mutex<Chance>);

impl SeededIds {
    pub(crate) fn new(chance: Chance) -> SeededIds {
        SeededIds(Mutex::new(chance))
    }

    fn bytes(&self) -> [u8; 16] {
        let mut chance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (high, low) = (chance.draw(), chance.draw());
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

impl Ids for SeededIds {
    /// Returns an id in the format of a UUID of version 7, like the real ones.
    fn operation_id(&self, now: Timestamp) -> OperationId {
        let mut bytes = self.bytes();
        let millis = u64::try_from(now.as_millis()).unwrap_or(0).to_be_bytes();
        bytes[..6].copy_from_slice(&millis[2..]);
        bytes[6] = bytes[6] & 0x0f | 0x70;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        OperationId::from_bytes(bytes)
    }

    fn attempt_token(&self) -> AttemptToken {
        AttemptToken::from_bytes(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_format_of_real_ids() {
        let ids = SeededIds::new(Chance::of(1, "ids"));
        let id = ids.operation_id(Timestamp::from_millis(1_790_000_000_000)).to_string();
        assert!(id.starts_with("01a0c443-0400-7") || id.as_bytes()[14] == b'7', "{id}");
        assert_ne!(ids.attempt_token(), ids.attempt_token());
    }
}
