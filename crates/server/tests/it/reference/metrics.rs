//! `metrics.md`: every metric, from `semel_server::telemetry::METRICS`, which is itself compared with the sources.

use std::collections::BTreeMap;

use regex::Regex;
use semel_server::telemetry::{METRICS, MetricGroup, MetricInfo};

use super::markdown::{cell, code, codes, table};
use super::{assert_page, sources};
use crate::snapshot::root;

const HEAD: &str = "\
# Metrics

Every metric at `/metrics` of the admin listener, in the text format of Prometheus. [Monitor](../how-to/monitor.md) says what to alert
on. Commands without a rule share the operation `unmatched`. The first 100 tenants and topics each have labels of their
own, the rest is `other`. No label carries a key, a path or a body. Every metric has its help from the start, and every series whose
labels are known begins with 0.
";

/// File of the table itself, which records nothing.
const TABLE: &str = "server/src/telemetry/metrics.rs";

fn section(group: &MetricGroup) -> String {
    let row = |metric: &MetricInfo| {
        [
            code(metric.name),
            metric.kind.as_str().to_owned(),
            codes(metric.labels.iter().copied()),
            cell(metric.help),
        ]
    };
    let table = table(["metric", "type", "labels", "meaning"], group.metrics.iter().map(row));
    format!("\n## {}\n\n{}\n\n{table}", group.title, group.source)
}

#[test]
fn the_page_of_metrics_lists_every_metric() {
    assert_page("metrics.md", &format!("{HEAD}{}", METRICS.iter().map(section).collect::<String>()));
}

/// Returns the text up to the parenthesis that closes the open one before it.
fn inside(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    &text[..end.expect("a macro's call ends")]
}

/// Returns the kind and the labels of each metric in the sources, by its name.
fn recorded() -> BTreeMap<String, (String, Vec<String>)> {
    let mut paths = Vec::new();
    for member in std::fs::read_dir(root().join("crates")).expect("the crates are there") {
        paths.extend(sources(&member.expect("it can be listed").path().join("src")));
    }
    paths.retain(|path| !path.ends_with(TABLE));
    let call = Regex::new(r"\b(counter|gauge|histogram)!\(").expect("it is a pattern");
    let label = Regex::new(r#""(\w+)"\s*=>"#).expect("it is a pattern");
    let mut metrics = BTreeMap::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("it was listed");
        for found in call.captures_iter(&text) {
            let start = found.get(0).expect("it is the whole").end();
            let arguments = inside(&text[start..]);
            let name = arguments.split(',').next().expect("it has a name").trim();
            let name = match name.strip_prefix('"') {
                Some(literal) => literal.trim_end_matches('"').to_owned(),
                None => {
                    let named =
                        Regex::new(&format!(r#"\b{name}(?:: &str)? = "(\w+)""#)).expect("it is a pattern");
                    let named = named.captures(&text);
                    named.unwrap_or_else(|| panic!("{}: the value of {name}", path.display()))[1].to_owned()
                }
            };
            let labels = label.captures_iter(arguments).map(|label| label[1].to_owned()).collect();
            let metric = (found[1].to_owned(), labels);
            let known = metrics.entry(name.clone()).or_insert_with(|| metric.clone());
            assert_eq!(*known, metric, "{name} is recorded in two ways");
        }
    }
    metrics
}

#[test]
fn the_table_of_metrics_lists_exactly_the_metrics_in_the_sources() {
    let listed = METRICS.iter().flat_map(|group| group.metrics).map(|metric| {
        let labels = metric.labels.iter().map(|label| (*label).to_owned()).collect();
        (metric.name.to_owned(), (metric.kind.as_str().to_owned(), labels))
    });
    let listed: BTreeMap<String, (String, Vec<String>)> = listed.collect();
    let recorded = recorded();
    assert!(recorded.len() > 30, "the sources can be read");
    assert_eq!(listed, recorded);
}
