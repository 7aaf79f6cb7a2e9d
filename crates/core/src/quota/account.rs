//! The account of one subject on one node: it decides about one more use.
//!
//! Invariant: admitted uses keep to each rate by the node's own count, whatever the store says, and by the
//! store's level plus all uses not yet reported.

use std::time::Duration;

use super::{Allowance, Charge, Exceeded, Level, Limit, Rate, StoredAmount, UsageReport};

/// Delay before a retry if too much is stored: the time of the next deletion is unknown.
const UNTIL_FORGOTTEN: Duration = Duration::from_secs(60);

/// One node's view of one subject's use. Times count from the node's start, by a monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Account {
    new_keys: Bucket,
    lookups: Bucket,
    /// Uses not yet reported to the store.
    unreported: Unreported,
    /// True once the store has reported its level.
    is_known: bool,
    /// Stored amounts at the last count.
    counted: Option<StoredAmount>,
    /// Amounts that this node has added since that count began.
    added: StoredAmount,
    /// Admitted new keys whose claims are not yet answered. They are reported once they are created.
    on_their_way: u64,
}

/// Uses not yet reported to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unreported {
    new_keys: u64,
    lookups: u64,
    /// True if a report may have been lost: the next one makes up for it.
    is_in_doubt: bool,
}

impl Account {
    /// Takes one look-up, if one is left.
    pub fn look_up(&mut self, allowance: &Allowance, now: Duration) -> Result<(), Exceeded> {
        if let Some(rate) = allowance.lookups {
            let exceeded = |retry_after| Exceeded { limit: Limit::Lookups, retry_after };
            self.lookups.take(rate, now).map_err(exceeded)?;
            self.unreported.lookups = self.unreported.lookups.saturating_add(1);
        }
        Ok(())
    }

    /// Returns a look-up that was taken and not made.
    pub fn unlook(&mut self, allowance: &Allowance) {
        if let Some(rate) = allowance.lookups {
            self.lookups.give_back(rate);
            self.unreported.lookups = self.unreported.lookups.saturating_sub(1);
        }
    }

    /// Takes one new key, if one is left and the stored amounts leave room for it. It is in flight until
    /// [`created`](Account::created) or [`not_created`](Account::not_created) is called.
    pub fn new_key(&mut self, allowance: &Allowance, now: Duration) -> Result<(), Exceeded> {
        let kept = self.kept();
        let full = |limit, cap: Option<u64>, kept: u64| match cap {
            Some(cap) if kept >= cap => Err(Exceeded { limit, retry_after: UNTIL_FORGOTTEN }),
            Some(_) | None => Ok(()),
        };
        full(Limit::ActiveKeys, allowance.active_keys, kept.keys)?;
        full(Limit::StoredBytes, allowance.stored_bytes, kept.bytes)?;
        if let Some(rate) = allowance.new_keys {
            let exceeded = |retry_after| Exceeded { limit: Limit::NewKeys, retry_after };
            self.new_keys.take(rate, now).map_err(exceeded)?;
        }
        self.on_their_way += 1;
        self.added.keys += 1;
        Ok(())
    }

    /// Counts an admitted new key as created: it has its record, or may have it.
    pub fn created(&mut self) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        self.unreported.new_keys = self.unreported.new_keys.saturating_add(1);
    }

    /// Returns an admitted key that was not new: it is known, or its claim was not accepted.
    pub fn not_created(&mut self, allowance: &Allowance) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        self.added.keys = self.added.keys.saturating_sub(1);
        if let Some(rate) = allowance.new_keys {
            self.new_keys.give_back(rate);
        }
    }

    /// Adds `bytes` to the subject's stored size.
    pub fn stored(&mut self, bytes: u64) {
        self.added.bytes = self.added.bytes.saturating_add(bytes);
    }

    /// Returns the stored amounts as far as this node knows: never less than the last count plus its own
    /// additions.
    pub fn kept(&self) -> StoredAmount {
        let counted = self.counted.unwrap_or_default();
        StoredAmount {
            keys: counted.keys.saturating_add(self.added.keys),
            bytes: counted.bytes.saturating_add(self.added.bytes),
        }
    }

    /// Returns true if the stored amounts were counted.
    pub const fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// Begins a count. Returns the argument that [`counted`](Account::counted) needs at its end.
    pub const fn counting(&self) -> Counting {
        // A key in flight may or may not be in the count: it is added, so that it is never missed.
        Counting(StoredAmount {
            keys: self.added.keys.saturating_sub(self.on_their_way),
            bytes: self.added.bytes,
        })
    }

    /// Ends a count.
    pub fn counted(&mut self, began: Counting, kept: StoredAmount) {
        self.counted = Some(kept);
        self.added.keys = self.added.keys.saturating_sub(began.0.keys);
        self.added.bytes = self.added.bytes.saturating_sub(began.0.bytes);
    }

    /// Returns true if there is use to report to the store.
    pub fn has_unreported(&self) -> bool {
        self.unreported != Unreported::default()
    }

    /// Takes the report for the store. Keys in flight are left out: they may turn out to be known.
    pub fn report(&mut self, allowance: &Allowance, now: Duration) -> UsageReport {
        let Unreported { new_keys, lookups, .. } = std::mem::take(&mut self.unreported);
        let charge = |rate: Option<Rate>, bucket: &Bucket, count: u64, on_their_way: u64| match rate {
            Some(rate) => Charge {
                count,
                cost: rate.cost(count),
                own: bucket.own.saturating_sub(now).saturating_sub(rate.cost(on_their_way)),
                longest: rate.longest(),
            },
            None => Charge { count, ..Charge::default() },
        };
        UsageReport {
            new_keys: charge(allowance.new_keys, &self.new_keys, new_keys, self.on_their_way),
            lookups: charge(allowance.lookups, &self.lookups, lookups, 0),
        }
    }

    /// Takes back a report that the store certainly did not get.
    pub fn not_reported(&mut self, report: &UsageReport) {
        self.unreported.new_keys = self.unreported.new_keys.saturating_add(report.new_keys.count);
        self.unreported.lookups = self.unreported.lookups.saturating_add(report.lookups.count);
    }

    /// Marks a report as lost or not: the store may have got it. It is not repeated, since it would count
    /// twice; the next report carries this node's minimum use.
    pub fn report_in_doubt(&mut self) {
        self.unreported.is_in_doubt = true;
    }

    /// Returns true once the store has reported its level.
    pub const fn is_known(&self) -> bool {
        self.is_known
    }

    /// Sets the store's level, which includes all reported uses. Unreported uses are added to it.
    pub fn learn(&mut self, allowance: &Allowance, level: Level, now: Duration) {
        self.is_known = true;
        if let Some(rate) = allowance.new_keys {
            let unreported = self.unreported.new_keys.saturating_add(self.on_their_way);
            self.new_keys.learn(rate, level.new_keys, unreported, now);
        }
        if let Some(rate) = allowance.lookups {
            self.lookups.learn(rate, level.lookups, self.unreported.lookups, now);
        }
    }
}

/// Amounts that a node had added when a count began.
#[derive(Clone, Copy, Debug)]
pub struct Counting(StoredAmount);

/// A rate in use, by the times at which it is whole again without further use.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Time by this node's use alone.
    own: Duration,
    /// Time by the use of all nodes, as far as this node knows. Separate, so that a delay of the store's
    /// answer is not reported back to it as use.
    shared: Duration,
}

impl Bucket {
    /// Takes one use, or returns the wait for the next one.
    fn take(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let after = |whole_at: Duration| whole_at.max(now).saturating_add(rate.interval());
        let (own, shared) = (after(self.own), after(self.shared));
        let latest = now.saturating_add(rate.per());
        let late = own.max(shared).saturating_sub(latest);
        if late > Duration::ZERO {
            return Err(late);
        }
        (self.own, self.shared) = (own, shared);
        Ok(())
    }

    fn give_back(&mut self, rate: Rate) {
        self.own = self.own.saturating_sub(rate.interval());
        self.shared = self.shared.saturating_sub(rate.interval());
    }

    /// Sets the shared time from the level of all nodes, plus this node's unreported uses.
    fn learn(&mut self, rate: Rate, level: Duration, unreported: u64, now: Duration) {
        let level = level.min(rate.longest());
        self.shared = now.saturating_add(level).saturating_add(rate.cost(unreported));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{UsageEntry, Used};
    use super::*;
    use crate::time::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);

    fn allowance(count: u32) -> Allowance {
        let rate = Rate::new(count, SECOND);
        Allowance { new_keys: rate, lookups: rate, ..Allowance::default() }
    }

    /// The store's time when a node's is zero.
    const EPOCH: i64 = 1_000_000_000_000;

    fn store_time(now: Duration) -> Timestamp {
        Timestamp::from_millis(EPOCH + i64::try_from(now.as_millis()).expect("it is small"))
    }

    /// Reports to the store, as a node does.
    fn tell(account: &mut Account, entry: &mut UsageEntry, allowance: &Allowance, now: Duration) {
        let report = account.report(allowance, now);
        *entry = entry.charged(&report, store_time(now));
        account.learn(allowance, entry.level(store_time(now)), now);
    }

    fn let_in(account: &mut Account, allowance: &Allowance, now: Duration) -> u32 {
        let mut count = 0;
        while account.new_key(allowance, now).is_ok() {
            account.created();
            count += 1;
            assert!(count < 100_000, "it is not limited");
        }
        count
    }

    #[test]
    fn a_rate_admits_its_full_count_at_once_and_then_refills_over_time() {
        let (mut account, allowance) = (Account::default(), allowance(10));
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 10);
        let exceeded = account.new_key(&allowance, Duration::ZERO).expect_err("it is used up");
        assert_eq!(exceeded, Exceeded { limit: Limit::NewKeys, retry_after: SECOND / 10 });
        assert_eq!(let_in(&mut account, &allowance, SECOND / 10), 1, "as was said");
        assert_eq!(let_in(&mut account, &allowance, SECOND), 9);
        assert_eq!(let_in(&mut account, &allowance, 100 * SECOND), 10, "what was not used is not saved up");
    }

    #[test]
    fn keys_that_were_not_new_are_refunded() {
        let (mut account, allowance) = (Account::default(), allowance(2));
        for _ in 0..100 {
            account.new_key(&allowance, Duration::ZERO).expect("it was given back");
            account.not_created(&allowance);
            account.look_up(&allowance, Duration::ZERO).expect("it was given back");
            account.unlook(&allowance);
        }
        assert!(!account.has_unreported());
        assert_eq!(account.kept(), StoredAmount::default());
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 2);
    }

    #[test]
    fn stored_keys_and_bytes_bound_new_keys() {
        let caps = Allowance { active_keys: Some(10), stored_bytes: Some(1000), ..Allowance::default() };
        let mut account = Account::default();
        let began = account.counting();
        account.counted(began, StoredAmount { keys: 7, bytes: 999 });
        assert_eq!(let_in(&mut account, &caps, Duration::ZERO), 3);
        assert_eq!(account.new_key(&caps, Duration::ZERO).map_err(|e| e.limit), Err(Limit::ActiveKeys));
        let began = account.counting();
        account.counted(began, StoredAmount { keys: 5, bytes: 999 });
        account.stored(1);
        assert_eq!(account.new_key(&caps, Duration::ZERO).map_err(|e| e.limit), Err(Limit::StoredBytes));
    }

    #[test]
    fn keys_created_before_or_during_a_store_count_are_added_to_it() {
        let caps = Allowance { active_keys: Some(100), ..Allowance::default() };
        let mut account = Account::default();
        account.new_key(&caps, Duration::ZERO).expect("there is room");
        account.created();
        account.new_key(&caps, Duration::ZERO).expect("there is room");
        // The second claim is not answered yet: the count may or may not see it. It does not.
        let began = account.counting();
        account.new_key(&caps, Duration::ZERO).expect("there is room");
        account.created();
        account.counted(began, StoredAmount { keys: 1, bytes: 0 });
        account.created();
        assert_eq!(account.kept().keys, 3);
    }

    #[test]
    fn stored_amount_is_known_after_the_first_count() {
        let mut account = Account::default();
        assert!(!account.is_counted());
        account.stored(5);
        let began = account.counting();
        account.stored(7);
        account.counted(began, StoredAmount { keys: 2, bytes: 100 });
        assert!(account.is_counted());
        assert_eq!(account.kept(), StoredAmount { keys: 2, bytes: 107 }, "five of them are in the count");
    }

    #[test]
    fn look_ups_are_limited_and_reported_like_new_keys() {
        let (mut account, allowance) = (Account::default(), allowance(4));
        assert!(!account.has_unreported());
        for _ in 0..4 {
            account.look_up(&allowance, Duration::ZERO).expect("one is left");
        }
        let exceeded = account.look_up(&allowance, Duration::ZERO).expect_err("they are used up");
        assert_eq!(exceeded, Exceeded { limit: Limit::Lookups, retry_after: SECOND / 4 });
        assert!(account.has_unreported());
        let report = account.report(&allowance, Duration::ZERO);
        assert_eq!(report.used(), Used { new_keys: 0, lookups: 4 });
        assert_eq!((report.lookups.cost, report.lookups.own), (SECOND, SECOND));
        assert!(!account.has_unreported());
        account.not_reported(&report);
        account.look_up(&allowance, SECOND).expect("they are back");
        assert_eq!(account.report(&allowance, SECOND).used(), Used { new_keys: 0, lookups: 5 });
    }

    #[test]
    fn two_nodes_that_report_usage_admit_one_shared_rate_over_time() {
        let allowance = allowance(100);
        let (mut nodes, mut entry) = ([Account::default(), Account::default()], UsageEntry::UNUSED);
        let mut let_in_all = 0;
        for tick in 0..600_u32 {
            let now = SECOND * tick / 10;
            for node in &mut nodes {
                let_in_all += let_in(node, &allowance, now);
            }
            if tick % 10 == 9 {
                for node in &mut nodes {
                    tell(node, &mut entry, &allowance, now);
                }
            }
        }
        // 100 per second for a minute, the uses that each node could admit before it heard of the other, and
        // the second that a node's first report forgives.
        assert!((6000..=6000 + 2 * 200 + 100).contains(&let_in_all), "{let_in_all}");
    }

    #[test]
    fn a_restarted_quota_account_resumes_from_the_usage_in_the_store() {
        let hourly = Rate::new(10, 3600 * SECOND);
        let allowance = Allowance { new_keys: hourly, ..Allowance::default() };
        let (mut account, mut entry) = (Account::default(), UsageEntry::UNUSED);
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 10);
        tell(&mut account, &mut entry, &allowance, SECOND);
        let mut again = Account::default();
        assert!(!again.is_known());
        again.learn(&allowance, entry.level(store_time(SECOND)), Duration::ZERO);
        assert!(again.is_known());
        let exceeded = again.new_key(&allowance, Duration::ZERO).expect_err("they are used up");
        // One comes back every six minutes, and a second of that is over.
        assert_eq!(exceeded, Exceeded { limit: Limit::NewKeys, retry_after: 359 * SECOND });
        assert_eq!(let_in(&mut again, &allowance, 359 * SECOND), 1, "as was said");
    }

    #[test]
    fn new_keys_are_reported_only_after_their_creation() {
        let (mut account, allowance) = (Account::default(), allowance(4));
        for _ in 0..3 {
            account.new_key(&allowance, Duration::ZERO).expect("one is left");
        }
        account.created();
        let report = account.report(&allowance, Duration::ZERO);
        assert_eq!((report.new_keys.count, report.new_keys.own), (1, SECOND / 4));
        account.learn(&allowance, Level { new_keys: SECOND / 4, ..Level::default() }, Duration::ZERO);
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 1, "two are still on their way");
        account.not_created(&allowance);
        account.not_created(&allowance);
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 2, "they were known");
    }

    #[test]
    fn a_report_in_doubt_counts_at_least_once_with_the_next_one() {
        let hourly = Rate::new(10, 3600 * SECOND);
        let allowance = Allowance { new_keys: hourly, ..Allowance::default() };
        for was_written in [false, true] {
            let (mut account, mut entry) = (Account::default(), UsageEntry::UNUSED);
            assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 10);
            let report = account.report(&allowance, Duration::ZERO);
            if was_written {
                entry = entry.charged(&report, store_time(Duration::ZERO));
            }
            account.report_in_doubt();
            assert!(account.has_unreported());
            tell(&mut account, &mut entry, &allowance, Duration::ZERO);
            assert_eq!(entry.level(store_time(Duration::ZERO)).new_keys, 3600 * SECOND, "{was_written}");
            assert!(!account.has_unreported());
        }
    }

    #[test]
    fn usage_of_other_processes_counts_and_the_wait_for_it_is_bounded() {
        let (mut account, allowance) = (Account::default(), allowance(10));
        account.learn(
            &allowance,
            Level { new_keys: SECOND * 4 / 10, lookups: SECOND * 7 / 10 },
            Duration::ZERO,
        );
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 6);
        let look_ups = std::iter::repeat_with(|| account.look_up(&allowance, Duration::ZERO));
        assert_eq!(look_ups.take(20).filter(Result::is_ok).count(), 3);
        account.learn(&allowance, Level { new_keys: Duration::MAX, lookups: Duration::MAX }, Duration::ZERO);
        let exceeded = account.new_key(&allowance, Duration::ZERO).expect_err("others have used it");
        // Fifteen periods, one use, and the six that were not reported.
        assert_eq!(exceeded.retry_after, SECOND * 15 + SECOND * 7 / 10);
    }

    #[test]
    fn bursts_below_the_rate_are_never_refused_however_late_they_are_reported() {
        let (mut account, mut entry, allowance) = (Account::default(), UsageEntry::UNUSED, allowance(10));
        for second in 0..60 {
            let now = SECOND * second;
            tell(&mut account, &mut entry, &allowance, now);
            for _ in 0..9 {
                account.new_key(&allowance, now).expect("it keeps to its rate");
                account.created();
            }
        }
    }

    #[test]
    fn new_keys_without_a_rate_limit_are_reported() {
        let (mut account, allowance) = (Account::default(), Allowance::default());
        for _ in 0..3 {
            account.new_key(&allowance, Duration::ZERO).expect("nothing limits it");
            account.created();
        }
        assert_eq!(account.report(&allowance, Duration::ZERO).used(), Used { new_keys: 3, lookups: 0 });
    }
}
