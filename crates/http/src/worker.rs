//! Executes asynchronous commands, several at a time. Any number of workers may share a store.
//!
//! Invariant: a command runs only after the store has answered its start, under a token of its own. A started command goes on in
//! a task of its own, and is settled like the execution of a request; stopping the worker cancels nothing.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use semel_core::{
    Change, Decision, Epoch, Fence, KeyRules, KeySyntax, OperationId, OperationName, Reason, Record, Scope,
    StoreError, Waiting, WaitingSearch,
};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;
use tower::Service;

use crate::acquired::{Acquired, Unexecuted};
use crate::answer::AnswerFacts;
use crate::body::{self, Body, BoxError};
use crate::command;
use crate::execute;
use crate::execution::AskedAt;
use crate::handler::Handler;
use crate::holds::HoldBoard;
use crate::operations::CommandRule;
use crate::persist;
use crate::settle;
use crate::shared::Shared;
use crate::shares::Share;
use crate::spans::{self, OpenSpan};

/// The backoff of a command that provably did not run, at first and at last. It is drawn from the upper half.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// The longest pause of a worker that cannot work.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The interval at which commands that cannot run here are tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The maximum number of commands that cannot run here and are named in the log.
const MAX_NAMED: usize = 256;

/// Settings of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// The number of commands that are executed at the same time.
    pub concurrency: usize,
    /// The interval at which an idle worker looks for commands. A claim in its own process wakes it at once.
    pub poll: Duration,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions { concurrency: 16, poll: Duration::from_millis(500) }
    }
}

/// Executes asynchronous commands. Made by [`IdempotencyLayer::worker`](crate::IdempotencyLayer::worker).
pub struct Worker<S> {
    shared: Arc<Shared>,
    inner: S,
    options: WorkerOptions,
    stop: watch::Sender<bool>,
    /// Commands that are being started: the store may still list them.
    starting: HashMap<WaitName, oneshot::Receiver<()>>,
    search: WaitingSearch,
    /// True after a failed start: the search is past that command, and has to begin again.
    failed_starts: Arc<AtomicBool>,
    /// The version of the holds at the last look: after a change, commands that were passed over may run.
    holds_seen: u64,
    /// The time at which commands that were passed over are tried again.
    look_again: Instant,
    /// Commands that cannot run here, as far as the log names them.
    named: HashSet<WaitName>,
}

/// Names one wait of a command for a worker.
type WaitName = (OperationId, Epoch);

/// Tells a worker to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Starts no more commands, and ends the worker once its running ones are settled.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// The mark of a request that a worker of this layer executes.
#[derive(Clone)]
pub(crate) struct ByWorker(pub(crate) Arc<Shared>);

/// A command that can run here, once it is started.
struct ReadyCommand {
    waiting: Record,
    rule: CommandRule,
    request: Request<Body>,
    room: Arc<Share>,
}

/// The start of a command, which the store has answered when this is dropped.
struct Starting {
    _answered: oneshot::Sender<()>,
    failed: Arc<AtomicBool>,
}

/// The fitness of a waiting command for this worker.
enum Fit {
    /// The command can run.
    Here(Box<ReadyCommand>),
    /// The command is being started already.
    InHand,
    /// An operator holds its operation or its tenant.
    Held,
    /// There is no memory for its body.
    NotNow,
    /// The command cannot run here.
    Never,
}

/// The result of a look for commands.
enum SearchResult {
    /// There may be more commands.
    More,
    /// There is no command that could be started now.
    Idle,
}

impl<S> Worker<S> {
    pub(crate) fn new(shared: Arc<Shared>, inner: S, options: WorkerOptions) -> Worker<S> {
        let concurrency = options.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let options = WorkerOptions { concurrency, poll: options.poll.max(Duration::from_millis(1)) };
        let search = shared.operations.waiting();
        Worker {
            shared,
            inner,
            options,
            stop: watch::Sender::new(false),
            starting: HashMap::new(),
            search,
            failed_starts: Arc::default(),
            holds_seen: 0,
            look_again: Instant::now() + LOOK_AGAIN,
            named: HashSet::new(),
        }
    }

    /// Returns the handle that stops the worker.
    pub fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Works until it is stopped, or its layer is shut down, and then until its started commands are settled. If this future is
    /// dropped, started commands still go on.
    pub async fn run<R>(mut self)
    where
        S: Service<Request<Body>, Response = http::Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError> + Send,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (shared, mut stopped) = (self.shared.clone(), self.stop.subscribe());
        let places = Arc::new(Semaphore::new(self.options.concurrency));
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = shared.running.closed() => {}
            never = self.work(&places) => match never {},
        }
        // Each command holds a place until it is settled.
        let all = u32::try_from(self.options.concurrency).unwrap_or(u32::MAX);
        let _ = places.acquire_many(all).await;
    }

    /// Looks for commands again and again. It may be dropped at any time: started commands are not in this future.
    async fn work<R>(&mut self, places: &Arc<Semaphore>) -> Infallible
    where
        S: Handler<R> + Clone,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let poll = self.options.poll;
        let mut pause = poll;
        loop {
            match self.look(places).await {
                Ok(SearchResult::More) => pause = poll,
                Ok(SearchResult::Idle) => {
                    pause = poll;
                    let shared = self.shared.clone();
                    // Either way it is time to look.
                    let _ = tokio::time::timeout(poll, shared.wake.notified()).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a worker cannot work; it tries again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE.max(poll));
                }
            }
        }
    }

    /// Starts as many commands as there are places for, once there is one.
    async fn look<R>(&mut self, places: &Arc<Semaphore>) -> Result<SearchResult, BoxError>
    where
        S: Handler<R> + Clone,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let mut place = Some(places.clone().acquire_owned().await?);
        if !self.shared.operations.has_async() {
            return Ok(SearchResult::Idle);
        }
        // Before the store is asked: it does not list a command whose start it has answered.
        self.starting.retain(|_, answered| answered.try_recv() == Err(TryRecvError::Empty));
        if self.failed_starts.swap(false, Ordering::Relaxed) || Instant::now() >= self.look_again {
            self.search.forget();
            self.look_again = Instant::now() + LOOK_AGAIN;
        }
        if let Some(board) = self.shared.holds.clone() {
            if !board.ready().await {
                return Ok(SearchResult::Idle);
            }
            let version = board.version();
            if std::mem::replace(&mut self.holds_seen, version) != version {
                self.search.forget();
            }
        }
        // Only this worker takes places, so there will not be fewer.
        self.search.begin(1 + places.available_permits());
        while let Some(filter) = self.search.page() {
            let page = self.shared.within("waiting", self.shared.store.waiting(&filter)).await?;
            for waiting in page.found {
                let at = waiting.place();
                if !self.search.wants(&at) {
                    continue;
                }
                let name = name(&waiting);
                let job = match self.fit(waiting) {
                    Fit::Here(job) => *job,
                    Fit::InHand => continue,
                    Fit::NotNow => {
                        self.search.leave(&at);
                        continue;
                    }
                    Fit::Held | Fit::Never => {
                        self.search.pass_over(&at, page.now);
                        continue;
                    }
                };
                let place = match place.take() {
                    Some(place) => place,
                    None => places.clone().acquire_owned().await?,
                };
                let inner = self.ready().await?;
                self.search.took();
                let (started, answered) = oneshot::channel();
                self.starting.insert(name, answered);
                let starting = Starting { _answered: started, failed: self.failed_starts.clone() };
                tokio::spawn(carry_out(self.shared.clone(), job, inner, place, starting));
            }
            self.search.turn(page.next);
        }
        Ok(if self.search.has_more() { SearchResult::More } else { SearchResult::Idle })
    }

    /// Checks that a command can run here, and makes a job of it.
    fn fit(&mut self, waiting: Waiting) -> Fit {
        let name = name(&waiting);
        if self.starting.contains_key(&name) {
            return Fit::InHand;
        }
        let (operations, record) = (&self.shared.operations, waiting.record);
        let known = waiting.request.decode().map_err(|error| error.to_string()).and_then(|request| {
            let rule = operations.for_worker(&request.method, request.target.path(), &record.operation);
            let rule = rule.ok_or("its operation is not known here, or not asynchronous")?;
            check_request(&self.shared, &rule, &record, &request)?;
            let promised = self.shared.store.tier();
            promised.check(rule.policy.needs_tier).map_err(|shortfall| shortfall.to_string())?;
            Ok((request, rule))
        });
        let (kept, rule) = match known {
            Ok(known) => known,
            Err(why) => {
                if self.named.len() < MAX_NAMED && self.named.insert(name) {
                    tracing::error!(operation_id = %record.operation_id, why, "a command is left to its deadline");
                }
                return Fit::Never;
            }
        };
        let names = rule.names().chain([&record.operation]).map(OperationName::as_str);
        let is_held = |board: &Arc<HoldBoard>| board.holds_command(record.principal.tenant(), names);
        if self.shared.holds.as_ref().is_some_and(is_held) {
            return Fit::Held;
        }
        let body = Body::full(kept.body.clone());
        let mut room = self.shared.room.of(&record.principal);
        if !room.grow(kept.body.len()) {
            return Fit::NotNow;
        }
        let mut request = Request::new(body);
        *request.method_mut() = kept.method;
        *request.uri_mut() = kept.target;
        *request.headers_mut() = kept.headers;
        request.extensions_mut().insert(ByWorker(self.shared.clone()));
        Fit::Here(Box::new(ReadyCommand { waiting: record, rule, request, room: Arc::new(room) }))
    }

    /// Returns a clone of the service that is ready to be called.
    async fn ready<R>(&mut self) -> Result<S, BoxError>
    where
        S: Handler<R> + Clone,
    {
        std::future::poll_fn(|cx| self.inner.poll_ready(cx)).await.map_err(Into::into)?;
        let successor = self.inner.clone();
        Ok(std::mem::replace(&mut self.inner, successor))
    }
}

/// Checks that a stored request is the one that its record was made for: by the record's fingerprint, and by the key that the
/// record is found by. A writer of the store could have put another one in its place.
fn check_request(
    shared: &Shared,
    rule: &CommandRule,
    record: &Record,
    kept: &semel_core::Request,
) -> Result<(), String> {
    match command::fingerprint_of(shared, rule, kept).is_that_of(&record.head.fingerprint) {
        Some(true) => {}
        Some(false) => {
            return Err("its request is not the one that was claimed: the fingerprint is another".to_owned());
        }
        None => return Err("its fingerprint is of a version that is not known here".to_owned()),
    }
    let rules = KeyRules { syntax: KeySyntax::Lenient, min_length: 1, max_length: usize::MAX };
    let lines = kept.headers.get_all(command::KEY).iter().map(|value| value.as_bytes());
    let key = rules.parse(lines).ok().flatten().ok_or("its request has no key that can be read")?;
    let scope = Scope::new(record.principal.clone(), record.operation.clone(), key);
    match scope.record_id() == record.id {
        true => Ok(()),
        false => Err("its request is of another record: the key is another".to_owned()),
    }
}

fn name(waiting: &Waiting) -> WaitName {
    (waiting.record.operation_id, waiting.record.head.epoch)
}

/// Starts a command, and executes and settles it if no other worker has started it. Runs detached: stopping the worker does not
/// cancel it.
async fn carry_out<S, R>(
    shared: Arc<Shared>,
    job: ReadyCommand,
    inner: S,
    _place: OwnedSemaphorePermit,
    starting: Starting,
) where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let Some(_active) = shared.running.enter() else { return };
    let asked = AskedAt::now();
    let Some(record) = start(&shared, &job.waiting, &starting.failed).await.map(Box::new) else { return };
    drop(starting);
    if shared.running.is_closing() {
        persist::give_back(&shared, &record, Unexecuted::Requeue(Duration::ZERO), Reason::ShutDown).await;
        return;
    }
    let unexecuted = Unexecuted::Requeue(retry_after(&record));
    let span = shared.tracer.as_ref().map(|tracer| OpenSpan::alone(tracer, &*shared.clock));
    let (mut facts, label) = (AnswerFacts::about(&record), job.rule.label.clone());
    let acquired = Box::new(Acquired { record, rule: job.rule, asked, unexecuted, span: span.clone() });
    let answer = match execute::execute(&shared, &acquired, job.request, inner).await {
        Ok(executed) => settle::settle(shared, acquired, executed).await,
        Err(answer) => *answer,
    };
    drop(job.room);
    if let Some(span) = span {
        facts.state = answer.facts.state.or(facts.state);
        facts.decision = answer.facts.decision;
        spans::worked(&span, "execution", &label, &facts, None);
    }
    // No client reads the answer. A body that is not stored is read to its end, so that its sender is not cut off.
    body::drain(answer.response.into_body()).await;
}

/// Starts a command under a token of its own. `None`: another worker has it, or the start could not be confirmed.
async fn start(shared: &Arc<Shared>, waiting: &Record, failed: &AtomicBool) -> Option<Record> {
    let token = shared.ids.attempt_token();
    let own = Fence { epoch: waiting.head.epoch, token };
    let start = Change::start(waiting.head.fence(), token);
    match persist::apply(shared, waiting, &start).await {
        Ok(answer) if answer.decision == Decision::Execute => answer.record,
        Ok(answer) => {
            if let Some(record) = answer.record.filter(|record| record.head.fence() == own) {
                // This start itself: its answer was lost, and it was found again after the end of its lease. Nothing ran.
                let unexecuted = Unexecuted::Requeue(Duration::ZERO);
                persist::give_back(shared, &record, unexecuted, Reason::ClaimUnconfirmed).await;
            }
            None
        }
        Err(error) => {
            tracing::warn!(%error, operation_id = %waiting.operation_id, "a command was not started yet");
            failed.store(true, Ordering::Relaxed);
            if matches!(error, StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Ambiguous(_)) {
                persist::requeue_unconfirmed(shared, waiting.clone(), own);
            }
            None
        }
    }
}

/// Returns the backoff of a command that this attempt did not execute. Attempt tokens are random, and so is the backoff.
fn retry_after(record: &Record) -> Duration {
    let [a, b, c, d, ..] = *record.head.token.as_bytes();
    pause_after(record.head.epoch, u32::from_be_bytes([a, b, c, d]))
}

/// Returns a time that doubles after each attempt; `chance` picks it between the half and the whole.
fn pause_after(attempt: Epoch, chance: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
    let half = FIRST_RETRY.saturating_mul(doubled).min(LAST_RETRY) / 2;
    half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_longer_after_each_attempt() {
        let between = |attempt| (pause_after(attempt, 0).as_secs(), pause_after(attempt, u32::MAX).as_secs());
        assert_eq!(between(1), (1, 2));
        assert_eq!(between(2), (2, 4));
        assert_eq!(between(5), (16, 32));
        assert_eq!(between(6), (30, 60));
        assert_eq!(between(Epoch::MAX), (30, 60));
    }
}
