//! The count of commands that become unknown here: by the end of a lease that a call carried out, or because a run gave them up.

use semel_core::{Lapse, Reason, StateName, StoreAnswer};

/// Counts a command that a store call made unknown, unless it was unknown before. `given_up` is the reason for which its run gave
/// it up, if it did.
pub(crate) fn observe(answer: &StoreAnswer, given_up: Option<Reason>) {
    let Some(record) = &answer.record else { return };
    let reason = record.head.reason;
    let is_new = answer.lapse == Some(Lapse::Lease) || given_up == Some(reason);
    if is_new && record.head.state.name() == StateName::Unknown {
        let operation = record.operation.as_str().to_owned();
        let cause = reason.as_str();
        metrics::counter!("idempotency_unknown_total", "operation" => operation, "cause" => cause)
            .increment(1);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use semel_core::{Change, Decision, Event, Record, Timestamp, transition};
    use semel_testkit::sample;

    use super::*;

    #[test]
    fn a_command_is_counted_when_it_becomes_unknown_and_not_again() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counted = recorder.handle();
        let (claim, now) = (sample::claim("key"), Timestamp::from_millis(0));
        let write = transition(None, &Event::Claim(claim.attempt), now).write;
        let running = Record::after(None, write, Some(&claim), None, now).expect("it is made");
        let abandon = Change::abandon(running.head.fence(), Reason::TimedOut);
        let write = transition(Some(&running.head), abandon.event(), now).write;
        let unknown = Record::after(Some(&running), write, None, None, now).expect("it is kept");
        let answer = |record: &Record, lapse| {
            let (decision, record) = (Decision::Reconcile, Some(record.clone()));
            StoreAnswer { decision, record, now, holder: None, lapse }
        };
        metrics::with_local_recorder(&recorder, || {
            observe(&answer(&unknown, None), None);
            observe(&answer(&unknown, None), Some(Reason::Panicked));
            observe(&answer(&running, Some(Lapse::Lease)), None);
            observe(&answer(&unknown, Some(Lapse::Retention)), None);
        });
        assert!(!counted.render().contains("idempotency_unknown_total"), "it was unknown, or is not");
        metrics::with_local_recorder(&recorder, || {
            observe(&answer(&unknown, Some(Lapse::Lease)), None);
            observe(&answer(&unknown, None), Some(Reason::TimedOut));
        });
        let series = "idempotency_unknown_total{operation=\"payments.create\",cause=\"timed_out\"} 2";
        assert!(counted.render().lines().any(|line| line == series), "{}", counted.render());
    }
}
