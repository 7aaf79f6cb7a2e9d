//! Table of all metrics: their help texts at `/metrics`, and the page `reference/metrics.md` of the book.
//!
//! A test compares it with the metrics that the crates record, name by name and label by label.

use std::collections::HashSet;

use metrics::{Label, describe_counter, describe_gauge, describe_histogram};

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
                &["operation", "tenant"],
                "Keys that were used with another request.",
            ),
            counter(
                "idempotency_refused_total",
                &["operation", "code"],
                "Requests that were refused before a claim, by the code of the problem.",
            ),
            counter(
                "idempotency_quota_exceeded_total",
                &["whose", "limit", "tenant"],
                "Requests refused because a tenant or caller exceeded its new_keys, lookups, active_keys or stored_bytes.",
            ),
            gauge(
                "idempotency_busiest_caller_share",
                &[],
                "Share of the new keys of the last whole minute that the busiest caller sent, from 0 to 1.",
            ),
            counter(
                "idempotency_held_total",
                &["operation"],
                "Commands that were refused because of a hold.",
            ),
            counter(
                "idempotency_passed_total",
                &["method"],
                "Requests that were passed on without protection: GET, HEAD, OPTIONS, PUT, DELETE, POST, PATCH, other.",
            ),
            counter(
                "idempotency_in_progress_total",
                &["operation"],
                "Duplicates that were answered while the first request still ran.",
            ),
            counter(
                "idempotency_unknown_total",
                &["operation", "cause"],
                "Commands that became unknown, by the reason of the record. Sweeps and requests that find an expired lease count.",
            ),
            counter(
                "idempotency_expired_total",
                &["operation"],
                "Duplicates that were answered after the response had expired.",
            ),
            counter(
                "idempotency_late_retries_total",
                &["operation"],
                "Retries that came after their record had expired, and ran as new commands, as far as this process remembers.",
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
            gauge("idempotency_store_breaker_open", &[], "1 while the circuit breaker of the store is open."),
            gauge(
                "idempotency_store_tier",
                &[],
                "Tier that the store promises now: 1 is the strongest. PostgreSQL is asked every 10 s.",
            ),
            gauge(
                "idempotency_store_timeline",
                &[],
                "Highest timeline of PostgreSQL that was seen: it rises with each failover.",
            ),
            counter(
                "idempotency_store_timeline_refused_total",
                &[],
                "Connections to a former primary of PostgreSQL that were refused.",
            ),
            counter(
                "idempotency_store_behind_total",
                &[],
                "Times that the store had lost writes which this process or its witness had seen.",
            ),
            gauge("idempotency_store_queue_length", &[], "Changes that wait for the writer of the store."),
            histogram(
                "idempotency_store_queue_seconds",
                &[],
                "Time that a change waited for the writer of the store.",
            ),
            gauge(
                "idempotency_records_active",
                &["operation", "state"],
                "Records in the store, every 15 s: claimed, processing and unknown ones are counted, others of a large \
                 store are estimated.",
            ),
            gauge(
                "idempotency_oldest_seconds",
                &["state"],
                "Time since the oldest claimed, processing or unknown record entered its state; 0 without one.",
            ),
            gauge(
                "idempotency_census_timestamp_seconds",
                &[],
                "UNIX time at which records were last counted.",
            ),
            gauge("idempotency_stored_bytes", &[], "Size of the store's data."),
            counter(
                "idempotency_swept_total",
                &["operation", "state"],
                "Records whose lease or start deadline had expired, by the state that they got.",
            ),
            counter("idempotency_reaped_total", &[], "Expired records that were removed."),
            gauge(
                "idempotency_reap_lag_seconds",
                &[],
                "Time since the reaper last finished; it rises while the reaper hangs.",
            ),
            gauge("idempotency_holds", &["kind"], "Holds in force: operation, tenant, sink, reconciler."),
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
        source: "Depth and age are recorded by the gateway, and by the worker that delivers; the rest only by that \
                 worker, in a service that uses the library.",
        metrics: &[
            gauge("outbox_pending", &[], "Messages that are not delivered yet."),
            gauge("outbox_dead", &[], "Messages that are no longer tried."),
            gauge(
                "outbox_oldest_seconds",
                &[],
                "Age of the oldest message that is not delivered yet; 0 without one.",
            ),
            counter("outbox_delivered_total", &["topic"], "Delivered messages, by kind."),
            counter("outbox_dead_total", &["topic"], "Messages that were given up, by kind."),
        ],
    },
    MetricGroup {
        title: "Process",
        source: "Recorded by the gateway.",
        metrics: &[
            gauge(
                "semel_build_info",
                &["version", "store"],
                "1, with the version of the program and the kind of its store.",
            ),
            counter("traces_exported_total", &[], "Spans that the receiver of traces took."),
            counter(
                "traces_dropped_total",
                &["reason"],
                "Spans that were lost: queue_full, refused, unreachable.",
            ),
        ],
    },
];

/// Values of labels that the gateway itself sets: their series begin with 0.
const VALUES: &[(&str, &str, &[&str])] = &[
    (
        "identity_tokens_refused_total",
        "check",
        &[
            "several_authorization_lines",
            "max_token",
            "form",
            "crit",
            "alg",
            "kid_unknown",
            "kid_missing",
            "signature",
            "iss",
            "aud",
            "times",
            "exp",
            "nbf_or_iat",
            "tenant_claim",
            "caller_claim",
        ],
    ),
    ("identity_keys_read_total", "outcome", &["read", "failed"]),
    (
        "identity_certificates_refused_total",
        "check",
        &["ended", "withdrawn", "malformed", "missing", "several", "form", "name"],
    ),
    ("introspections_total", "outcome", &["known", "remembered", "refused", "unavailable"]),
    ("authorizations_total", "outcome", &["allowed", "remembered", "denied", "unavailable"]),
    ("tls_handshakes_total", "listener", &["clients", "admin"]),
    ("tls_handshakes_total", "outcome", &["done", "failed", "timed_out"]),
    ("tls_reloads_total", "table", &["tls", "admin_tls", "upstream_tls"]),
    ("tls_reloads_total", "outcome", &["done", "failed"]),
    ("upstream_failures_total", "kind", &["not_sent", "broke_off", "timed_out"]),
    ("idempotency_ledger_runs_total", "outcome", &["agree", "differ", "failed"]),
];

/// Registers every counter that the gateway itself records with 0, for these operations.
pub(super) fn begin(operations: &[String]) {
    for metric in METRICS.iter().flat_map(|group| group.metrics) {
        if metric.kind == MetricKind::Counter {
            label_sets(metric, operations).into_iter().for_each(|labels| {
                metrics::counter!(metric.name, labels).increment(0);
            });
        }
    }
}

/// Returns every combination of known values of a metric's labels; none if the values of one are not known.
fn label_sets(metric: &MetricInfo, operations: &[String]) -> Vec<Vec<Label>> {
    let values = |label: &str| -> Vec<String> {
        if label == "operation" {
            return operations.to_vec();
        }
        let known = VALUES.iter().find(|(name, of, _)| *name == metric.name && *of == label);
        known.map_or(Vec::new(), |(.., values)| values.iter().map(|value| (*value).to_owned()).collect())
    };
    metric.labels.iter().fold(vec![Vec::new()], |sets, label| {
        let values = values(label);
        let with = |set: &Vec<Label>, value: &String| {
            let mut set = set.clone();
            set.push(Label::new(*label, value.clone()));
            set
        };
        sets.iter().flat_map(|set| values.iter().map(move |value| with(set, value))).collect()
    })
}

/// Returns the metrics that have no series yet, as text of the format of Prometheus: their help and their type.
pub(crate) fn without_series(rendered: &str) -> String {
    let known: HashSet<&str> =
        rendered.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let metrics = METRICS.iter().flat_map(|group| group.metrics);
    metrics
        .filter(|metric| !known.contains(metric.name))
        .map(|MetricInfo { name, kind, help, .. }| {
            format!("# HELP {name} {help}\n# TYPE {name} {}\n\n", kind.as_str())
        })
        .collect()
}

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

    #[test]
    fn the_history_of_the_console_reads_metrics_and_labels_that_exist() {
        use semel_operations::admin::history::{GAUGE_SOURCES, SOURCES};
        let rates = SOURCES.iter().map(|source| (source.metric, source.label, MetricKind::Counter));
        let levels = GAUGE_SOURCES.iter().map(|(_, metric, label)| (*metric, *label, MetricKind::Gauge));
        for (name, label, kind) in rates.chain(levels) {
            let known = METRICS.iter().flat_map(|group| group.metrics).find(|metric| metric.name == name);
            let known = known.unwrap_or_else(|| panic!("there is no metric {name}"));
            assert_eq!(known.kind, kind, "{name}");
            assert!(label.is_none_or(|(label, _)| known.labels.contains(&label)), "{name}: {label:?}");
            let outcome = label.filter(|(label, _)| *label == "outcome").map(|(_, outcome)| outcome);
            assert!(outcome.is_none_or(|outcome| known.help.contains(outcome)), "{name}: {outcome:?}");
        }
    }
}
