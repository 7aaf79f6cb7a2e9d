//! Metrics of the outbox. The label is a message's kind; their number is bounded.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use metrics::Counter;
use semel_core::Timestamp;
use semel_core::outbox::Depth;

/// Number of kinds with a label of their own; further kinds share `other`.
const MAX_TOPICS: usize = 100;

/// Label that the further kinds share.
const OTHER: &str = "other";

/// Kinds with a label of their own.
#[derive(Default)]
pub(super) struct Topics(Mutex<HashSet<String>>);

impl Topics {
    fn label(&self, kind: &str) -> String {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(kind) {
            if known.len() >= MAX_TOPICS {
                return OTHER.to_owned();
            }
            known.insert(kind.to_owned());
        }
        kind.to_owned()
    }

    pub(super) fn delivered(&self, kind: &str) {
        delivered(self.label(kind)).increment(1);
    }

    pub(super) fn dead(&self, kind: &str) {
        dead(self.label(kind)).increment(1);
    }
}

/// Starts the metrics of an outbox at zero, before a worker has delivered anything.
pub fn begin_metrics() {
    depth(Depth::default(), Timestamp::from_millis(0));
    delivered(OTHER.to_owned()).increment(0);
    dead(OTHER.to_owned()).increment(0);
}

/// Records the numbers of undelivered messages, and the age of the oldest.
pub(super) fn depth(depth: Depth, now: Timestamp) {
    #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
    let gauge = |count: u64| count as f64;
    let age = depth.oldest_pending.map(|made| now.since(made)).unwrap_or_default();
    metrics::gauge!("outbox_pending").set(gauge(depth.pending));
    metrics::gauge!("outbox_dead").set(gauge(depth.dead));
    metrics::gauge!("outbox_oldest_seconds").set(age.as_secs_f64());
}

fn delivered(topic: String) -> Counter {
    metrics::counter!("outbox_delivered_total", "topic" => topic)
}

fn dead(topic: String) -> Counter {
    metrics::counter!("outbox_dead_total", "topic" => topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_kinds_beyond_the_label_limit_are_counted_as_other() {
        let topics = Topics::default();
        for kind in 0..MAX_TOPICS {
            assert_eq!(topics.label(&kind.to_string()), kind.to_string());
        }
        assert_eq!(topics.label("one more"), OTHER);
        assert_eq!(topics.label("7"), "7", "it was there before");
    }
}
