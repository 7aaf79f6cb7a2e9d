//! Service whose commands are executed by workers, which a test starts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use semel_core::policy::Mode;
use semel_core::{Filter, Policy, Record, Records};
use semel_http::{Builder, IdempotencyLayer, Stop, WorkerOptions};
use semel_stores::{MemoryStore, SqliteStore};
use semel_testkit::ManualClock;
use semel_testkit::client::{Reply, Send, pay};
use semel_testkit::faulty::FaultyStore;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::lab::{Effects, app, identify, serve};

/// Options of a worker that polls often, so that tests need not wait.
pub(crate) const EAGER: WorkerOptions = WorkerOptions { concurrency: 16, poll: Duration::from_millis(5) };

/// Store of the records, with its clock.
pub(crate) enum Kept {
    Memory(ManualClock),
    Sqlite(Arc<SqliteStore>, TempDir),
}

/// Service whose commands are executed by workers.
pub(crate) struct Later {
    pub(crate) address: SocketAddr,
    pub(crate) layer: IdempotencyLayer,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) kept: Kept,
    pub(crate) app: Router,
    effects: Arc<Effects>,
}

/// Returns the default policy for asynchronous commands.
pub(crate) fn later() -> Policy {
    let told = vec![http::HeaderName::from_static("x-do")];
    Policy { mode: Mode::Async, store_request_headers: told, ..Policy::default() }
}

impl Later {
    /// Starts a service on a store in memory, with a clock that stands still.
    pub(crate) async fn memory() -> Later {
        Later::with(Later::in_memory(), |builder| builder.defaults(later())).await
    }

    /// Starts a service on a file.
    pub(crate) async fn sqlite() -> Later {
        Later::with(Later::in_a_file(), |builder| builder.defaults(later())).await
    }

    pub(crate) fn in_memory() -> Kept {
        Kept::Memory(ManualClock::new())
    }

    pub(crate) fn in_a_file() -> Kept {
        let folder = TempDir::new().expect("there is room for a test");
        let store = SqliteStore::open(folder.path().join("semel.db")).expect("a new file can be opened");
        Kept::Sqlite(Arc::new(store), folder)
    }

    /// Starts a service with the test's changes to its layer.
    pub(crate) async fn with(kept: Kept, change: impl FnOnce(Builder) -> Builder) -> Later {
        let store: Arc<dyn Records> = match &kept {
            Kept::Memory(clock) => Arc::new(MemoryStore::with_clock(clock.clone())),
            Kept::Sqlite(store, _) => store.clone(),
        };
        let store = Arc::new(FaultyStore::new(store));
        let layer = change(IdempotencyLayer::builder(store.clone()).identify(identify));
        let layer = layer.build().expect("the layer is valid");
        let effects = Arc::new(Effects {
            count: AtomicUsize::new(0),
            begun: Semaphore::new(0),
            gate: Semaphore::new(0),
        });
        let app = app(effects.clone());
        let address = serve(app.clone().layer(layer.clone())).await;
        Later { address, layer, store, kept, app, effects }
    }

    /// Starts a worker that polls often.
    pub(crate) fn work(&self) -> (Stop, JoinHandle<()>) {
        self.work_with(EAGER)
    }

    pub(crate) fn work_with(&self, options: WorkerOptions) -> (Stop, JoinHandle<()>) {
        let worker = self.layer.worker(self.app.clone(), options);
        (worker.stopper(), tokio::spawn(worker.run()))
    }

    pub(crate) async fn send(&self, request: Send) -> Reply {
        request.to(self.address).await
    }

    /// Returns the operation that an answer points to.
    pub(crate) async fn poll(&self, accepted: &Reply) -> serde_json::Value {
        let address = accepted.header("location").expect("it says where to ask");
        let reply = self.send(get(address)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// Waits until the operation is in this state, and returns it.
    pub(crate) async fn becomes(&self, accepted: &Reply, state: &str) -> serde_json::Value {
        loop {
            let operation = self.poll(accepted).await;
            if operation["state"] == state {
                return operation;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Moves the store's clock.
    pub(crate) fn advance(&self, by: Duration) {
        match &self.kept {
            Kept::Memory(clock) => clock.advance(by),
            Kept::Sqlite(store, _) => store.shift_clock(by),
        }
    }

    /// Returns the number of effects.
    pub(crate) fn count(&self) -> usize {
        self.effects.count.load(Ordering::SeqCst)
    }

    /// Waits until a handler has begun.
    pub(crate) async fn begun(&self) {
        self.effects.begun.acquire().await.expect("it is never closed").forget();
    }

    /// Lets one waiting handler continue.
    pub(crate) fn open_gate(&self) {
        self.effects.gate.add_permits(1);
    }

    /// Returns every record.
    pub(crate) async fn records(&self) -> Vec<Record> {
        self.store.list(&Filter { limit: 1000, ..Filter::default() }).await.expect("the store lists").records
    }
}

/// Returns a request for one of Semel's own pages.
pub(crate) fn get(target: &str) -> Send {
    pay("").method("GET").target(target).without("idempotency-key")
}
