//! The loop that takes messages and has them delivered, several at a time.
//!
//! A receiver that hangs holds one place, for as long as a try may take; the others go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_core::outbox::{Outbox, RetryTerms, Take};
use semel_core::{Ids, RandomIds};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::delivery::Delivery;
use super::metrics::{self, Topics};
use super::sink::Sink;

/// How many delivered messages are deleted in one go, and how many goes follow one another.
const REAP_BATCH: usize = 500;
const REAP_BATCHES: usize = 20;

/// How a worker works.
#[derive(Clone, Copy, Debug)]
pub struct WorkerOptions {
    /// How many messages are delivered at the same time.
    pub concurrency: usize,
    /// How often an idle worker looks for messages.
    pub poll: Duration,
    /// How long one try may take.
    pub timeout: Duration,
    /// How long messages are the worker's own. At least twice the timeout, so that the end of a try can still be written
    /// down; shorter ones are made so.
    pub lease: Duration,
    /// How often a message is tried, and how long it waits in between.
    pub retry: RetryTerms,
    /// How long tries may still take after the worker was told to stop.
    pub drain: Duration,
    /// How long delivered messages are kept.
    pub retention: Duration,
    /// How often messages are counted, and old ones deleted.
    pub upkeep: Duration,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions {
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

/// Delivers messages until it is told to stop. Any number may work on one database.
pub struct Worker {
    delivery: Arc<Delivery>,
    options: WorkerOptions,
    stop: watch::Sender<bool>,
    wake: Arc<Notify>,
}

/// Lets a worker look for messages at once, or a completer for commands.
#[derive(Clone)]
pub struct Wake(pub(crate) Arc<Notify>);

impl Wake {
    /// There may be a message: call it after a command of this process has committed one. Nothing is lost without it; the
    /// worker looks by itself a little later.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// Tells a worker, or a completer, to stop.
#[derive(Clone)]
pub struct Stop(pub(crate) watch::Sender<bool>);

impl Stop {
    /// Take no more messages, or commands, and end once those in hand are done.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// What a worker left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Tries that did not end in time. Their messages are tried again, or their commands resumed, when their leases end.
    pub left: usize,
}

impl Worker {
    /// A worker that brings the messages of this outbox to this sink.
    pub fn new(outbox: Arc<dyn Outbox>, sink: Arc<dyn Sink>, options: WorkerOptions) -> Worker {
        let lease = options.lease.max(options.timeout.saturating_mul(2));
        let options = WorkerOptions { lease, concurrency: options.concurrency.max(1), ..options };
        let delivery = Delivery {
            outbox,
            sink,
            terms: options.retry,
            timeout: options.timeout,
            topics: Topics::default(),
        };
        Worker {
            delivery: Arc::new(delivery),
            options,
            stop: watch::Sender::new(false),
            wake: Arc::default(),
        }
    }

    /// What stops it.
    pub fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// What wakes it.
    pub fn waker(&self) -> Wake {
        Wake(self.wake.clone())
    }

    /// Works until it is stopped, and then until the tries in hand are done, for as long as they may take. If this is
    /// dropped, tries in hand are given up where they are, and their messages tried again when their leases end.
    pub async fn run(self) -> Drained {
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
                    // Not for a single place: takes are as good as the number that they take.
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

    /// Takes as many messages as there are places for, and begins with them.
    async fn take(&self, running: &mut JoinSet<()>) {
        let limit = self.options.concurrency.saturating_sub(running.len());
        if limit == 0 {
            return;
        }
        // Before the store's clock starts to count, so that the worker's is never behind it.
        let until = Instant::now() + (self.options.lease - self.options.timeout / 2);
        let take = Take { token: RandomIds.attempt_token(), lease: self.options.lease, limit };
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
        Ok(depth) => metrics::depth(depth),
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
