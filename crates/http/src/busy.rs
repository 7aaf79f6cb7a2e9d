//! The busiest callers and the most repeated keys of this process, minute by minute, in a fixed amount of memory.
//!
//! Counts are kept by the Space-Saving algorithm: of the callers of a minute, at most [`TRACKED`] have a count, and a new one takes
//! the place of the smallest. Invariant: whoever sent more than a `TRACKED`-th of a minute's total has a count, and no count is
//! too low.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::gauge;
use semel_core::{IdempotencyKey, Principal};
use tokio::time::Instant;

/// The number of callers, or keys, that are counted at a time.
const TRACKED: usize = 128;

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(60);

/// The beginning of the digest of a key, as logs show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyHashPrefix(u32);

impl KeyHashPrefix {
    /// Returns the prefix of this key's digest.
    pub(crate) fn of(key: &IdempotencyKey) -> KeyHashPrefix {
        KeyHashPrefix(u32::from_be_bytes(key.digest_prefix()))
    }

    /// Returns the prefix that these hexadecimal digits spell.
    pub(crate) fn parse(digits: &str) -> Option<KeyHashPrefix> {
        u32::from_str_radix(digits, 16).ok().map(KeyHashPrefix)
    }
}

impl fmt::Display for KeyHashPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A count that belongs to the callers of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerSignal {
    /// Commands under new keys.
    NewKey,
    /// Keys that were used with another request.
    Mismatch,
    /// Requests that were refused.
    Refusal,
}

/// The busiest callers and the most repeated keys of this process, in the current minute and in the last whole one. Minutes count
/// from the start of the process.
///
/// [`IdempotencyLayer::busy`](crate::IdempotencyLayer::busy) returns it.
pub struct BusyCallers {
    begun: Instant,
    windows: Mutex<CountedWindows>,
}

impl fmt::Debug for BusyCallers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyCallers").finish_non_exhaustive()
    }
}

/// The current minute and the one before it.
#[derive(Default)]
struct CountedWindows {
    number: u64,
    current: CountedWindow,
    last: CountedWindow,
}

/// The counts of one minute.
#[derive(Default)]
struct CountedWindow {
    new_keys: Leaders<Principal>,
    mismatches: Leaders<Principal>,
    refusals: Leaders<Principal>,
    duplicates: Leaders<RepeatedKey>,
}

/// A key that was sent again.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RepeatedKey {
    operation: Arc<str>,
    principal: Principal,
    key: KeyHashPrefix,
}

/// A result for the current minute, and the same for the last whole one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyMinutes<T> {
    /// Result for the current minute, which has not ended.
    pub current: T,
    /// Result for the last whole minute.
    pub last: T,
}

/// The busiest callers of one minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerRankings {
    /// Callers by their commands under new keys.
    pub new_keys: CallerRanking,
    /// Callers by their keys that were used with another request.
    pub mismatches: CallerRanking,
    /// Callers by their refused requests.
    pub refusals: CallerRanking,
}

/// Callers in the order of one count, the largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerRanking {
    /// The count of all callers together.
    pub total: u64,
    /// The callers with the largest counts.
    pub callers: Vec<CallerCount>,
}

/// The count of one caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerCount {
    /// The tenant and the caller.
    pub principal: Principal,
    /// The count. It is never too low.
    pub count: u64,
    /// Amount by which the count may be too high.
    pub excess: u64,
}

/// A key that was sent repeatedly, by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Label of the operation.
    pub operation: Arc<str>,
    /// The tenant and the caller.
    pub principal: Principal,
    /// First 8 hex digits of the key's digest.
    pub key_hash_prefix: String,
    /// Number of duplicates. It is never too low.
    pub count: u64,
    /// Amount by which the count may be too high.
    pub excess: u64,
}

impl BusyCallers {
    pub(crate) fn new() -> BusyCallers {
        share(&Leaders::default());
        BusyCallers { begun: Instant::now(), windows: Mutex::default() }
    }

    /// Counts one request of a caller.
    pub(crate) fn count(&self, signal: CallerSignal, principal: &Principal) {
        let mut windows = self.windows();
        let CountedWindow { new_keys, mismatches, refusals, .. } = &mut windows.current;
        let leaders = match signal {
            CallerSignal::NewKey => new_keys,
            CallerSignal::Mismatch => mismatches,
            CallerSignal::Refusal => refusals,
        };
        leaders.count(principal);
    }

    /// Counts one duplicate of a command.
    pub(crate) fn duplicate(&self, operation: &Arc<str>, principal: &Principal, key: KeyHashPrefix) {
        let repeated = RepeatedKey { operation: operation.clone(), principal: principal.clone(), key };
        self.windows().current.duplicates.count(&repeated);
    }

    /// Sets the gauge of the busiest caller at the end of each minute, also without requests. Runs until it is dropped.
    pub(crate) async fn keep_gauge(&self) {
        loop {
            let ended = WINDOW.as_secs() * (self.window() + 1);
            tokio::time::sleep_until(self.begun + Duration::from_secs(ended)).await;
            drop(self.windows());
        }
    }

    /// Returns the busiest callers.
    pub fn callers(&self) -> BusyMinutes<CallerRankings> {
        let windows = self.windows();
        let of = |window: &CountedWindow| CallerRankings {
            new_keys: ranking(&window.new_keys),
            mismatches: ranking(&window.mismatches),
            refusals: ranking(&window.refusals),
        };
        BusyMinutes { current: of(&windows.current), last: of(&windows.last) }
    }

    /// Returns the keys with the most duplicates, the largest count first.
    pub fn hot_keys(&self) -> BusyMinutes<Vec<HotKey>> {
        let windows = self.windows();
        let of = |window: &CountedWindow| {
            let hot = |(repeated, tally): (&RepeatedKey, Tally)| HotKey {
                operation: repeated.operation.clone(),
                principal: repeated.principal.clone(),
                key_hash_prefix: repeated.key.to_string(),
                count: tally.count,
                excess: tally.excess,
            };
            window.duplicates.largest().into_iter().map(hot).collect()
        };
        BusyMinutes { current: of(&windows.current), last: of(&windows.last) }
    }

    /// Returns the number of the current minute.
    fn window(&self) -> u64 {
        self.begun.elapsed().as_secs() / WINDOW.as_secs()
    }

    /// Returns the counts, with those of ended minutes moved on.
    fn windows(&self) -> MutexGuard<'_, CountedWindows> {
        let number = self.window();
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if number > windows.number {
            let ended = std::mem::take(&mut windows.current);
            // Without a request for a whole minute, the last minute has no counts.
            windows.last = if number == windows.number + 1 { ended } else { CountedWindow::default() };
            windows.number = number;
            share(&windows.last.new_keys);
        }
        windows
    }
}

/// Records the share of the busiest caller in the new keys of a minute.
fn share(new_keys: &Leaders<Principal>) {
    let largest = new_keys.tallies.values().map(|tally| tally.count - tally.excess).max().unwrap_or_default();
    let share = if new_keys.total == 0 { 0.0 } else { largest as f64 / new_keys.total as f64 };
    gauge!("idempotency_busiest_caller_share").set(share);
}

fn ranking(leaders: &Leaders<Principal>) -> CallerRanking {
    let counted = |(principal, tally): (&Principal, Tally)| CallerCount {
        principal: principal.clone(),
        count: tally.count,
        excess: tally.excess,
    };
    CallerRanking { total: leaders.total, callers: leaders.largest().into_iter().map(counted).collect() }
}

/// The largest counts among any number of counted things.
struct Leaders<K> {
    total: u64,
    tallies: HashMap<K, Tally>,
}

/// A count, and the amount by which it may be too high.
#[derive(Clone, Copy)]
struct Tally {
    count: u64,
    excess: u64,
}

impl<K> Default for Leaders<K> {
    fn default() -> Leaders<K> {
        Leaders { total: 0, tallies: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Leaders<K> {
    fn count(&mut self, key: &K) {
        self.total += 1;
        if let Some(tally) = self.tallies.get_mut(key) {
            tally.count += 1;
            return;
        }
        let excess = if self.tallies.len() < TRACKED { 0 } else { self.make_room() };
        self.tallies.insert(key.clone(), Tally { count: excess + 1, excess });
    }

    /// Forgets the smallest count, and returns it: whoever comes next may have been counted and forgotten that often.
    fn make_room(&mut self) -> u64 {
        let smallest = self.tallies.iter().min_by_key(|(_, tally)| tally.count);
        let Some((key, count)) = smallest.map(|(key, tally)| (key.clone(), tally.count)) else { return 0 };
        self.tallies.remove(&key);
        count
    }

    /// Returns the counts, the largest first.
    fn largest(&self) -> Vec<(&K, Tally)> {
        let mut largest: Vec<_> = self.tallies.iter().map(|(key, tally)| (key, *tally)).collect();
        largest
            .sort_unstable_by_key(|(_, tally)| std::cmp::Reverse((tally.count, tally.count - tally.excess)));
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Principal {
        Principal::new("acme", name).expect("it is a name")
    }

    /// Returns the names and counts of a ranking.
    fn told(ranking: &CallerRanking) -> Vec<(String, u64)> {
        ranking.callers.iter().map(|caller| (caller.principal.caller().to_owned(), caller.count)).collect()
    }

    #[test]
    fn a_heavy_caller_keeps_its_count_among_many_others() {
        let mut leaders = Leaders::default();
        for number in 0..2_000 {
            leaders.count(&format!("caller-{number}"));
            if number % 4 == 0 {
                leaders.count(&"heavy".to_owned());
            }
        }
        assert_eq!((leaders.total, leaders.tallies.len()), (2_500, TRACKED));
        let (first, tally) = leaders.largest()[0];
        assert_eq!(first, "heavy");
        assert!(tally.count >= 500 && tally.count - tally.excess <= 500, "{} of 500", tally.count);
        assert!(leaders.tallies.values().all(|tally| tally.count > tally.excess));
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_moves_on_after_its_end() {
        let busy = BusyCallers::new();
        busy.count(CallerSignal::NewKey, &caller("alice"));
        busy.count(CallerSignal::NewKey, &caller("bob"));
        busy.count(CallerSignal::NewKey, &caller("bob"));
        busy.count(CallerSignal::Mismatch, &caller("carol"));
        busy.count(CallerSignal::Refusal, &caller("dave"));
        let callers = busy.callers();
        assert_eq!(told(&callers.current.new_keys), [("bob".to_owned(), 2), ("alice".to_owned(), 1)]);
        assert_eq!(callers.current.new_keys.total, 3);
        assert_eq!(told(&callers.current.mismatches), [("carol".to_owned(), 1)]);
        assert_eq!(told(&callers.current.refusals), [("dave".to_owned(), 1)]);
        assert_eq!(callers.last, CallerRankings::default());

        tokio::time::advance(WINDOW).await;
        let moved = busy.callers();
        assert_eq!((moved.last, moved.current), (callers.current, CallerRankings::default()));
        tokio::time::advance(WINDOW * 2).await;
        assert_eq!(busy.callers().last, CallerRankings::default(), "that minute is long over");
    }

    #[tokio::test(start_paused = true)]
    async fn the_share_of_the_busiest_caller_never_exceeds_the_truth() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let busy = BusyCallers::new();
        for number in 0..1_000 {
            busy.count(CallerSignal::NewKey, &caller(&format!("caller-{number}")));
        }
        let first = busy.callers().current.new_keys.callers.remove(0);
        assert!(
            first.count > 1 && first.count - first.excess <= 1,
            "it took over the counts of others: {first:?}"
        );
        tokio::time::advance(WINDOW).await;
        drop(busy.windows());
        let text = handle.render();
        assert!(text.lines().any(|line| line == "idempotency_busiest_caller_share 0.001"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_keys_are_shown_by_their_digest() {
        let busy = BusyCallers::new();
        let (operation, key) = (Arc::from("payments"), KeyHashPrefix::parse("00c0ffee").expect("it is one"));
        busy.duplicate(&operation, &caller("alice"), key);
        busy.duplicate(&operation, &caller("alice"), key);
        let keys = busy.hot_keys().current;
        let hot: Vec<_> =
            keys.iter().map(|hot| (&*hot.operation, &*hot.key_hash_prefix, hot.count)).collect();
        assert_eq!(hot, [("payments", "00c0ffee", 2)]);
    }
}
