//! Any store, with its responses and requests sealed on the way in and opened on the way out.
//!
//! Invariant: data that does not open is returned sealed. It cannot be decoded, so a retry is refused and not
//! run, and a worker skips its command.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use semel_core::{
    AgedRecord, AttemptToken, Census, Change, Claim, Decision, Filter, Formats, Item, Note, NoteTaken,
    OperationId, OperationName, Principal, Progress, Record, RecordId, RecordPage, Records, ReferenceEntry,
    Snapshot, Store, StoreAnswer, StoreError, StoredRequest, StoredResult, Tier, Timestamp, Upkeep, Vault,
    VaultError, Waiting, WaitingFilter, WaitingPage,
};

/// Maximum number of remembered running commands. Others are looked up before they are settled.
const MAX_IN_HAND: usize = 65_536;

/// A store, or a part of one, that keeps all data of clients and services sealed. Earlier plaintext stays
/// readable, unless the vault refuses plaintext.
pub struct SealedStore<S: ?Sized> {
    pub(super) inner: Arc<S>,
    pub(super) vault: Arc<dyn Vault>,
    /// Commands that were acquired here and are not settled yet: a response is sealed for its command.
    in_hand: Mutex<HashMap<AttemptToken, OperationId>>,
}

impl<S: ?Sized> SealedStore<S> {
    /// Returns a sealed store around this one, under the keys of this vault.
    pub fn new(inner: Arc<S>, vault: Arc<dyn Vault>) -> SealedStore<S> {
        SealedStore { inner, vault, in_hand: Mutex::default() }
    }

    fn in_hand(&self) -> MutexGuard<'_, HashMap<AttemptToken, OperationId>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a command that was just acquired.
    fn acquired(&self, answer: &StoreAnswer) {
        if let (Decision::Execute, Some(record)) = (answer.decision, &answer.record) {
            let mut in_hand = self.in_hand();
            if in_hand.len() >= MAX_IN_HAND {
                in_hand.clear();
            }
            in_hand.insert(record.head.token, record.operation_id);
        }
    }

    fn open(&self, record: &mut Record) {
        if let Err(why) = self.vault.open_record(record) {
            tracing::error!(operation_id = %record.operation_id, %why, "a stored response stays sealed");
        }
    }

    fn opened(&self, mut record: Option<Record>) -> Option<Record> {
        record.iter_mut().for_each(|record| self.open(record));
        record
    }

    fn all_opened(&self, mut records: Vec<Record>) -> Vec<Record> {
        records.iter_mut().for_each(|record| self.open(record));
        records
    }
}

impl<S: Store + ?Sized> SealedStore<S> {
    /// Returns the command that a change settles. A deleted record has no owner, and takes no change.
    async fn command(&self, id: &RecordId, change: &Change) -> Result<OperationId, StoreError> {
        let token = change.event().fence().map(|fence| fence.token);
        if let Some(known) = token.and_then(|token| self.in_hand().remove(&token)) {
            return Ok(known);
        }
        let found = self.inner.get(id).await?.record;
        Ok(found.map_or(OperationId::from_bytes([0; 16]), |record| record.operation_id))
    }
}

/// Returns the error for data that cannot be sealed, and so is not written.
pub(super) fn not_sealed(why: &VaultError) -> StoreError {
    StoreError::Unavailable(why.to_string())
}

/// Restores the clear result that was just sealed, without opening it.
fn restore(record: &mut Record, sealed: &Change, clear: &StoredResult) {
    if record.result.as_ref() == sealed.result() {
        record.result = Some(clear.clone());
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for SealedStore<S> {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        let answer = match claim.request {
            Some(_) => {
                self.inner.claim(&self.vault.seal_claim(claim).map_err(|why| not_sealed(&why))?).await?
            }
            None => self.inner.claim(claim).await?,
        };
        self.acquired(&answer);
        Ok(StoreAnswer { record: self.opened(answer.record), ..answer })
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        if change.result().is_none() && change.call().is_none() {
            let answer = self.inner.apply(id, change).await?;
            self.acquired(&answer);
            return Ok(StoreAnswer { record: self.opened(answer.record), ..answer });
        }
        let command = self.command(id, change).await?;
        let sealed = self.vault.seal_change_of(id, command, change).map_err(|why| not_sealed(&why))?;
        let mut answer = self.inner.apply(id, &sealed).await?;
        if let (Some(clear), Some(record)) = (change.result(), &mut answer.record) {
            restore(record, &sealed, clear);
        }
        Ok(StoreAnswer { record: self.opened(answer.record), ..answer })
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        let found = self.inner.get(id).await?;
        Ok(Snapshot { record: self.opened(found.record), ..found })
    }

    /// Finds a record. Another principal's record is not opened.
    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let found = self.inner.find_own(operation_id, principal).await?;
        Ok(Snapshot { record: self.opened(found.record), ..found })
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        let mut page = self.inner.waiting(filter).await?;
        for Waiting { record, request } in &mut page.found {
            if let Err(why) = self.vault.open_request(record, request) {
                tracing::debug!(operation_id = %record.operation_id, %why, "a kept request stays sealed");
            }
        }
        Ok(page)
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        self.inner.announce(operation_id, items).await
    }

    /// Returns the steps. An output that does not open stays in its envelope, and no run resumes from it.
    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        let mut steps = self.inner.progress(operation_id).await?;
        for step in &mut steps {
            if let Err(why) = self.vault.open_progress(operation_id, step) {
                tracing::error!(%operation_id, phase = step.name, %why, "the output of a phase stays sealed");
            }
        }
        Ok(steps)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    fn tier(&self) -> Tier {
        self.inner.tier()
    }

    fn formats(&self) -> Formats {
        self.inner.formats()
    }
}

#[async_trait]
impl<S: Upkeep + ?Sized> Upkeep for SealedStore<S> {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.inner.sweep(limit).await
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.inner.reap(limit).await
    }

    async fn census(&self) -> Result<Census, StoreError> {
        self.inner.census().await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        Ok(self.all_opened(self.inner.due_to_reconcile(limit).await?))
    }

    async fn try_commit(&self) -> Result<(), StoreError> {
        self.inner.try_commit().await
    }
}

#[async_trait]
impl<S: Records + ?Sized> Records for SealedStore<S> {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        let found = self.inner.find(operation_id).await?;
        Ok(Snapshot { record: self.opened(found.record), ..found })
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.inner.notes(operation_id).await
    }

    /// Returns the request. One that does not open is returned sealed.
    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let found = self.inner.find(operation_id).await?.record;
        let mut request = self.inner.read_request(operation_id, note).await?;
        if let (Some(record), Some(request)) = (&found, &mut request)
            && let Err(why) = self.vault.open_request(record, request)
        {
            tracing::error!(%operation_id, %why, "a kept request stays sealed");
        }
        Ok(request)
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        let page = self.inner.list(filter).await?;
        Ok(RecordPage { records: self.all_opened(page.records), ..page })
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        self.inner.find_by_reference(tenant, operation, reference).await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.inner.operations().await
    }
}
