//! The loop that takes messages and delivers them concurrently.
//!
//! A receiver that hangs occupies one slot until the timeout of its try; the other slots continue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_core::outbox::{Outbox, RetryTerms, Take};
use semel_core::{Clock, Ids, RandomIds, SystemClock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::delivery::MessageDelivery;
use super::metrics::{self, Topics};
use super::sink::Sink;

/// Number of delivered messages deleted in one batch, and number of batches in one run.
const REAP_BATCH: usize = 500;
const REAP_BATCHES: usize = 20;

/// Settings of a worker.
#[derive(Clone, Copy, Debug)]
pub struct OutboxWorkerOptions {
    /// Number of messages delivered concurrently.
    pub concurrency: usize,
    /// Poll interval of an idle worker.
    pub poll: Duration,
    /// Timeout of one try.
    pub timeout: Duration,
    /// Lease of a worker on its messages. At least twice the timeout, so that the result of a try can still be stored;
    /// shorter values are raised to that.
    pub lease: Duration,
    /// Number of tries, and backoff between them.
    pub retry: RetryTerms,
    /// Time for running tries to end after the worker was told to stop.
    pub drain: Duration,
    /// Retention of delivered messages.
    pub retention: Duration,
    /// Interval of counting messages and deleting old ones.
    pub upkeep: Duration,
}

impl Default for OutboxWorkerOptions {
    fn default() -> OutboxWorkerOptions {
        OutboxWorkerOptions {
            concurrency: 16,
            poll: Duration::from_millis(200),
            timeout: Duration::from_secs(10),
            lease: Duration::from_secs(60),
            retry: RetryTerms::default(),
            drain: Duration::from_secs(15),
            retention: Duration::from_secs(7 * 24 * 3600),
            upkeep: Duration::from_secs(15),
        }
    }
}

/// Delivers messages until it is told to stop. Any number of workers may share one database.
pub struct OutboxWorker {
    delivery: Arc<MessageDelivery>,
    options: OutboxWorkerOptions,
    stop: watch::Sender<bool>,
    wake: Arc<Notify>,
    held_sinks: Box<HeldSinks>,
}

/// Returns the kinds of messages whose delivery an operator holds.
type HeldSinks = dyn Fn() -> Vec<String> + Send + Sync;

/// Handle that makes a worker look for messages at once, or a completer for commands.
#[derive(Clone)]
pub struct Wake(pub(crate) Arc<Notify>);

impl Wake {
    /// Signals a new message: call it after a command of this process has committed one. It is optional; without it the
    /// worker finds the message at its next poll.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// Handle that tells a worker, or a completer, to stop.
#[derive(Clone)]
pub struct StopHandle(pub(crate) watch::Sender<bool>);

impl StopHandle {
    /// Stops taking messages, or commands; `run` returns once the running ones are done.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Result of a stopped worker or completer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Number of tries that did not end in time. Their messages are retried, or their commands resumed, when the leases
    /// expire.
    pub left: usize,
}

impl OutboxWorker {
    /// Creates a worker that delivers the messages of this outbox to this sink.
    pub fn new(outbox: Arc<dyn Outbox>, sink: Arc<dyn Sink>, options: OutboxWorkerOptions) -> OutboxWorker {
        let lease = options.lease.max(options.timeout.saturating_mul(2));
        let options = OutboxWorkerOptions { lease, concurrency: options.concurrency.max(1), ..options };
        let delivery = MessageDelivery {
            outbox,
            sink,
            terms: options.retry,
            timeout: options.timeout,
            topics: Topics::default(),
        };
        OutboxWorker {
            delivery: Arc::new(delivery),
            options,
            stop: watch::Sender::new(false),
            wake: Arc::default(),
            held_sinks: Box::new(Vec::new),
        }
    }

    /// Takes no messages of the kinds that `held` returns: they wait, and use up no tries. Later messages of their commands wait
    /// behind them. With a board of holds: `.hold_sinks(move || board.held_sinks())`.
    pub fn hold_sinks(self, held: impl Fn() -> Vec<String> + Send + Sync + 'static) -> OutboxWorker {
        OutboxWorker { held_sinks: Box::new(held), ..self }
    }

    /// Returns a handle that stops the worker.
    pub fn stopper(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// Returns a handle that wakes the worker.
    pub fn waker(&self) -> Wake {
        Wake(self.wake.clone())
    }

    /// Works until it is stopped, and then until the running tries end, at most for `drain`. If the future is dropped,
    /// running tries are aborted, and their messages are retried when their leases expire.
    pub async fn run(self) -> Drained {
        metrics::begin_metrics();
        let mut stopped = self.stop.subscribe();
        let mut running = JoinSet::new();
        let mut poll = interval(self.options.poll.max(Duration::from_millis(1)));
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut upkeep = interval(self.options.upkeep.max(Duration::from_millis(1)));
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut keeping = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = async { let _ = stopped.wait_for(|stopped| *stopped).await; } => break,
                _ = upkeep.tick() => {
                    while keeping.try_join_next().is_some() {}
                    if keeping.is_empty() {
                        keeping.spawn(look_after(self.delivery.outbox.clone(), self.options.retention));
                    }
                }
                Some(_) = running.join_next() => {
                    while running.try_join_next().is_some() {}
                    // Not for a single free slot: larger batches are cheaper per message.
                    if running.len() * 2 <= self.options.concurrency {
                        self.take(&mut running).await;
                    }
                }
                () = self.wake.notified() => self.take(&mut running).await,
                _ = poll.tick() => self.take(&mut running).await,
            }
        }
        let all = async { while running.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.options.drain, all).await;
        Drained { left: running.len() }
    }

    /// Takes as many messages as there are free slots, and starts to deliver them.
    async fn take(&self, running: &mut JoinSet<()>) {
        let limit = self.options.concurrency.saturating_sub(running.len());
        if limit == 0 {
            return;
        }
        // Read before the store starts the lease, so that the worker's clock never lags behind the store's.
        let until = Instant::now() + (self.options.lease - self.options.timeout / 2);
        let (token, lease, except) = (RandomIds.attempt_token(), self.options.lease, (self.held_sinks)());
        let take = Take { token, lease, limit, except };
        match self.delivery.outbox.take(&take).await {
            Ok(messages) => {
                for message in messages {
                    let delivery = self.delivery.clone();
                    running.spawn(async move { delivery.attempt(&message, until).await });
                }
            }
            Err(error) => tracing::warn!(%error, "messages cannot be taken"),
        }
    }
}

/// Counts messages, and deletes those that were delivered long ago.
async fn look_after(outbox: Arc<dyn Outbox>, retention: Duration) {
    match outbox.depth().await {
        Ok(depth) => metrics::depth(depth, SystemClock.now()),
        Err(error) => tracing::warn!(%error, "messages cannot be counted"),
    }
    for _ in 0..REAP_BATCHES {
        match outbox.reap_messages(retention, REAP_BATCH).await {
            Ok(REAP_BATCH) => {}
            Ok(_) => break,
            Err(error) => {
                tracing::warn!(%error, "old messages cannot be deleted");
                break;
            }
        }
    }
}
