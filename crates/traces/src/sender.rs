//! The task that collects spans into batches and sends them, one batch at a time.
//!
//! Spans wait in the queue while a batch is on its way. Invariant: each span that was queued is counted once, as exported or
//! as dropped.

use std::time::Duration;

use semel_core::Span;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::collector::Collector;
use crate::counts::{self, SpanLoss};

/// Largest number of spans in one batch.
const MAX_BATCH: usize = 512;

/// Sends the spans of a [`TraceExporter`](crate::TraceExporter).
pub struct SpanSender {
    queue: mpsc::Receiver<Span>,
    collector: Collector,
    interval: Duration,
    flush: Duration,
}

impl SpanSender {
    pub(crate) fn new(
        queue: mpsc::Receiver<Span>,
        collector: Collector,
        interval: Duration,
        flush: Duration,
    ) -> SpanSender {
        SpanSender { queue, collector, interval, flush }
    }

    /// Sends spans until `stop` is ready, and then those that are left, within the time for that. Spans that end later
    /// are dropped.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        let (stopped, mut is_stopped) = watch::channel(false);
        let flush = self.flush;
        let end = async {
            stop.await;
            stopped.send_replace(true);
            sleep(flush).await;
        };
        tokio::select! {
            () = self.send_all(&mut batch, &mut is_stopped) => {}
            () = end => {}
        }
        self.queue.close();
        let left = batch.len() + self.queue.len();
        if left > 0 {
            tracing::warn!(spans = left, "spans were dropped: the collector did not take them in time");
            counts::dropped(SpanLoss::Unreachable, left);
        }
    }

    /// Sends spans until the queue is closed and empty. The batch on its way stays in `batch` until it is counted.
    async fn send_all(&mut self, batch: &mut Vec<Span>, is_stopped: &mut watch::Receiver<bool>) {
        loop {
            self.fill(batch, is_stopped).await;
            if batch.is_empty() {
                return;
            }
            self.collector.deliver(batch).await;
            batch.clear();
        }
    }

    /// Fills a batch until it is full, its first span has waited for the interval, or the queue is closed and empty.
    async fn fill(&mut self, batch: &mut Vec<Span>, is_stopped: &mut watch::Receiver<bool>) {
        let mut due = None;
        while batch.len() < MAX_BATCH {
            let is_due = async move {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = is_stopped.wait_for(|stopped| *stopped), if !self.queue.is_closed() => self.queue.close(),
                taken = self.queue.recv_many(batch, MAX_BATCH - batch.len()) => {
                    if taken == 0 {
                        return;
                    }
                    due = due.or_else(|| Some(Instant::now() + self.interval));
                }
                () = is_due => return,
            }
        }
    }
}
