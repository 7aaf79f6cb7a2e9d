//! The part of a policy that goes with the record, so that it outlives the process that held the policy.

use std::time::Duration;

use crate::policy::{OnExpired, OnLeaseExpired, Policy};

/// The part of a policy that goes with the record: with it, a sweeper, a reaper or an operator's tool decides as the
/// claimer would have, without its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How long a claim or renewal holds.
    pub lease: Duration,
    /// How long a settled record is kept, from when it settled.
    pub ttl: Duration,
    /// How long a tombstone follows it; `None` forgets at once.
    pub tombstone_ttl: Option<Duration>,
    /// What an ended lease means.
    pub on_lease_expired: OnLeaseExpired,
    /// How long, from when the outcome became unknown, a call of the last attempt may still be on its way:
    /// a whole lease, the deadline of one call, the time in which its answer is still read after that, and a margin.
    pub quarantine: Duration,
    /// Whether the request, which the claim brings, is kept until the outcome is known. Never without a request.
    pub keep_request: bool,
}

impl Policy {
    /// Returns the part of this policy that goes with the record. That the request is kept goes with the claim that brings it:
    /// [`Command::claim_keeping`](crate::Command::claim_keeping).
    pub fn terms(&self) -> Terms {
        Terms {
            lease: self.lease,
            ttl: self.ttl,
            tombstone_ttl: match self.on_expired {
                OnExpired::Forget => None,
                OnExpired::Refuse => Some(self.tombstone_ttl),
            },
            on_lease_expired: self.on_lease_expired,
            quarantine: self
                .lease
                .saturating_add(self.timeout)
                .saturating_add(self.late_answer.unwrap_or_default())
                .saturating_add(self.quarantine_margin),
            keep_request: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terms_carry_what_a_sweeper_needs() {
        let mut policy = Policy::default();
        assert_eq!(policy.terms().tombstone_ttl, None);
        assert_eq!(policy.terms().quarantine, Duration::from_secs(60));
        policy.late_answer = Some(Duration::from_secs(30));
        assert_eq!(policy.terms().quarantine, Duration::from_secs(90));
        policy.on_expired = OnExpired::Refuse;
        assert_eq!(policy.terms().tombstone_ttl, Some(policy.tombstone_ttl));
    }
}
