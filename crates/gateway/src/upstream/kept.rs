//! Idle connections, each of one owner. Invariant: no owner gets a connection that another has used, or one
//! of another purpose.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::Principal;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Only user of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Commands of an authenticated caller.
    Commands(Principal),
    /// Questions on behalf of an authenticated caller.
    Questions(Principal),
    /// Forwarded requests of a client's connection, by its number: their client is not authenticated.
    Connection(u64),
}

/// Idle connections, the longest idle first.
pub(super) struct IdleConnections<T> {
    entries: Mutex<VecDeque<IdleConnection<T>>>,
    max: usize,
    max_of_one: usize,
    time: Duration,
    /// Notified when the first connection is kept.
    filled: Notify,
}

struct IdleConnection<T> {
    owner: Owner,
    connection: T,
    since: Instant,
}

impl<T> IdleConnections<T> {
    /// Makes an empty set with limits in all, per owner and in time.
    pub(super) fn new(max: usize, max_of_one: usize, time: Duration) -> IdleConnections<T> {
        IdleConnections { entries: Mutex::default(), max, max_of_one, time, filled: Notify::new() }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<IdleConnection<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last used connection of this owner.
    pub(super) fn take(&self, owner: &Owner) -> Option<T> {
        let mut entries = self.entries();
        expire(&mut entries, self.time);
        let last = entries.iter().rposition(|entry| entry.owner == *owner)?;
        entries.remove(last).map(|entry| entry.connection)
    }

    /// Keeps a connection. Over the limit, the longest idle one is dropped.
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
        entries.push_back(IdleConnection { owner, connection, since: Instant::now() });
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

    /// Drops expired connections, and returns the next expiry; `None` if no connection is left.
    fn expire(&self) -> Option<Instant> {
        let mut entries = self.entries();
        expire(&mut entries, self.time);
        entries.front().map(|entry| entry.since + self.time)
    }
}

fn expire<T>(entries: &mut VecDeque<IdleConnection<T>>, time: Duration) {
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
            let kept = IdleConnections::new(10, 10, TIME);
            kept.keep(owner.clone(), own);
            for other in owners.iter().filter(|other| *other != owner) {
                assert_eq!(kept.take(other), None, "{other:?} got that of {owner:?}");
            }
            assert_eq!(kept.take(owner), Some(own));
            assert_eq!(kept.take(owner), None, "once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_bounded_in_number_and_time() {
        let kept = IdleConnections::new(4, 2, TIME);
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
        let kept = IdleConnections::new(4, 2, TIME);
        let closing = async {
            for _ in 0..2 {
                // Dropped with its entry.
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
