//! Random numbers that follow from a seed, so that a run can be repeated.

use std::time::Duration;

/// A stream of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Starts a stream from this state.
    pub fn new(state: u64) -> Chance {
        Chance(state)
    }

    /// Starts the stream of one name under this seed, independent of the order in which names are asked for.
    pub fn of(seed: u64, name: &str) -> Chance {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut chance = Chance(seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ hash);
        // Streams of neighbouring seeds differ from their first number on.
        chance.draw();
        chance
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// Returns a number from `from` to before `to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// Returns a time from `from` to before `to`, in milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    /// Returns true in `share` of 100 cases.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// Returns an index into a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        (self.draw() % length.max(1) as u64) as usize
    }

    /// Returns one of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_same_stream_in_any_order() {
        let draw = |name: &str| Chance::of(7, name).draw();
        let first = (draw("a"), draw("b"));
        assert_eq!((draw("b"), draw("a")), (first.1, first.0));
        assert_ne!(first.0, first.1);
        assert_ne!(Chance::of(8, "a").draw(), first.0);
    }
}
