//! A circuit breaker around the store: while it is away, asking costs microseconds and not a timeout.
//!
//! After a few failures in a row the circuit opens: every call but `apply` is answered `Unavailable` at once, without
//! being made. What has begun must be settled, so `apply` is always tried. Now and then one call is let through to see whether the store is back; without traffic, the sweeper's
//! serves for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use semel_core::{
    Answer, Census, Change, Claim, Filter, Item, NoteTaken, OperationId, Principal, Progress, Record,
    RecordId, Snapshot, Store, StoreError, Tier, Timestamp, Waiting, WaitingFilter,
};

/// How many failures in a row open the circuit.
const FAILURES: u32 = 5;
/// How long it stays open before one call is let through.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a write may take. Less than the layer waits, so that it is judged here.
const PATIENCE: Duration = Duration::from_millis(4500);

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

    /// Whether a write may be made. While the circuit is open, one in each pause.
    fn admits(&self) -> bool {
        if !self.is_open() {
            return true;
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

    /// A call that reads. It neither opens the circuit nor closes it: a store that can still be read may be unable
    /// to take a claim, and whoever asks and hangs up must not be able to close the door for others.
    async fn read<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        if self.is_open() {
            return Err(StoreError::Unavailable("it was away a moment ago".into()));
        }
        call.await
    }

    /// A call that writes, if the circuit allows it.
    async fn write<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        if !self.admits() {
            return Err(StoreError::Unavailable("it was away a moment ago".into()));
        }
        self.judged(call).await
    }

    /// Makes the call, and draws its conclusions. One that takes too long has failed; one that its caller gave up
    /// says nothing.
    async fn judged<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let result = match tokio::time::timeout(PATIENCE, call).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Ambiguous("the store did not answer in time".into())),
        };
        match &result {
            Err(StoreError::Unavailable(_) | StoreError::Ambiguous(_) | StoreError::Damaged(_)) => {
                self.failed();
            }
            Ok(_) | Err(StoreError::Rejected(_) | StoreError::Corrupt(_)) => self.succeeded(),
        }
        result
    }
}

#[async_trait]
impl Store for Breaker {
    async fn claim(&self, claim: &Claim) -> Result<Answer, StoreError> {
        self.write(self.inner.claim(claim)).await
    }

    /// Always tried: what has begun must be settled, and the circuit is there to keep new commands out.
    async fn apply(&self, id: &RecordId, change: &Change) -> Result<Answer, StoreError> {
        self.judged(self.inner.apply(id, change)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        self.read(self.inner.get(id)).await
    }

    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.read(self.inner.find(operation_id)).await
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        self.read(self.inner.find_own(operation_id, principal)).await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.read(self.inner.notes(operation_id)).await
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        self.read(self.inner.list(filter)).await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<Vec<Waiting>, StoreError> {
        self.read(self.inner.waiting(filter)).await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read(self.inner.due_to_reconcile(limit)).await
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        self.write(self.inner.announce(operation_id, items)).await
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.read(self.inner.progress(operation_id)).await
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.write(self.inner.sweep(limit)).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.write(self.inner.reap(limit)).await
    }

    async fn census(&self) -> Result<Vec<Census>, StoreError> {
        self.read(self.inner.census()).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read(self.inner.now()).await
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
    async fn nobody_can_open_the_circuit_by_hanging_up() {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let breaker = Breaker::new(faulty.clone());
        faulty.always(Fault::HangsUndone);
        for number in 0..10 * FAILURES {
            let claim = sample::claim(&format!("key-{number}"));
            let _ = tokio::time::timeout(Duration::from_millis(1), breaker.now()).await;
            let _ = tokio::time::timeout(Duration::from_millis(1), breaker.claim(&claim)).await;
        }
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_is_away() {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let breaker = Breaker::new(faulty.clone());
        faulty.always(Fault::HangsUndone);
        for number in 0..FAILURES {
            assert!(breaker.claim(&sample::claim(&format!("key-{number}"))).await.is_err());
        }
        assert!(breaker.is_open());
    }
}
