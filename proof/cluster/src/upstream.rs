//! Service behind the gateways: keeps the ledger and does not deduplicate. It never fails, so that whatever a client
//! sees comes from the database's faults.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::Request;
use http_body_util::BodyExt;
use semel_chaos::answer::{Entry, answer};
use semel_chaos::reading::EFFECT;
use semel_chaos::scribe::Scribe;
use semel_checker::Event;
use semel_checker::event::{Called, Command, Effect};
use semel_testkit::Chance;
use semel_testkit::breaking::{Answered, BrokenOff, serve};
use serde_json::json;
use tokio::net::TcpListener;

use crate::settings::PAYMENTS;

/// Longest time of a call, in milliseconds.
const SLOWEST: u64 = 15;

/// Ledger of the service.
pub(crate) struct Ledger {
    scribe: Arc<Scribe>,
    seed: u64,
    next: AtomicU64,
    entries: Mutex<HashMap<String, Entry>>,
}

impl Ledger {
    /// Starts the service at this address.
    pub(crate) async fn start(
        scribe: Arc<Scribe>,
        seed: u64,
        at: Ipv4Addr,
    ) -> Result<(Arc<Ledger>, SocketAddr), String> {
        let listener = TcpListener::bind((at, 0)).await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let ledger = Arc::new(Ledger { scribe, seed, next: AtomicU64::new(1), entries: Mutex::default() });
        let serving = ledger.clone();
        tokio::spawn(serve(listener, move |request| {
            let ledger = serving.clone();
            async move { ledger.take(request).await }
        }));
        Ok((ledger, address))
    }

    /// Returns the first entry of an operation.
    pub(crate) fn find(&self, operation_id: &str) -> Option<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(operation_id).cloned()
    }

    async fn take(&self, request: Request<hyper::body::Incoming>) -> Answered {
        let (parts, body) = request.into_parts();
        let header = |name: &str| {
            let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        // An incomplete request is not a call.
        let body = body.collect().await.map_err(|_| BrokenOff)?.to_bytes();
        let document: serde_json::Value = serde_json::from_slice(&body).map_err(|_| BrokenOff)?;
        let canary = document["canary"].as_str().unwrap_or_default().to_owned();
        let operation_id = header("semel-operation-id");
        let attempt = header("semel-attempt").parse().unwrap_or(0);
        let command = Command {
            tenant: header("semel-tenant"),
            caller: header("semel-caller"),
            operation: PAYMENTS.to_owned(),
            key: header("idempotency-key"),
        };
        let called = Called {
            at: 0,
            operation_id: operation_id.clone(),
            attempt,
            command: command.clone(),
            canary: canary.clone(),
        };
        self.scribe.note(|at| Event::Called(Called { at, ..called }));
        let time = Chance::of(self.seed, &format!("{canary} {attempt}")).millis(0, SLOWEST);
        tokio::time::sleep(time).await;
        let effect = format!("{EFFECT}{:08}", self.next.fetch_add(1, Ordering::SeqCst));
        let body = json!({ "effect": effect, "canary": canary, "attempt": attempt }).to_string();
        let entry = Entry { effect: effect.clone(), body: body.clone() };
        let made = Effect {
            at: 0,
            effect: effect.clone(),
            operation_id: operation_id.clone(),
            attempt,
            command,
            canary,
            reference: None,
        };
        {
            // One lock for both, so that the ledger and the history agree.
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            self.scribe.note(|at| Event::Effect(Effect { at, ..made }));
            entries.entry(operation_id).or_insert(entry);
        }
        Ok(answer(201, &body, Some(&effect)))
    }
}
