//! Connections that are kept for later, each for one owner. Invariant: nobody gets a connection that another has used, nor
//! for another purpose.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::Principal;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The only one who may use a connection again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The commands of a proven caller.
    Commands(Principal),
    /// Questions that are asked for a proven caller.
    Questions(Principal),
    /// Requests that are passed on from a client's connection, by its number: nobody has proven who is at its end.
    Connection(u64),
}

/// Connections that nobody uses, those that have waited longest first.
pub(super) struct Kept<T> {
    entries: Mutex<VecDeque<Entry<T>>>,
    max: usize,
    max_of_one: usize,
    time: Duration,
    /// The first connection was kept.
    filled: Notify,
}

struct Entry<T> {
    owner: Owner,
    connection: T,
    since: Instant,
}

impl<T> Kept<T> {
    /// So many in all, so many of one owner, each for so long.
    pub(super) fn new(max: usize, max_of_one: usize, time: Duration) -> Kept<T> {
        Kept { entries: Mutex::default(), max, max_of_one, time, filled: Notify::new() }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of this owner that was used last.
    pub(super) fn take(&self, owner: &Owner) -> Option<T> {
        let mut entries = self.entries();
        expire(&mut entries, self.time);
        let last = entries.iter().rposition(|entry| entry.owner == *owner)?;
        entries.remove(last).map(|entry| entry.connection)
    }

    /// Keeps a connection. Where there are too many, the one that has waited longest goes.
    pub(super) fn keep(&self, owner: Owner, connection: T) {
        let mut entries = self.entries();
        expire(&mut entries, self.time);
        if entries.iter().filter(|entry| entry.owner == owner).count() >= self.max_of_one
            && let Some(first) = entries.iter().position(|entry| entry.owner == owner)
        {
            entries.remove(first);
        }
        if entries.len() >= self.max {
            entries.pop_front();
        }
        if entries.is_empty() {
            self.filled.notify_one();
        }
        entries.push_back(Entry { owner, connection, since: Instant::now() });
    }

    /// Drops connections as they expire. Never returns.
    pub(super) async fn close_expired(&self) {
        loop {
            match self.expire() {
                Some(next) => tokio::time::sleep_until(next).await,
                None => self.filled.notified().await,
            }
        }
    }

    /// Drops expired connections, and returns when the next one expires; `None` if there is none.
    fn expire(&self) -> Option<Instant> {
        let mut entries = self.entries();
        expire(&mut entries, self.time);
        entries.front().map(|entry| entry.since + self.time)
    }
}

fn expire<T>(entries: &mut VecDeque<Entry<T>>, time: Duration) {
    let now = Instant::now();
    while entries.front().is_some_and(|entry| now.duration_since(entry.since) >= time) {
        entries.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(4);

    fn caller(tenant: &str, caller: &str) -> Principal {
        Principal::new(tenant, caller).expect("it is valid")
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_its_owners_alone() {
        let owners = [
            Owner::Commands(caller("acme", "alice")),
            Owner::Commands(caller("acme", "bob")),
            Owner::Commands(caller("globex", "alice")),
            Owner::Questions(caller("acme", "alice")),
            Owner::Connection(1),
            Owner::Connection(2),
        ];
        for (own, owner) in owners.iter().enumerate() {
            let kept = Kept::new(10, 10, TIME);
            kept.keep(owner.clone(), own);
            for other in owners.iter().filter(|other| *other != owner) {
                assert_eq!(kept.take(other), None, "{other:?} got that of {owner:?}");
            }
            assert_eq!(kept.take(owner), Some(own));
            assert_eq!(kept.take(owner), None, "once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_bounded_in_all_for_each_owner_and_in_time() {
        let kept = Kept::new(4, 2, TIME);
        for number in 0..10 {
            kept.keep(Owner::Connection(0), number);
        }
        assert_eq!((kept.take(&Owner::Connection(0)), kept.take(&Owner::Connection(0))), (Some(9), Some(8)));
        assert_eq!(kept.take(&Owner::Connection(0)), None, "two of one owner");
        for number in 0..6 {
            kept.keep(Owner::Connection(number), 0);
        }
        let left: Vec<_> = (0..6).filter(|number| kept.take(&Owner::Connection(*number)).is_some()).collect();
        assert_eq!(left, [2, 3, 4, 5], "four in all, and a newcomer is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_connections_are_closed_though_none_is_asked_for() {
        let kept = Kept::new(4, 2, TIME);
        let closing = async {
            for _ in 0..2 {
                // Dropped when its entry is.
                let connection = std::sync::Arc::new(());
                kept.keep(Owner::Connection(1), connection.clone());
                tokio::time::sleep(TIME / 2).await;
                assert_eq!(std::sync::Arc::strong_count(&connection), 2, "it is kept for its time");
                tokio::time::sleep(TIME).await;
                assert_eq!(std::sync::Arc::strong_count(&connection), 1, "it is closed");
            }
        };
        tokio::select! {
            () = kept.close_expired() => {}
            () = closing => {}
        }
    }
}
