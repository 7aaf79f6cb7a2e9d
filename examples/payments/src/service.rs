//! The payment service: takes payments once, whatever happens to its clients, to the provider, or to itself.
//!
//! | | |
//! |---|---|
//! | `GET /` | a form to pay with, for people |
//! | `POST /payments` | asks for a payment, under an `Idempotency-Key` |
//! | `POST /payments:batch` | asks for many, under one |
//! | `GET /payments`, `GET /payments/{id}` | the caller's own payments, the newest first |
//! | `POST /rides`, `GET /rides/{id}` | a command of three steps, and what came of it |
//! | `GET /.well-known/semel/operations/{id}` | what became of a request; Semel's layer answers it |
//! | `POST /webhooks/provider` | what the provider tells by itself |
//!
//! A payment goes like this, and the process may be killed between any two steps:
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
use semel::core::OperationName;
use semel::core::outbox::{Outbox, RetryTerms};
use semel::flow::bulk::Bulk;
use semel::flow::outbox::{Stop, Wake, Worker, WorkerOptions};
use semel::flow::phases::PhaseTerms;
use semel::flow::reconcile::{Reconciler, Webhooks};
use semel::policy::{InProgress, OnLeaseExpired};
use semel::{Denied, IdempotencyLayer, Maintenance, Operation, Policy, Principal, Store};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use book::{Book, Opened};
use charging::Charging;
pub use provider::Address;
use rides::{RIDE, Rides};

/// The operation that single payments and those of a batch share, and with it their business references.
const PAYMENT: &str = "payments.create";

/// How long a shutdown waits for what runs.
const DRAIN: Duration = Duration::from_secs(10);

/// How large the body of a webhook may be, in bytes. The layer bounds those of commands.
const MAX_WEBHOOK: usize = 64 * 1024;

/// Where payments are kept, with Semel's records beside them.
pub enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// The URL of a database.
    Postgres(String),
}

/// How the service works.
pub struct Options {
    /// Where payments are kept.
    pub place: Place,
    /// Who charges.
    pub provider: Address,
    /// The key that the provider signs its webhooks with, of 16 bytes or more; without one, none is believed.
    pub webhook_secret: Option<String>,
    /// How long a key is remembered once its payment is settled.
    pub ttl: Duration,
    /// How long a payment may wait for the provider before its outcome is called unknown.
    pub patience: Duration,
    /// How long one call of the provider may take.
    pub timeout: Duration,
}

impl Options {
    /// How often something is tried: quick at first, so that one can watch; minutes in all, so that a bad day can pass.
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

    /// How long whoever was killed keeps others waiting.
    fn lease(&self) -> Duration {
        self.timeout * 3
    }
}

/// A service whose database is open.
pub struct Service {
    shared: Arc<Shared>,
    reconciler: Arc<Reconciler>,
    store: Arc<dyn Store>,
    outbox: Arc<dyn Outbox>,
    options: Options,
}

/// What handlers need.
struct Shared {
    book: Arc<dyn Book>,
    rides: Arc<dyn Rides>,
    bulk: Bulk,
    /// What the provider tells, if it is believed.
    webhooks: Option<Webhooks>,
    /// Lets the worker of this process look for messages at once, if it has one.
    wake: OnceLock<Wake>,
}

impl Shared {
    /// A message may be waiting to be delivered.
    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }
}

impl Service {
    /// Opens the database, and makes the tables that are not there.
    pub async fn open(options: Options) -> Result<Service, String> {
        Service::try_open(options).await.map_err(|error| error.to_string())
    }

    async fn try_open(options: Options) -> Result<Service, book::Error> {
        let Opened { book, rides, store, outbox, evidence } = match &options.place {
            Place::Sqlite(path) => book::sqlite::open(path, &options)?,
            Place::Postgres(url) => book::postgres::open(url, &options).await?,
        };
        let policy = Policy { ttl: options.ttl, ..Policy::default() };
        let bulk = Bulk::new(store.clone(), OperationName::new(PAYMENT)?, policy);
        let (provider, timeout) = (&options.provider, options.timeout);
        let reconciler = evidence::reconciler(book.clone(), store.clone(), evidence, provider, timeout)?;
        let reconciler = Arc::new(reconciler);
        let secret = options.webhook_secret.as_deref();
        let webhooks = secret.map(|secret| evidence::webhooks(reconciler.clone(), secret)).transpose()?;
        let shared = Arc::new(Shared { book, rides, bulk, webhooks, wake: OnceLock::new() });
        Ok(Service { shared, reconciler, store, outbox: stand::around(outbox), options })
    }

    /// Charges what was ordered, and finds out what became of what is unknown: beside [`serve`](Service::serve), or in a
    /// process of its own, or in several.
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

    fn worker(&self) -> Worker {
        let timeout = self.options.timeout;
        let charging = Charging::new(self.shared.book.clone(), self.options.provider.clone(), timeout);
        let options = WorkerOptions {
            // A call, and what follows it.
            timeout: timeout + Duration::from_secs(1).min(timeout),
            lease: self.options.lease(),
            retry: self.options.retry_terms(),
            ..WorkerOptions::default()
        };
        let worker = Worker::new(self.outbox.clone(), Arc::new(charging), options);
        let _ = self.shared.wake.set(worker.waker());
        worker
    }

    /// Answers requests until `stop` comes back, and then lets what runs come to its end.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        let (ttl, lease, timeout) = (self.options.ttl, self.options.lease(), self.options.timeout);
        let idempotency = IdempotencyLayer::builder(self.store.clone())
            .identify(identify)
            .operation(
                Operation::new(PAYMENT, "POST /payments")
                    .local()
                    .business_reference("/reference")
                    .with(move |policy| policy.ttl = ttl),
            )
            .operation(Operation::new("payments.batch", "POST /payments:batch").with(move |policy| {
                policy.ttl = ttl;
                // Each item is a command of its own, so the whole is safe to repeat, and soon.
                policy.on_lease_expired = OnLeaseExpired::Rerun;
                policy.lease = lease;
            }))
            .operation(Operation::new(RIDE, "POST /rides").local().with(move |policy| {
                policy.ttl = ttl;
                policy.lease = lease;
                policy.timeout = timeout;
                // Whoever asks again while it is resumed is told where to ask.
                policy.in_progress = InProgress::Accepted;
            }))
            .build()
            .map_err(|error| error.to_string())?;
        let app = Router::new()
            .route("/payments", post(pay::create).get(pay::list))
            .route("/payments:batch", post(batch::create))
            .route("/payments/{id}", get(pay::show))
            .route("/rides", post(rides::create))
            .route("/rides/{id}", get(rides::show))
            .layer(idempotency.clone())
            // Outside of the layer: these are no commands of a caller.
            .route("/webhooks/provider", post(evidence::take).layer(DefaultBodyLimit::max(MAX_WEBHOOK)))
            .route("/", get(page::show))
            .route("/style.css", get(page::style))
            .route("/script.js", get(page::script))
            .with_state(self.shared.clone());
        let maintenance = tokio::spawn(Maintenance::default().run(self.store.clone()));
        let stop = async move {
            stop.await;
            idempotency.shutdown(DRAIN).await;
        };
        let served = axum::serve(listener, app).with_graceful_shutdown(stop).await;
        maintenance.abort();
        served.map_err(|error| error.to_string())
    }
}

/// What works in the background.
pub struct Working {
    stops: [Stop; 2],
    reconciler: oneshot::Sender<()>,
    tasks: [JoinHandle<()>; 3],
}

impl Working {
    /// Begins nothing any more, and lets what is in hand come to its end.
    pub async fn stop(self) {
        self.stops.iter().for_each(Stop::stop);
        drop(self.reconciler);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// Who is asking. **A real service asks its authentication**; this one believes a header, so that it can be tried with
/// `curl`.
fn identify(request: &Parts) -> Result<Principal, Denied> {
    let user = request.headers.get("x-user").and_then(|value| value.to_str().ok());
    Principal::new("shop", user.unwrap_or_default()).map_err(|_| Denied::unauthenticated())
}

/// A listener at this address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))
}
