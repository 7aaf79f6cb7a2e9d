//! A payment provider: somebody else's company, with a ledger of its own, and with bad days that can be switched on.
//!
//! | | |
//! |---|---|
//! | `GET /` | the ledger and the bad days as a page, for people |
//! | `POST /charges` | charges a card; requests with the same `Idempotency-Key` charge once |
//! | `GET /charges?reference=R`, `GET /charges/{id}` | what became of it |
//! | `GET /ledger`, `GET /ledger.csv` | everything, as lines of JSON or as CSV |
//! | `GET /events` | what was told, or not, to the webhook |
//! | `PUT /webhook` | who is told: `{"url": …, "secret": …}` |
//! | `GET /switches`, `PUT /switches` | the bad days |
//!
//! It knows nothing of Semel. What it guarantees: a charge, the answer to its key and the event about it are one
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

/// The largest request body, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// How a provider begins.
pub struct Options {
    /// The file with everything that was charged.
    pub ledger: PathBuf,
    /// Who is told about charges from now on; without one it is whoever the ledger knows, if anybody.
    pub webhook: Option<Endpoint>,
    /// The bad days to begin with.
    pub switches: Switches,
}

/// A provider that is open for business.
#[derive(Clone)]
pub struct Provider {
    ledger: Ledger,
    switches: Arc<Mutex<Switches>>,
}

impl Provider {
    /// Opens the ledger, and begins to send what was not sent yet.
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
