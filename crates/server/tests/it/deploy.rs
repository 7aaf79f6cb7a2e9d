//! Alerting rules and dashboard in `deploy/`: every query reads metrics that a gateway shows, with labels that they have.

mod promql;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use prometheus_parse::Scrape;
use semel_server::telemetry::{METRICS, MetricInfo, MetricKind};
use serde_json::Value;

use crate::gateway::lab::{Gateway, Site, Upstream, lab};
use crate::snapshot::root;
use promql::MetricSelector;

/// Variable with the path of promtool; `cargo xtask test` sets it.
const PROMTOOL: &str = "SEMEL_TEST_PROMTOOL";
/// Metrics of Prometheus itself.
const OWN: [&str; 1] = ["up"];
/// Labels that Prometheus gives each target.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];
/// Label of a histogram's buckets.
const BUCKET_LABEL: &str = "le";
/// Rows of the dashboard.
const ROWS: [&str; 6] = ["Overview", "Operations", "Unknowns", "Store", "Outbox", "Callers"];
/// Width of a dashboard in Grafana.
const WIDTH: u64 = 24;

/// A gateway whose metrics have a series for each label that comes from its settings.
const SETTINGS: &str = r#"
[[operation]]
name = "payments.create"
match = "POST /payments"

[operation.reconcile]
url = "http://127.0.0.1:9/charges?reference={operation_id}"
reference = "/reference"

[[webhook]]
name = "provider"
secret_env = "WEBHOOK_SECRET"
operations = ["payments.create"]
event_id = "/id"
operation_id = "/reference"
verdict = "/type"
executed = ["charge.captured"]
response_status = 201

[ledger]
theirs = "theirs.csv"
their_reference = "id"
"#;

/// A query, with the name of its rule or panel.
struct NamedQuery {
    place: String,
    text: String,
}

/// Metrics and labels that a gateway shows at `/metrics`.
struct Exposition {
    text: String,
    scrape: Scrape,
}

impl Exposition {
    async fn of(gateway: &Gateway) -> Exposition {
        let body = gateway.admin("/metrics").await.body;
        let text = String::from_utf8(body.to_vec()).expect("it is text");
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        Exposition { scrape: Scrape::parse(lines).expect("it parses"), text }
    }

    fn has(&self, metric: &str) -> bool {
        self.text.contains(&format!("# TYPE {metric} "))
    }

    fn has_value(&self, metric: &str, label: &str, value: &str) -> bool {
        let samples = &self.scrape.samples;
        samples.iter().any(|sample| sample.metric == metric && sample.labels.get(label) == Some(value))
    }
}

/// Returns a file of `deploy/`.
fn file(name: &str) -> String {
    std::fs::read_to_string(root().join("deploy").join(name)).expect("it is in the repository")
}

/// Returns the rules of the file of alerts. Each has its query in a block below `expr: |`.
fn rules() -> Vec<NamedQuery> {
    let text = file("prometheus/alerts.yml");
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut rules: Vec<NamedQuery> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let name = ["- alert: ", "- record: "].iter().find_map(|start| line.trim().strip_prefix(start));
        if let Some(name) = name {
            rules.push(NamedQuery { place: name.to_owned(), text: String::new() });
        } else if line.trim() == "expr: |" {
            let rule = rules.last_mut().expect("a query is in a rule");
            while let Some(query) = lines.next_if(|query| indentation(query) > indentation(line)) {
                rule.text.push_str(query);
                rule.text.push('\n');
            }
        }
    }
    assert!(rules.len() > 30, "the rules can be read");
    rules
}

fn dashboard() -> Value {
    serde_json::from_str(&file("grafana/semel.json")).expect("it is JSON")
}

fn array<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the panels of the dashboard, those of collapsed rows included.
fn panels(dashboard: &Value) -> Vec<&Value> {
    array(dashboard, "panels")
        .iter()
        .flat_map(|panel| [panel].into_iter().chain(array(panel, "panels")))
        .collect()
}

/// Returns the queries of panels and variables.
fn dashboard_queries(dashboard: &Value) -> Vec<NamedQuery> {
    let title = |panel: &Value| panel["title"].as_str().unwrap_or_default().to_owned();
    let text = |value: &Value| value.as_str().expect("a query is a text").to_owned();
    let of_panels = panels(dashboard).into_iter().flat_map(|panel| {
        array(panel, "targets")
            .iter()
            .map(move |target| NamedQuery { place: title(panel), text: text(&target["expr"]) })
    });
    let variables = array(&dashboard["templating"], "list").iter();
    let of_variables = variables.filter(|variable| variable["type"] == "query").map(|variable| {
        let query = text(&variable["query"]["query"]);
        // label_values(METRIC, LABEL) lists the values of a label.
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (metric, label) = inside.and_then(|inside| inside.rsplit_once(", ")).expect("it lists values");
        NamedQuery { place: text(&variable["name"]), text: format!("count by ({label}) ({metric})") }
    });
    of_panels.chain(of_variables).collect()
}

fn every_query() -> Vec<NamedQuery> {
    let mut queries = rules();
    queries.extend(dashboard_queries(&dashboard()));
    queries
}

/// Returns the metric that a query means; a histogram is queried by its buckets, its sum or its count.
fn metric(name: &str) -> Option<&'static MetricInfo> {
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    METRICS.iter().flat_map(|group| group.metrics).find(|metric| match metric.kind {
        MetricKind::Histogram => base == Some(metric.name),
        MetricKind::Counter | MetricKind::Gauge => metric.name == name,
    })
}

/// Returns everything that is wrong with a metric in a query.
fn faults(selector: &MetricSelector, exposition: &Exposition) -> Vec<String> {
    let Some(metric) = metric(&selector.name) else {
        return vec![format!("{} is no metric of the table", selector.name)];
    };
    if !exposition.has(metric.name) {
        return vec![format!("{} is not at /metrics", metric.name)];
    }
    let mut faults = Vec::new();
    for matcher in &selector.matchers {
        let label = &*matcher.label;
        if TARGET_LABELS.contains(&label) {
            continue;
        }
        if !metric.labels.contains(&label) {
            faults.push(format!("{} has no label {label}", metric.name));
        } else if matcher.operator.starts_with('=') && !matcher.value.contains('$') {
            // Alternatives are the only pattern in use.
            let absent =
                matcher.value.split('|').filter(|value| !exposition.has_value(metric.name, label, value));
            faults.extend(
                absent.map(|value| format!("{} is never shown with {label}=\"{value}\"", metric.name)),
            );
        }
    }
    faults
}

#[tokio::test]
async fn every_query_reads_metrics_that_a_gateway_shows_from_its_start() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let secret = [("WEBHOOK_SECRET", "a secret of more than 32 characters, for signatures")];
    let gateway = site.start_in(upstream.address, SETTINGS, &[], &secret);
    // The gauges of records come with the first census.
    while gateway.counted("idempotency_stored_bytes ").await.is_none_or(|bytes| bytes == 0) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let exposition = Exposition::of(&gateway).await;
    let recorded: BTreeSet<String> =
        rules().into_iter().map(|rule| rule.place).filter(|name| name.contains(':')).collect();
    let mut found = Vec::new();
    for NamedQuery { place, text } in every_query() {
        let selectors = promql::read(&text).selectors;
        assert!(!selectors.is_empty(), "{place} reads no metric: {text:?}");
        let of_semel = selectors
            .iter()
            .filter(|selector| !OWN.contains(&&*selector.name) && !recorded.contains(&selector.name));
        let faults = of_semel.flat_map(|selector| faults(selector, &exposition));
        found.extend(faults.map(|fault| format!("{place}: {fault}")));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_query_groups_by_labels_of_its_metrics() {
    for NamedQuery { place, text } in every_query() {
        let query = promql::read(&text);
        let metrics = query.selectors.iter().filter_map(|selector| metric(&selector.name));
        let of_metrics: BTreeSet<&str> = metrics.flat_map(|metric| metric.labels.iter().copied()).collect();
        let has_buckets = query.selectors.iter().any(|selector| selector.name.ends_with("_bucket"));
        for label in &query.grouping {
            let is_known = TARGET_LABELS.contains(&&**label) || (has_buckets && label == BUCKET_LABEL);
            assert!(
                is_known || of_metrics.contains(&**label),
                "{place}: no metric has the label {label}: {text}"
            );
        }
    }
}

#[test]
fn every_panel_of_the_dashboard_says_what_it_shows() {
    let dashboard = dashboard();
    let rows: Vec<&str> = array(&dashboard, "panels")
        .iter()
        .filter(|panel| panel["type"] == "row")
        .filter_map(|row| row["title"].as_str())
        .collect();
    assert_eq!(rows, ROWS);
    let mut ids = BTreeSet::new();
    let mut titles = BTreeSet::new();
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64().expect("a panel has an id")), "an id is used twice: {panel}");
        for member in ["title", "description"] {
            assert!(panel[member].as_str().is_some_and(|text| !text.is_empty()), "no {member}: {panel}");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(titles.insert(panel["title"].as_str()), "a title is used twice: {panel}");
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        assert!(unit.as_str().is_some_and(|unit| !unit.is_empty()), "no unit: {panel}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "a data source of one installation: {panel}");
        assert!(!array(panel, "targets").is_empty(), "no query: {panel}");
    }
}

#[test]
fn panels_of_the_dashboard_do_not_overlap() {
    let dashboard = dashboard();
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        let place = |member: &str| panel["gridPos"][member].as_u64().expect("a panel has a place");
        let (left, top, width, height) = (place("x"), place("y"), place("w"), place("h"));
        assert!(left + width <= WIDTH, "wider than the page: {panel}");
        for (x, y) in (left..left + width).flat_map(|x| (top..top + height).map(move |y| (x, y))) {
            assert!(taken.insert((x, y)), "another panel is there: {panel}");
        }
    }
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_metrics_of_a_gateway() {
    let promtool = std::env::var_os(PROMTOOL);
    let advice = || panic!("{PROMTOOL} is not set: `cargo xtask prometheus` says where promtool is");
    let (_site, _upstream, gateway) = lab(&[]).await;
    let exposition = Exposition::of(&gateway).await;
    let mut check = Command::new(promtool.unwrap_or_else(advice))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    check.stdin.take().expect("it is piped").write_all(exposition.text.as_bytes()).expect("promtool reads");
    let checked = check.wait_with_output().expect("promtool ends");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
