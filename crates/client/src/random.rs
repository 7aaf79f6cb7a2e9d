//! Chance of a client, which tests replace.

/// Source of random numbers.
pub trait RandomSource: Send + Sync + 'static {
    /// Returns a number of at least 0 and below 1, for a wait.
    fn fraction(&self) -> f64;

    /// Returns the random bits of a new key. They must be hard to guess.
    fn key_bits(&self) -> [u8; 10] {
        drawn()
    }
}

/// Random source of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn fraction(&self) -> f64 {
        // The upper 53 bits are the whole precision of a double.
        (u64::from_be_bytes(drawn()) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place of the client that draws")]
fn drawn<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).expect("the operating system has randomness to give");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_below_one() {
        assert!((0..1000).all(|_| (0.0..1.0).contains(&SystemRandom.fraction())));
    }
}
