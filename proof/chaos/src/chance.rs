//! Chance that is the same for the same seed.

/// Numbers that look random (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// From this seed.
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// What belongs to this name under this seed, whoever asks first.
    pub(crate) fn of(seed: u64, name: &str) -> Chance {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Chance(seed ^ hash)
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

    /// A number of milliseconds from one to before the other.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> std::time::Duration {
        std::time::Duration::from_millis(from + self.below(to.saturating_sub(from)))
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
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
}
