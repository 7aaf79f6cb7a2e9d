//! A payment provider: another company, with a ledger of its own, and with faults that can be switched on.
//!
//! | | |
//! |---|---|
//! | `GET /` | the ledger and the switches as a page, for people |
//! | `POST /charges` | charges a card; requests with the same `Idempotency-Key` charge once |
//! | `GET /charges?reference=R`, `GET /charges/{id}` | the outcome of a charge |
//! | `GET /ledger`, `GET /ledger.csv` | all charges, as lines of JSON or as CSV |
//! | `GET /events` | the events for the webhook, with their states |
//! | `PUT /webhook` | the receiver of events: `{"url": …, "secret": …}` |
//! | `GET /switches`, `PUT /switches` | the fault switches |
//!
//! It knows nothing of Semel. Its guarantee: a charge, the answer to its key and the event about it are one
//! transaction, so it may be killed at any time.

mod charges;
mod connections;
mod endpoint;
mod entries;
mod events;
mod key;
mod ledger;
mod listing;
mod order;
mod page;
mod refusal;
mod signature;
mod switches;
mod webhooks;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};
use tokio::net::TcpListener;

pub use endpoint::Endpoint;
use ledger::Ledger;
pub use signature::signature;
pub use switches::Switches;

/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// Start settings of a provider.
pub struct Options {
    /// File of the ledger.
    pub ledger: PathBuf,
    /// Receiver of events from now on; without one it is the receiver stored in the ledger, if any.
    pub webhook: Option<Endpoint>,
    /// Initial switches.
    pub switches: Switches,
}

/// A running provider.
#[derive(Clone)]
pub struct Provider {
    ledger: Ledger,
    switches: Arc<Mutex<Switches>>,
}

impl Provider {
    /// Opens the ledger, and starts to send the unsent events.
    pub async fn open(options: Options) -> Result<Provider, String> {
        let path = options.ledger.display().to_string();
        let ledger = Ledger::open(&options.ledger)
            .map_err(|error| format!("cannot open the ledger {path}: {error}; its folder must exist"))?;
        if let Some(endpoint) = options.webhook {
            ledger.subscribe(endpoint).await.map_err(|broken| broken.to_string())?;
        }
        let switches = Arc::new(Mutex::new(options.switches));
        tokio::spawn(webhooks::run(ledger.clone()));
        Ok(Provider { ledger, switches })
    }

    /// Answers requests, for ever.
    pub async fn serve(self, listener: TcpListener) {
        let app = Router::new()
            .route("/", get(page::show))
            .route("/style.css", get(page::style))
            .route("/script.js", get(page::script))
            .route("/charges", post(charges::create).get(charges::look_up))
            .route("/charges/{id}", get(charges::show))
            .route("/ledger", get(listing::lines))
            .route("/ledger.csv", get(listing::csv))
            .route("/events", get(listing::events))
            .route("/webhook", put(webhooks::subscribe))
            .route("/switches", get(switches::show).put(switches::change))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(self);
        connections::serve(listener, app).await;
    }

    fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
