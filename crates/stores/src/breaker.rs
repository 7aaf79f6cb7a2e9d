//! Circuit breaker around the store: while the store is away, claims and reads fail at once instead of at a
//! timeout. It opens after a few failures in a row, and from time to time lets one claim through as a test.
//! Begun commands must be settled, so `apply` and sweeps are always tried. Failed completions count
//! separately: a successful claim does not prove that its completion succeeds. A record that another
//! transaction holds is no failure of the store, unless several different ones in a row are held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use semel_core::store::CALL_DEADLINE;
use semel_core::{
    AgedRecord, Census, Change, Claim, Decision, Filter, Formats, Item, Note, NoteTaken, OperationId,
    OperationName, Principal, Progress, Record, RecordId, RecordPage, Records, ReferenceEntry, Snapshot,
    Store, StoreAnswer, StoreError, StoredRequest, Tier, Timestamp, Upkeep, WaitingFilter, WaitingPage,
};
use tokio::time::Instant;

/// Number of failures in a row that open the circuit.
const FAILURES: usize = 5;
/// Shortest and longest time until one claim is let through. The time grows with each failed completion.
const PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(16);

/// Timeout of a write. It is shorter than the layer's, so that the breaker sees it.
const HEAD_START: Duration = Duration::from_millis(500);

/// Store behind a circuit breaker.
pub struct Breaker {
    inner: Arc<dyn Records>,
    health: Mutex<StoreHealth>,
}

/// Health of the store by its last answers.
struct StoreHealth {
    /// Number of failed writes in a row.
    failures: usize,
    /// Number of failed changes of claimed records in a row. Only a successful change resets it.
    unsettled: usize,
    /// Different records in a row that another transaction held.
    held: Vec<RecordId>,
    open: bool,
    /// Time at which the last successful change began; `None` without one.
    changed_from: Option<Instant>,
    /// Time at which the next claim is let through.
    try_again_at: Instant,
    pause: Duration,
}

/// Kind of a write, which decides on the meaning of its result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    /// Makes a record, or changes a settled one.
    Claim(Option<RecordId>),
    /// Changes a claimed record.
    Settlement(RecordId),
    /// Changes the records that are due, if any.
    Upkeep,
}

impl StoreHealth {
    /// Updates the health by the result of a call. `changed` is true if an existing record was changed.
    fn learn<T>(&mut self, call: WriteKind, result: &Result<T, StoreError>, changed: bool) {
        match result {
            Ok(_) | Err(StoreError::Rejected(_) | StoreError::Corrupt(_)) => {
                self.failures = 0;
                self.held.clear();
                if changed {
                    self.unsettled = 0;
                    self.pause = PAUSE;
                }
            }
            Err(StoreError::Busy(_)) => {
                let (WriteKind::Claim(Some(id)) | WriteKind::Settlement(id)) = call else { return };
                if self.held.len() < FAILURES && !self.held.contains(&id) {
                    self.held.push(id);
                }
            }
            Err(StoreError::Unavailable(_) | StoreError::Ambiguous(_) | StoreError::Damaged(_)) => {
                self.failures += 1;
                if matches!(call, WriteKind::Settlement(_)) {
                    self.unsettled += 1;
                }
            }
        }
        let is_away = self.failures.max(self.unsettled).max(self.held.len()) >= FAILURES;
        if is_away && result.is_err() {
            if self.open && self.unsettled >= FAILURES && matches!(call, WriteKind::Settlement(_)) {
                self.pause = (self.pause * 2).min(LAST_PAUSE);
            }
            self.try_again_at = Instant::now() + self.pause;
        }
        let was_away = std::mem::replace(&mut self.open, is_away);
        if was_away != is_away {
            shown(is_away);
        }
        match (was_away, is_away) {
            (true, false) => tracing::info!("the store is back"),
            (false, true) if self.unsettled >= FAILURES => {
                tracing::error!(
                    "the store takes claims but no completions: commands are refused until it does"
                );
            }
            (false, true) => tracing::error!("the store is away: commands are refused until it is back"),
            (true, true) | (false, false) => {}
        }
    }

    /// Returns true if a claim may be made. While the circuit is open, one per pause may.
    fn admits(&mut self) -> bool {
        if !self.open {
            return true;
        }
        let now = Instant::now();
        let is_due = now >= self.try_again_at;
        if is_due {
            self.try_again_at = now + self.pause;
        }
        is_due
    }
}

/// Records in the metrics that the circuit is open, or not.
fn shown(is_open: bool) {
    metrics::gauge!("idempotency_store_breaker_open").set(f64::from(u8::from(is_open)));
}

/// Records in the metrics the tier that the store promises.
fn show_tier(tier: Tier) {
    metrics::gauge!("idempotency_store_tier").set(f64::from(tier.number()));
}

impl Breaker {
    /// Makes a closed breaker around this store.
    pub fn new(inner: Arc<dyn Records>) -> Breaker {
        shown(false);
        show_tier(inner.tier());
        let health = StoreHealth {
            failures: 0,
            unsettled: 0,
            held: Vec::new(),
            open: false,
            changed_from: None,
            try_again_at: Instant::now(),
            pause: PAUSE,
        };
        Breaker { inner, health: Mutex::new(health) }
    }

    /// Returns true if the store is considered away.
    pub fn is_open(&self) -> bool {
        self.health().open
    }

    /// Returns true if a change that began within this time was made. It is the cheapest evidence that the store takes
    /// changes.
    pub fn has_changed_within(&self, time: Duration) -> bool {
        self.health().changed_from.is_some_and(|began| began.elapsed() <= time)
    }

    fn health(&self) -> MutexGuard<'_, StoreHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that reads. It neither opens nor closes the circuit: a readable store may be unable to
    /// take a claim, and clients that ask and disconnect must not open the circuit for others.
    async fn read<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        if self.is_open() {
            return Err(StoreError::Unavailable("it was away a moment ago".into()));
        }
        call.await
    }

    /// Makes a call that begins something, if the circuit allows it.
    async fn begin<T>(
        &self,
        id: Option<RecordId>,
        call: impl Future<Output = Result<T, StoreError>>,
        wrote: impl Fn(&T) -> bool,
    ) -> Result<T, StoreError> {
        if !self.health().admits() {
            return Err(StoreError::Unavailable("it was away a moment ago".into()));
        }
        let began = Instant::now();
        let begun = self.judged(WriteKind::Claim(id), call, |_| false).await;
        if begun.as_ref().is_ok_and(wrote) {
            self.health().changed_from = Some(began);
        }
        begun
    }

    /// Makes the call, and updates the health. A call that times out has failed; one that its caller gave up
    /// has no result.
    async fn judged<T>(
        &self,
        kind: WriteKind,
        call: impl Future<Output = Result<T, StoreError>>,
        changed: impl Fn(&T) -> bool,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let result = match tokio::time::timeout(CALL_DEADLINE - HEAD_START, call).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Ambiguous("the store did not answer in time".into())),
        };
        let changed = result.as_ref().is_ok_and(changed);
        let mut health = self.health();
        if changed {
            health.changed_from = Some(began);
        }
        health.learn(kind, &result, changed);
        drop(health);
        result
    }
}

#[async_trait]
impl Store for Breaker {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        let wrote = |answer: &StoreAnswer| answer.decision == Decision::Execute;
        self.begin(Some(claim.scope.record_id()), self.inner.claim(claim), wrote).await
    }

    /// Always tries the change: begun commands must be settled, and the circuit keeps only new commands out.
    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        let changed = |answer: &StoreAnswer| matches!(answer.decision, Decision::Applied | Decision::Execute);
        self.judged(WriteKind::Settlement(*id), self.inner.apply(id, change), changed).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        self.read(self.inner.get(id)).await
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        self.read(self.inner.find_own(operation_id, principal)).await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        self.read(self.inner.waiting(filter)).await
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        self.begin(None, self.inner.announce(operation_id, items), |()| true).await
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.read(self.inner.progress(operation_id)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read(self.inner.now()).await
    }

    fn tier(&self) -> Tier {
        self.inner.tier()
    }

    fn formats(&self) -> Formats {
        self.inner.formats()
    }
}

#[async_trait]
impl Upkeep for Breaker {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        let swept =
            self.judged(WriteKind::Upkeep, self.inner.sweep(limit), |changed| !changed.is_empty()).await;
        show_tier(self.inner.tier());
        swept
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.judged(WriteKind::Upkeep, self.inner.reap(limit), |changed| !changed.is_empty()).await
    }

    async fn census(&self) -> Result<Census, StoreError> {
        self.read(self.inner.census()).await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read(self.inner.due_to_reconcile(limit)).await
    }

    /// Neither opens nor closes the circuit: it is asked by whoever asks for the readiness.
    async fn try_commit(&self) -> Result<(), StoreError> {
        self.read(self.inner.try_commit()).await
    }
}

#[async_trait]
impl Records for Breaker {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.read(self.inner.find(operation_id)).await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.read(self.inner.notes(operation_id)).await
    }

    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        self.read(self.inner.read_request(operation_id, note)).await
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        self.read(self.inner.list(filter)).await
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        self.read(self.inner.find_by_reference(tenant, operation, reference)).await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.read(self.inner.operations()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::MemoryStore;
    use semel_core::{Decision, StoreError};
    use semel_testkit::faulty::{Call as StoreCall, Fault, FaultyStore};
    use semel_testkit::sample;

    #[tokio::test]
    async fn an_open_circuit_forwards_only_few_calls_to_an_unavailable_store() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let is_shown_open = || page.render().contains("\nidempotency_store_breaker_open 1\n");
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
        assert!(breaker.is_open() && is_shown_open());
        let asked = usize::try_from(calls.load(Ordering::SeqCst)).expect("it is small");
        assert!((FAILURES..FAILURES + 20).contains(&asked), "asked {asked} times");
        faulty.heal();
        while breaker.is_open() {
            let _ = breaker.now().await;
            let _ = breaker.sweep(1).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!is_shown_open(), "{}", page.render());
        let claim = sample::claim("after");
        assert_eq!(breaker.claim(&claim).await.expect("it is back").decision, Decision::Execute);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_change_that_began_lately_proves_that_the_store_takes_changes() {
        let breaker = Breaker::new(Arc::new(MemoryStore::new()));
        let second = Duration::from_secs(1);
        breaker.now().await.expect("it reads");
        breaker.sweep(10).await.expect("nothing is due");
        assert!(!breaker.has_changed_within(second), "nothing was changed");
        let record = acquire(&breaker, "k").await;
        assert!(breaker.has_changed_within(second));
        tokio::time::advance(2 * second).await;
        breaker.claim(&sample::claim("k")).await.expect("it waits");
        assert!(!breaker.has_changed_within(second), "a claim that changes nothing proves nothing");
        complete(&breaker, &record).await.expect("it is completed");
        assert!(breaker.has_changed_within(second));
    }

    #[tokio::test]
    async fn the_tier_is_shown_as_it_is_promised_now() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        faulty.promise(Tier::One);
        let breaker = Breaker::new(faulty.clone());
        assert!(page.render().contains("\nidempotency_store_tier 1\n"), "{}", page.render());
        faulty.promise(Tier::Two);
        breaker.sweep(1).await.expect("nothing is due");
        assert!(page.render().contains("\nidempotency_store_tier 2\n"), "{}", page.render());
    }

    #[tokio::test]
    async fn cancelled_calls_do_not_open_the_circuit() {
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

    async fn acquire(breaker: &Breaker, key: &str) -> Record {
        let answer = breaker.claim(&sample::claim(key)).await.expect("it is decided");
        assert_eq!(answer.decision, Decision::Execute);
        answer.record.expect("an acquired command has a record")
    }

    async fn complete(breaker: &Breaker, record: &Record) -> Result<StoreAnswer, StoreError> {
        breaker.apply(&record.id, &Change::complete(record.head.fence(), sample::created("done"))).await
    }

    #[tokio::test(start_paused = true)]
    async fn claims_do_not_close_the_circuit_that_failed_completions_opened() {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let breaker = Breaker::new(faulty.clone());
        // Like a revoked UPDATE: records are made, and none is changed.
        faulty.script(|call| (call == StoreCall::Apply).then_some(Fault::Unavailable));
        let mut let_through = Vec::new();
        for number in 0..1000 {
            let claim = sample::claim(&format!("key-{number}"));
            if let Ok(answer) = breaker.claim(&claim).await {
                let record = answer.record.expect("it is there");
                assert!(complete(&breaker, &record).await.is_err());
                let_through.push(record);
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(breaker.is_open());
        // Within ten seconds: five at first, then one after each pause, which doubles.
        assert_eq!(let_through.len(), FAILURES + 4);
        faulty.heal();
        assert!(complete(&breaker, &let_through[0]).await.is_ok(), "what has begun is settled");
        assert!(!breaker.is_open());
        acquire(&breaker, "after").await;
    }

    #[tokio::test]
    async fn a_locked_record_does_not_open_the_circuit() {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let breaker = Breaker::new(faulty.clone());
        let record = acquire(&breaker, "locked").await;
        faulty.always(Fault::Busy);
        for _ in 0..10 * FAILURES {
            assert!(matches!(complete(&breaker, &record).await, Err(StoreError::Busy(_))));
            assert!(breaker.claim(&sample::claim("locked")).await.is_err());
        }
        assert!(!breaker.is_open());
        // A lock on the whole table does open it.
        for number in 0..FAILURES {
            assert!(breaker.claim(&sample::claim(&format!("key-{number}"))).await.is_err());
        }
        assert!(breaker.is_open());
        faulty.heal();
        assert!(complete(&breaker, &record).await.is_ok());
        assert!(!breaker.is_open());
    }
}
