//! Places for events whose bodies are being read, shared among webhooks and peers: a peer that sends slow
//! bodies without a secret blocks only itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Largest number of concurrent events of one webhook, in all and from one peer.
const PER_SOURCE: usize = 128;
const PER_PEER: usize = 8;

/// Places of this process.
pub(crate) static PLACES: LazyLock<EventPlaces> = LazyLock::new(EventPlaces::default);

/// Taken places by webhook and peer. Webhooks are configured by name, so there are few of them.
#[derive(Default)]
pub(crate) struct EventPlaces {
    taken: Mutex<HashMap<String, HashMap<IpAddr, usize>>>,
}

impl EventPlaces {
    /// Takes a place for one event of this webhook from this peer, until it is dropped; `None` if its share
    /// is used up.
    pub(crate) fn take(&self, source: &str, peer: IpAddr) -> Option<EventPlace<'_>> {
        let mut taken = self.taken();
        let peers = taken.entry(source.to_owned()).or_default();
        let of_peer = peers.get(&peer).copied().unwrap_or(0);
        if of_peer >= PER_PEER || peers.values().sum::<usize>() >= PER_SOURCE {
            return None;
        }
        peers.insert(peer, of_peer + 1);
        Some(EventPlace { places: self, source: source.to_owned(), peer })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, HashMap<IpAddr, usize>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Place for one event.
pub(crate) struct EventPlace<'a> {
    places: &'a EventPlaces,
    source: String,
    peer: IpAddr,
}

impl Drop for EventPlace<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        let Some(peers) = taken.get_mut(&self.source) else { return };
        match peers.get_mut(&self.peer) {
            Some(places) if *places > 1 => *places -= 1,
            Some(_) | None => drop(peers.remove(&self.peer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_peer_exhausts_only_its_own_event_places() {
        let places = EventPlaces::default();
        let held: Vec<_> = std::iter::from_fn(|| places.take("provider", peer(1))).take(1000).collect();
        assert_eq!(held.len(), PER_PEER);
        assert!(places.take("provider", peer(2)).is_some(), "another peer");
        assert!(places.take("other", peer(1)).is_some(), "another webhook");
        drop(held);
        assert!(places.take("provider", peer(1)).is_some(), "what is over is free again");
        assert!(places.taken().values().all(HashMap::is_empty), "and leaves nothing behind");
    }

    #[test]
    fn a_webhook_has_a_bound_of_its_own() {
        let places = EventPlaces::default();
        let peers = || (0..=u8::MAX).flat_map(|last| std::iter::repeat_n(last, PER_PEER));
        let held: Vec<_> = peers().map_while(|last| places.take("provider", peer(last))).collect();
        assert_eq!(held.len(), PER_SOURCE);
        assert!(places.take("other", peer(1)).is_some());
    }
}
