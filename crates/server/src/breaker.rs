//! A circuit breaker around the store: while it is away, asking costs microseconds and not a timeout.
//!
//! After a few failures in a row the circuit opens: every call is answered `Unavailable` at once, without being
//! made. Now and then one call is let through to see whether the store is back; without traffic, the sweeper's
//! serves for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use semel_core::{
    Answer, Census, Change, Claim, Filter, NoteTaken, OperationId, Record, RecordId, Snapshot, Store,
    StoreError, Tier, Timestamp,
};

/// How many failures in a row open the circuit.
const FAILURES: u32 = 5;
/// How long it stays open before one call is let through.
const PAUSE: Duration = Duration::from_millis(500);

/// A store behind a circuit breaker.
pub struct Breaker {
    inner: Arc<dyn Store>,
    begun: Instant,
    failures: AtomicU32,
    /// Milliseconds after `begun` at which the next call is let through.
    try_again_at: AtomicU64,
    open: AtomicBool,
}

impl Breaker {
    /// Around this store, closed.
    pub fn new(inner: Arc<dyn Store>) -> Breaker {
        Breaker {
            inner,
            begun: Instant::now(),
            failures: AtomicU32::new(0),
            try_again_at: AtomicU64::new(0),
            open: AtomicBool::new(false),
        }
    }

    /// Whether the store is taken to be away.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether a call may be made. While the circuit is open, one write in each pause.
    fn admits(&self, writes: bool) -> bool {
        if !self.is_open() {
            return true;
        }
        if !writes {
            return false;
        }
        let (now, due) = (self.millis(), self.try_again_at.load(Ordering::SeqCst));
        let next = now + u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
        now >= due
            && self.try_again_at.compare_exchange(due, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn succeeded(&self) {
        self.failures.store(0, Ordering::SeqCst);
        if self.open.swap(false, Ordering::SeqCst) {
            tracing::info!("the store is back");
        }
    }

    fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::SeqCst) + 1 >= FAILURES {
            let next = self.millis() + u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
            self.try_again_at.store(next, Ordering::SeqCst);
            if !self.open.swap(true, Ordering::SeqCst) {
                tracing::error!("the store is away: commands are refused until it is back");
            }
        }
    }

    /// Makes a call if the circuit allows it. Only a write that succeeds closes the circuit: a store that can still
    /// be read may be unable to take a claim.
    async fn through<T>(
        &self,
        writes: bool,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if !self.admits(writes) {
            return Err(StoreError::Unavailable("it was away a moment ago".into()));
        }
        let mut watch = Watch { breaker: self, done: false };
        let result = call.await;
        watch.done = true;
        match &result {
            Err(StoreError::Unavailable(_) | StoreError::Ambiguous(_) | StoreError::Damaged(_)) => {
                self.failed();
            }
            Ok(_) | Err(StoreError::Rejected(_) | StoreError::Corrupt(_)) if writes => self.succeeded(),
            Ok(_) | Err(StoreError::Rejected(_) | StoreError::Corrupt(_)) => {}
        }
        result
    }
}

/// A call that is given up, because it takes too long, has failed as well.
struct Watch<'a> {
    breaker: &'a Breaker,
    done: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.breaker.failed();
        }
    }
}

#[async_trait]
impl Store for Breaker {
    async fn claim(&self, claim: &Claim) -> Result<Answer, StoreError> {
        self.through(true, self.inner.claim(claim)).await
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<Answer, StoreError> {
        self.through(true, self.inner.apply(id, change)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        self.through(false, self.inner.get(id)).await
    }

    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.through(false, self.inner.find(operation_id)).await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.through(false, self.inner.notes(operation_id)).await
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        self.through(false, self.inner.list(filter)).await
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.through(true, self.inner.sweep(limit)).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.through(true, self.inner.reap(limit)).await
    }

    async fn census(&self) -> Result<Vec<Census>, StoreError> {
        self.through(false, self.inner.census()).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.through(false, self.inner.now()).await
    }

    fn tier(&self) -> Tier {
        self.inner.tier()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::{Decision, StoreError};
    use semel_stores::MemoryStore;
    use semel_testkit::faulty::{Fault, FaultyStore};
    use semel_testkit::sample;

    #[tokio::test]
    async fn a_dead_store_is_asked_now_and_then_only() {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let breaker = Breaker::new(faulty.clone());
        let calls = Arc::new(AtomicU32::new(0));
        let counter = calls.clone();
        faulty.script(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Some(Fault::Unavailable)
        });
        for number in 0..1000 {
            let claim = sample::claim(&format!("key-{number}"));
            assert!(matches!(breaker.claim(&claim).await, Err(StoreError::Unavailable(_))));
        }
        assert!(breaker.is_open());
        let asked = calls.load(Ordering::SeqCst);
        assert!((FAILURES..FAILURES + 20).contains(&asked), "asked {asked} times");
        faulty.heal();
        while breaker.is_open() {
            let _ = breaker.now().await;
            let _ = breaker.sweep(1).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let claim = sample::claim("after");
        assert_eq!(breaker.claim(&claim).await.expect("it is back").decision, Decision::Execute);
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_has_failed() {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let breaker = Breaker::new(faulty.clone());
        faulty.always(Fault::HangsUndone);
        for _ in 0..FAILURES {
            let _ = tokio::time::timeout(Duration::from_millis(5), breaker.now()).await;
        }
        assert!(breaker.is_open());
    }
}
