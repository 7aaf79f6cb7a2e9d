//! Durability tiers: a store promises one, and an operation may need one.

use std::fmt;

/// Promise of a store. A lower number is a stronger promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// At most one effect under every fault, crashes included.
    One,
    /// The promise of tier one, unless the engine loses a write that it acknowledged.
    Two,
    /// The store loses its records with its process: for tests, and for speed in front of a better store.
    Three,
}

impl Tier {
    /// Every tier, the strongest promise first.
    pub const ALL: [Tier; 3] = [Tier::One, Tier::Two, Tier::Three];

    /// Returns the tier's number, as `needs_tier` spells it.
    pub fn number(self) -> u8 {
        match self {
            Tier::One => 1,
            Tier::Two => 2,
            Tier::Three => 3,
        }
    }

    /// Checks that a store of this tier may take commands of an operation that needs `needed`. Replays need
    /// nothing.
    ///
    /// # Errors
    /// The store promises less than `needed`: no command of the operation may run.
    pub fn check(self, needed: Tier) -> Result<(), TierTooLow> {
        match self <= needed {
            true => Ok(()),
            false => Err(TierTooLow { needed, promised: self }),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.number())
    }
}

/// Error of a store that promises less than an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it needs a store of {needed} (`needs_tier`), and the store promises {promised}")]
pub struct TierTooLow {
    /// The tier that the operation needs.
    pub needed: Tier,
    /// The tier that the store has.
    pub promised: Tier,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_a_lower_tier_than_needed_is_refused() {
        use Tier::{One, Three, Two};
        let refused = [(Two, One), (Three, One), (Three, Two)];
        for promised in Tier::ALL {
            for needed in Tier::ALL {
                let expected = match refused.contains(&(promised, needed)) {
                    true => Err(TierTooLow { needed, promised }),
                    false => Ok(()),
                };
                assert_eq!(promised.check(needed), expected, "{promised} for {needed}");
            }
        }
        let told = Three.check(One).expect_err("memory forgets").to_string();
        assert_eq!(told, "it needs a store of tier 1 (`needs_tier`), and the store promises tier 3");
    }
}
