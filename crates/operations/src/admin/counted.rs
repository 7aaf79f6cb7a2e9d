//! Count of the store's records and messages, shared by all who ask for the overview: however many pages are open, the store
//! counts every few seconds.

use std::sync::Arc;
use std::time::Duration;

use semel_core::outbox::{Depth, Outbox};
use semel_core::{Census, Records, StoreError, Timestamp};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time for which a count is shown again.
const COUNT_TIME: Duration = Duration::from_secs(5);

/// Records and messages of the store at one moment.
pub(super) struct CountedStore {
    /// Store's time of the count.
    pub(super) now: Timestamp,
    pub(super) census: Census,
    /// Messages, if the store has an outbox.
    pub(super) depth: Option<Depth>,
}

/// Last count, and the moment at which it began.
#[derive(Default)]
pub(super) struct SharedCount(Mutex<Option<(Instant, Arc<CountedStore>)>>);

impl SharedCount {
    /// Returns the last count if it is young, else a new one. Whoever comes meanwhile waits for that one.
    pub(super) async fn read(
        &self,
        store: &dyn Records,
        outbox: Option<&dyn Outbox>,
    ) -> Result<Arc<CountedStore>, StoreError> {
        let mut last = self.0.lock().await;
        if let Some((begun, counted)) = &*last
            && begun.elapsed() < COUNT_TIME
        {
            return Ok(counted.clone());
        }
        let begun = Instant::now();
        let (now, census) = (store.now().await?, store.census().await?);
        let depth = match outbox {
            Some(outbox) => Some(outbox.depth().await?),
            None => None,
        };
        let counted = Arc::new(CountedStore { now, census, depth });
        *last = Some((begun, counted.clone()));
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slow_store::SlowStore;
    use semel_stores::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn a_count_is_shown_again_until_it_is_old() {
        let store = SlowStore::new(Arc::new(MemoryStore::new()));
        store.gate.add_permits(10);
        let counted = SharedCount::default();
        for _ in 0..3 {
            counted.read(&store, None).await.expect("it counts");
        }
        assert_eq!(store.reads(), 1);
        tokio::time::advance(COUNT_TIME).await;
        counted.read(&store, None).await.expect("it counts");
        assert_eq!(store.reads(), 2);
    }
}
