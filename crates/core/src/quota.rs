//! Quotas: the limits of each tenant and each of its callers, and the decision about one more use. An
//! [`Account`] is one node's view of one [`Subject`]; it decides purely. [`Usage`] is the contract of the
//! store that counts for all nodes and keeps the [`Level`] of each rate across restarts. The level arrives
//! with a delay: a quota holds exactly for each node, and for all nodes within the use of that delay, which
//! is paid back.

mod account;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use account::{Account, Counting};

use crate::scope::Principal;
use crate::store_error::StoreError;
use crate::time::Timestamp;

/// Subject of a count: a tenant, or one of its callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    tenant: Arc<str>,
    caller: Option<Arc<str>>,
}

impl Subject {
    /// Returns the tenant with all its callers.
    pub fn tenant_of(principal: &Principal) -> Subject {
        Subject { tenant: principal.shared_tenant(), caller: None }
    }

    /// Returns the caller alone.
    pub fn caller_of(principal: &Principal) -> Subject {
        Subject { tenant: principal.shared_tenant(), caller: Some(principal.shared_caller()) }
    }

    /// Returns the subject with these names; `None` if they are invalid. An empty caller is the tenant with
    /// all its callers.
    pub fn new(tenant: &str, caller: &str) -> Option<Subject> {
        // Both names follow the same rules.
        let named = Principal::new(tenant, if caller.is_empty() { tenant } else { caller }).ok()?;
        Some(if caller.is_empty() { Subject::tenant_of(&named) } else { Subject::caller_of(&named) })
    }

    /// Returns the tenant's name.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Returns the caller's name, if the subject is one caller.
    pub fn caller(&self) -> Option<&str> {
        self.caller.as_deref()
    }

    /// Returns the subject's kind for labels.
    pub const fn kind(&self) -> &'static str {
        match self.caller {
            None => "tenant",
            Some(_) => "caller",
        }
    }
}

/// A number of uses in a period. All of them may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Duration,
}

impl Rate {
    /// Returns a rate of `count` in each `per`; `None` if either is zero, or if `per` is shorter than `count`
    /// nanoseconds.
    pub fn new(count: u32, per: Duration) -> Option<Rate> {
        let rate = Rate { count, per };
        (count > 0 && rate.interval() > Duration::ZERO).then_some(rate)
    }

    /// Returns the number of uses.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Returns the period.
    pub const fn per(self) -> Duration {
        self.per
    }

    /// Returns the time that one use takes up.
    fn interval(self) -> Duration {
        self.per.checked_div(self.count).unwrap_or_default()
    }

    /// Returns the time that `count` uses take up.
    fn cost(self, count: u64) -> Duration {
        self.interval().saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Returns the longest stored time until the rate is whole again.
    fn longest(self) -> Duration {
        self.per.saturating_mul(LONGEST_DEBT)
    }

    /// Returns the number of uses left of a rate that is whole again in this time.
    pub fn left(self, whole_in: Duration) -> u32 {
        let free = self.per.saturating_sub(whole_in).as_nanos();
        let left = free.checked_div(self.interval().as_nanos()).unwrap_or(0);
        u32::try_from(left).unwrap_or(u32::MAX).min(self.count)
    }
}

/// Limits of one subject. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Rate of commands under unknown keys.
    pub new_keys: Option<Rate>,
    /// Rate of requests that need a look-up: every command, retries and refused ones included, and every
    /// query about one.
    pub lookups: Option<Rate>,
    /// Maximum number of stored records.
    pub active_keys: Option<u64>,
    /// Maximum bytes of stored responses, and of requests that wait for a worker.
    pub stored_bytes: Option<u64>,
}

impl Allowance {
    /// Returns these limits, with each limit that `other` sets replaced.
    pub fn replaced_by(self, other: &Allowance) -> Allowance {
        Allowance {
            new_keys: other.new_keys.or(self.new_keys),
            lookups: other.lookups.or(self.lookups),
            active_keys: other.active_keys.or(self.active_keys),
            stored_bytes: other.stored_bytes.or(self.stored_bytes),
        }
    }

    /// Returns true if stored records or bytes are limited, and so have to be counted.
    pub const fn is_capped(&self) -> bool {
        self.active_keys.is_some() || self.stored_bytes.is_some()
    }

    /// Returns true if a rate is limited, and so use has to be shared with other nodes.
    pub const fn is_rated(&self) -> bool {
        self.new_keys.is_some() || self.lookups.is_some()
    }
}

/// Limits of all subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Limits of each tenant, with all its callers together.
    pub tenant: Allowance,
    /// Limits of each caller.
    pub caller: Allowance,
    /// Subjects with other limits.
    pub exceptions: Vec<Exception>,
}

/// Other limits of one tenant or one caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The tenant.
    pub tenant: String,
    /// The caller; `None` for the tenant with all its callers.
    pub caller: Option<String>,
    /// Other limits; `None` keeps the general one.
    pub allowance: Allowance,
}

impl Limits {
    /// Returns the limits of the subject.
    pub fn of(&self, subject: &Subject) -> Allowance {
        let usual = if subject.caller.is_some() { self.caller } else { self.tenant };
        let is_about = |exception: &&Exception| {
            exception.tenant == *subject.tenant && exception.caller.as_deref() == subject.caller()
        };
        let exceptions = self.exceptions.iter().filter(is_about);
        exceptions.fold(usual, |allowance, exception| allowance.replaced_by(&exception.allowance))
    }

    /// Returns true if anything is limited.
    pub fn is_anything(&self) -> bool {
        self.allowances().any(|allowance| allowance.is_capped() || allowance.is_rated())
    }

    /// Returns true if stored records or bytes of any subject have to be counted.
    pub fn is_capped(&self) -> bool {
        self.allowances().any(Allowance::is_capped)
    }

    fn allowances(&self) -> impl Iterator<Item = &Allowance> {
        [&self.tenant, &self.caller].into_iter().chain(self.exceptions.iter().map(|e| &e.allowance))
    }
}

/// Kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// [`Allowance::new_keys`].
    NewKeys,
    /// [`Allowance::lookups`].
    Lookups,
    /// [`Allowance::active_keys`].
    ActiveKeys,
    /// [`Allowance::stored_bytes`].
    StoredBytes,
}

impl Limit {
    /// Returns the limit's name in settings and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Limit::NewKeys => "new_keys",
            Limit::Lookups => "lookups",
            Limit::ActiveKeys => "active_keys",
            Limit::StoredBytes => "stored_bytes",
        }
    }
}

/// An exceeded limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit.
    pub limit: Limit,
    /// Delay before a retry is useful.
    pub retry_after: Duration,
}

/// Numbers of uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// New keys.
    pub new_keys: u64,
    /// Look-ups.
    pub lookups: u64,
}

impl Used {
    /// Returns the sum.
    #[must_use]
    pub const fn plus(self, other: Used) -> Used {
        Used {
            new_keys: self.new_keys.saturating_add(other.new_keys),
            lookups: self.lookups.saturating_add(other.lookups),
        }
    }
}

/// Maximum number of periods of a rate that the store keeps as taken. Nodes that cannot see each other for a
/// moment may each take a whole period; use beyond this number is not paid back. It also bounds the time for
/// which a wrong level can refuse a subject.
pub const LONGEST_DEBT: u32 = 16;

/// The interval at which a node reports its use. Use is charged as of the beginning of that interval, since the rate has
/// refilled while it was not reported.
pub const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Time until each rate of a subject is whole again; zero if it is whole, or not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Time for [`Allowance::new_keys`].
    pub new_keys: Duration,
    /// Time for [`Allowance::lookups`].
    pub lookups: Duration,
}

/// One node's use of one rate, as reported to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Number of uses not reported before.
    pub count: u64,
    /// Time of the rate that they take up.
    pub cost: Duration,
    /// Time until the rate would be whole again if only this node had used it.
    pub own: Duration,
    /// Longest stored time until the rate is whole again.
    pub longest: Duration,
}

impl Charge {
    /// Returns the time at which the rate is whole again, given its `kept` time before.
    ///
    /// The node's own use is the minimum, so that the next report makes up for a lost one.
    pub fn whole_at(&self, kept: Timestamp, now: Timestamp) -> Timestamp {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        // A part of a millisecond counts as a whole one, so that every use costs something.
        let cost =
            millis(self.cost).saturating_add(i64::from(!self.cost.subsec_nanos().is_multiple_of(1_000_000)));
        let begun = kept.as_millis().max(now.as_millis().saturating_sub(millis(REPORT_EVERY)));
        let own = now.as_millis().saturating_add(millis(self.own));
        let latest = now.as_millis().saturating_add(millis(self.longest));
        Timestamp::from_millis(begun.saturating_add(cost).max(own).min(latest))
    }
}

/// One node's use of a subject's rates since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// Charge for new keys.
    pub new_keys: Charge,
    /// Charge for look-ups.
    pub lookups: Charge,
}

impl UsageReport {
    /// Returns the reported uses.
    pub const fn used(&self) -> Used {
        Used { new_keys: self.new_keys.count, lookups: self.lookups.count }
    }
}

/// The use of one subject, as a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageEntry {
    /// Reported uses, as far as they are remembered.
    pub used: Used,
    /// Time of the last report.
    pub used_at: Timestamp,
    /// Time at which the rate of new keys is whole again.
    pub new_keys_whole_at: Timestamp,
    /// Time at which the rate of look-ups is whole again.
    pub lookups_whole_at: Timestamp,
}

impl UsageEntry {
    /// Entry of a subject without a report.
    pub const UNUSED: UsageEntry = UsageEntry {
        used: Used { new_keys: 0, lookups: 0 },
        used_at: Timestamp::from_millis(0),
        new_keys_whole_at: Timestamp::from_millis(0),
        lookups_whole_at: Timestamp::from_millis(0),
    };

    /// Returns the entry after a report.
    #[must_use]
    pub fn charged(&self, report: &UsageReport, now: Timestamp) -> UsageEntry {
        UsageEntry {
            used: self.used.plus(report.used()),
            used_at: now,
            new_keys_whole_at: report.new_keys.whole_at(self.new_keys_whole_at, now),
            lookups_whole_at: report.lookups.whole_at(self.lookups_whole_at, now),
        }
    }

    /// Returns the time until each rate is whole again.
    pub fn level(&self, now: Timestamp) -> Level {
        Level { new_keys: self.new_keys_whole_at.since(now), lookups: self.lookups_whole_at.since(now) }
    }

    /// Returns true if the subject has used nothing for the time `idle` and every rate is whole again.
    pub fn is_idle(&self, idle: Duration, now: Timestamp) -> bool {
        now.since(self.used_at) >= idle && self.level(now) == Level::default()
    }
}

/// Selects a page of the subjects with use, ordered by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Tenant of the subjects, with its callers.
    pub tenant: Option<String>,
    /// Last subject of the previous page: only subjects after it.
    pub after: Option<Subject>,
    /// Maximum number of subjects.
    pub limit: usize,
}

/// Stored amounts of a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredAmount {
    /// Number of records.
    pub keys: u64,
    /// Bytes of their responses, and of requests that wait for a worker.
    pub bytes: u64,
}

/// Counts use for all nodes together. A crash may lose the last moment of use: a quota is a limit, not a
/// bill.
#[async_trait]
pub trait Usage: Send + Sync + 'static {
    /// Makes [`kept`](Usage::kept) fast, if that needs preparation. It may take long on a large store;
    /// commands on other nodes continue meanwhile.
    async fn prepare(&self) -> Result<(), StoreError>;

    /// Stores reports by [`UsageEntry::charged`]. Returns the levels after them, in the same order. No
    /// subject occurs twice.
    async fn report(&self, reports: &[(Subject, UsageReport)]) -> Result<Vec<Level>, StoreError>;

    /// Returns the level of a subject.
    async fn level(&self, subject: &Subject) -> Result<Level, StoreError>;

    /// Lists the use of subjects, ordered by tenant and caller; a tenant precedes its callers. Returns the
    /// store's time, too.
    async fn list_usage(
        &self,
        filter: &UsageFilter,
    ) -> Result<(Vec<(Subject, UsageEntry)>, Timestamp), StoreError>;

    /// Counts the stored records and bytes of a subject.
    async fn kept(&self, subject: &Subject) -> Result<StoredAmount, StoreError>;

    /// Deletes at most `limit` [idle](UsageEntry::is_idle) subjects. Returns their number.
    async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn allowance(count: u32) -> Allowance {
        let rate = Rate::new(count, SECOND);
        Allowance { new_keys: rate, lookups: rate, ..Allowance::default() }
    }

    #[test]
    fn a_quota_exception_overrides_only_the_limits_it_sets() {
        let exception = |caller: Option<&str>, allowance| Exception {
            tenant: "acme".into(),
            caller: caller.map(str::to_owned),
            allowance,
        };
        let keys = |cap| Allowance { active_keys: Some(cap), ..Allowance::default() };
        let limits = Limits {
            tenant: allowance(5),
            caller: allowance(1),
            exceptions: vec![exception(None, keys(9)), exception(Some("batch"), keys(3))],
        };
        let principal = |tenant, caller| Principal::new(tenant, caller).expect("these are names");
        let of_tenant = limits.of(&Subject::tenant_of(&principal("acme", "web")));
        assert_eq!(of_tenant, Allowance { active_keys: Some(9), ..allowance(5) });
        assert_eq!(limits.of(&Subject::caller_of(&principal("acme", "web"))), allowance(1));
        let of_batch = limits.of(&Subject::caller_of(&principal("acme", "batch")));
        assert_eq!(of_batch, Allowance { active_keys: Some(3), ..allowance(1) });
        assert_eq!(limits.of(&Subject::caller_of(&principal("other", "batch"))), allowance(1));
        assert!(limits.is_capped() && limits.is_anything());
        assert!(!Limits::default().is_anything());
    }

    #[test]
    fn rates_of_zero_count_zero_time_or_too_many_per_second_are_refused() {
        assert_eq!(Rate::new(0, SECOND), None);
        assert_eq!(Rate::new(1, Duration::ZERO), None);
        assert!(Rate::new(1_000_000_000, SECOND).is_some());
        assert_eq!(Rate::new(u32::MAX, SECOND), None);
    }

    fn principal() -> Principal {
        Principal::new("acme", "batch").expect("these are names")
    }

    #[test]
    fn a_subject_is_a_tenant_or_one_of_its_callers() {
        let (tenant, caller) = (Subject::tenant_of(&principal()), Subject::caller_of(&principal()));
        assert_eq!((tenant.tenant(), tenant.caller(), tenant.kind()), ("acme", None, "tenant"));
        assert_eq!((caller.tenant(), caller.caller(), caller.kind()), ("acme", Some("batch"), "caller"));
    }

    #[test]
    fn limits_have_their_names_and_a_rate_its_parts() {
        let limits = [Limit::NewKeys, Limit::Lookups, Limit::ActiveKeys, Limit::StoredBytes];
        assert_eq!(limits.map(Limit::as_str), ["new_keys", "lookups", "active_keys", "stored_bytes"]);
        let rate = Rate::new(7, SECOND).expect("it is a rate");
        assert_eq!((rate.count(), rate.per()), (7, SECOND));
    }

    #[test]
    fn any_single_quota_limit_enables_counting_and_caps_need_stored_counts() {
        let rate = Rate::new(1, SECOND);
        let none = Allowance::default;
        let table = [
            (none(), false, false),
            (Allowance { new_keys: rate, ..none() }, true, false),
            (Allowance { lookups: rate, ..none() }, true, false),
            (Allowance { active_keys: Some(1), ..none() }, true, true),
            (Allowance { stored_bytes: Some(1), ..none() }, true, true),
        ];
        for (allowance, anything, capped) in table {
            let exception = Exception { tenant: "acme".into(), caller: None, allowance };
            let everywhere = [
                Limits { tenant: allowance, ..Limits::default() },
                Limits { caller: allowance, ..Limits::default() },
                Limits { exceptions: vec![exception], ..Limits::default() },
            ];
            for limits in everywhere {
                assert_eq!((limits.is_anything(), limits.is_capped()), (anything, capped), "{limits:?}");
            }
        }
    }

    #[test]
    fn a_charge_is_bounded_and_never_less_than_the_use_of_its_node() {
        let at = Timestamp::from_millis;
        let charge = Charge { count: 3, cost: 3 * SECOND, own: 2 * SECOND, longest: 16 * SECOND };
        let now = at(100_000);
        let table = [
            ("whole since long: as of the last report", charge, at(0), at(102_000)),
            ("in use: on top", charge, at(105_000), at(108_000)),
            ("its own use at least", Charge { own: 5 * SECOND, ..charge }, at(0), at(105_000)),
            ("not more than is kept", charge, at(115_000), at(116_000)),
            ("a level that cannot be", charge, at(i64::MAX), at(116_000)),
            ("not limited", Charge { count: 3, ..Charge::default() }, at(105_000), now),
            (
                "a part of a millisecond",
                Charge { cost: Duration::from_nanos(1), ..charge },
                at(105_000),
                at(105_001),
            ),
        ];
        for (name, charge, kept, whole_at) in table {
            assert_eq!(charge.whole_at(kept, now), whole_at, "{name}");
        }
    }

    #[test]
    fn a_quota_subject_is_idle_only_after_its_rates_recovered() {
        let at = Timestamp::from_millis;
        let entry = UsageEntry { new_keys_whole_at: at(9_000), ..UsageEntry::UNUSED };
        assert!(!entry.is_idle(SECOND, at(8_999)));
        assert!(entry.is_idle(SECOND, at(9_000)));
        assert!(!entry.is_idle(10 * SECOND, at(9_000)));
    }

    #[test]
    fn remaining_rate_follows_from_the_time_until_it_is_full() {
        let rate = Rate::new(10, SECOND).expect("it is a rate");
        let table = [(0, 10), (1, 9), (100, 9), (101, 8), (999, 0), (1000, 0), (160_000, 0)];
        for (millis, left) in table {
            assert_eq!(rate.left(Duration::from_millis(millis)), left, "{millis}");
        }
    }

    #[test]
    fn a_subject_is_read_back_from_its_names() {
        let (tenant, caller) = (Subject::tenant_of(&principal()), Subject::caller_of(&principal()));
        assert_eq!(Subject::new("acme", ""), Some(tenant));
        assert_eq!(Subject::new("acme", "batch"), Some(caller));
        assert_eq!((Subject::new("", "x"), Subject::new("a\n", "")), (None, None));
    }

    #[test]
    fn uses_add_up() {
        let used = |new_keys, lookups| Used { new_keys, lookups };
        assert_eq!(used(1, 20).plus(used(3, 40)), used(4, 60));
        assert_eq!(used(u64::MAX, 0).plus(used(1, 0)), used(u64::MAX, 0));
    }
}
