//! Quotas as operators see them: the remaining quota of each tenant and caller with any use.

use std::time::Duration;

use semel_core::quota::{Limits, Rate, StoredAmount, Subject, Usage, UsageEntry};
use semel_core::{StoreError, Timestamp};
use serde_json::{Value, json};

/// Quotas of one subject, with its use of them.
pub struct SubjectQuotas {
    /// Tenant or caller whose use is counted.
    pub subject: Subject,
    /// Time of its last use.
    pub used_at: Timestamp,
    /// Rate of new keys, if there is a limit.
    pub new_keys: Option<RateLeft>,
    /// Rate of look-ups, if there is a limit.
    pub lookups: Option<RateLeft>,
    /// Cap on stored records, and their number.
    pub active_keys: Option<(u64, u64)>,
    /// Cap on stored bytes, and their number.
    pub stored_bytes: Option<(u64, u64)>,
}

/// Rate with its remaining quota.
pub struct RateLeft {
    /// Limit.
    pub rate: Rate,
    /// Number that may be used now.
    pub left: u32,
    /// Time at which the quota is full again; `None` if it is full.
    pub whole_at: Option<Timestamp>,
}

impl RateLeft {
    fn new(rate: Rate, whole_in: Duration, now: Timestamp) -> RateLeft {
        let whole_at = (whole_in > Duration::ZERO).then(|| {
            let millis = i64::try_from(whole_in.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(now.as_millis().saturating_add(millis))
        });
        RateLeft { rate, left: rate.left(whole_in), whole_at }
    }
}

impl SubjectQuotas {
    /// Reads the quotas of a subject and its use of them. Records are counted only if they are capped.
    pub async fn read(
        usage: &dyn Usage,
        limits: &Limits,
        (subject, entry): (Subject, UsageEntry),
        now: Timestamp,
    ) -> Result<SubjectQuotas, StoreError> {
        let (allowance, level) = (limits.of(&subject), entry.level(now));
        let kept = if allowance.is_capped() { usage.kept(&subject).await? } else { StoredAmount::default() };
        Ok(SubjectQuotas {
            used_at: entry.used_at,
            new_keys: allowance.new_keys.map(|rate| RateLeft::new(rate, level.new_keys, now)),
            lookups: allowance.lookups.map(|rate| RateLeft::new(rate, level.lookups, now)),
            active_keys: allowance.active_keys.map(|cap| (cap, kept.keys)),
            stored_bytes: allowance.stored_bytes.map(|cap| (cap, kept.bytes)),
            subject,
        })
    }

    /// Returns the subject as JSON. The names are stable. Unlimited values are `null`.
    pub fn summary(&self) -> Value {
        let rate = |rate: &Option<RateLeft>| {
            rate.as_ref().map(|RateLeft { rate, left, whole_at }| {
                json!({
                    "limit": rate.count(),
                    "perMs": u64::try_from(rate.per().as_millis()).unwrap_or(u64::MAX),
                    "left": left,
                    "wholeAt": whole_at.map(|at| at.to_string()),
                })
            })
        };
        let cap = |cap: Option<(u64, u64)>| cap.map(|(limit, kept)| json!({ "limit": limit, "kept": kept }));
        json!({
            "tenant": self.subject.tenant(),
            "caller": self.subject.caller(),
            "newKeys": rate(&self.new_keys),
            "lookups": rate(&self.lookups),
            "activeKeys": cap(self.active_keys),
            "storedBytes": cap(self.stored_bytes),
            "lastUsedAt": self.used_at.to_string(),
        })
    }
}
