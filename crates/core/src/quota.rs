//! Quotas: how much each tenant and each of its callers may use, and whether one more fits.
//!
//! An [`Account`] is what one node knows of one [`Subject`]. It decides, purely: the time and the others' use are given
//! to it. [`Usage`] is the contract of who counts for all nodes together, and keeps the [`Level`] of each rate, so that a
//! restart does not fill it. The level comes a moment late: a quota holds for each node exactly, and for all of them within
//! the use of that moment, which is paid back afterwards.

mod account;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use account::{Account, Counting};

use crate::scope::Principal;
use crate::store_error::StoreError;
use crate::time::Timestamp;

/// Whose use is counted: a tenant's, or one of its callers'.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    tenant: Arc<str>,
    caller: Option<Arc<str>>,
}

impl Subject {
    /// The tenant with all its callers.
    pub fn tenant_of(principal: &Principal) -> Subject {
        Subject { tenant: principal.shared_tenant(), caller: None }
    }

    /// The caller alone.
    pub fn caller_of(principal: &Principal) -> Subject {
        Subject { tenant: principal.shared_tenant(), caller: Some(principal.shared_caller()) }
    }

    /// Returns the subject with these names; `None` if they are none. An empty caller is the tenant with all its callers.
    pub fn new(tenant: &str, caller: &str) -> Option<Subject> {
        // Both names keep to the same rules.
        let named = Principal::new(tenant, if caller.is_empty() { tenant } else { caller }).ok()?;
        Some(if caller.is_empty() { Subject::tenant_of(&named) } else { Subject::caller_of(&named) })
    }

    /// The tenant's name.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The caller's name, if it is one caller.
    pub fn caller(&self) -> Option<&str> {
        self.caller.as_deref()
    }

    /// What a label calls it.
    pub const fn kind(&self) -> &'static str {
        match self.caller {
            None => "tenant",
            Some(_) => "caller",
        }
    }
}

/// So many in a time. All of them may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Duration,
}

impl Rate {
    /// `count` in each `per`; `None` if either is nothing, or if `per` is shorter than `count` nanoseconds.
    pub fn new(count: u32, per: Duration) -> Option<Rate> {
        let rate = Rate { count, per };
        (count > 0 && rate.interval() > Duration::ZERO).then_some(rate)
    }

    /// How many.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// In which time.
    pub const fn per(self) -> Duration {
        self.per
    }

    /// The time that one of them takes up.
    fn interval(self) -> Duration {
        self.per.checked_div(self.count).unwrap_or_default()
    }

    /// The time that so many of them take up.
    fn cost(self, count: u64) -> Duration {
        self.interval().saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The longest time until it is whole again that is kept.
    fn longest(self) -> Duration {
        self.per.saturating_mul(LONGEST_DEBT)
    }

    /// Returns how many are left of a rate that is whole again in this time.
    pub fn left(self, whole_in: Duration) -> u32 {
        let free = self.per.saturating_sub(whole_in).as_nanos();
        let left = free.checked_div(self.interval().as_nanos()).unwrap_or(0);
        u32::try_from(left).unwrap_or(u32::MAX).min(self.count)
    }
}

/// How much one subject may use. What is `None` is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Commands under keys that are not known yet.
    pub new_keys: Option<Rate>,
    /// Requests that make us look: every command, retries and refused ones among them, and every question about one.
    pub lookups: Option<Rate>,
    /// Records that are kept at a time.
    pub active_keys: Option<u64>,
    /// Bytes of responses, and of requests that wait for a worker, that are kept at a time.
    pub stored_bytes: Option<u64>,
}

impl Allowance {
    /// The same, with all that `other` says in the place of what this one says.
    pub fn replaced_by(self, other: &Allowance) -> Allowance {
        Allowance {
            new_keys: other.new_keys.or(self.new_keys),
            lookups: other.lookups.or(self.lookups),
            active_keys: other.active_keys.or(self.active_keys),
            stored_bytes: other.stored_bytes.or(self.stored_bytes),
        }
    }

    /// Whether what is kept has to be counted.
    pub const fn is_capped(&self) -> bool {
        self.active_keys.is_some() || self.stored_bytes.is_some()
    }

    /// Whether use has to be shared with other nodes.
    pub const fn is_rated(&self) -> bool {
        self.new_keys.is_some() || self.lookups.is_some()
    }
}

/// How much everybody may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Each tenant, with all its callers together.
    pub tenant: Allowance,
    /// Each caller.
    pub caller: Allowance,
    /// Those who may use more, or less.
    pub exceptions: Vec<Exception>,
}

/// What one tenant, or one caller, may use instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The tenant.
    pub tenant: String,
    /// The caller; `None`: the tenant with all its callers.
    pub caller: Option<String>,
    /// What is `None` stays as it is for everybody.
    pub allowance: Allowance,
}

impl Limits {
    /// What the subject may use.
    pub fn of(&self, subject: &Subject) -> Allowance {
        let usual = if subject.caller.is_some() { self.caller } else { self.tenant };
        let is_about = |exception: &&Exception| {
            exception.tenant == *subject.tenant && exception.caller.as_deref() == subject.caller()
        };
        let exceptions = self.exceptions.iter().filter(is_about);
        exceptions.fold(usual, |allowance, exception| allowance.replaced_by(&exception.allowance))
    }

    /// Whether anything is limited at all.
    pub fn is_anything(&self) -> bool {
        self.allowances().any(|allowance| allowance.is_capped() || allowance.is_rated())
    }

    /// Whether what is kept has to be counted for anybody.
    pub fn is_capped(&self) -> bool {
        self.allowances().any(Allowance::is_capped)
    }

    fn allowances(&self) -> impl Iterator<Item = &Allowance> {
        [&self.tenant, &self.caller].into_iter().chain(self.exceptions.iter().map(|e| &e.allowance))
    }
}

/// What can be used up.
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
    /// What it is called in settings and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Limit::NewKeys => "new_keys",
            Limit::Lookups => "lookups",
            Limit::ActiveKeys => "active_keys",
            Limit::StoredBytes => "stored_bytes",
        }
    }
}

/// Something is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// What.
    pub limit: Limit,
    /// When it is worth asking again.
    pub retry_after: Duration,
}

/// What was used.
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

/// Periods of a rate that the store keeps at most as taken. Nodes that cannot see each other for a moment may take a whole
/// period each; beyond so many of them that is not paid back. It also bounds for how long a wrong level can refuse a subject.
pub const LONGEST_DEBT: u32 = 16;

/// The interval at which a node reports its use. Use is charged as of the beginning of that interval, since the rate has
/// refilled while it was not reported.
pub const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Time until each rate of a subject is whole again; zero if it is whole, or not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Of [`Allowance::new_keys`].
    pub new_keys: Duration,
    /// Of [`Allowance::lookups`].
    pub lookups: Duration,
}

/// One node's use of one rate, for the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Uses that were not reported before.
    pub count: u64,
    /// The time of the rate that they take up.
    pub cost: Duration,
    /// The time until the rate would be whole again if this node alone had used it.
    pub own: Duration,
    /// The longest time until it is whole again that is kept.
    pub longest: Duration,
}

impl Charge {
    /// Returns when the rate is whole again, if that was `kept` before.
    ///
    /// A node's own use counts at least, so that a report that was lost is made up for by the next one.
    pub fn whole_at(&self, kept: Timestamp, now: Timestamp) -> Timestamp {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        // A part of a millisecond counts as a whole one: nothing is free.
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
    /// New keys.
    pub new_keys: Charge,
    /// Look-ups.
    pub lookups: Charge,
}

impl UsageReport {
    /// The uses.
    pub const fn used(&self) -> Used {
        Used { new_keys: self.new_keys.count, lookups: self.lookups.count }
    }
}

/// The use of one subject, as a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageEntry {
    /// The uses that were ever reported, as far as they are remembered.
    pub used: Used,
    /// The time of the last report.
    pub used_at: Timestamp,
    /// The time at which new keys are whole again.
    pub new_keys_whole_at: Timestamp,
    /// The time at which look-ups are whole again.
    pub lookups_whole_at: Timestamp,
}

impl UsageEntry {
    /// The use of a subject that nobody has reported about.
    pub const UNUSED: UsageEntry = UsageEntry {
        used: Used { new_keys: 0, lookups: 0 },
        used_at: Timestamp::from_millis(0),
        new_keys_whole_at: Timestamp::from_millis(0),
        lookups_whole_at: Timestamp::from_millis(0),
    };

    /// Returns the use after a report.
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

    /// Says whether the subject has used nothing for so long, and every rate is whole again.
    pub fn is_idle(&self, idle: Duration, now: Timestamp) -> bool {
        now.since(self.used_at) >= idle && self.level(now) == Level::default()
    }
}

/// A part of the subjects that have used something, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Only this tenant and its callers.
    pub tenant: Option<String>,
    /// Only those behind this one.
    pub after: Option<Subject>,
    /// At most so many.
    pub limit: usize,
}

/// What is kept for somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredAmount {
    /// Records.
    pub keys: u64,
    /// Bytes of their responses, and of requests that wait for a worker.
    pub bytes: u64,
}

/// Counts for all nodes together. The use of the last moment may be lost with a crash: a quota is a bound on use, not a bill.
#[async_trait]
pub trait Usage: Send + Sync + 'static {
    /// Makes [`kept`](Usage::kept) fast, where that needs something. It may take long on a large store, and commands
    /// that other nodes carry out go on meanwhile.
    async fn prepare(&self) -> Result<(), StoreError>;

    /// Writes reports down, as [`UsageEntry::charged`] says. Returns the levels after them, in the same order. No subject is
    /// named twice.
    async fn report(&self, reports: &[(Subject, UsageReport)]) -> Result<Vec<Level>, StoreError>;

    /// Returns the level of a subject.
    async fn level(&self, subject: &Subject) -> Result<Level, StoreError>;

    /// Lists the use of subjects, by tenant and caller; a tenant comes before its callers. Returns the store's time, too.
    async fn list_usage(
        &self,
        filter: &UsageFilter,
    ) -> Result<(Vec<(Subject, UsageEntry)>, Timestamp), StoreError>;

    /// Counts what is kept for a subject.
    async fn kept(&self, subject: &Subject) -> Result<StoredAmount, StoreError>;

    /// Forgets at most `limit` subjects that are [idle](UsageEntry::is_idle). Says how many it forgot.
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
    fn exceptions_replace_what_they_name_and_nothing_else() {
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
    fn a_rate_of_nothing_is_none() {
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
    fn each_limit_alone_is_something_to_count() {
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
    fn a_subject_is_idle_only_once_its_rates_are_whole_again() {
        let at = Timestamp::from_millis;
        let entry = UsageEntry { new_keys_whole_at: at(9_000), ..UsageEntry::UNUSED };
        assert!(!entry.is_idle(SECOND, at(8_999)));
        assert!(entry.is_idle(SECOND, at(9_000)));
        assert!(!entry.is_idle(10 * SECOND, at(9_000)));
    }

    #[test]
    fn what_is_left_of_a_rate_follows_from_the_time_until_it_is_whole() {
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
