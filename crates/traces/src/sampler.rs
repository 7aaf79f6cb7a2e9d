//! The sampling decision about a new trace.
//!
//! It depends on the id of the trace alone, by the rule of OpenTelemetry (the last 56 bits against a threshold), so that
//! services with the same share record the same traces.

/// Number of values of the random part of a trace id, its last 56 bits.
const RANDOM_VALUES: u64 = 1 << 56;
/// The share of all traces, in millionths.
const ALL: u32 = 1_000_000;

/// Decides whether a trace is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Smallest random part of a recorded trace.
    threshold: u64,
}

impl Sampler {
    /// Makes a sampler that records this share of all traces, in millionths. More than a million means all.
    pub fn new(millionths: u32) -> Sampler {
        let dropped = u128::from(ALL - millionths.min(ALL));
        let threshold = u128::from(RANDOM_VALUES) * dropped / u128::from(ALL);
        Sampler { threshold: u64::try_from(threshold).unwrap_or(RANDOM_VALUES) }
    }

    /// Returns true if the trace of this id is recorded.
    pub fn samples(self, trace_id: [u8; 16]) -> bool {
        let random = u128::from_be_bytes(trace_id) % u128::from(RANDOM_VALUES);
        random >= u128::from(self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{Ids, RandomIds};

    use super::*;

    #[test]
    fn all_traces_or_none_are_recorded_at_the_ends() {
        for id in [[0; 16], [1; 16], [0xff; 16]] {
            assert!(Sampler::new(ALL).samples(id) && Sampler::new(u32::MAX).samples(id), "{id:?}");
            assert!(!Sampler::new(0).samples(id), "{id:?}");
        }
    }

    #[test]
    fn only_the_last_56_bits_count_against_the_threshold() {
        let quarter = Sampler::new(250_000);
        let id = |random: u64| (u128::MAX << 56 | u128::from(random)).to_be_bytes();
        assert!(quarter.samples(id(RANDOM_VALUES / 4 * 3)));
        assert!(!quarter.samples(id(RANDOM_VALUES / 4 * 3 - 1)));
    }

    #[test]
    fn a_share_of_random_traces_is_recorded() {
        let tenth = Sampler::new(100_000);
        let sampled = (0..20_000).filter(|_| tenth.samples(*RandomIds.attempt_token().as_bytes())).count();
        // Ten standard deviations around 2,000.
        assert!((1_576..=2_424).contains(&sampled), "{sampled}");
    }
}
