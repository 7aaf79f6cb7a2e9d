//! Quotas: how much each tenant and each of its callers may use, and whether one more fits.
//!
//! An [`Account`] is what one node knows of one [`Subject`]. It decides, purely: the time and the others' use are given
//! to it. [`Usage`] is the contract of who counts for all nodes together, and what it says comes a moment late, so that a
//! quota holds for each node exactly, and for all of them within what they use in that moment.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::scope::Principal;
use crate::store::StoreError;

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
    const fn is_rated(&self) -> bool {
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
    fn minus(self, other: Used) -> Used {
        Used {
            new_keys: self.new_keys.saturating_sub(other.new_keys),
            lookups: self.lookups.saturating_sub(other.lookups),
        }
    }

    fn plus(self, other: Used) -> Used {
        Used {
            new_keys: self.new_keys.saturating_add(other.new_keys),
            lookups: self.lookups.saturating_add(other.lookups),
        }
    }
}

/// What is kept for somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Records.
    pub keys: u64,
    /// Bytes of their responses, and of requests that wait for a worker.
    pub bytes: u64,
}

/// How soon it is worth asking again when too much is kept: nobody knows when something will be forgotten.
const UNTIL_FORGOTTEN: Duration = Duration::from_secs(60);

/// What one node knows of one subject's use. Times are since the node's own beginning, by a clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct Account {
    new_keys: Bucket,
    lookups: Bucket,
    /// What the others have not been told of.
    unreported: Used,
    /// What everybody together had used when it was last told.
    total: Option<Used>,
    /// What was kept when it was last counted.
    counted: Option<Kept>,
    /// What this node has added since that count began.
    added: Kept,
    /// New keys that were let in, and whose claims have not been answered.
    on_their_way: u64,
}

impl Account {
    /// Takes one look-up, if there is one left.
    pub fn look_up(&mut self, allowance: &Allowance, now: Duration) -> Result<(), Exceeded> {
        if let Some(rate) = allowance.lookups {
            let exceeded = |retry_after| Exceeded { limit: Limit::Lookups, retry_after };
            self.lookups.take(rate, now).map_err(exceeded)?;
            self.unreported.lookups += 1;
        }
        Ok(())
    }

    /// Gives a look-up back that was taken, and not made.
    pub fn unlook(&mut self, allowance: &Allowance) {
        if let Some(rate) = allowance.lookups {
            self.lookups.give_back(rate);
            self.unreported.lookups = self.unreported.lookups.saturating_sub(1);
        }
    }

    /// Takes one new key, if there is one left and what is kept leaves room for it. It is on its way until
    /// [`created`](Account::created) or [`not_created`](Account::not_created) is said.
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
            self.unreported.new_keys += 1;
        }
        self.on_their_way += 1;
        self.added.keys += 1;
        Ok(())
    }

    /// A new key that was let in has its record, or may have it.
    pub fn created(&mut self) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
    }

    /// A key that was let in as new was not: it is known, or its claim was not taken.
    pub fn not_created(&mut self, allowance: &Allowance) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        self.added.keys = self.added.keys.saturating_sub(1);
        if let Some(rate) = allowance.new_keys {
            self.new_keys.give_back(rate);
            self.unreported.new_keys = self.unreported.new_keys.saturating_sub(1);
        }
    }

    /// This node has stored so many bytes for the subject.
    pub fn stored(&mut self, bytes: u64) {
        self.added.bytes = self.added.bytes.saturating_add(bytes);
    }

    /// What is kept, as far as this node knows: never less than what it was told and what it has added.
    pub fn kept(&self) -> Kept {
        let counted = self.counted.unwrap_or_default();
        Kept {
            keys: counted.keys.saturating_add(self.added.keys),
            bytes: counted.bytes.saturating_add(self.added.bytes),
        }
    }

    /// Whether anybody has counted what is kept.
    pub const fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// A count begins. Says what [`counted`](Account::counted) needs to know at its end.
    pub const fn counting(&self) -> Counting {
        // What is on its way may be in the count, or not: it is added, so that it is never missed.
        Counting(Kept { keys: self.added.keys.saturating_sub(self.on_their_way), bytes: self.added.bytes })
    }

    /// A count has ended.
    pub fn counted(&mut self, began: Counting, kept: Kept) {
        self.counted = Some(kept);
        self.added.keys = self.added.keys.saturating_sub(began.0.keys);
        self.added.bytes = self.added.bytes.saturating_sub(began.0.bytes);
    }

    /// Whether the others have to be told of anything.
    pub fn has_unreported(&self) -> bool {
        self.unreported != Used::default()
    }

    /// Takes what the others have to be told of. If telling them fails, it is [put back](Account::put_back).
    pub fn take_unreported(&mut self) -> Used {
        std::mem::take(&mut self.unreported)
    }

    /// The others were not told.
    pub fn put_back(&mut self, used: Used) {
        self.unreported = self.unreported.plus(used);
    }

    /// The others were told of `sent`, and everybody together has used `total` by now: what the others have used since
    /// the last time is taken here, too. It may be more than there is, and is then waited for.
    pub fn told(&mut self, allowance: &Allowance, sent: Used, total: Used, now: Duration) {
        let others = match self.total {
            // Their count began anew.
            Some(before) if total.lookups < before.lookups || total.new_keys < before.new_keys => {
                total.minus(sent)
            }
            Some(before) => total.minus(before).minus(sent),
            // What they used before this node was there is over, as far as it can know.
            None => Used::default(),
        };
        self.total = Some(total);
        if let Some(rate) = allowance.new_keys {
            self.new_keys.charge(rate, others.new_keys, now);
        }
        if let Some(rate) = allowance.lookups {
            self.lookups.charge(rate, others.lookups, now);
        }
    }
}

/// What a node had added when a count began.
#[derive(Clone, Copy, Debug)]
pub struct Counting(Kept);

/// A rate that is being used. It is full again at this time, if nobody takes anything.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_at: Duration,
}

impl Bucket {
    /// Takes one, or says when there will be one.
    fn take(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let after = self.full_at.max(now) + rate.interval();
        let latest = now + rate.per();
        if after > latest {
            return Err(after - latest);
        }
        self.full_at = after;
        Ok(())
    }

    fn give_back(&mut self, rate: Rate) {
        self.full_at = self.full_at.saturating_sub(rate.interval());
    }

    /// Takes so many that are gone already.
    fn charge(&mut self, rate: Rate, count: u64, now: Duration) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.full_at = self.full_at.max(now).saturating_add(rate.interval().saturating_mul(count));
    }
}

/// Counts for all nodes together. What it is told may be lost with a crash, and a lost answer may count twice: a quota is
/// a bound on use, not a bill.
#[async_trait]
pub trait Usage: Send + Sync + 'static {
    /// Makes [`kept`](Usage::kept) fast, where that needs something. It may take long on a large store, and commands
    /// that other nodes carry out go on meanwhile.
    async fn prepare(&self) -> Result<(), StoreError>;

    /// Adds what was used, and says what everybody together has used, in the same order. No subject is named twice.
    async fn add(&self, used: &[(Subject, Used)]) -> Result<Vec<Used>, StoreError>;

    /// Counts what is kept for a subject.
    async fn kept(&self, subject: &Subject) -> Result<Kept, StoreError>;

    /// Forgets at most `limit` subjects that have used nothing for so long. Says how many it forgot.
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
    fn a_rate_lets_its_count_in_at_once_and_the_rest_as_time_goes_by() {
        let (mut account, allowance) = (Account::default(), allowance(10));
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 10);
        let exceeded = account.new_key(&allowance, Duration::ZERO).expect_err("it is used up");
        assert_eq!(exceeded, Exceeded { limit: Limit::NewKeys, retry_after: SECOND / 10 });
        assert_eq!(let_in(&mut account, &allowance, SECOND / 10), 1, "as was said");
        assert_eq!(let_in(&mut account, &allowance, SECOND), 9);
        assert_eq!(let_in(&mut account, &allowance, 100 * SECOND), 10, "what was not used is not saved up");
    }

    #[test]
    fn what_turned_out_not_to_be_new_is_given_back() {
        let (mut account, allowance) = (Account::default(), allowance(2));
        for _ in 0..100 {
            account.new_key(&allowance, Duration::ZERO).expect("it was given back");
            account.not_created(&allowance);
            account.look_up(&allowance, Duration::ZERO).expect("it was given back");
            account.unlook(&allowance);
        }
        assert_eq!(account.take_unreported(), Used::default());
        assert_eq!(account.kept(), Kept::default());
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 2);
    }

    #[test]
    fn what_is_kept_bounds_new_keys() {
        let caps = Allowance { active_keys: Some(10), stored_bytes: Some(1000), ..Allowance::default() };
        let mut account = Account::default();
        let began = account.counting();
        account.counted(began, Kept { keys: 7, bytes: 999 });
        assert_eq!(let_in(&mut account, &caps, Duration::ZERO), 3);
        assert_eq!(account.new_key(&caps, Duration::ZERO).map_err(|e| e.limit), Err(Limit::ActiveKeys));
        let began = account.counting();
        account.counted(began, Kept { keys: 5, bytes: 999 });
        account.stored(1);
        assert_eq!(account.new_key(&caps, Duration::ZERO).map_err(|e| e.limit), Err(Limit::StoredBytes));
    }

    #[test]
    fn a_count_misses_nothing_that_was_on_its_way_or_came_while_it_ran() {
        let caps = Allowance { active_keys: Some(100), ..Allowance::default() };
        let mut account = Account::default();
        account.new_key(&caps, Duration::ZERO).expect("there is room");
        account.created();
        account.new_key(&caps, Duration::ZERO).expect("there is room");
        // The second is not answered yet: the count may see it, or not. It does not.
        let began = account.counting();
        account.new_key(&caps, Duration::ZERO).expect("there is room");
        account.created();
        account.counted(began, Kept { keys: 1, bytes: 0 });
        account.created();
        assert_eq!(account.kept().keys, 3);
    }

    #[test]
    fn two_nodes_that_tell_each_other_let_in_one_rate_in_the_long_run() {
        let allowance = allowance(100);
        let (mut nodes, mut total) = ([Account::default(), Account::default()], Used::default());
        let mut let_in_all = 0;
        for tick in 0..600_u32 {
            let now = SECOND * tick / 10;
            for node in &mut nodes {
                let_in_all += let_in(node, &allowance, now);
            }
            if tick % 10 == 9 {
                for node in &mut nodes {
                    let sent = node.take_unreported();
                    total = total.plus(sent);
                    node.told(&allowance, sent, total, now);
                }
            }
        }
        // A minute of 100 each second, and what each node could let in before it heard of the other.
        assert!((6000..=6000 + 2 * 200).contains(&let_in_all), "{let_in_all}");
    }

    #[test]
    fn a_total_that_began_anew_is_not_taken_for_the_others_use() {
        let (mut account, allowance) = (Account::default(), allowance(10));
        account.told(&allowance, Used::default(), Used { new_keys: 1_000_000, lookups: 7 }, Duration::ZERO);
        account.told(&allowance, Used::default(), Used { new_keys: 3, lookups: 0 }, Duration::ZERO);
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 7);
    }

    #[test]
    fn what_could_not_be_told_is_told_later() {
        let (mut account, allowance) = (Account::default(), allowance(10));
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 10);
        let sent = account.take_unreported();
        account.put_back(sent);
        assert_eq!(account.take_unreported(), Used { new_keys: 10, lookups: 0 });
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
    fn look_ups_are_taken_reported_and_refused_like_new_keys() {
        let (mut account, allowance) = (Account::default(), allowance(4));
        assert!(!account.has_unreported());
        for _ in 0..4 {
            account.look_up(&allowance, Duration::ZERO).expect("one is left");
        }
        let exceeded = account.look_up(&allowance, Duration::ZERO).expect_err("they are used up");
        assert_eq!(exceeded, Exceeded { limit: Limit::Lookups, retry_after: SECOND / 4 });
        assert!(account.has_unreported());
        assert_eq!(account.take_unreported(), Used { new_keys: 0, lookups: 4 });
        assert!(!account.has_unreported());
        account.put_back(Used { new_keys: 1, lookups: 2 });
        account.put_back(Used { new_keys: 4, lookups: 8 });
        assert_eq!(account.take_unreported(), Used { new_keys: 5, lookups: 10 });
    }

    #[test]
    fn what_is_kept_is_known_once_it_was_counted() {
        let mut account = Account::default();
        assert!(!account.is_counted());
        account.stored(5);
        let began = account.counting();
        account.stored(7);
        account.counted(began, Kept { keys: 2, bytes: 100 });
        assert!(account.is_counted());
        assert_eq!(account.kept(), Kept { keys: 2, bytes: 107 }, "five of them are in the count");
    }

    #[test]
    fn what_the_others_use_is_taken_here_once() {
        let (mut account, allowance) = (Account::default(), allowance(10));
        let total = |new_keys, lookups| Used { new_keys, lookups };
        account.told(&allowance, Used::default(), total(100, 50), Duration::ZERO);
        account.told(&allowance, total(1, 2), total(105, 59), Duration::ZERO);
        // Of five new keys one was its own, and of nine look-ups two.
        assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), 6);
        let look_ups = std::iter::repeat_with(|| account.look_up(&allowance, Duration::ZERO));
        assert_eq!(look_ups.take(20).filter(Result::is_ok).count(), 3);
    }

    #[test]
    fn either_count_that_fell_says_that_both_began_anew() {
        for total in [Used { new_keys: 4, lookups: 200 }, Used { new_keys: 200, lookups: 4 }] {
            let (mut account, allowance) = (Account::default(), allowance(1_000));
            account.told(&allowance, Used::default(), Used { new_keys: 100, lookups: 100 }, Duration::ZERO);
            account.told(&allowance, Used { new_keys: 1, lookups: 1 }, total, Duration::ZERO);
            let expected = 1_000 - u32::try_from(total.new_keys - 1).expect("it is small");
            assert_eq!(let_in(&mut account, &allowance, Duration::ZERO), expected, "{total:?}");
        }
    }
}
