//! A store that fails when a test says so, around one that works.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use semel_core::{
    AgedRecord, Census, Change, Claim, Event, Filter, Formats, Item, Note, NoteTaken, OperationId,
    OperationName, Principal, Progress, Record, RecordId, RecordPage, Records, ReferenceEntry, Snapshot,
    Store, StoreAnswer, StoreError, StoredRequest, Tier, Timestamp, Upkeep, WaitingFilter, WaitingPage,
};

/// A call of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Store::claim`].
    Claim,
    /// [`Store::apply`] of a renewal.
    Renew,
    /// [`Store::apply`] of any other event.
    Apply,
    /// Any other call.
    Other,
}

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store is away, and does nothing.
    Unavailable,
    /// The call takes effect, and its answer is lost.
    AnswerLost,
    /// The call takes effect, and never returns.
    Hangs,
    /// The call neither takes effect nor returns.
    HangsUndone,
    /// The store refuses this record for ever.
    Rejected,
    /// Another transaction holds the record.
    Busy,
}

type Script = Box<dyn FnMut(Call) -> Option<Fault> + Send>;
type Hold = Box<dyn Fn(Call) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A store that fails when a test says so.
pub struct FaultyStore {
    inner: Arc<dyn Records>,
    script: Mutex<Script>,
    hold: Mutex<Option<Arc<Hold>>>,
    between: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    promised: Mutex<Option<Tier>>,
}

impl FaultyStore {
    /// Returns a store without faults around this one.
    pub fn new(inner: Arc<dyn Records>) -> FaultyStore {
        FaultyStore {
            inner,
            script: Mutex::new(Box::new(|_| None)),
            hold: Mutex::new(None),
            between: Mutex::new(None),
            promised: Mutex::new(None),
        }
    }

    /// Sets the script that decides about the fault of each call from now on.
    pub fn script(&self, script: impl FnMut(Call) -> Option<Fault> + Send + 'static) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(script);
    }

    /// Sets the tier that this store promises from now on, whatever the inner store's.
    pub fn promise(&self, tier: Tier) {
        *self.promised.lock().unwrap_or_else(PoisonError::into_inner) = Some(tier);
    }

    /// Makes each call wait for this first, from now on.
    pub fn hold(
        &self,
        hold: impl Fn(Call) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static,
    ) {
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(Box::new(hold)));
    }

    /// Sends the next claim twice, like a store that lost the first answer, and runs `between` in between.
    pub fn resend_claim(&self, between: impl FnOnce() + Send + 'static) {
        *self.between.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(between));
    }

    /// Makes every call fail like this from now on.
    pub fn always(&self, fault: Fault) {
        self.script(move |_| Some(fault));
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.script(|_| None);
    }

    async fn through<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(hold) = hold {
            hold(call).await;
        }
        let fault = (self.script.lock().unwrap_or_else(PoisonError::into_inner))(call);
        match fault {
            None => work.await,
            Some(Fault::Unavailable) => Err(StoreError::Unavailable("a test took it away".into())),
            Some(Fault::Rejected) => Err(StoreError::Rejected("a test refuses it".into())),
            Some(Fault::Busy) => Err(StoreError::Busy("a test holds it".into())),
            Some(Fault::AnswerLost) => {
                work.await?;
                Err(StoreError::Ambiguous("a test lost the answer".into()))
            }
            Some(Fault::HangsUndone) => std::future::pending().await,
            Some(Fault::Hangs) => {
                work.await?;
                std::future::pending().await
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        let between = self.between.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(between) = between {
            self.inner.claim(claim).await?;
            between();
        }
        self.through(Call::Claim, self.inner.claim(claim)).await
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        let call = if matches!(change.event(), Event::Renew { .. }) { Call::Renew } else { Call::Apply };
        self.through(call, self.inner.apply(id, change)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        self.through(Call::Other, self.inner.get(id)).await
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        self.through(Call::Other, self.inner.find_own(operation_id, principal)).await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        self.through(Call::Other, self.inner.waiting(filter)).await
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        self.through(Call::Other, self.inner.announce(operation_id, items)).await
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.through(Call::Other, self.inner.progress(operation_id)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.through(Call::Other, self.inner.now()).await
    }

    fn tier(&self) -> Tier {
        let promised = *self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        promised.unwrap_or_else(|| self.inner.tier())
    }

    fn formats(&self) -> Formats {
        self.inner.formats()
    }
}

#[async_trait]
impl Upkeep for FaultyStore {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.through(Call::Other, self.inner.sweep(limit)).await
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.through(Call::Other, self.inner.reap(limit)).await
    }

    async fn census(&self) -> Result<Census, StoreError> {
        self.through(Call::Other, self.inner.census()).await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.through(Call::Other, self.inner.due_to_reconcile(limit)).await
    }

    async fn try_commit(&self) -> Result<(), StoreError> {
        self.through(Call::Other, self.inner.try_commit()).await
    }
}

#[async_trait]
impl Records for FaultyStore {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.through(Call::Other, self.inner.find(operation_id)).await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.through(Call::Other, self.inner.notes(operation_id)).await
    }

    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        self.through(Call::Other, self.inner.read_request(operation_id, note)).await
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        self.through(Call::Other, self.inner.list(filter)).await
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        self.through(Call::Other, self.inner.find_by_reference(tenant, operation, reference)).await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.through(Call::Other, self.inner.operations()).await
    }
}
