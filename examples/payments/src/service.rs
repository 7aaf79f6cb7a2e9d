//! The payment service: makes each payment once, even if a client retries, the provider fails, or a process is killed.
//!
//! | | |
//! |---|---|
//! | `GET /` | a payment form, for people |
//! | `POST /payments` | requests a payment, under an `Idempotency-Key` |
//! | `POST /payments:batch` | requests many payments, under one key |
//! | `GET /payments`, `GET /payments/{id}` | the caller's own payments, the newest first |
//! | `POST /rides`, `GET /rides/{id}` | a command of three steps, and its state |
//! | `GET /.well-known/semel/operations/{id}` | the state of a request; Semel's layer answers it |
//! | `POST /webhooks/provider` | the provider's events |
//!
//! A payment has these steps, and the process may be killed between any two of them:
//!
//! ```text
//! POST ─ one transaction: record, payment (pending), message "charge" ─ 202
//! worker ─ take the message ─ charge at the provider, under the message's id
//!        └ one transaction: record (201 or 402), payment (captured or declined) ─ mark the message
//! ```

mod batch;
mod book;
mod caller;
mod charging;
mod evidence;
mod page;
mod pay;
mod payment;
mod provider;
mod refusal;
mod rides;
pub mod stand;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::request::Parts;
use axum::routing::{get, post};
use semel::flow::bulk::Bulk;
use semel::flow::outbox::{OutboxWorker, OutboxWorkerOptions, StopHandle, Wake};
use semel::flow::phases::PhaseTerms;
use semel::flow::reconcile::{Reconciler, Webhooks};
use semel::policy::{InProgress, OnLeaseExpired};
use semel::protocol::OperationName;
use semel::protocol::outbox::{Outbox, RetryTerms};
use semel::{Backend, Denied, Operation, Policy, Principal, Semel};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use book::{Book, Opened};
use charging::Charging;
pub use provider::Address;
use rides::{RIDE, Rides};

/// The operation that single payments and those of a batch share, and with it their business references.
const PAYMENT: &str = "payments.create";

/// Time for running work to end at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Maximum size of a webhook's body, in bytes. The layer limits the bodies of commands.
const MAX_WEBHOOK: usize = 64 * 1024;

/// Database of the payments, with Semel's records beside them.
pub enum Place {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// The URL of a PostgreSQL database.
    Postgres(String),
}

/// Settings of the service.
pub struct Options {
    /// Database of the payments.
    pub place: Place,
    /// Address of the provider that charges.
    pub provider: Address,
    /// Key that the provider signs its webhooks with, of 16 bytes or more; without one, all webhooks are refused.
    pub webhook_secret: Option<String>,
    /// Time to live of a key once its payment is settled.
    pub ttl: Duration,
    /// Time that a payment may wait for the provider before its outcome is unknown.
    pub patience: Duration,
    /// Timeout of one call of the provider.
    pub timeout: Duration,
}

impl Options {
    /// Returns the retry terms: quick at first, so that one can watch; minutes in all, so that an outage of the
    /// provider can pass.
    fn retry_terms(&self) -> RetryTerms {
        RetryTerms {
            max_attempts: 30,
            first_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(20),
        }
    }

    fn phase_terms(&self) -> PhaseTerms {
        PhaseTerms { retry: self.retry_terms(), ..PhaseTerms::default() }
    }

    /// Returns the lease: the time until the work of a killed process is resumed.
    fn lease(&self) -> Duration {
        self.timeout * 3
    }
}

/// A service whose database is open.
pub struct Service {
    shared: Arc<Shared>,
    reconciler: Arc<Reconciler>,
    store: Arc<dyn Backend>,
    outbox: Arc<dyn Outbox>,
    options: Options,
}

/// State shared by the handlers.
struct Shared {
    book: Arc<dyn Book>,
    rides: Arc<dyn Rides>,
    bulk: Bulk,
    /// Receiver of the provider's events, if there is a key to verify them.
    webhooks: Option<Webhooks>,
    /// Handle that wakes the worker of this process, if it has one.
    wake: OnceLock<Wake>,
}

impl Shared {
    /// Wakes the worker: a message may be waiting.
    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }
}

impl Service {
    /// Opens the database, and creates missing tables.
    pub async fn open(options: Options) -> Result<Service, String> {
        Service::try_open(options).await.map_err(|error| error.to_string())
    }

    async fn try_open(options: Options) -> Result<Service, book::Error> {
        let Opened { book, rides, store, outbox } = match &options.place {
            Place::Sqlite(path) => book::sqlite::open(path, &options)?,
            Place::Postgres(url) => book::postgres::open(url, &options).await?,
        };
        let policy = Policy { ttl: options.ttl, ..Policy::default() };
        let bulk = Bulk::new(store.clone(), OperationName::new(PAYMENT)?, policy);
        let (provider, timeout) = (&options.provider, options.timeout);
        let reconciler = evidence::reconciler(book.clone(), store.clone(), provider, timeout)?;
        let reconciler = Arc::new(reconciler);
        let secret = options.webhook_secret.as_deref();
        let webhooks = secret.map(|secret| evidence::webhooks(reconciler.clone(), secret)).transpose()?;
        let shared = Arc::new(Shared { book, rides, bulk, webhooks, wake: OnceLock::new() });
        Ok(Service { shared, reconciler, store, outbox: stand::around(outbox), options })
    }

    /// Starts the worker that charges payments, and the reconciler of unknown ones: beside [`serve`](Service::serve),
    /// or in one or more processes of their own.
    pub fn work(&self) -> Working {
        let worker = self.worker();
        let (stop, stopped) = oneshot::channel::<()>();
        let reconciler = self.reconciler.clone();
        let (completer, completing) = self.shared.rides.completer();
        Working {
            stops: [worker.stopper(), completer],
            reconciler: stop,
            tasks: [
                tokio::spawn(completing),
                tokio::spawn(async move {
                    worker.run().await;
                }),
                tokio::spawn(async move { reconciler.run(async { drop(stopped.await) }).await }),
            ],
        }
    }

    fn worker(&self) -> OutboxWorker {
        let timeout = self.options.timeout;
        let charging = Charging::new(self.shared.book.clone(), self.options.provider.clone(), timeout);
        let options = OutboxWorkerOptions {
            // One call, and the writes after it.
            timeout: timeout + Duration::from_secs(1).min(timeout),
            lease: self.options.lease(),
            retry: self.options.retry_terms(),
            ..OutboxWorkerOptions::default()
        };
        let worker = OutboxWorker::new(self.outbox.clone(), Arc::new(charging), options);
        let _ = self.shared.wake.set(worker.waker());
        worker
    }

    /// Answers requests until `stop` returns, and then waits for running ones to end.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        let (ttl, lease, timeout) = (self.options.ttl, self.options.lease(), self.options.timeout);
        let semel = Semel::builder(self.store.clone())
            .identify(identify)
            .operation(
                Operation::new(PAYMENT, "POST /payments").local().business_reference("/reference").ttl(ttl),
            )
            .operation(
                // Each item is a command of its own, so the whole is safe to rerun, and soon.
                Operation::new("payments.batch", "POST /payments:batch")
                    .ttl(ttl)
                    .lease(lease)
                    .on_lease_expired(OnLeaseExpired::Rerun),
            )
            .operation(
                // A retry during the resumption gets the address of the status.
                Operation::new(RIDE, "POST /rides")
                    .local()
                    .ttl(ttl)
                    .lease(lease)
                    .timeout(timeout)
                    .in_progress(InProgress::Accepted),
            )
            .build()
            .map_err(|error| error.to_string())?;
        let app = Router::new()
            .route("/payments", post(pay::create).get(pay::list))
            .route("/payments:batch", post(batch::create))
            .route("/payments/{id}", get(pay::show))
            .route("/rides", post(rides::create))
            .route("/rides/{id}", get(rides::show))
            .layer(semel.layer())
            // Outside of the layer: these are no commands of a caller.
            .route("/webhooks/provider", post(evidence::take).layer(DefaultBodyLimit::max(MAX_WEBHOOK)))
            .route("/", get(page::show))
            .route("/style.css", get(page::style))
            .route("/script.js", get(page::script))
            .route("/client/{name}", get(page::client))
            .with_state(self.shared.clone());
        let served = semel.serve_until(listener, app, stop, DRAIN).await;
        served.map_err(|error| error.to_string())
    }
}

/// Running background tasks.
pub struct Working {
    stops: [StopHandle; 2],
    reconciler: oneshot::Sender<()>,
    tasks: [JoinHandle<()>; 3],
}

impl Working {
    /// Stops taking work, and waits for the running work to end.
    pub async fn stop(self) {
        self.stops.iter().for_each(StopHandle::stop);
        drop(self.reconciler);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// Returns the caller. **A real service asks its authentication**; this one trusts a header, so that it can be tried
/// with `curl`.
fn identify(request: &Parts) -> Result<Principal, Denied> {
    let user = request.headers.get("x-user").and_then(|value| value.to_str().ok());
    Principal::new("shop", user.unwrap_or_default()).map_err(|_| Denied::unauthenticated())
}

/// Returns a listener at this address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))
}
