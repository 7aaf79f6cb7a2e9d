//! The count of commands that become unknown here: by the end of a lease that a call carried out, because a run gave them up, or
//! because their message was given up. The label of an operation is the one that the layer in front has for it.

use semel_core::{AgedRecord, Change, OperationName, Reason, StoreAnswer};

/// Counts the command of an answer if its call made it unknown. `change` is the call's, if it was no claim.
pub(crate) fn observe(operation: &OperationName, answer: &StoreAnswer, change: Option<&Change>) {
    if let Some(cause) = answer.made_unknown(change) {
        count(operation, cause);
    }
}

/// Counts the commands that a sweep made unknown.
pub(crate) fn swept(records: &[AgedRecord]) {
    for record in records {
        if let Some(cause) = record.made_unknown() {
            count(&record.operation, cause);
        }
    }
}

/// Counts a command that became unknown for this reason.
pub(crate) fn count(operation: &OperationName, cause: Reason) {
    let (operation, cause) = (operation.label().to_owned(), cause.as_str());
    metrics::counter!("idempotency_unknown_total", "operation" => operation, "cause" => cause).increment(1);
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn operations_without_a_configured_name_share_a_label() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counted = recorder.handle();
        let named = OperationName::new("payments.create").expect("it is a name");
        metrics::with_local_recorder(&recorder, || {
            for operation in
                [&named, &OperationName::unmatched("POST", "/a"), &OperationName::unmatched("POST", "/b")]
            {
                count(operation, Reason::LeaseExpired);
            }
        });
        let text = counted.render();
        let mut series: Vec<&str> =
            text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        series.sort_unstable();
        assert_eq!(
            series,
            [
                r#"idempotency_unknown_total{operation="payments.create",cause="lease_expired"} 1"#,
                r#"idempotency_unknown_total{operation="unmatched",cause="lease_expired"} 2"#,
            ]
        );
    }
}
