//! Node: the real layer, worker, sweeper, reaper and reconciler in their own runtime, whose time the simulator moves.
//! A killed node loses its memory; a paused node catches up on its time afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use semel_checker::event::Mode;
use semel_core::policy::{KeepRequest, OnLeaseExpired};
use semel_core::{Clock, Evidence as _, OperationName, Policy, Principal, Timestamp, policy};
use semel_flow::reconcile::{ReconcileTerms, Reconciler, ReconcilerOptions, SourceBounds};
use semel_http::{Body, Denied, Idempotency, IdempotencyLayer, Maintenance, Operation, WorkerOptions};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tower::{Layer as _, Service as _};

use crate::broken::Broken;
use crate::forward::{AskProvider, Forward};
use crate::ids::SeededIds;
use crate::plan::Plan;
use crate::port::{Brought, Port, Reply, Sent};
use crate::settings::{
    EPOCH, KINDS, Kind, LEASE, MARGIN, REAP, SHORT_TTL, START_WITHIN, STORE_TIMEOUT, SWEEP, TIMEOUT, WAIT,
    millis,
};
use crate::store::RemoteStore;
use semel_testkit::Chance;

/// Time that a graceful shutdown waits for running requests.
const FAREWELL: u64 = 400;

/// Host of one process at a time.
pub(crate) struct Node {
    pub(crate) name: String,
    /// Number of processes started here so far.
    pub(crate) process_number: u32,
    pub(crate) process: Option<Process>,
    pub(crate) paused_until: Option<u64>,
    /// Arrived messages, with their time.
    pub(crate) inbox: Vec<(u64, Brought)>,
}

/// Start parameters of a process.
pub(crate) struct Start<'a> {
    pub(crate) now: u64,
    pub(crate) chance: Chance,
    pub(crate) plan: &'a Plan,
    pub(crate) broken: Option<Broken>,
}

/// Process of a node.
pub(crate) struct Process {
    // The runtime is dropped first: its tasks end with it.
    runtime: Runtime,
    pub(crate) port: Arc<Port>,
    layer: IdempotencyLayer,
    service: Idempotency<Forward>,
    store: Arc<RemoteStore>,
    reconciler: Arc<Reconciler>,
    serving: Arc<Mutex<BTreeMap<u64, AbortHandle>>>,
}

/// Wall clock of a node, with its skew.
struct SkewedClock {
    port: Arc<Port>,
    skew: i64,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(EPOCH + self.port.now() as i64 + self.skew)
    }
}

impl Process {
    /// Starts all parts of a node.
    pub(crate) fn start(mut start: Start<'_>) -> Result<Process, String> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().map_err(|error| error.to_string())?;
        let entered = runtime.enter();
        let port = Arc::new(Port::new(start.now));
        let store = Arc::new(RemoteStore {
            port: port.clone(),
            tries: start.plan.tries,
            patience: millis(start.plan.patience),
            broken: start.broken,
        });
        let forward = Forward { port: port.clone(), broken: start.broken };
        let skew = start.chance.below(2 * start.plan.skew + 1) as i64 - start.plan.skew as i64;
        let ids = Arc::new(SeededIds::new(Chance::of(start.chance.draw(), "reconciler")));
        let mut builder = IdempotencyLayer::builder(store.clone())
            .identify(identify)
            .defaults(defaults())
            .store_timeout(millis(STORE_TIMEOUT))
            .clock(SkewedClock { port: port.clone(), skew })
            .ids(SeededIds::new(start.chance));
        for kind in KINDS {
            builder = builder.operation(operation(kind, start.broken));
        }
        let layer = builder.build().map_err(|error| error.to_string())?;
        let worker = layer.worker(forward.clone(), WorkerOptions { concurrency: 4, poll: millis(200) });
        tokio::spawn(worker.run());
        let maintenance = Maintenance {
            sweep_interval: millis(SWEEP),
            reap_interval: millis(REAP),
            reap_batch: 100,
            named: Vec::new(),
        };
        tokio::spawn(maintenance.run(store.clone()));
        let look_up = Arc::new(AskProvider(port.clone()));
        let reconciler = Reconciler::new(store.clone(), store.clone(), look_up, reconciler()).ids(ids);
        let named = |kind: Kind| OperationName::new(kind.name).ok();
        let operations = KINDS.into_iter().filter_map(named).collect();
        reconciler.bind("provider", SourceBounds::operations(operations));
        let reconciler = Arc::new(reconciler);
        let looking = reconciler.clone();
        tokio::spawn(async move { looking.run(std::future::pending()).await });
        let service = layer.layer(forward);
        drop(entered);
        Ok(Process { runtime, port, layer, service, store, reconciler, serving: Arc::default() })
    }

    /// Runs until this time, and delivers each message at its own time. After a pause, either overdue timers or
    /// overdue messages come first.
    pub(crate) fn run(&self, from: u64, until: u64, inbox: Vec<(u64, Brought)>, timers_first: bool) {
        self.runtime.block_on(async {
            let behind = from.saturating_sub(self.port.now());
            let (overdue, coming): (Vec<_>, Vec<_>) = inbox.into_iter().partition(|(at, _)| *at < from);
            if behind > 0 {
                let mut catching_up = std::pin::pin!(tokio::time::advance(millis(behind)));
                if timers_first {
                    catching_up.await;
                    overdue.into_iter().for_each(|(_, brought)| self.deliver(brought));
                } else {
                    // The clock moves at once; its timers fire only at the next poll.
                    let mut overdue = Some(overdue);
                    std::future::poll_fn(|context| {
                        let polled = catching_up.as_mut().poll(context);
                        overdue.take().into_iter().flatten().for_each(|(_, brought)| self.deliver(brought));
                        polled
                    })
                    .await;
                }
            } else {
                overdue.into_iter().for_each(|(_, brought)| self.deliver(brought));
            }
            for (at, brought) in coming {
                self.sleep_until(at).await;
                self.deliver(brought);
            }
            self.sleep_until(until).await;
        });
    }

    async fn sleep_until(&self, time: u64) {
        let instant = self.port.instant(time);
        if instant > Instant::now() {
            tokio::time::sleep_until(instant).await;
        }
    }

    fn deliver(&self, brought: Brought) {
        match brought {
            Brought::Request(number, request) => {
                let (port, serving) = (self.port.clone(), self.serving.clone());
                let mut service = self.service.clone();
                let task = tokio::spawn(async move {
                    let answered = answer(&mut service, *request).await;
                    serving.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                    if let Some(reply) = answered {
                        port.send(Sent::Answers(number, Box::new(reply)));
                    }
                });
                let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
                serving.insert(number, task.abort_handle());
            }
            Brought::Left(number) => {
                let task = self.serving.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                if let Some(task) = task {
                    task.abort();
                }
            }
            Brought::Answer(number, answer) => self.port.answer(number, answer),
            Brought::Event(said) => {
                let (store, reconciler) = (self.store.clone(), self.reconciler.clone());
                // Like a webhook receiver: stores the event before using it.
                tokio::spawn(async move {
                    if store.take_in(&said).await.is_ok() {
                        let _ = reconciler.use_evidence_about(said.operation_id).await;
                    }
                });
            }
            Brought::Ends => {
                let (layer, port) = (self.layer.clone(), self.port.clone());
                tokio::spawn(async move {
                    layer.shutdown(millis(FAREWELL)).await;
                    port.send(Sent::Ended);
                });
            }
        }
    }
}

/// Returns the complete answer of the layer.
async fn answer(service: &mut Idempotency<Forward>, request: Request<Bytes>) -> Option<Reply> {
    let response = service.call(request.map(Body::full)).await.ok()?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    Some(Reply { status: parts.status, headers: parts.headers, body })
}

fn identify(parts: &http::request::Parts) -> Result<Principal, Denied> {
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Principal::new(header("x-tenant"), header("x-caller")).map_err(|_| Denied::unauthenticated())
}

fn defaults() -> Policy {
    Policy {
        lease: millis(LEASE),
        timeout: millis(TIMEOUT),
        quarantine_margin: millis(MARGIN),
        start_within: millis(START_WITHIN),
        wait: millis(WAIT),
        ..Policy::default()
    }
}

fn operation(kind: Kind, broken: Option<Broken>) -> Operation {
    let reruns = kind.reruns || broken == Some(Broken::Rerun);
    let operation = Operation::new(kind.name, format!("POST {}", kind.path));
    operation.business_reference("/reference").with(move |policy| {
        policy.ttl = millis(kind.ttl);
        policy.mode = match kind.mode {
            Mode::Async => policy::Mode::Async,
            // The simulation runs only modes that a gateway executes.
            Mode::Sync | Mode::Local | Mode::Phased | Mode::Deferred | Mode::Bulk => policy::Mode::Sync,
        };
        // Drafts do not keep their request, so that both settings are met.
        policy.keep_request =
            if kind.ttl == SHORT_TTL { KeepRequest::Off } else { KeepRequest::WhileUnknown };
        policy.on_lease_expired = if reruns { OnLeaseExpired::Rerun } else { OnLeaseExpired::Unknown };
    })
}

fn reconciler() -> ReconcilerOptions {
    let terms =
        ReconcileTerms { first_delay: millis(500), max_delay: millis(2_000), max_attempts: 1_000_000 };
    ReconcilerOptions {
        interval: millis(400),
        batch: 20,
        concurrency: 4,
        timeout: millis(600),
        terms,
        upkeep: millis(10_000),
        ..ReconcilerOptions::default()
    }
}
