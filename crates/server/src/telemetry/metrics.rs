//! Table of all metrics: their help texts at `/metrics`, and the page `reference/metrics.md` of the book.
//!
//! A test compares it with the metrics that the crates record, name by name and label by label.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A count that only rises.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// A distribution.
    Histogram,
}

impl MetricKind {
    /// Returns its name in the text format of Prometheus.
    pub const fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug)]
pub struct MetricInfo {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its help text.
    pub help: &'static str,
}

/// Metrics about one subject.
#[derive(Debug)]
pub struct MetricGroup {
    /// Heading of the group.
    pub title: &'static str,
    /// Sentence about the process that records them.
    pub source: &'static str,
    /// The metrics.
    pub metrics: &'static [MetricInfo],
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricInfo {
    MetricInfo { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricInfo {
    MetricInfo { name, kind: MetricKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricInfo {
    MetricInfo { name, kind: MetricKind::Histogram, labels, help }
}

/// Every metric.
pub const METRICS: &[MetricGroup] = &[
    MetricGroup {
        title: "Commands",
        source: "Recorded by the layer: in the gateway, and in a service that uses the library.",
        metrics: &[
            counter(
                "idempotency_claims_total",
                &["operation", "outcome"],
                "Decisions about commands: accepted (claimed for a worker), executed, reacquired, replayed, mismatch, \
                 in_progress, unknown, expired, refused, store_error.",
            ),
            counter("idempotency_replays_total", &["operation"], "Stored responses that were replayed."),
            counter(
                "idempotency_duplicates_total",
                &["operation", "tenant"],
                "Replays, and answers of in progress, unknown and expired.",
            ),
            counter("idempotency_new_keys_total", &["tenant"], "Commands that ran for the first time."),
            counter(
                "idempotency_fingerprint_mismatch_total",
                &["operation", "caller"],
                "Keys that were used with another request.",
            ),
            counter(
                "idempotency_quota_exceeded_total",
                &["whose", "limit"],
                "Requests refused because a tenant or caller exceeded its new_keys, lookups, active_keys or stored_bytes.",
            ),
            counter(
                "idempotency_in_progress_total",
                &["operation"],
                "Duplicates that were answered while the first request still ran.",
            ),
            counter(
                "idempotency_unknown_total",
                &["operation"],
                "Executions that ended with an unknown outcome, except expired leases: idempotency_records_active shows those.",
            ),
            counter(
                "idempotency_expired_total",
                &["operation"],
                "Duplicates that were answered after the response had expired.",
            ),
            counter(
                "idempotency_zombies_total",
                &["operation"],
                "Executors that were fenced: their answer came after their lease.",
            ),
            counter(
                "idempotency_late_answers_total",
                &["operation", "outcome"],
                "Answers after the timeout: settled, fenced, unknown, store_error, none.",
            ),
            gauge(
                "idempotency_rule_last_matched_seconds",
                &["operation"],
                "UNIX time at which a request last matched the rule of the operation; until the first one, the time at which \
                 this process began to look. A rule that stays behind for a day may have a wrong route.",
            ),
            histogram(
                "idempotency_added_seconds",
                &["operation"],
                "Time that the layer itself added to a command.",
            ),
            histogram(
                "idempotency_execution_seconds",
                &["operation"],
                "Time that the handler or upstream took.",
            ),
        ],
    },
    MetricGroup {
        title: "Store and records",
        source: "Recorded by the layer, and by the maintenance of the store.",
        metrics: &[
            counter("idempotency_store_errors_total", &["call"], "Store calls of requests that failed."),
            histogram("idempotency_store_seconds", &["call"], "Time that store calls of requests took."),
            gauge(
                "idempotency_records_active",
                &["operation", "state"],
                "Records in the store, counted every 15 s.",
            ),
            gauge("idempotency_oldest_seconds", &["state"], "Age of the oldest record in each state."),
            counter("idempotency_reaped_total", &[], "Expired records that were removed."),
            gauge(
                "idempotency_reap_lag_seconds",
                &[],
                "Time since the reaper last finished, as of its last try.",
            ),
            counter(
                "idempotency_reference_conflicts_total",
                &[],
                "Executed commands whose business reference another command holds.",
            ),
        ],
    },
    MetricGroup {
        title: "Unknown outcomes",
        source: "Recorded where the reconciler runs; contradictions by late answers also without it.",
        metrics: &[
            counter("idempotency_reconcile_scheduled_total", &[], "Look-ups of unknown commands."),
            counter(
                "idempotency_reconcile_resolved_total",
                &["verdict"],
                "Unknown commands that evidence settled: executed, failed, not_executed.",
            ),
            counter("idempotency_reconcile_failed_total", &[], "Look-ups without evidence."),
            counter(
                "idempotency_reconcile_contradictions_total",
                &[],
                "Evidence that contradicts a settled record.",
            ),
            gauge(
                "idempotency_reconcile_dead_letters",
                &[],
                "Unknown commands that are no longer looked up.",
            ),
            counter(
                "idempotency_webhook_events_total",
                &["source", "outcome"],
                "Events of providers: taken, seen, ignored, refused, unavailable.",
            ),
            counter(
                "idempotency_webhook_without_record_total",
                &["source"],
                "Events of providers about commands without a record.",
            ),
        ],
    },
    MetricGroup {
        title: "Ledgers",
        source: "Recorded by a gateway with `[ledger]`.",
        metrics: &[
            gauge("idempotency_ledger_findings", &["kind"], "Findings of the last comparison of ledgers."),
            gauge(
                "idempotency_ledger_last_run_timestamp_seconds",
                &[],
                "UNIX time at which the last comparison of ledgers ended.",
            ),
            counter(
                "idempotency_ledger_runs_total",
                &["outcome"],
                "Comparisons of ledgers: agree, differ, failed.",
            ),
        ],
    },
    MetricGroup {
        title: "Callers",
        source: "Recorded by the gateway.",
        metrics: &[
            counter("identity_tokens_refused_total", &["check"], "Refused tokens, by the check that failed."),
            counter(
                "identity_keys_read_total",
                &["outcome"],
                "Reads of the issuer's keys for tokens: read, failed.",
            ),
            counter(
                "identity_certificates_refused_total",
                &["check"],
                "Client certificates refused after the handshake, by the check that failed.",
            ),
            counter(
                "introspections_total",
                &["outcome"],
                "Introspections of tokens and sessions: known, remembered, refused, unavailable.",
            ),
            counter(
                "authorizations_total",
                &["outcome"],
                "Authorizations of callers: allowed, remembered, denied, unavailable.",
            ),
        ],
    },
    MetricGroup {
        title: "Connections",
        source: "Recorded by the gateway.",
        metrics: &[
            counter(
                "connections_refused_total",
                &[],
                "Client connections closed at once, because their address had its share.",
            ),
            counter(
                "tls_handshakes_total",
                &["listener", "outcome"],
                "TLS handshakes of the listeners clients and admin: done, failed, timed_out.",
            ),
            counter(
                "tls_reloads_total",
                &["table", "outcome"],
                "Reloads of changed files for TLS: done, failed.",
            ),
            gauge(
                "tls_certificate_end_timestamp_seconds",
                &["table"],
                "UNIX time at which the gateway's own certificate ends.",
            ),
            counter(
                "upstream_failures_total",
                &["operation", "kind"],
                "Failed requests to the upstream: not_sent, broke_off, timed_out.",
            ),
        ],
    },
    MetricGroup {
        title: "Outbox",
        source: "Recorded by the worker that delivers, in a service that uses the library; not in the gateway.",
        metrics: &[
            gauge("outbox_pending", &[], "Messages that are not delivered yet."),
            gauge("outbox_dead", &[], "Messages that are no longer tried."),
            counter("outbox_delivered_total", &["topic"], "Delivered messages, by kind."),
            counter("outbox_dead_total", &["topic"], "Messages that were given up, by kind."),
        ],
    },
];

/// Registers every help text with the metrics recorder.
pub(super) fn describe() {
    for metric in METRICS.iter().flat_map(|group| group.metrics) {
        match metric.kind {
            MetricKind::Counter => describe_counter!(metric.name, metric.help),
            MetricKind::Gauge => describe_gauge!(metric.name, metric.help),
            MetricKind::Histogram => describe_histogram!(metric.name, metric.help),
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics::with_local_recorder;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn every_metric_is_shown_with_its_help() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        with_local_recorder(&recorder, || {
            describe();
            for metric in METRICS.iter().flat_map(|group| group.metrics) {
                match metric.kind {
                    MetricKind::Counter => metrics::counter!(metric.name).increment(1),
                    MetricKind::Gauge => metrics::gauge!(metric.name).set(1.0),
                    MetricKind::Histogram => metrics::histogram!(metric.name).record(1.0),
                }
            }
        });
        let shown = handle.render();
        for MetricInfo { name, help, .. } in METRICS.iter().flat_map(|group| group.metrics) {
            assert!(shown.contains(&format!("# HELP {name} {help}\n")), "{name}: {shown}");
        }
    }
}
