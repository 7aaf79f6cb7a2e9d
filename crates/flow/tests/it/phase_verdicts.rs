//! Verdicts on commands in phases: each is about the open call, and committed phases stay.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use semel_core::transition::{Proof, Refusal};
use semel_core::{Change, Command, Decision, Reason, Record, StateName};
use semel_flow::outbox::RetryTerms;
use semel_flow::phases::{PhaseTerms, Phases};
use semel_flow::{Failure, Reply};

use crate::lab::{Kept, Saw, both, command, referring, saw, stored};
use crate::rides::{Act, Phased, Provider, RECEIPT, RIDE, Ride, Rides, resumed, until, written};

both!(
    evidence_about_the_whole_is_refused_and_gives_nothing_up,
    a_not_executed_verdict_repeats_the_open_call_and_no_other_phase,
    a_call_that_was_executed_is_followed_by_the_phases_after_it,
    a_verdict_counts_only_for_the_open_call_of_its_attempt,
    without_its_input_the_next_request_with_the_key_goes_on,
    a_command_that_was_given_up_with_no_call_open_is_resumed,
    a_final_failure_after_a_committed_phase_keeps_the_reference,
    a_final_failure_before_any_phase_gives_the_reference_back,
    a_claim_anew_takes_no_call_back,
);

const HOUR: Duration = Duration::from_secs(3600);

async fn start<D: Clone + Send + Sync + 'static>(phases: &Phases<D>, command: &Command) -> Saw {
    saw(&phases.start(command, "ride 7").await)
}

/// Returns a command of this key, for the one order of these tests.
fn order(key: &str) -> Command {
    referring(command(key), "order-7")
}

/// Writes a receipt with its message, then charges, then books the ride.
async fn receipt_first(mut run: impl Rides, what: Ride) -> Result<Reply, Failure> {
    let receipt = run.write("receipt_sent", RECEIPT, what.clone(), "in the receipt").await?;
    let charge = run.charge("charge_created", what.clone()).await?;
    let ride = run.write("ride_created", RIDE, what, "in the ride").await?;
    Ok(Reply::new(StatusCode::CREATED).body(format!("{receipt}, charge {charge}, {ride}")))
}

/// Returns rides whose receipt comes first, on the store of the lab.
fn receipts<L: Phased>(lab: &L, kept: &Kept, what: Ride) -> Phases<L::Transactions> {
    L::with(lab.none(kept.store()), PhaseTerms::default(), move |run, _| receipt_first(run, what.clone()))
}

async fn record(kept: &Kept, command: &Command) -> Record {
    until(kept, &command.scope.record_id(), |_| true).await
}

async fn apply(kept: &Kept, record: &Record, change: &Change) -> Decision {
    kept.store().apply(&record.id, change).await.expect("the store answers").decision
}

async fn evidence_about_the_whole_is_refused_and_gives_nothing_up<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = receipts(&lab, &kept, Ride::new(&provider).once("before sending", || Act::Panic));
    let command = order("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    let open = record(&kept, &command).await;
    assert!(open.head.partly_done);
    let result = semel_core::StoredResult::of(&semel_core::Response::without_body(
        StatusCode::CREATED,
        &http::HeaderMap::new(),
    ));
    for verdict in [
        Change::resolve_not_executed(Proof::ProviderTombstone),
        Change::resolve_not_executed(Proof::ProviderDeduplicates),
        Change::resolve_executed(result),
    ] {
        assert_eq!(apply(&kept, &open, &verdict).await, Decision::Refused(Refusal::InPhases));
    }
    assert_eq!(apply(&kept, &open, &Change::free()).await, Decision::Refused(Refusal::WrongState));
    assert_eq!(kept.outbox().depth().await.expect("it answers").pending, 1, "the message stays");
    assert_eq!(start(&rides, &order("other")).await, Saw::Decided(Decision::Duplicate));
    assert_eq!(lab.number("SELECT count(*) FROM semel_requests").await, 1, "its input is kept");
    assert_eq!((written(&lab).await, provider.counts()), ((0, 1, 1), (0, 0)));
}

async fn a_not_executed_verdict_repeats_the_open_call_and_no_other_phase<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = receipts(&lab, &kept, Ride::new(&provider).once("before sending", || Act::Panic));
    let command = order("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    let open = record(&kept, &command).await;
    let late = Change::resolve_call_not_executed(open.head.epoch, "charge_created", Proof::Quarantine);
    let early = apply(&kept, &open, &late).await;
    assert!(matches!(early, Decision::Refused(Refusal::StillInFlight { .. })), "{early:?}");
    kept.shift_clock(open.head.terms.quarantine);
    assert_eq!(apply(&kept, &open, &late).await, Decision::Applied);
    let waits = record(&kept, &command).await;
    assert_eq!((waits.head.state.name(), waits.head.epoch), (StateName::Claimed, open.head.epoch + 1));
    let done = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    let expected = "receipt_sent by attempt 1, charge 1, ride_created by attempt 2";
    assert_eq!(stored(&done), (201, Bytes::from(expected)));
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
    assert_eq!(start(&rides, &order("other")).await, Saw::Decided(Decision::Duplicate));
    assert_eq!(lab.number("SELECT count(*) FROM semel_requests").await, 0, "its input is erased");
}

async fn a_call_that_was_executed_is_followed_by_the_phases_after_it<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = receipts(&lab, &kept, Ride::new(&provider).once("after sending", || Act::Panic));
    let command = order("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    let open = record(&kept, &command).await;
    assert!(
        Change::resolve_call_executed(open.head.epoch, "charge_created", Bytes::from_static(b"{")).is_err()
    );
    let executed = Change::resolve_call_executed(open.head.epoch, "charge_created", Bytes::from_static(b"1"));
    assert_eq!(apply(&kept, &open, &executed.expect("it is JSON")).await, Decision::Applied);
    let done = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    let expected = "receipt_sent by attempt 1, charge 1, ride_created by attempt 2";
    assert_eq!(stored(&done), (201, Bytes::from(expected)));
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)), "it is not called again");
}

async fn a_verdict_counts_only_for_the_open_call_of_its_attempt<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = receipts(&lab, &kept, Ride::new(&provider).once("after sending", || Act::Panic));
    let command = order("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    let open = record(&kept, &command).await;
    let said = |epoch, phase: &str| {
        Change::resolve_call_executed(epoch, phase, Bytes::from_static(b"1")).expect("it is JSON")
    };
    let epoch = open.head.epoch;
    let other_attempt = apply(&kept, &open, &said(epoch + 1, "charge_created")).await;
    assert_eq!(other_attempt, Decision::Refused(Refusal::OtherAttempt { epoch }));
    for phase in ["receipt_sent", "ride_created", "nothing"] {
        let refused = apply(&kept, &open, &said(epoch, phase)).await;
        assert_eq!(refused, Decision::Refused(Refusal::NotOpen), "{phase}");
    }
    assert_eq!(apply(&kept, &open, &Change::resume(epoch)).await, Decision::Refused(Refusal::NotOpen));
    assert_eq!(record(&kept, &command).await, open, "nothing changed");
    assert_eq!(apply(&kept, &open, &said(epoch, "charge_created")).await, Decision::Applied);
    let again = apply(&kept, &open, &said(epoch, "charge_created")).await;
    assert_eq!(again, Decision::Refused(Refusal::WrongState), "once is enough");
}

async fn without_its_input_the_next_request_with_the_key_goes_on<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = receipts(&lab, &kept, Ride::new(&provider).once("after sending", || Act::Panic));
    let command = order("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    lab.run("DELETE FROM semel_requests").await;
    let open = record(&kept, &command).await;
    let executed = Change::resolve_call_executed(open.head.epoch, "charge_created", Bytes::from_static(b"1"));
    assert_eq!(apply(&kept, &open, &executed.expect("it is JSON")).await, Decision::Applied);
    let free = record(&kept, &command).await;
    assert_eq!((free.head.state.name(), free.head.partly_done), (StateName::FailedRetryable, true));
    assert_eq!(apply(&kept, &free, &Change::free()).await, Decision::Refused(Refusal::PartlyDone));
    assert_eq!(start(&rides, &order("other")).await, Saw::Decided(Decision::Duplicate));
    // Long after any TTL: finished phases do not expire.
    kept.shift_clock(100 * 24 * HOUR);
    assert_eq!(kept.store().reap(9).await.expect("it reaps").len(), 0);
    let expected = "receipt_sent by attempt 1, charge 1, ride_created by attempt 3";
    assert_eq!(start(&rides, &command).await, Saw::Executed(201, expected.to_owned()));
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

async fn a_command_that_was_given_up_with_no_call_open_is_resumed<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(true).await, lab.kept().await);
    let at_once = Duration::from_millis(1);
    let retry = RetryTerms { max_attempts: 2, first_delay: at_once, max_delay: at_once };
    let terms = PhaseTerms { retry, ..PhaseTerms::default() };
    let script = |place: &str, attempt: u32| match (place, attempt) {
        ("after the ride", 1 | 2) => Act::Panic,
        _ => Act::Go,
    };
    let rides = lab.rides_under(kept.store(), terms, Ride::new(&provider).script(script));
    let command = order("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
    let left = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    assert_eq!((left.head.state.name(), left.head.reason), (StateName::Unknown, Reason::Panicked));
    assert_eq!(apply(&kept, &left, &Change::resume(left.head.epoch)).await, Decision::Applied);
    let done = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    assert_eq!(stored(&done).0, 201, "beyond its attempts, since somebody said so");
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

async fn a_final_failure_after_a_committed_phase_keeps_the_reference<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    provider.ledger().declines = true;
    let rides = lab.rides(kept.store(), Ride::new(&provider));
    assert_eq!(start(&rides, &order("key")).await, Saw::Executed(402, "declined".to_owned()));
    assert_eq!(start(&rides, &order("other")).await, Saw::Decided(Decision::Duplicate));
    assert_eq!(written(&lab).await, (1, 0, 0), "one ride for one order");
}

async fn a_final_failure_before_any_phase_gives_the_reference_back<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = lab.rides(kept.store(), Ride::new(&provider).once("in the ride", || Act::Refuse));
    assert_eq!(start(&rides, &order("key")).await, Saw::Executed(410, "no more rides".to_owned()));
    let refused_too = start(&rides, &order("other")).await;
    assert_eq!(refused_too, Saw::Executed(410, "no more rides".to_owned()), "nothing depends on it");
}

async fn a_claim_anew_takes_no_call_back<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = receipts(&lab, &kept, Ride::new(&provider).once("after sending", || Act::Panic));
    let command = order("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    // A released key proves nothing about the call, whatever released it.
    let expires = i64::MAX / 2;
    lab.run(&format!(
        "UPDATE semel_records SET state = 'failed_retryable', reason = 'claim_unconfirmed', expires_at = {expires}, \
         reconcile_after = NULL, attempts = NULL, quarantine_until = NULL"
    ))
    .await;
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    assert_eq!((written(&lab).await, provider.counts()), ((0, 1, 1), (1, 1)), "it is not called again");
}
