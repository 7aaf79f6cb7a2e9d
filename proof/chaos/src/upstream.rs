//! Service behind the gateways: keeps the ledger, does not deduplicate, and fails at times. Beside it, the receiver
//! of messages, which deduplicates.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use semel_checker::Event;
use semel_checker::event::{Called, Command, Delivered, Effect};
use semel_testkit::Chance;
use semel_testkit::breaking::{Answered, BrokenOff};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::provider::Provider;
use crate::settings::{DRAFTS, LATEST_EFFECT, PAYMENTS, REPORTS, TIMEOUT};
use semel_chaos::answer::{Entry, answer, saying};
use semel_chaos::reading::{EFFECT, NOT_EXECUTED};
use semel_chaos::scribe::Scribe;

/// Header that names a message.
const EVENT_ID: &str = "semel-event-id";
/// Percentage of messages that are refused for good at first, and so are dead.
const REFUSED: u64 = 10;
/// Attempt from which on the service does not fail.
const PATIENT_ATTEMPT: u32 = 3;

/// Ledger of the service: its effects and answers.
pub(crate) struct Ledger {
    scribe: Arc<Scribe>,
    seed: u64,
    /// True if the service no longer fails.
    calm: AtomicBool,
    /// True if every answer is late, so that there is time to kill the waiting gateways.
    slow: bool,
    next: AtomicU64,
    entries: Mutex<HashMap<String, Vec<Entry>>>,
    messages: Mutex<HashSet<String>>,
    /// Messages that the receiver refused at first.
    refused: Mutex<HashSet<String>>,
    pub(crate) provider: Provider,
}

/// Reaction of the service to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Executes the call after this time, and answers.
    Well(Duration),
    /// Executes the call, and answers after this time.
    Slow(Duration),
    /// Declines the call for good.
    Declines,
    /// Answers with a server error, with or without an effect.
    ServerError { effect: bool },
    /// Answers with a server error that it calls final, without an effect.
    FinalError,
    /// Breaks the connection, with or without an effect.
    BreaksOff { effect: bool },
    /// Reports that it did nothing: by a header, or by its status.
    NotExecuted { word: bool },
}

/// Call of a gateway.
struct Call {
    operation_id: String,
    attempt: u32,
    command: Command,
    canary: String,
    reference: Option<String>,
    came: Instant,
}

impl Ledger {
    pub(crate) fn new(scribe: Arc<Scribe>, seed: u64, slow: bool) -> Arc<Ledger> {
        Arc::new(Ledger {
            provider: Provider::new(scribe.clone(), seed),
            refused: Mutex::default(),
            scribe,
            seed,
            calm: AtomicBool::new(false),
            slow,
            next: AtomicU64::new(1),
            entries: Mutex::default(),
            messages: Mutex::default(),
        })
    }

    /// Ends all failures of the service and the provider.
    pub(crate) fn calm_down(&self) {
        self.calm.store(true, Ordering::SeqCst);
        self.provider.calm_down();
    }

    /// Returns the ledger's first entry of an operation.
    pub(crate) fn find(&self, operation_id: &str) -> Option<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(operation_id).and_then(|entries| entries.first().cloned())
    }

    fn mood(&self, call: &Call) -> Mood {
        let mut chance = Chance::of(self.seed, &format!("{} {}", call.canary, call.attempt));
        if self.slow {
            return Mood::Slow(chance.millis(300, 900));
        }
        if self.calm.load(Ordering::SeqCst) || call.attempt >= PATIENT_ATTEMPT {
            return Mood::Well(Duration::ZERO);
        }
        let timeout = TIMEOUT.as_millis() as u64;
        match chance.below(100) {
            0..62 => Mood::Well(chance.millis(0, 15)),
            62..70 => Mood::Well(chance.millis(50, timeout / 2)),
            70..73 => Mood::Well(chance.millis(timeout + 50, LATEST_EFFECT.as_millis() as u64 - 200)),
            73..76 => Mood::Slow(chance.millis(timeout / 2, timeout * 2)),
            76..81 => Mood::Declines,
            81..84 => Mood::ServerError { effect: true },
            84..86 => Mood::ServerError { effect: false },
            86..88 => Mood::FinalError,
            88..91 => Mood::BreaksOff { effect: true },
            91..94 => Mood::BreaksOff { effect: false },
            94..98 => Mood::NotExecuted { word: true },
            _ => Mood::NotExecuted { word: false },
        }
    }

    async fn carry_out(&self, call: Call) -> Answered {
        let Call { operation_id, attempt, command, canary, .. } = &call;
        let (operation_id, attempt) = (operation_id.clone(), *attempt);
        let (command, canary) = (command.clone(), canary.clone());
        self.scribe.note(|at| Event::Called(Called { at, operation_id, attempt, command, canary }));
        match self.mood(&call) {
            Mood::Well(time) => {
                tokio::time::sleep(time).await;
                let entry = self.effect(&call)?;
                Ok(answer(201, &entry.body, Some(&entry.effect)))
            }
            Mood::Slow(time) => {
                let entry = self.effect(&call)?;
                tokio::time::sleep(time).await;
                Ok(answer(201, &entry.body, Some(&entry.effect)))
            }
            Mood::Declines => Ok(answer(402, &nothing(&call), None)),
            Mood::ServerError { effect } => {
                if effect {
                    self.effect(&call)?;
                }
                Ok(answer(500, &nothing(&call), None))
            }
            Mood::FinalError => Ok(saying(answer(500, &nothing(&call), None), "semel-outcome", "final")),
            Mood::BreaksOff { effect } => {
                if effect {
                    self.effect(&call)?;
                }
                Err(BrokenOff)
            }
            Mood::NotExecuted { word } => {
                let status = if word { 503 } else { 429 };
                let told =
                    saying(answer(status, &nothing(&call), None), NOT_EXECUTED, &call.attempt.to_string());
                Ok(if word { saying(told, "semel-outcome", "not-executed") } else { told })
            }
        }
    }

    /// Adds an entry to the ledger. A late call has no effect, as the settings promise.
    fn effect(&self, call: &Call) -> Result<Entry, BrokenOff> {
        if call.came.elapsed() > LATEST_EFFECT {
            return Err(BrokenOff);
        }
        let effect = format!("{EFFECT}{:08}", self.next.fetch_add(1, Ordering::SeqCst));
        let body = json!({ "effect": effect, "canary": call.canary, "attempt": call.attempt }).to_string();
        let entry = Entry { effect: effect.clone(), body };
        let made = Effect {
            at: 0,
            effect,
            operation_id: call.operation_id.clone(),
            attempt: call.attempt,
            command: call.command.clone(),
            canary: call.canary.clone(),
            reference: call.reference.clone(),
        };
        // One lock for both, so that the ledger and the history agree.
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        self.scribe.note(|at| Event::Effect(Effect { at, ..made }));
        entries.entry(call.operation_id.clone()).or_default().push(entry.clone());
        Ok(entry)
    }

    /// Returns true if the receiver refuses this message for good: some messages, the first time only.
    fn refuses(&self, event_id: &str) -> bool {
        Chance::of(self.seed, event_id).percent(REFUSED)
            && self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(event_id.to_owned())
    }

    /// Receives a message. The receiver deduplicates, and fails at times.
    async fn receive(&self, event_id: String) -> Answered {
        let tries = self.next.fetch_add(1, Ordering::SeqCst);
        let mut chance = Chance::of(self.seed, &format!("{event_id} {tries}"));
        let calm = self.calm.load(Ordering::SeqCst);
        let bad = if calm { 99 } else { chance.below(100) };
        if !calm && self.refuses(&event_id) {
            return Ok(answer(422, "{}", None));
        }
        match bad {
            0..8 => return Ok(answer(503, "{}", None)),
            8..14 => return Err(BrokenOff),
            14..20 => tokio::time::sleep(chance.millis(50, 400)).await,
            _ => {}
        }
        {
            let mut known = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            let effect = known.insert(event_id.clone());
            self.scribe.note(|at| Event::Delivered(Delivered { at, event_id, effect }));
        }
        match bad {
            20..26 => Err(BrokenOff),
            26..30 => Ok(answer(500, "{}", None)),
            _ => Ok(answer(200, "{}", None)),
        }
    }
}

fn nothing(call: &Call) -> String {
    json!({ "effect": null, "canary": call.canary, "attempt": call.attempt }).to_string()
}

/// Server of the ledger, which can go away and come back on the same port.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: Arc<Ledger>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Upstream {
    pub(crate) async fn start(ledger: Arc<Ledger>) -> Result<Upstream, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let serving = tokio::spawn(serve(listener, ledger.clone()));
        Ok(Upstream { address, ledger, serving: Mutex::new(Some(serving)) })
    }

    /// Stops the server: drops every connection, and accepts none.
    pub(crate) async fn leave(&self) {
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(serving) = serving {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Starts the server again.
    pub(crate) async fn come_back(&self) -> Result<(), String> {
        let listener = TcpListener::bind(self.address)
            .await
            .map_err(|error| format!("the service cannot come back to {}: {error}", self.address))?;
        let serving = tokio::spawn(serve(listener, self.ledger.clone()));
        *self.serving.lock().unwrap_or_else(PoisonError::into_inner) = Some(serving);
        Ok(())
    }
}

/// Serves connections. Dropping the future drops the connections and their work.
async fn serve(listener: TcpListener, ledger: Arc<Ledger>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let ledger = ledger.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| handle(ledger.clone(), request));
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The gateway finds out how the connection ended.
            let _ = served.await;
        });
    }
}

async fn handle(ledger: Arc<Ledger>, request: Request<Incoming>) -> Answered {
    let came = Instant::now();
    let (parts, body) = request.into_parts();
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let Some(event_id) = header(EVENT_ID) {
        return ledger.receive(event_id).await;
    }
    // An incomplete request is not a call.
    let body = body.collect().await.map_err(|_| BrokenOff)?.to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&body).map_err(|_| BrokenOff)?;
    let text = |name: &str| document[name].as_str().map(str::to_owned);
    if parts.uri.path() == "/charges" {
        let called = crate::provider::Called {
            key: header("x-derived-key").unwrap_or_default(),
            operation_id: header("x-operation-id").unwrap_or_default(),
            part: header("x-part").unwrap_or_default(),
            deduplicated: header("x-deduplicated").as_deref() == Some("true"),
            canary: text("canary").unwrap_or_default(),
            reference: text("reference"),
            came,
        };
        return ledger.provider.take(called).await;
    }
    let operation = match parts.uri.path() {
        "/payments" => PAYMENTS,
        "/drafts" => DRAFTS,
        "/reports" => REPORTS,
        _ => return Ok(answer(404, "{}", None)),
    };
    let command = Command {
        tenant: header("semel-tenant").unwrap_or_default(),
        caller: header("semel-caller").unwrap_or_default(),
        operation: operation.to_owned(),
        key: header("idempotency-key").unwrap_or_default(),
    };
    let call = Call {
        operation_id: header("semel-operation-id").unwrap_or_default(),
        attempt: header("semel-attempt").and_then(|attempt| attempt.parse().ok()).unwrap_or(0),
        command,
        canary: text("canary").unwrap_or_default(),
        reference: text("reference"),
        came,
    };
    ledger.carry_out(call).await
}
