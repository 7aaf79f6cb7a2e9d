//! All chance of a run: drawn from its seed, in the order in which it is asked for.

use std::sync::{Mutex, PoisonError};

use semel_core::{AttemptToken, Ids, OperationId, Timestamp};

/// Numbers that look random (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// What belongs to this name under this seed, whoever asks first.
    pub(crate) fn of(seed: u64, name: &str) -> Chance {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut chance = Chance(seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ hash);
        // Neighbouring seeds are not to begin alike.
        chance.next();
        chance
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number from one to before the other.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}

/// The ids that one process draws.
pub(crate) struct SeededIds(Mutex<Chance>);

impl SeededIds {
    pub(crate) fn new(chance: Chance) -> SeededIds {
        SeededIds(Mutex::new(chance))
    }

    fn bytes(&self) -> [u8; 16] {
        let mut chance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (high, low) = (chance.next(), chance.next());
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

impl Ids for SeededIds {
    /// Spelled as a UUID of version 7, as the real ones are.
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
    fn a_name_has_the_same_chance_whoever_asks_first() {
        let draw = |name: &str| Chance::of(7, name).next();
        let first = (draw("a"), draw("b"));
        assert_eq!((draw("b"), draw("a")), (first.1, first.0));
        assert_ne!(first.0, first.1);
        assert_ne!(Chance::of(8, "a").next(), first.0);
    }

    #[test]
    fn ids_are_spelled_as_real_ones_are() {
        let ids = SeededIds::new(Chance::of(1, "ids"));
        let id = ids.operation_id(Timestamp::from_millis(1_790_000_000_000)).to_string();
        assert!(id.starts_with("01a0c443-0400-7") || id.as_bytes()[14] == b'7', "{id}");
        assert_ne!(ids.attempt_token(), ids.attempt_token());
    }
}
