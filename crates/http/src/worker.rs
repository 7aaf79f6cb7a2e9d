//! Carries out commands that were claimed for later, several at a time. Any number of workers may share a store.
//!
//! Invariant: nothing runs before its start was answered, under a token of its own. What was started goes on in a task of
//! its own, and is settled as a request's own execution is; whoever stops the worker cancels nothing.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use semel_core::{
    Change, Decision, Epoch, Fence, KeyRules, KeySyntax, OperationId, Reason, Record, Scope, StoreError,
    Waiting, WaitingSearch,
};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;
use tower::Service;

use crate::body::{self, Body, BoxError};
use crate::command;
use crate::execute::{self, Acquired, Handler};
use crate::execution::Asked;
use crate::layer::Shared;
use crate::operations::Rule;
use crate::settle::{self, Unexecuted};
use crate::shares::Share;

/// How long a command that provably did not run waits before it is started again, at first and at last. The wait is drawn
/// from the upper half.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// How long a worker pauses at the most while it cannot work.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Commands that cannot be carried out here are looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Commands that cannot be carried out here are named in the log, up to so many.
const MAX_NAMED: usize = 256;

/// How a worker works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// How many commands are carried out at the same time.
    pub concurrency: usize,
    /// How often an idle worker looks for commands. Those that are claimed in its own process wake it at once.
    pub poll: Duration,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions { concurrency: 16, poll: Duration::from_millis(500) }
    }
}

/// Carries out asynchronous commands. Made by [`IdempotencyLayer::worker`](crate::IdempotencyLayer::worker).
pub struct Worker<S> {
    shared: Arc<Shared>,
    inner: S,
    options: WorkerOptions,
    stop: watch::Sender<bool>,
    /// What is being started: the store may still show it.
    starting: HashMap<Name, oneshot::Receiver<()>>,
    search: WaitingSearch,
    /// Starts that failed: their commands are behind the search, which has to look for them again.
    failed_starts: Arc<AtomicBool>,
    /// The moment from which on commands that were passed over are looked at again.
    look_again: Instant,
    /// Commands that cannot be carried out here, as far as the log names them.
    named: HashSet<Name>,
}

/// Names one wait of a command for a worker.
type Name = (OperationId, Epoch);

/// Tells a worker to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Start no more commands, and end once those in hand are done.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// The mark of a request that a worker of this layer carries out.
#[derive(Clone)]
pub(crate) struct ByWorker(pub(crate) Arc<Shared>);

/// A command that can be carried out here, once it is started.
struct Job {
    waiting: Record,
    rule: Rule,
    request: Request<Body>,
    room: Arc<Share>,
}

/// The start of a command, which is answered when this is dropped.
struct Starting {
    _answered: oneshot::Sender<()>,
    failed: Arc<AtomicBool>,
}

/// Use of a waiting command for this worker.
enum Fit {
    /// It can be carried out.
    Here(Box<Job>),
    /// It is being started already.
    InHand,
    /// There is no room for it in memory.
    NotNow,
    /// It cannot be carried out here.
    Never,
}

/// What a look for commands came to.
enum Looked {
    /// There may be more of them.
    More,
    /// There are none that could be started now.
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
            look_again: Instant::now() + LOOK_AGAIN,
            named: HashSet::new(),
        }
    }

    /// What stops it.
    pub fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Works until it is stopped, or its layer is shut down, and then until what it has started is settled. If this is
    /// dropped, what it has started goes on all the same.
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

    /// Looks for commands again and again. May be dropped at any time: what has begun is not in this future.
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
                Ok(Looked::More) => pause = poll,
                Ok(Looked::Idle) => {
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

    /// Takes up as many commands as there are places for, once there is one.
    async fn look<R>(&mut self, places: &Arc<Semaphore>) -> Result<Looked, BoxError>
    where
        S: Handler<R> + Clone,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let mut place = Some(places.clone().acquire_owned().await?);
        if !self.shared.operations.has_async() {
            return Ok(Looked::Idle);
        }
        // Before the store is asked: what it answered until now, it does not show any more.
        self.starting.retain(|_, answered| answered.try_recv() == Err(TryRecvError::Empty));
        if self.failed_starts.swap(false, Ordering::Relaxed) || Instant::now() >= self.look_again {
            self.search.forget();
            self.look_again = Instant::now() + LOOK_AGAIN;
        }
        // Nobody else takes places, so there will not be fewer.
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
                    Fit::Never => {
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
        Ok(if self.search.has_more() { Looked::More } else { Looked::Idle })
    }

    /// Says whether a command can be carried out, and makes a job of it.
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
        Fit::Here(Box::new(Job { waiting: record, rule, request, room: Arc::new(room) }))
    }

    /// A clone of the service that may be called.
    async fn ready<R>(&mut self) -> Result<S, BoxError>
    where
        S: Handler<R> + Clone,
    {
        std::future::poll_fn(|cx| self.inner.poll_ready(cx)).await.map_err(Into::into)?;
        let successor = self.inner.clone();
        Ok(std::mem::replace(&mut self.inner, successor))
    }
}

/// Checks that a kept request is the one that its record was made for: it has the record's fingerprint, and the key that the
/// record is found by. Whoever may write to the store could have put another in its place.
fn check_request(
    shared: &Shared,
    rule: &Rule,
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
    let scope = Scope { principal: record.principal.clone(), operation: record.operation.clone(), key };
    match scope.record_id() == record.id {
        true => Ok(()),
        false => Err("its request is of another record: the key is another".to_owned()),
    }
}

fn name(waiting: &Waiting) -> Name {
    (waiting.record.operation_id, waiting.record.head.epoch)
}

/// Starts a command, and carries it out if nobody else has started it. Runs detached: nobody's leaving cancels it.
async fn carry_out<S, R>(
    shared: Arc<Shared>,
    job: Job,
    inner: S,
    _place: OwnedSemaphorePermit,
    starting: Starting,
) where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let Some(_active) = shared.running.enter() else { return };
    let asked = Asked::now();
    let Some(record) = start(&shared, &job.waiting, &starting.failed).await.map(Box::new) else { return };
    drop(starting);
    if shared.running.is_closing() {
        settle::give_back(&shared, &record, Unexecuted::Requeue(Duration::ZERO), Reason::ShutDown).await;
        return;
    }
    let unexecuted = Unexecuted::Requeue(retry_after(&record));
    let acquired = Acquired { record, rule: job.rule, asked, unexecuted };
    let answer = execute::execute(shared, acquired, job.request, job.room, inner).await;
    // Nobody asked for it. What is not kept of it is settled already, and its sender is not to be cut off.
    body::drain(answer.response.into_body()).await;
}

/// Starts a command under a token of its own. `None`: somebody else has it, or it could not be confirmed.
async fn start(shared: &Arc<Shared>, waiting: &Record, failed: &AtomicBool) -> Option<Record> {
    let token = shared.ids.attempt_token();
    let own = Fence { epoch: waiting.head.epoch, token };
    let start = Change::start(waiting.head.fence(), token);
    match settle::try_to_write(shared, &waiting.id, &start).await {
        Ok(answer) if answer.decision == Decision::Execute => answer.record,
        Ok(answer) => {
            if let Some(record) = answer.record.filter(|record| record.head.fence() == own) {
                // Our own start: its answer was lost, and it was found again after its lease had ended. Nobody ran anything.
                let unexecuted = Unexecuted::Requeue(Duration::ZERO);
                settle::give_back(shared, &record, unexecuted, Reason::ClaimUnconfirmed).await;
            }
            None
        }
        Err(error) => {
            tracing::warn!(%error, operation_id = %waiting.operation_id, "a command was not started yet");
            failed.store(true, Ordering::Relaxed);
            if matches!(error, StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Ambiguous(_)) {
                let (shared, waiting, held) = (shared.clone(), waiting.clone(), shared.running.hold());
                tokio::spawn(settle::requeue_unconfirmed(shared, waiting, own, held));
            }
            None
        }
    }
}

/// How long a command waits that this attempt did not carry out. Attempt tokens are random, and so is their wait.
fn retry_after(record: &Record) -> Duration {
    let [a, b, c, d, ..] = *record.head.token.as_bytes();
    pause_after(record.head.epoch, u32::from_be_bytes([a, b, c, d]))
}

/// Twice as long after each attempt, and between a half and the whole of that, as `chance` has it.
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
