//! Quotas on this node: an account for every tenant and caller, reported to the store and counted from time to time.
//!
//! `core` decides what an account allows; this file finds it, shares it and keeps it fresh. Only the first request of a tenant or
//! caller on this node waits: for its level in the store, and for the first count if its records are capped.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use quick_cache::sync::Cache;
use semel_core::problem::ProblemKind;
use semel_core::quota::{
    Account, Allowance, Exceeded, Limit, Limits, REPORT_EVERY, Subject, Usage, UsageReport,
};
use semel_core::{Principal, Problem, StoreError};
use tokio::time::Instant;

use crate::deadline::within;

/// The maximum number of subjects in one report to the store.
const TOLD_AT_ONCE: usize = 500;

/// The shortest interval between two counts of stored records.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// The pause after a count, in times of its length.
const REST_AFTER_COUNT: u32 = 20;

/// The number of tenants and callers in memory. A forgotten one goes on from its level in the store.
const ACCOUNTS: usize = 100_000;

/// The interval at which unused subjects are forgotten, the time after which a subject is unused, and the batch.
const FORGET_EVERY: Duration = Duration::from_secs(600);
const IDLE: Duration = Duration::from_secs(24 * 3600);
const FORGOTTEN_AT_ONCE: usize = 1000;

/// The quotas of a layer.
pub(crate) struct Quotas {
    limits: Limits,
    usage: Arc<dyn Usage>,
    deadline: Duration,
    begun: Instant,
    accounts: Cache<Subject, Arc<SubjectAccount>>,
    /// Subjects with use that is not reported yet.
    untold: Mutex<Vec<Arc<SubjectAccount>>>,
    /// True while a task reports to the store.
    is_telling: AtomicBool,
    /// Held by one report at a time: a report must not overtake another of its subject.
    telling: tokio::sync::Mutex<()>,
    /// The time at which unused subjects are forgotten next.
    forget_at: AtomicU64,
}

/// The account of one subject.
struct SubjectAccount {
    subject: Subject,
    allowance: Allowance,
    account: Mutex<Account>,
    is_untold: AtomicBool,
    /// Held by the first request that needs the store's level, or a count; others wait.
    first_look: tokio::sync::Mutex<()>,
    /// The time of the next count; `NEVER` during a count.
    count_at: AtomicU64,
}

/// A time that never comes.
const NEVER: u64 = u64::MAX;

impl SubjectAccount {
    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A quota that is used up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsedUp {
    pub(crate) whose: &'static str,
    pub(crate) exceeded: Exceeded,
}

impl UsedUp {
    /// Returns the problem for the client.
    pub(crate) fn problem(self) -> Problem {
        let UsedUp { whose, exceeded: Exceeded { limit, retry_after } } = self;
        let (kind, what) = match limit {
            Limit::NewKeys => {
                (ProblemKind::QuotaExceeded, "has begun too many commands with new keys in a short time")
            }
            Limit::ActiveKeys => (ProblemKind::QuotaExceeded, "has as many keys as it may have at a time"),
            Limit::StoredBytes => (ProblemKind::QuotaExceeded, "has as much stored as it may have at a time"),
            Limit::Lookups => {
                (ProblemKind::LookupQuotaExceeded, "has sent too many requests in a short time")
            }
        };
        // Rounded up to whole seconds, so that it is never too early.
        let retry_after =
            Duration::from_secs(retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0));
        Problem::new(kind, format!("This {whose} {what}.")).retry_after(retry_after)
    }
}

/// A key that was taken from the quotas as a new one. It is given back unless the claim creates a record.
pub(crate) struct ReservedKey(Option<(Arc<Quotas>, [Arc<SubjectAccount>; 2])>);

impl ReservedKey {
    /// A key that is not counted.
    pub(crate) const UNCOUNTED: ReservedKey = ReservedKey(None);

    /// Keeps the key: its claim has created a record, or may have.
    pub(crate) fn created(mut self) {
        if let Some((quotas, entries)) = self.0.take() {
            for entry in &entries {
                entry.account().created();
            }
            quotas.to_tell(&entries);
        }
    }
}

impl Drop for ReservedKey {
    fn drop(&mut self) {
        for entry in self.0.take().iter().flat_map(|(_, entries)| entries) {
            entry.account().not_created(&entry.allowance);
        }
    }
}

impl Quotas {
    pub(crate) fn new(limits: Limits, usage: Arc<dyn Usage>, deadline: Duration) -> Arc<Quotas> {
        Arc::new(Quotas {
            limits,
            usage,
            deadline,
            begun: Instant::now(),
            accounts: Cache::new(ACCOUNTS),
            untold: Mutex::default(),
            is_telling: AtomicBool::new(false),
            telling: tokio::sync::Mutex::new(()),
            forget_at: AtomicU64::new(millis(FORGET_EVERY)),
        })
    }

    /// Takes one look-up of the tenant and of the caller.
    pub(crate) async fn look_up(
        self: &Arc<Self>,
        principal: &Principal,
    ) -> Result<Result<(), UsedUp>, StoreError> {
        let entries = self.entries(principal);
        for entry in entries.iter().filter(|entry| entry.allowance.lookups.is_some()) {
            self.keep_known(entry).await?;
        }
        let now = self.begun.elapsed();
        let taken = self.take(
            &entries,
            |account, allowance| account.look_up(allowance, now),
            |account, allowance| account.unlook(allowance),
        );
        self.to_tell(&entries);
        Ok(taken)
    }

    /// Adds `bytes` to the stored size of the tenant and of the caller.
    pub(crate) fn stored(&self, principal: &Principal, bytes: usize) {
        for entry in self.entries(principal) {
            entry.account().stored(bytes as u64);
        }
    }

    /// Takes one new key of the tenant and of the caller.
    pub(crate) async fn new_key(
        self: &Arc<Self>,
        principal: &Principal,
    ) -> Result<Result<ReservedKey, UsedUp>, StoreError> {
        let entries = self.entries(principal);
        for entry in &entries {
            if entry.allowance.new_keys.is_some() {
                self.keep_known(entry).await?;
            }
            if entry.allowance.is_capped() {
                self.keep_counted(entry).await?;
            }
        }
        let now = self.begun.elapsed();
        let taken = self.take(
            &entries,
            |account, allowance| account.new_key(allowance, now),
            |account, allowance| account.not_created(allowance),
        );
        Ok(taken.map(|()| ReservedKey(Some((self.clone(), entries)))))
    }

    /// Returns the accounts of the tenant and of the caller.
    fn entries(&self, principal: &Principal) -> [Arc<SubjectAccount>; 2] {
        [Subject::tenant_of(principal), Subject::caller_of(principal)].map(|subject| self.entry(&subject))
    }

    fn entry(&self, subject: &Subject) -> Arc<SubjectAccount> {
        let found = self.accounts.get_or_insert_with(subject, || {
            Ok::<_, std::convert::Infallible>(Arc::new(SubjectAccount {
                allowance: self.limits.of(subject),
                subject: subject.clone(),
                account: Mutex::default(),
                is_untold: AtomicBool::new(false),
                first_look: tokio::sync::Mutex::new(()),
                count_at: AtomicU64::new(NEVER),
            }))
        });
        match found {
            Ok(entry) => entry,
        }
    }

    /// Takes from both accounts, or from neither.
    fn take(
        &self,
        [tenant, caller]: &[Arc<SubjectAccount>; 2],
        take: impl Fn(&mut Account, &Allowance) -> Result<(), Exceeded>,
        give_back: impl Fn(&mut Account, &Allowance),
    ) -> Result<(), UsedUp> {
        let of = |entry: &SubjectAccount| {
            let used_up = |exceeded| UsedUp { whose: entry.subject.kind(), exceeded };
            take(&mut entry.account(), &entry.allowance).map_err(used_up)
        };
        of(tenant)?;
        if let Err(used_up) = of(caller) {
            give_back(&mut tenant.account(), &tenant.allowance);
            return Err(used_up);
        }
        Ok(())
    }

    /// Has the use of these accounts reported to the store, if there is any.
    fn to_tell(self: &Arc<Self>, entries: &[Arc<SubjectAccount>]) {
        for entry in entries.iter().filter(|entry| entry.allowance != Allowance::default()) {
            if entry.account().has_unreported() && !entry.is_untold.swap(true, Ordering::SeqCst) {
                self.untold().push(entry.clone());
            }
        }
        if !self.untold().is_empty() && !self.is_telling.swap(true, Ordering::SeqCst) {
            tokio::spawn(Quotas::keep_telling(Arc::downgrade(self)));
        }
    }

    fn untold(&self) -> MutexGuard<'_, Vec<Arc<SubjectAccount>>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true to one caller once this time has come; that caller sets the next time.
    fn is_due(&self, at: &AtomicU64) -> bool {
        let due = at.load(Ordering::SeqCst);
        due <= millis(self.begun.elapsed())
            && at.compare_exchange(due, NEVER, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn set(&self, at: &AtomicU64, from_now: Duration) {
        at.store(millis(self.begun.elapsed() + from_now), Ordering::SeqCst);
    }

    /// Reports to the store until all use is reported, also that of the last request.
    async fn keep_telling(quotas: Weak<Quotas>) {
        while let Some(telling) = quotas.upgrade() {
            telling.tell().await;
            telling.forget_in_time().await;
            drop(telling);
            tokio::time::sleep(REPORT_EVERY).await;
            if quotas.upgrade().is_none_or(|quotas| quotas.has_told()) {
                return;
            }
        }
    }

    /// Returns true if the reporting task may end, because all use is reported.
    fn has_told(&self) -> bool {
        if !self.untold().is_empty() {
            return false;
        }
        self.is_telling.store(false, Ordering::SeqCst);
        // A request may have come in between, and have relied on the task.
        self.untold().is_empty() || self.is_telling.swap(true, Ordering::SeqCst)
    }

    /// Reports the use on this node to the store, and learns the levels of all nodes together.
    pub(crate) async fn tell(&self) {
        let _turn = self.telling.lock().await;
        let untold = std::mem::take(&mut *self.untold());
        // A subject that was forgotten and came back is there twice, and may be reported once at a time.
        let mut named = HashSet::with_capacity(untold.len());
        let (first, again): (Vec<_>, Vec<_>) =
            untold.into_iter().partition(|entry| named.insert(entry.subject.clone()));
        self.untold().extend(again);
        for entries in first.chunks(TOLD_AT_ONCE) {
            let mut reports = Vec::with_capacity(entries.len());
            for entry in entries {
                entry.is_untold.store(false, Ordering::SeqCst);
                let report = entry.account().report(&entry.allowance, self.begun.elapsed());
                reports.push((entry.subject.clone(), report));
            }
            match within(self.deadline, self.usage.report(&reports)).await {
                Ok(levels) => {
                    let now = self.begun.elapsed();
                    for (entry, level) in entries.iter().zip(levels) {
                        entry.account().learn(&entry.allowance, level, now);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "what was used here could not be shared with other nodes");
                    self.not_told(entries, &reports, &error);
                }
            }
        }
    }

    /// Makes a report again that was certainly not written. One that may have been written would count twice.
    fn not_told(
        &self,
        entries: &[Arc<SubjectAccount>],
        reports: &[(Subject, UsageReport)],
        error: &StoreError,
    ) {
        for (entry, (_, report)) in entries.iter().zip(reports) {
            match error {
                StoreError::Ambiguous(_) => entry.account().report_in_doubt(),
                _ => entry.account().not_reported(report),
            }
            if !entry.is_untold.swap(true, Ordering::SeqCst) {
                self.untold().push(entry.clone());
            }
        }
    }

    async fn forget_in_time(&self) {
        if self.is_due(&self.forget_at) {
            loop {
                match within(self.deadline, self.usage.forget(IDLE, FORGOTTEN_AT_ONCE)).await {
                    Ok(FORGOTTEN_AT_ONCE..) => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "tenants and callers that use nothing could not be forgotten");
                        break;
                    }
                }
            }
            self.set(&self.forget_at, FORGET_EVERY);
        }
    }

    /// Reads the store's level of an account once: a restart fills no quota.
    async fn keep_known(&self, entry: &SubjectAccount) -> Result<(), StoreError> {
        if !entry.account().is_known() {
            let _turn = entry.first_look.lock().await;
            if !entry.account().is_known() {
                let level = within(self.deadline, self.usage.level(&entry.subject)).await?;
                let now = self.begun.elapsed();
                entry.account().learn(&entry.allowance, level, now);
            }
        }
        Ok(())
    }

    /// Counts the stored records of an account at first, and again in time.
    async fn keep_counted(self: &Arc<Self>, entry: &Arc<SubjectAccount>) -> Result<(), StoreError> {
        if !entry.account().is_counted() {
            let _turn = entry.first_look.lock().await;
            if !entry.account().is_counted() {
                self.count(entry).await?;
            }
        } else if self.is_due(&entry.count_at) {
            let (quotas, entry) = (self.clone(), entry.clone());
            tokio::spawn(async move {
                if let Err(error) = quotas.count(&entry).await {
                    tracing::warn!(%error, "what is kept for a tenant or caller could not be counted");
                    quotas.set(&entry.count_at, COUNT_EVERY);
                }
            });
        }
        Ok(())
    }

    async fn count(&self, entry: &SubjectAccount) -> Result<(), StoreError> {
        let (began, counting) = (Instant::now(), entry.account().counting());
        let kept = within(self.deadline, self.usage.kept(&entry.subject)).await?;
        entry.account().counted(counting, kept);
        self.set(&entry.count_at, COUNT_EVERY.max(began.elapsed() * REST_AFTER_COUNT));
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use semel_core::Timestamp;
    use semel_core::quota::{Level, Rate, StoredAmount, UsageEntry, UsageFilter, Used};
    use semel_stores::MemoryStore;

    use super::*;

    /// A store that takes no subject twice at once, as PostgreSQL does not.
    struct Once(MemoryStore);

    #[async_trait]
    impl Usage for Once {
        async fn prepare(&self) -> Result<(), StoreError> {
            self.0.prepare().await
        }

        async fn report(&self, reports: &[(Subject, UsageReport)]) -> Result<Vec<Level>, StoreError> {
            for (index, (subject, _)) in reports.iter().enumerate() {
                assert!(
                    reports[..index].iter().all(|(other, _)| other != subject),
                    "{subject:?} is there twice"
                );
            }
            self.0.report(reports).await
        }

        async fn level(&self, subject: &Subject) -> Result<Level, StoreError> {
            self.0.level(subject).await
        }

        async fn list_usage(
            &self,
            filter: &UsageFilter,
        ) -> Result<(Vec<(Subject, UsageEntry)>, Timestamp), StoreError> {
            self.0.list_usage(filter).await
        }

        async fn kept(&self, subject: &Subject) -> Result<StoredAmount, StoreError> {
            self.0.kept(subject).await
        }

        async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError> {
            self.0.forget(idle, limit).await
        }
    }

    #[tokio::test]
    async fn returning_subject_is_reported_once_at_a_time() {
        let rate = Rate::new(10, Duration::from_secs(3600));
        let allowance = Allowance { lookups: rate, ..Allowance::default() };
        let limits = Limits { tenant: allowance, caller: allowance, exceptions: Vec::new() };
        let usage = Arc::new(Once(MemoryStore::new()));
        let quotas = Quotas::new(limits, usage.clone(), Duration::from_secs(5));
        quotas.is_telling.store(true, Ordering::SeqCst);
        let alice = Principal::new("acme", "alice").expect("these are names");
        quotas.look_up(&alice).await.expect("the store answers").expect("there are ten");
        quotas.accounts.clear();
        quotas.look_up(&alice).await.expect("the store answers").expect("there are nine");
        for _ in 0..2 {
            quotas.tell().await;
        }
        assert!(quotas.untold().is_empty());
        assert_eq!(used(&*usage, &alice).await, [Used { new_keys: 0, lookups: 2 }; 2]);
    }

    /// The use of the tenant and of its one caller.
    async fn used(usage: &dyn Usage, principal: &Principal) -> Vec<Used> {
        let of_tenant = UsageFilter { tenant: Some(principal.tenant().into()), after: None, limit: 10 };
        let (entries, _) = usage.list_usage(&of_tenant).await.expect("it is listed");
        entries.into_iter().map(|(_, entry)| entry.used).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn usage_without_a_later_request_is_reported_to_the_store_in_time() {
        let rate = Rate::new(10, Duration::from_secs(3600));
        let allowance = Allowance { lookups: rate, ..Allowance::default() };
        let limits = Limits { tenant: allowance, caller: allowance, exceptions: Vec::new() };
        let usage = Arc::new(MemoryStore::new());
        let quotas = Quotas::new(limits, usage.clone(), Duration::from_secs(5));
        let alice = Principal::new("acme", "alice").expect("these are names");
        for _ in 0..10 {
            quotas.look_up(&alice).await.expect("the store answers").expect("there are ten");
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(4 * REPORT_EVERY).await;
        assert_eq!(used(&*usage, &alice).await, [Used { new_keys: 0, lookups: 10 }; 2]);
        assert!(!quotas.is_telling.load(Ordering::SeqCst), "there is nothing to tell");
    }

    #[tokio::test]
    async fn use_of_unlimited_subjects_is_not_reported() {
        let keys = Allowance { new_keys: Rate::new(10, Duration::from_secs(3600)), ..Allowance::default() };
        let limits = Limits { tenant: keys, caller: keys, exceptions: Vec::new() };
        let quotas = Quotas::new(limits, Arc::new(MemoryStore::new()), Duration::from_secs(5));
        let alice = Principal::new("acme", "alice").expect("these are names");
        quotas.look_up(&alice).await.expect("the store answers").expect("looking is not limited");
        assert!(quotas.untold().is_empty());
    }
}
