//! The part of a policy that the record stores, so that it outlives the process that held the policy.

use std::time::Duration;

use crate::policy::{OnExpired, OnLeaseExpired, Policy};

/// The part of a policy that the record stores: by it, a sweeper, a reaper or an operator's tool decides like
/// the claimer, without its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Lease of a claim or renewal.
    pub lease: Duration,
    /// Retention of a settled record, counted from its settlement.
    pub ttl: Duration,
    /// Retention of its tombstone; `None` deletes the record at once.
    pub tombstone_ttl: Option<Duration>,
    /// Meaning of an expired lease.
    pub on_lease_expired: OnLeaseExpired,
    /// Time, from when the outcome became unknown, in which a call of the last attempt may still be in
    /// flight: a whole lease, the timeout of one call, the time in which its late response is still read, and
    /// a margin.
    pub quarantine: Duration,
    /// True if the claim's request is stored until the outcome is known. Never true without a request.
    pub keep_request: bool,
}

impl Policy {
    /// Returns the part of this policy that the record stores. `keep_request` is set by the claim that brings
    /// the request: [`Command::claim_keeping`](crate::Command::claim_keeping).
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
    fn terms_hold_the_quarantine_and_tombstone_ttl_of_their_policy() {
        let mut policy = Policy::default();
        assert_eq!(policy.terms().tombstone_ttl, None);
        assert_eq!(policy.terms().quarantine, Duration::from_secs(60));
        policy.late_answer = Some(Duration::from_secs(30));
        assert_eq!(policy.terms().quarantine, Duration::from_secs(90));
        policy.on_expired = OnExpired::Refuse;
        assert_eq!(policy.terms().tombstone_ttl, Some(policy.tombstone_ttl));
    }
}
