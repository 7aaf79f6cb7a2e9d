//! Parser for the counters on a page of metrics.

use std::collections::BTreeMap;

use semel_checker::event::Sample;

/// Returns the counters of Semel on this page.
pub(crate) fn read(page: &str) -> Vec<Sample> {
    page.lines().filter_map(sample).filter(|sample| is_counter(&sample.name)).collect()
}

fn is_counter(name: &str) -> bool {
    name.starts_with("idempotency_") && name.ends_with("_total")
}

/// Parses `name{label="value",…} 12`, also without labels.
fn sample(line: &str) -> Option<Sample> {
    let (what, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match what.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}')?),
        None => (what, ""),
    };
    let mut read = BTreeMap::new();
    for label in labels.split("\",").filter(|label| !label.is_empty()) {
        let (name, value) = label.split_once("=\"")?;
        read.insert(name.to_owned(), value.trim_end_matches('"').to_owned());
    }
    Some(Sample { name: name.to_owned(), labels: read, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_with_their_labels() {
        let page = "# TYPE idempotency_claims_total counter\n\
                    idempotency_claims_total{operation=\"payments.create\",outcome=\"executed\"} 12\n\
                    idempotency_reaped_total 3\n\
                    idempotency_oldest_seconds{state=\"unknown\"} 1.5\n\
                    outbox_pending 4\n";
        let read = read(page);
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].value, read[0].labels["outcome"].as_str()), (12, "executed"));
        assert_eq!((read[1].value, read[1].labels.len()), (3, 0));
    }
}
