//! Places of concurrent requests, shared fairly: no caller takes more than its part.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places of one kind of request.
pub(super) struct CallerPlaces {
    most: usize,
    most_of_caller: usize,
    taken: Arc<Mutex<TakenPlaces>>,
}

/// Number of taken places, in all and by caller.
#[derive(Default)]
struct TakenPlaces {
    total: usize,
    of: HashMap<String, usize>,
}

/// Place of one request. It is given back when it is dropped.
pub(super) struct CallerPlace {
    who: String,
    taken: Arc<Mutex<TakenPlaces>>,
}

impl CallerPlaces {
    pub(super) fn new(most: usize, most_of_caller: usize) -> CallerPlaces {
        CallerPlaces { most, most_of_caller, taken: Arc::default() }
    }

    /// Takes a place. `None`: all of them are taken, or the caller's share is.
    pub(super) fn enter(&self, who: &str) -> Option<CallerPlace> {
        let mut taken = locked(&self.taken);
        let own = taken.of.get(who).copied().unwrap_or(0);
        if taken.total >= self.most || own >= self.most_of_caller {
            return None;
        }
        taken.total += 1;
        taken.of.insert(who.to_owned(), own + 1);
        Some(CallerPlace { who: who.to_owned(), taken: self.taken.clone() })
    }
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        let mut taken = locked(&self.taken);
        taken.total -= 1;
        if let Some(own) = taken.of.get_mut(&self.who) {
            *own -= 1;
            if *own == 0 {
                taken.of.remove(&self.who);
            }
        }
    }
}

fn locked(taken: &Mutex<TakenPlaces>) -> MutexGuard<'_, TakenPlaces> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_takes_its_share_leaves_the_rest_to_others() {
        let places = CallerPlaces::new(5, 3);
        let of_vera: Vec<_> = std::iter::from_fn(|| places.enter("vera")).collect();
        assert_eq!(of_vera.len(), 3);
        let of_olga: Vec<_> = std::iter::from_fn(|| places.enter("olga")).collect();
        assert_eq!(of_olga.len(), 2, "all are taken");
        assert!(places.enter("emil").is_none());
        drop(of_vera);
        assert!(places.enter("emil").is_some());
        drop(of_olga);
        assert!(locked(&places.taken).of.is_empty(), "nobody is remembered");
    }
}
