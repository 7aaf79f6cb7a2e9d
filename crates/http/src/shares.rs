//! A bounded amount that many holders share: places, or bytes of memory. No holder can use it up for the others.
//!
//! A holder is a member of a group: a caller of a tenant, a connection from an address. Invariant: a holder of much leaves much. A
//! member holds at most twice the amount that it leaves, and its group four times; a modest member, with no more than a 256th of
//! all, may take more until its group holds sixteen times the amount that is left. So one client alone gets two thirds, and
//! shuts out neither the other members of its group nor other groups.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A member may hold this many times the amount that it leaves.
const MEMBER_WEIGHT: usize = 2;
/// A group may hold this many times the amount that it leaves.
const GROUP_WEIGHT: usize = 4;
/// A group may hold this many times the amount that it leaves, while the member that takes is modest.
const MODEST_GROUP_WEIGHT: usize = 16;
/// A member is modest with this part of all.
const MODEST_PART: usize = 256;

/// The holder of a part: a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShareHolder {
    group: u64,
    member: u64,
}

impl ShareHolder {
    /// Names the member of a group.
    pub fn new(group: &(impl Hash + ?Sized), member: &(impl Hash + ?Sized)) -> ShareHolder {
        // Secret keys: no holder can choose a name that counts as another one.
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let group = KEYS.hash_one(group);
        ShareHolder { group, member: KEYS.hash_one((group, KEYS.hash_one(member))) }
    }
}

/// A bounded amount. Clones share it.
#[derive(Clone)]
pub struct Shares(Arc<SharePool>);

struct SharePool {
    total: usize,
    held: Mutex<HeldAmounts>,
    /// Notified when a part is given back.
    released: Notify,
}

#[derive(Default)]
struct HeldAmounts {
    all: usize,
    groups: HashMap<u64, usize>,
    members: HashMap<u64, usize>,
}

impl Shares {
    /// Makes a bounded amount of `total`.
    pub fn new(total: usize) -> Shares {
        Shares(Arc::new(SharePool { total, held: Mutex::default(), released: Notify::new() }))
    }

    /// Returns an empty part for this holder, which can be grown.
    pub fn part(&self, holder: ShareHolder) -> Share {
        Share { pool: self.0.clone(), holder, amount: 0 }
    }

    /// Takes this amount for a holder; `None` if the amount is not left, or is beyond the holder's bound.
    pub fn try_take(&self, holder: ShareHolder, amount: usize) -> Option<Share> {
        let mut share = self.part(holder);
        share.grow(amount).then_some(share)
    }

    /// Waits until this amount can be taken. A holder of something that others wait for must not wait here.
    pub async fn take(&self, holder: ShareHolder, amount: usize) -> Share {
        loop {
            let mut released = std::pin::pin!(self.0.released.notified());
            released.as_mut().enable();
            if let Some(share) = self.try_take(holder, amount) {
                return share;
            }
            released.await;
        }
    }

    /// Takes this amount for a holder even beyond its bound, for bytes that are there already and cannot be refused.
    pub fn charge(&self, holder: ShareHolder, amount: usize) -> Share {
        self.0.held().add(holder, amount);
        Share { pool: self.0.clone(), holder, amount }
    }

    /// Returns the amount that all holders have.
    pub fn held(&self) -> usize {
        self.0.held().all
    }
}

impl SharePool {
    fn held(&self) -> MutexGuard<'_, HeldAmounts> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldAmounts {
    /// Returns true if this holder may take the amount.
    fn allows(&self, total: usize, holder: ShareHolder, amount: usize) -> bool {
        if amount == 0 {
            return true;
        }
        let Some(left) = total.checked_sub(self.all.saturating_add(amount)) else { return false };
        let held =
            |by: &HashMap<u64, usize>, name| by.get(&name).copied().unwrap_or(0).saturating_add(amount);
        let (group, member) = (held(&self.groups, holder.group), held(&self.members, holder.member));
        let times_left = |weight: usize| left.saturating_mul(weight);
        if member <= (total / MODEST_PART).max(1) {
            return group <= times_left(MODEST_GROUP_WEIGHT).max(1);
        }
        member <= times_left(MEMBER_WEIGHT) && group <= times_left(GROUP_WEIGHT)
    }

    fn add(&mut self, holder: ShareHolder, amount: usize) {
        self.all += amount;
        *self.groups.entry(holder.group).or_default() += amount;
        *self.members.entry(holder.member).or_default() += amount;
    }

    fn remove(&mut self, holder: ShareHolder, amount: usize) {
        fn less(held: &mut HashMap<u64, usize>, name: u64, amount: usize) {
            if let Entry::Occupied(mut entry) = held.entry(name) {
                *entry.get_mut() -= amount;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
        self.all -= amount;
        less(&mut self.groups, holder.group, amount);
        less(&mut self.members, holder.member, amount);
    }
}

/// The part of a holder; given back when dropped.
pub struct Share {
    pool: Arc<SharePool>,
    holder: ShareHolder,
    amount: usize,
}

impl Share {
    /// Takes more, and returns true if it could. If not, the part stays as it was.
    #[must_use]
    pub fn grow(&mut self, amount: usize) -> bool {
        let mut held = self.pool.held();
        let allowed = held.allows(self.pool.total, self.holder, amount);
        if allowed && amount > 0 {
            held.add(self.holder, amount);
            self.amount += amount;
        }
        allowed
    }

    /// Gives all of it back, and may be grown again.
    pub fn release(&mut self) {
        let amount = std::mem::take(&mut self.amount);
        if amount > 0 {
            self.pool.held().remove(self.holder, amount);
            self.pool.released.notify_waiters();
        }
    }

    /// Returns the amount of this part.
    pub fn amount(&self) -> usize {
        self.amount
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes as much as this holder can get, one by one.
    fn all_of(shares: &Shares, holder: ShareHolder) -> Vec<Share> {
        std::iter::from_fn(|| shares.try_take(holder, 1)).collect()
    }

    #[test]
    fn a_holder_that_is_alone_gets_two_thirds() {
        let shares = Shares::new(3000);
        assert_eq!(all_of(&shares, ShareHolder::new("a", "1")).len(), 2000);
        assert_eq!(shares.held(), 0, "everything came back");
        let modest: Vec<_> = (0..3000).map_while(|n| shares.try_take(ShareHolder::new("a", &n), 1)).collect();
        assert_eq!(modest.len(), 3000 * 16 / 17, "many with little get nearly all");
    }

    #[test]
    fn shares_stay_available_beside_greedy_holders_of_the_same_group() {
        // Connections with as many streams as each may have, from one address.
        let shares = Shares::new(1536);
        let greedy: Vec<Share> = (0..24)
            .flat_map(|n| {
                (0..64).map_while(|_| shares.try_take(ShareHolder::new("a", &n), 1)).collect::<Vec<_>>()
            })
            .collect();
        assert!(greedy.len() < 1300, "{}", greedy.len());
        let neighbours: Vec<_> = (100..120)
            .map(|n| (0..6).map_while(|_| shares.try_take(ShareHolder::new("a", &n), 1)).count())
            .collect();
        assert!(neighbours.iter().all(|taken| *taken == 6), "{neighbours:?}");
        assert!(all_of(&shares, ShareHolder::new("b", "1")).len() > 150);
    }

    #[test]
    fn several_greedy_groups_leave_something_to_another() {
        let shares = Shares::new(10_000);
        let _held: Vec<_> = (0..4).map(|n| all_of(&shares, ShareHolder::new(&n, "1"))).collect();
        assert!(all_of(&shares, ShareHolder::new("other", "1")).len() >= 39);
    }

    #[test]
    fn a_single_share_can_be_taken_once_and_again_after_its_return() {
        let shares = Shares::new(1);
        let only = shares.try_take(ShareHolder::new("a", "1"), 1).expect("there is one");
        assert!(shares.try_take(ShareHolder::new("b", "1"), 1).is_none(), "there is no second one");
        drop(only);
        assert!(shares.try_take(ShareHolder::new("b", "1"), 1).is_some());
    }

    #[tokio::test]
    async fn a_waiting_holder_gets_a_returned_part() {
        let shares = Shares::new(10);
        let holder = ShareHolder::new("a", "1");
        let held = all_of(&shares, holder);
        let waiting = tokio::spawn({
            let shares = shares.clone();
            async move { shares.take(holder, 1).await.amount() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(held);
        assert_eq!(waiting.await.expect("it does not panic"), 1);
    }

    proptest! {
        #[test]
        fn shares_stay_within_their_bounds_in_any_order_of_takes_and_returns(steps in prop::collection::vec((0..4_u8, 0..3_u8, 0..40_usize, any::<bool>()), 1..200)) {
            let shares = Shares::new(200);
            let mut held: Vec<(ShareHolder, Share)> = Vec::new();
            for (group, member, amount, takes) in steps {
                let holder = ShareHolder::new(&group, &member);
                if takes {
                    let own = held.iter().filter(|(of, _)| *of == holder).map(|(_, share)| share.amount()).sum::<usize>();
                    if let Some(share) = shares.try_take(holder, amount) {
                        let left = 200 - shares.held();
                        prop_assert!(amount == 0 || own + amount <= (2 * left).max(1), "it took too much of what was left");
                        held.push((holder, share));
                    } else {
                        let would_be_left = 200_usize.checked_sub(shares.held() + amount);
                        prop_assert!(amount > 1 || own > 0 || would_be_left.is_none_or(|left| left < 12), "a first one is refused");
                    }
                } else if !held.is_empty() {
                    held.swap_remove(amount % held.len());
                }
                let sum: usize = held.iter().map(|(_, share)| share.amount()).sum();
                prop_assert_eq!(shares.held(), sum);
                prop_assert!(sum <= 200);
            }
            drop(held);
            let pool = shares.0.held();
            prop_assert!(pool.groups.is_empty() && pool.members.is_empty(), "nobody is remembered");
        }
    }
}
