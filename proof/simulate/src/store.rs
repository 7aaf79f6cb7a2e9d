//! Client side of the store: statements over the network. Like a driver, it retries a statement whose answer was lost
//! with the same token, and reports an unclear write as ambiguous, never as unavailable.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_core::reconcile::{Heard, LastHeard, OpenStatements, StatementOutcome};
use semel_core::transition::ReferenceWrite;
use semel_core::{
    AgedRecord, Census, Change, Claim, Evidence, Filter, Item, Note, NoteTaken, OperationId, OperationName,
    Principal, Progress, Record, RecordId, RecordPage, Records, ReferenceEntry, Snapshot, Statement as Said,
    Store, StoreError, StoredRequest, Tier, Timestamp, Upkeep, WaitingFilter, WaitingPage,
};
use semel_stores::MemoryStore;

use crate::broken::Broken;
use crate::port::{Answer, Port, Question, Statement};
use crate::settings::millis;

/// Delay before a retry of a statement.
const PAUSE: Duration = millis(40);

/// Store behind the network.
pub(crate) struct RemoteStore {
    pub(crate) port: Arc<Port>,
    /// Number of tries for a statement.
    pub(crate) tries: u32,
    /// Timeout of each answer.
    pub(crate) patience: Duration,
    pub(crate) broken: Option<Broken>,
}

impl RemoteStore {
    /// Sends a statement until it is answered, at most `tries` times.
    async fn send<T: 'static>(&self, tries: u32, make: impl Fn() -> Statement) -> Result<T, StoreError> {
        let mut lost = false;
        for number in 1..=tries {
            if number > 1 {
                tokio::time::sleep(PAUSE).await;
            }
            let asking = self.port.ask(Question::Store(make(), number));
            match tokio::time::timeout(self.patience, asking).await {
                Ok(Answer::Store(answer)) => match answer.downcast::<Result<T, StoreError>>() {
                    Ok(answer) => return *answer,
                    Err(_) => unreachable!("the server answers a statement with what its sender expects"),
                },
                Ok(Answer::Refused) => {}
                Ok(Answer::Broken | Answer::Provider(_) | Answer::Found(_)) | Err(_) => lost = true,
            }
        }
        match lost && self.broken != Some(Broken::SilentCommit) {
            true => Err(StoreError::Ambiguous("no answer".into())),
            false => Err(StoreError::Unavailable("no connection".into())),
        }
    }

    /// Reads from the store: without an answer, nothing has changed.
    async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Fn(&MemoryStore) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.write(name, self.tries, work).await {
            Err(StoreError::Ambiguous(why)) => Err(StoreError::Unavailable(why)),
            read => read,
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        tries: u32,
        work: impl Fn(&MemoryStore) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let make = || {
            let work = work.clone();
            Statement::Other(name, Box::new(move |store| Box::new(work(store))))
        };
        self.send(tries, make).await
    }
}

/// Returns the result of a future of the memory store, which is always ready.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => unreachable!("the memory store answers at once"),
    }
}

#[async_trait]
impl Store for RemoteStore {
    async fn claim(&self, claim: &Claim) -> Result<semel_core::StoreAnswer, StoreError> {
        self.send(self.tries, || Statement::Claim(Box::new(claim.clone()))).await
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<semel_core::StoreAnswer, StoreError> {
        let tries = if change.event().is_repeatable() { self.tries } else { 1 };
        self.send(tries, || Statement::Apply(*id, Box::new(change.clone()))).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        let id = *id;
        self.read("get", move |store| at_once(store.get(&id))).await
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let principal = principal.clone();
        self.read("find", move |store| at_once(store.find_own(operation_id, &principal))).await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        let filter = filter.clone();
        self.read("waiting", move |store| at_once(store.waiting(&filter))).await
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        let items = items.to_vec();
        self.write("announce", self.tries, move |store| at_once(store.announce(operation_id, &items))).await
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.read("progress", move |store| at_once(store.progress(operation_id))).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read("now", move |store| at_once(store.now())).await
    }

    fn tier(&self) -> Tier {
        Tier::One
    }
}

#[async_trait]
impl Upkeep for RemoteStore {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.write("sweep", 1, move |store| at_once(store.sweep(limit))).await
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.write("reap", 1, move |store| at_once(store.reap(limit))).await
    }

    /// Returns no counts: the simulation reads no metrics.
    async fn census(&self) -> Result<Census, StoreError> {
        Ok(Census::default())
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read("due", move |store| at_once(store.due_to_reconcile(limit))).await
    }
}

#[async_trait]
impl Records for RemoteStore {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.read("find", move |store| at_once(store.find(operation_id))).await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.read("notes", move |store| at_once(store.notes(operation_id))).await
    }

    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let note = note.clone();
        let read = move |store: &MemoryStore| at_once(store.read_request(operation_id, &note));
        self.write("read request", self.tries, read).await
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        let filter = filter.clone();
        self.read("list", move |store| at_once(store.list(&filter))).await
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        let (tenant, operation, reference) = (tenant.to_owned(), operation.clone(), reference.to_owned());
        let find =
            move |store: &MemoryStore| at_once(store.find_by_reference(&tenant, &operation, &reference));
        self.read("find by reference", find).await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.read("operations", move |store| at_once(store.operations())).await
    }
}

#[async_trait]
impl Evidence for RemoteStore {
    async fn take_in(&self, statement: &Said) -> Result<Heard, StoreError> {
        let statement = statement.clone();
        self.write("take in", self.tries, move |store| at_once(store.take_in(&statement))).await
    }

    async fn open_statements(
        &self,
        id: OperationId,
        after: Option<&LastHeard>,
        limit: usize,
    ) -> Result<OpenStatements, StoreError> {
        let after = after.cloned();
        let open = move |store: &MemoryStore| at_once(store.open_statements(id, after.as_ref(), limit));
        self.read("statements", open).await
    }

    async fn commands_with_evidence(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<OperationId>, StoreError> {
        self.read("evidence", move |store| at_once(store.commands_with_evidence(after, limit))).await
    }

    async fn close_statement(
        &self,
        source: &str,
        event_id: &str,
        outcome: StatementOutcome,
    ) -> Result<bool, StoreError> {
        let (source, event_id) = (source.to_owned(), event_id.to_owned());
        let close = move |store: &MemoryStore| at_once(store.close_statement(&source, &event_id, outcome));
        self.write("close", self.tries, close).await
    }

    async fn contradict(
        &self,
        source: &str,
        event_id: &str,
        note: &Note,
        reference: ReferenceWrite,
    ) -> Result<bool, StoreError> {
        let (source, event_id, note) = (source.to_owned(), event_id.to_owned(), note.clone());
        let contradict =
            move |store: &MemoryStore| at_once(store.contradict(&source, &event_id, &note, reference));
        self.write("contradict", self.tries, contradict).await
    }

    async fn reap_statements(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.write("reap statements", 1, move |store| at_once(store.reap_statements(retention, limit))).await
    }
}
