//! The retry budget: a token bucket without time that all clones of a client share.

use std::sync::atomic::{AtomicU32, Ordering};

/// Token bucket: retries take tokens, final outcomes put some back.
pub(crate) struct RetryBudget {
    full: u32,
    tokens: AtomicU32,
}

impl RetryBudget {
    /// Makes a full bucket.
    pub(crate) fn new(tokens: u32) -> RetryBudget {
        RetryBudget { full: tokens, tokens: AtomicU32::new(tokens) }
    }

    /// Returns the tokens that are left.
    pub(crate) fn tokens(&self) -> u32 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// Takes the tokens of a retry; returns false, and takes none, if there are fewer.
    pub(crate) fn take(&self, cost: u32) -> bool {
        let take = |tokens: u32| tokens.checked_sub(cost);
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Puts tokens back, up to a full bucket.
    pub(crate) fn put_back(&self, tokens: u32) {
        let put = |left: u32| Some(left.saturating_add(tokens).min(self.full));
        // The update cannot fail: it always has a new value.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_bucket_is_never_overdrawn_and_never_overfull(
            full in 0u32..100,
            steps in prop::collection::vec((any::<bool>(), 0u32..40), 0..60),
        ) {
            let budget = RetryBudget::new(full);
            for (takes, tokens) in steps {
                let before = budget.tokens();
                if takes {
                    prop_assert_eq!(budget.take(tokens), before >= tokens);
                } else {
                    budget.put_back(tokens);
                    prop_assert!(budget.tokens() >= before);
                }
                prop_assert!(budget.tokens() <= full);
            }
        }
    }
}
