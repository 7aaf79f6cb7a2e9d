//! Choices derived from the input alone, so that every finding is reproducible.

/// Endless sequence of choices.
pub(crate) struct Choices(u64);

impl Choices {
    /// Returns the sequence of this input.
    pub(crate) fn of(input: &[u8]) -> Choices {
        let mix = |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Choices(input.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    /// Returns true once in `times` times on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
