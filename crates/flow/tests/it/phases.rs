//! Commands in phases: their guarantees, on both databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use semel_core::{Command, Decision, Progress, Reason, Record, StateName, StepKind};
use semel_flow::outbox::RetryTerms;
use semel_flow::phases::{CompleterOptions, Deduplication, PhaseTerms, Phases};
use semel_flow::{Answered, Failure, Reply};
use semel_testkit::faulty::{Call, Fault, FaultyStore};

use crate::lab::{Gate, Kept, Saw, both, command, command_with, saw, stored};
use crate::rides::{Act, PLACES, Phased, Provider, RECEIPT, RIDE, Ride, Rides, resumed, until, written};

both!(
    a_ride_runs_once_and_its_retries_get_its_answer,
    a_ride_that_panics_at_any_step_is_charged_once,
    a_phase_that_is_done_is_not_run_again,
    a_call_without_deduplication_is_never_made_twice,
    a_call_that_is_deduplicated_is_made_again_under_the_same_key,
    a_declined_card_settles_the_ride_and_is_replayed,
    a_provider_that_is_down_is_called_when_it_is_up,
    a_retryable_failure_before_the_first_phase_rolls_back,
    a_final_failure_in_a_phase_is_returned_and_replayed,
    a_command_that_is_resumed_for_too_long_is_given_up,
    a_command_that_fails_too_often_is_given_up,
    a_command_whose_executors_vanish_before_they_begin_is_known_not_to_have_run,
    completers_race_and_each_command_is_run_once,
    inputs_that_cannot_be_read_hold_up_no_other_command,
    a_run_with_a_mistake_goes_nowhere,
    code_that_was_changed_goes_nowhere,
    a_call_that_asks_for_no_key_is_a_mistake,
    an_output_that_cannot_be_kept_is_refused,
    an_outcome_cannot_be_left_to_a_message,
    duplicates_wait_and_get_the_answer,
    an_unknown_operation_is_not_run,
    a_lease_is_renewed_while_a_phase_runs,
    an_executor_that_was_given_up_changes_nothing,
    code_that_stands_still_between_phases_is_ended,
    a_call_that_takes_too_long_is_unsure,
    a_dropped_call_ends_the_run_and_a_resumed_run_finishes_it,
    a_stopped_completer_finishes_its_running_command,
    a_client_that_leaves_cancels_nothing,
    an_unconfirmed_claim_is_in_doubt_and_freed_even_after_its_lease,
);

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) async fn start<D: Clone + Send + Sync + 'static>(phases: &Phases<D>, command: &Command) -> Saw {
    saw(&phases.start(command, "ride 7").await)
}

/// Returns a command with a key made of this text.
fn named(what: &str) -> Command {
    command(&what.replace(' ', "-"))
}

async fn steps(kept: &Kept, command: &Command) -> Vec<Progress> {
    let store = kept.store();
    let found = store.get(&command.scope.record_id()).await.expect("it can be read");
    let record = found.record.expect("there is a record");
    store.progress(record.operation_id).await.expect("it can be read")
}

fn names(steps: &[Progress]) -> Vec<&str> {
    steps.iter().map(|step| &*step.name).collect()
}

const ANSWER: &str = "ride 7: ride_created by attempt 1, charge 1, receipt_sent by attempt 1";

async fn a_ride_runs_once_and_its_retries_get_its_answer(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = lab.rides(kept.store(), Ride::new(&provider));
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::Executed(201, ANSWER.to_owned()));
    assert_eq!(start(&rides, &command).await, Saw::Replayed(201, ANSWER.to_owned()));
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
    let steps = steps(&kept, &command).await;
    assert_eq!(names(&steps), ["ride_created", "charge_created", "receipt_sent"]);
    assert!(steps.iter().all(|step| step.done_at.is_some_and(|done| done >= step.began_at)), "{steps:?}");
    let charged = StepKind::External { deduplicated: false, output: Some(Bytes::from_static(b"1")) };
    assert_eq!(steps[1].what, charged);
    let id = until(&kept, &command.scope.record_id(), |_| true).await.operation_id;
    assert_eq!(provider.ledger().calls, [format!("{id}:charge_created")]);
    assert_eq!(lab.number("SELECT count(*) FROM semel_requests").await, 0, "its input is erased");
}

async fn a_ride_that_panics_at_any_step_is_charged_once(lab: impl Phased) {
    for (number, place) in PLACES.into_iter().enumerate() {
        lab.run("DELETE FROM payments; DELETE FROM semel_outbox").await;
        let (provider, kept) = (Provider::start(true).await, lab.kept().await);
        let rides = lab.rides(kept.store(), Ride::new(&provider).once(place, || Act::Panic));
        let command = command(&format!("key-{number}"));
        let first = start(&rides, &command).await;
        if number < 2 {
            assert_eq!(first, Saw::RolledBack(500), "{place}: nothing had happened");
            assert!(start(&rides, &command).await.executed(), "{place}");
        } else {
            assert_eq!(first, Saw::Decided(Decision::Wait), "{place}: it is resumed");
            kept.shift_clock(HOUR);
            let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
            assert_eq!(record.head.state.name(), StateName::Succeeded, "{place}");
            let (status, body) = stored(&record);
            let body = String::from_utf8(body.to_vec()).expect("it is text");
            assert!(status == 201 && body.contains("ride_created by attempt 1"), "{place}: {body}");
            assert_eq!(start(&rides, &command).await, Saw::Replayed(201, body), "{place}");
        }
        assert_eq!(written(&lab).await, (1, 1, 1), "{place}");
        let calls = if place == "after sending" { 2 } else { 1 };
        assert_eq!(provider.counts(), (calls, 1), "{place}");
    }
}

async fn a_phase_that_is_done_is_not_run_again(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    // Every attempt gets one phase further.
    let script = |place: &str, attempt: u32| match (place, attempt) {
        ("after the ride", 1) | ("after the charge", 2) | ("after the receipt", 3) => Act::Retry,
        _ => Act::Go,
    };
    let rides = lab.rides(kept.store(), Ride::new(&provider).script(script));
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
    for epoch in 3..=4 {
        kept.shift_clock(HOUR);
        let options = CompleterOptions { poll: Duration::from_millis(10), ..CompleterOptions::default() };
        let completer = rides.completer(options);
        let stop = completer.stopper();
        let running = tokio::spawn(completer.run());
        until(&kept, &command.scope.record_id(), |record| record.head.epoch == epoch).await;
        stop.stop();
        running.await.expect("it ends");
    }
    kept.shift_clock(HOUR);
    let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    let expected = "ride 7: ride_created by attempt 1, charge 1, receipt_sent by attempt 3";
    assert_eq!((stored(&record), record.head.epoch), ((201, Bytes::from(expected)), 4));
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

/// Fault injected into a call.
type Way = fn(&Provider, Ride) -> Ride;

async fn a_call_without_deduplication_is_never_made_twice(lab: impl Phased) {
    let ways: [(&str, Way, usize); 3] = [
        ("it panics before", |_, ride| ride.once("before sending", || Act::Panic), 0),
        ("it panics after", |_, ride| ride.once("after sending", || Act::Panic), 1),
        (
            "it answers 500",
            |provider, ride| {
                provider.ledger().breaks = true;
                ride
            },
            1,
        ),
    ];
    for (number, (way, change, charges)) in ways.into_iter().enumerate() {
        let (provider, kept) = (Provider::start(false).await, lab.kept().await);
        let rides = lab.rides(kept.store(), change(&provider, Ride::new(&provider)));
        let command = command(&format!("key-{number}"));
        assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile), "{way}");
        assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile), "{way}: and stays so");
        assert_eq!(provider.counts().1, charges, "{way}");
        let steps = steps(&kept, &command).await;
        assert_eq!(names(&steps), ["ride_created", "charge_created"], "{way}");
        let begun = StepKind::External { deduplicated: false, output: None };
        assert_eq!((&steps[1].what, steps[1].done_at), (&begun, None), "{way}");
    }
    assert_eq!(written(&lab).await, (3, 0, 0));
}

async fn a_call_that_is_deduplicated_is_made_again_under_the_same_key(lab: impl Phased) {
    let (provider, kept) = (Provider::start(true).await, lab.kept().await);
    provider.ledger().breaks = true;
    let rides = lab.rides(kept.store(), Ride::new(&provider));
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
    provider.ledger().breaks = false;
    kept.shift_clock(HOUR);
    let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    assert_eq!(stored(&record).0, 201);
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (2, 1)));
    let calls = provider.ledger().calls.clone();
    assert_eq!(calls[0], calls[1]);
}

async fn a_declined_card_settles_the_ride_and_is_replayed(lab: impl Phased) {
    for deduplicates in [false, true] {
        let (provider, kept) = (Provider::start(deduplicates).await, lab.kept().await);
        provider.ledger().declines = true;
        let rides = lab.rides(kept.store(), Ride::new(&provider));
        let command = command(&format!("key-{deduplicates}"));
        assert_eq!(start(&rides, &command).await, Saw::Executed(402, "declined".to_owned()));
        assert_eq!(start(&rides, &command).await, Saw::Replayed(402, "declined".to_owned()));
        assert_eq!(provider.counts(), (1, 0));
        let record = until(&kept, &command.scope.record_id(), |_| true).await;
        assert_eq!(record.head.state.name(), StateName::FailedFinal);
    }
    assert_eq!(written(&lab).await, (2, 0, 0), "what was done before stays");
}

async fn a_provider_that_is_down_is_called_when_it_is_up(lab: impl Phased) {
    for deduplicates in [false, true] {
        lab.run("DELETE FROM payments; DELETE FROM semel_outbox").await;
        let (provider, kept) = (Provider::down(deduplicates).await, lab.kept().await);
        let rides = lab.rides(kept.store(), Ride::new(&provider));
        let command = command(&format!("key-{deduplicates}"));
        assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
        assert_eq!(names(&steps(&kept, &command).await), ["ride_created"], "the call is taken back");
        provider.up().await;
        kept.shift_clock(HOUR);
        let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
        assert_eq!(stored(&record).0, 201);
        assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
    }
}

async fn a_retryable_failure_before_the_first_phase_rolls_back(lab: impl Phased) {
    let (provider, kept) = (Provider::start(true).await, lab.kept().await);
    let rides = lab.rides(kept.store(), Ride::new(&provider).once("in the ride", || Act::Retry));
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::RolledBack(503));
    assert_eq!(written(&lab).await, (0, 0, 0));
    let again = start(&rides, &command).await;
    assert!(again.executed(), "the client may send it again: {again:?}");
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

async fn a_final_failure_in_a_phase_is_returned_and_replayed(lab: impl Phased) {
    for (place, rides_written) in [("in the ride", 0), ("in the receipt", 1), ("after the receipt", 1)] {
        lab.run("DELETE FROM payments; DELETE FROM semel_outbox").await;
        let (provider, kept) = (Provider::start(true).await, lab.kept().await);
        let rides = lab.rides(kept.store(), Ride::new(&provider).once(place, || Act::Refuse));
        let command = named(place);
        assert_eq!(start(&rides, &command).await, Saw::Executed(410, "no more rides".to_owned()));
        assert_eq!(start(&rides, &command).await, Saw::Replayed(410, "no more rides".to_owned()));
        let receipts = i64::from(place == "after the receipt");
        assert_eq!(written(&lab).await, (rides_written, receipts, receipts), "{place}");
    }
}

async fn a_command_that_is_resumed_for_too_long_is_given_up(lab: impl Phased) {
    let (provider, kept) = (Provider::down(true).await, lab.kept().await);
    let terms = PhaseTerms { resume_for: HOUR, ..PhaseTerms::default() };
    let rides = lab.rides_under(kept.store(), terms, Ride::new(&provider));
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
    kept.shift_clock(2 * HOUR);
    let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    assert_eq!((record.head.state.name(), record.head.reason), (StateName::Unknown, Reason::NeverStarted));
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile));
    assert_eq!((written(&lab).await, provider.counts()), ((1, 0, 0), (0, 0)));
}

async fn a_command_that_fails_too_often_is_given_up(lab: impl Phased) {
    let (provider, kept) = (Provider::start(true).await, lab.kept().await);
    let at_once = Duration::from_millis(1);
    let retry = RetryTerms { max_attempts: 4, first_delay: at_once, max_delay: at_once };
    let terms = PhaseTerms { retry, ..PhaseTerms::default() };
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let script = move |place: &str, _: u32| match place {
        "after the ride" => {
            counted.fetch_add(1, Ordering::SeqCst);
            Act::Panic
        }
        _ => Act::Go,
    };
    let rides = lab.rides_under(kept.store(), terms, Ride::new(&provider).script(script));
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
    let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    assert_eq!((record.head.state.name(), record.head.reason), (StateName::Unknown, Reason::Panicked));
    assert_eq!(attempts.load(Ordering::SeqCst), 4);
    assert_eq!((written(&lab).await, provider.counts()), ((1, 0, 0), (0, 0)));
}

async fn a_command_whose_executors_vanish_before_they_begin_is_known_not_to_have_run(lab: impl Phased) {
    let (provider, kept) = (Provider::start(true).await, lab.kept().await);
    let faulty = Arc::new(FaultyStore::new(kept.store()));
    let vanishing = lab.rides(faulty.clone(), Ride::new(&provider));
    faulty.script(|call| match call {
        Call::Claim => Some(Fault::AnswerLost),
        Call::Apply | Call::Renew => Some(Fault::Unavailable),
        Call::Other => None,
    });
    let command = command("key");
    assert_eq!(start(&vanishing, &command).await, Saw::InDoubt);
    kept.shift_clock(command.policy.lease * 2);
    let retry = RetryTerms { max_attempts: 1, ..RetryTerms::default() };
    let terms = PhaseTerms { retry, ..PhaseTerms::default() };
    let rides = lab.rides_under(kept.store(), terms, Ride::new(&provider));
    let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
    let head = record.head;
    assert_eq!((head.state.name(), head.reason), (StateName::FailedRetryable, Reason::NotExecuted));
    assert!(!head.may_have_run());
    assert_eq!((written(&lab).await, provider.counts()), ((0, 0, 0), (0, 0)));
}

async fn completers_race_and_each_command_is_run_once(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let what = Ride::new(&provider).once("after the ride", || Act::Panic);
    let rides = lab.rides(kept.store(), what.clone());
    let commands: Vec<_> = (0..20).map(|number| command(&format!("key-{number}"))).collect();
    for command in &commands {
        assert_eq!(start(&rides, command).await, Saw::Decided(Decision::Wait));
    }
    kept.shift_clock(HOUR);
    let other = lab.second().await.rides(kept.store(), what);
    let options = CompleterOptions { poll: Duration::from_millis(3), ..CompleterOptions::default() };
    let completers = [rides.completer(options), other.completer(options), rides.completer(options)];
    let stops: Vec<_> = completers.iter().map(|completer| completer.stopper()).collect();
    let running: Vec<_> = completers.into_iter().map(|completer| tokio::spawn(completer.run())).collect();
    for command in &commands {
        let record = until(&kept, &command.scope.record_id(), |record| record.head.state.is_terminal()).await;
        assert_eq!((stored(&record).0, record.head.epoch), (201, 2), "one resumes it, once");
    }
    stops.iter().for_each(|stop| stop.stop());
    for running in running {
        assert_eq!(running.await.expect("it ends").left, 0);
    }
    assert_eq!((written(&lab).await, provider.counts()), ((20, 20, 20), (20, 20)));
}

async fn inputs_that_cannot_be_read_hold_up_no_other_command(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let rides = lab.rides(kept.store(), Ride::new(&provider).once("after the ride", || Act::Panic));
    let commands: Vec<_> = (0..12).map(|number| command(&format!("key-{number}"))).collect();
    for command in &commands[..11] {
        assert_eq!(start(&rides, command).await, Saw::Decided(Decision::Wait));
    }
    lab.run("UPDATE semel_requests SET format = 99").await;
    assert_eq!(start(&rides, &commands[11]).await, Saw::Decided(Decision::Wait));
    kept.shift_clock(HOUR);
    let options =
        CompleterOptions { concurrency: 2, poll: Duration::from_millis(10), ..CompleterOptions::default() };
    let completer = rides.completer(options);
    let stop = completer.stopper();
    let running = tokio::spawn(completer.run());
    let last = commands[11].scope.record_id();
    let record = until(&kept, &last, |record| record.head.state.is_terminal()).await;
    assert_eq!(stored(&record).0, 201);
    stop.stop();
    assert_eq!(running.await.expect("it ends").left, 0);
    assert_eq!((written(&lab).await, provider.counts()), ((12, 1, 1), (1, 1)), "the others wait");
}

/// Code of an operation with a mistake.
async fn mistaken(mut run: impl Rides, mistake: &str, what: Ride) -> Result<Reply, Failure> {
    run.write("ride_created", RIDE, what.clone(), "").await?;
    match mistake {
        "a name twice" => drop(run.write("ride_created", RECEIPT, what.clone(), "").await?),
        "a name for two kinds" => drop(run.charge("ride_created", what.clone()).await?),
        "a name that is none" => drop(run.charge("no name", what.clone()).await?),
        // The error is swallowed, and the run continues as if nothing had happened.
        "an error that is swallowed" => drop(run.charge("no name", what.clone()).await),
        mistake => panic!("nobody knows {mistake}"),
    }
    run.charge("charge_created", what.clone()).await?;
    Ok(Reply::new(StatusCode::CREATED))
}

async fn a_run_with_a_mistake_goes_nowhere<L: Phased>(lab: L) {
    let mistakes =
        ["a name twice", "a name for two kinds", "a name that is none", "an error that is swallowed"];
    for mistake in mistakes {
        lab.run("DELETE FROM payments").await;
        let (provider, kept) = (Provider::start(true).await, lab.kept().await);
        let what = Ride::new(&provider);
        let code = move |run, _| mistaken(run, mistake, what.clone());
        let rides = L::with(lab.none(kept.store()), PhaseTerms::default(), code);
        let command = named(mistake);
        assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile), "{mistake}");
        assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Reconcile), "{mistake}");
        assert_eq!((written(&lab).await, provider.counts()), ((1, 0, 0), (0, 0)), "{mistake}");
    }
}

/// Code of an operation after a change.
async fn changed(mut run: impl Rides, change: &str, what: Ride) -> Result<Reply, Failure> {
    match change {
        "another kind" => drop(run.charge("ride_created", what.clone()).await?),
        "another name" => drop(run.write("trip_created", RIDE, what.clone(), "").await?),
        "another order" => drop(run.charge("charge_created", what.clone()).await?),
        "fewer phases" => {}
        change => panic!("nobody knows {change}"),
    }
    Ok(Reply::new(StatusCode::CREATED))
}

async fn code_that_was_changed_goes_nowhere<L: Phased>(lab: L) {
    for change in ["another kind", "another name", "another order", "fewer phases"] {
        lab.run("DELETE FROM payments").await;
        let (provider, kept) = (Provider::start(true).await, lab.kept().await);
        let what = Ride::new(&provider);
        let before = lab.rides(kept.store(), what.clone().once("after the ride", || Act::Panic));
        let command = named(change);
        assert_eq!(start(&before, &command).await, Saw::Decided(Decision::Wait));
        kept.shift_clock(HOUR);
        let code = move |run, _| changed(run, change, what.clone());
        let after = L::with(lab.none(kept.store()), PhaseTerms::default(), code);
        let record = resumed(&[&after], &kept, &command.scope.record_id()).await;
        assert_eq!(
            (record.head.state.name(), record.head.reason),
            (StateName::Unknown, Reason::HandlerUnsure),
            "{change}"
        );
        assert_eq!((written(&lab).await, provider.counts()), ((1, 0, 0), (0, 0)), "{change}");
    }
}

async fn a_call_that_asks_for_no_key_is_a_mistake<L: Phased>(lab: L) {
    let kept = lab.kept().await;
    let code = |mut run: L::Run, _| async move {
        L::call(&mut run, "charge_created", Deduplication::ByKey, |_call| async { Ok(7) }).await?;
        Ok(Reply::new(StatusCode::CREATED))
    };
    let rides = L::with(lab.none(kept.store()), PhaseTerms::default(), code);
    assert_eq!(start(&rides, &command("key")).await, Saw::Decided(Decision::Reconcile));
}

async fn an_output_that_cannot_be_kept_is_refused<L: Phased>(lab: L) {
    let kept = lab.kept().await;
    let code = |mut run: L::Run, _| async move {
        L::output(&mut run, "ride_created", RIDE, "x".repeat(64 << 10)).await?;
        Ok(Reply::new(StatusCode::CREATED))
    };
    let rides = L::with(lab.none(kept.store()), PhaseTerms::default(), code);
    assert_eq!(start(&rides, &command("key")).await, Saw::RolledBack(500));
    assert_eq!(written(&lab).await, (0, 0, 0), "its transaction is rolled back");
}

async fn an_outcome_cannot_be_left_to_a_message<L: Phased>(lab: L) {
    let kept = lab.kept().await;
    let code = |_: L::Run, _| async move { Ok(Reply::new(StatusCode::ACCEPTED).deferred(HOUR)) };
    let rides = L::with(lab.none(kept.store()), PhaseTerms::default(), code);
    assert_eq!(start(&rides, &command("key")).await, Saw::Decided(Decision::Reconcile));
}

async fn duplicates_wait_and_get_the_answer(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let gate = Gate::new();
    let held = gate.clone();
    let what = Ride::new(&provider).once("before sending", move || Act::Wait(held.clone()));
    let rides = lab.rides(kept.store(), what);
    let first = tokio::spawn({
        let rides = rides.clone();
        async move { start(&rides, &command("key")).await }
    });
    gate.begun().await;
    let hasty = command_with("key", |policy| policy.wait = Duration::from_millis(1));
    let told = rides.start(&hasty, "ride 7").await;
    let semel_core::Transacted::Decided { decision: Decision::Wait, record: Some(record), .. } =
        told.outcome()
    else {
        panic!("it is in progress: {told:?}")
    };
    assert_eq!(record.head.epoch, 1, "and can be looked at");
    let patient: Vec<_> = (0..5)
        .map(|_| {
            let rides = rides.clone();
            tokio::spawn(async move { start(&rides, &command("key")).await })
        })
        .collect();
    gate.open();
    assert_eq!(first.await.expect("it ends"), Saw::Executed(201, ANSWER.to_owned()));
    for waiting in patient {
        assert_eq!(waiting.await.expect("it ends"), Saw::Replayed(201, ANSWER.to_owned()));
    }
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

async fn an_unknown_operation_is_not_run(lab: impl Phased) {
    let kept = lab.kept().await;
    assert_eq!(start(&lab.none(kept.store()), &command("key")).await, Saw::Unavailable);
    assert_eq!(lab.number("SELECT count(*) FROM semel_records").await, 0);
}

async fn a_lease_is_renewed_while_a_phase_runs(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let gate = Gate::new();
    let held = gate.clone();
    let what = Ride::new(&provider).once("after sending", move || Act::Wait(held.clone()));
    let rides = lab.rides(kept.store(), what);
    let short = command_with("key", |policy| policy.lease = Duration::from_millis(600));
    let first = tokio::spawn({
        let (rides, short) = (rides.clone(), short.clone());
        async move { start(&rides, &short).await }
    });
    gate.begun().await;
    // More renewals than one lease lasts.
    let renewed = |record: &semel_core::Record| {
        record.history.steps().any(|step| step.again.is_some_and(|(times, _)| times > 4))
    };
    until(&kept, &short.scope.record_id(), renewed).await;
    gate.open();
    assert_eq!(first.await.expect("it ends"), Saw::Executed(201, ANSWER.to_owned()));
}

async fn an_executor_that_was_given_up_changes_nothing(lab: impl Phased) {
    // Its answer arrives after another executor has resumed the command, and has continued.
    for place in ["after the ride", "before sending", "after sending", "after the charge"] {
        lab.run("DELETE FROM payments; DELETE FROM semel_outbox").await;
        let (provider, kept) = (Provider::start(true).await, lab.kept().await);
        let gate = Gate::new();
        let held = gate.clone();
        let rides =
            lab.rides(kept.store(), Ride::new(&provider).once(place, move || Act::Wait(held.clone())));
        let command = named(place);
        let first = tokio::spawn({
            let (rides, command) = (rides.clone(), command.clone());
            async move { start(&rides, &command).await }
        });
        gate.begun().await;
        kept.shift_clock(HOUR);
        let record = resumed(&[&rides], &kept, &command.scope.record_id()).await;
        assert_eq!((stored(&record).0, record.head.epoch), (201, 2), "{place}");
        gate.open();
        let body = String::from_utf8(stored(&record).1.to_vec()).expect("it is text");
        let told = first.await.expect("it ends");
        assert_eq!(told, Saw::Replayed(201, body), "{place}: the record's truth, not its own");
        assert_eq!(written(&lab).await, (1, 1, 1), "{place}");
        assert_eq!(provider.counts().1, 1, "{place}");
        assert_eq!(names(&steps(&kept, &command).await).len(), 3, "{place}");
    }
}

async fn code_that_stands_still_between_phases_is_ended(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let gate = Gate::new();
    let what = Ride::new(&provider).once("after the ride", move || Act::Wait(gate.clone()));
    let rides = lab.rides(kept.store(), what);
    let short = command_with("key", |policy| {
        policy.lease = Duration::from_millis(300);
        policy.timeout = Duration::from_millis(200);
    });
    assert_eq!(start(&rides, &short).await, Saw::Decided(Decision::Wait));
    let record = until(&kept, &short.scope.record_id(), |_| true).await;
    assert_eq!((record.head.reason, record.head.epoch), (Reason::TimedOut, 2));
}

async fn a_call_that_takes_too_long_is_unsure(lab: impl Phased) {
    for (deduplicates, state) in [(true, StateName::Claimed), (false, StateName::Unknown)] {
        let (provider, kept) = (Provider::start(deduplicates).await, lab.kept().await);
        let gate = Gate::new();
        let what = Ride::new(&provider).once("after sending", move || Act::Wait(gate.clone()));
        let rides = lab.rides(kept.store(), what);
        let short = command_with(&format!("key-{deduplicates}"), |policy| {
            policy.timeout = Duration::from_millis(500);
        });
        start(&rides, &short).await;
        let record = until(&kept, &short.scope.record_id(), |_| true).await;
        assert_eq!((record.head.state.name(), record.head.reason), (state, Reason::TimedOut));
        assert_eq!(provider.counts(), (1, 1));
    }
}

async fn a_dropped_call_ends_the_run_and_a_resumed_run_finishes_it<L: Phased>(lab: L) {
    let (provider, kept) = (Provider::start(true).await, lab.kept().await);
    let gate = Gate::new();
    let held = gate.clone();
    let what = Ride::new(&provider).once("after sending", move || Act::Wait(held.clone()));
    let code = move |mut run: L::Run, input: Bytes| {
        let (what, gate) = (what.clone(), gate.clone());
        async move {
            if run.number() == 1 {
                tokio::select! {
                    charged = run.charge("charge_created", what.clone()) => drop(charged?),
                    () = gate.begun() => {}
                }
                // The run continues as if the call had ended.
                run.write("receipt_sent", RECEIPT, what, "").await?;
                return Ok(Reply::new(StatusCode::CREATED));
            }
            let charge = run.charge("charge_created", what).await?;
            Ok(Reply::new(StatusCode::CREATED).body(format!("{input:?} {charge}")))
        }
    };
    let rides = L::with(lab.none(kept.store()), PhaseTerms::default(), code);
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
    assert_eq!(written(&lab).await, (0, 0, 0), "nothing comes after it");
    kept.shift_clock(HOUR);
    assert_eq!(stored(&resumed(&[&rides], &kept, &command.scope.record_id()).await).0, 201);
    assert_eq!(provider.counts().1, 1);
}

async fn a_stopped_completer_finishes_its_running_command(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let gate = Gate::new();
    let held = gate.clone();
    let script = move |place: &str, attempt: u32| match (place, attempt) {
        ("after the ride", 1) => Act::Panic,
        ("before sending", 2) => Act::Wait(held.clone()),
        _ => Act::Go,
    };
    let rides = lab.rides(kept.store(), Ride::new(&provider).script(script));
    let command = command("key");
    assert_eq!(start(&rides, &command).await, Saw::Decided(Decision::Wait));
    kept.shift_clock(HOUR);
    let completer = rides.completer(CompleterOptions::default());
    let stop = completer.stopper();
    let running = tokio::spawn(completer.run());
    gate.begun().await;
    stop.stop();
    gate.open();
    assert_eq!(running.await.expect("it ends").left, 0);
    let record = until(&kept, &command.scope.record_id(), |_| true).await;
    assert_eq!(record.head.state.name(), StateName::Succeeded);
}

async fn a_client_that_leaves_cancels_nothing(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let gate = Gate::new();
    let held = gate.clone();
    let what = Ride::new(&provider).once("after the ride", move || Act::Wait(held.clone()));
    let rides = lab.rides(kept.store(), what);
    let command = command("key");
    let first: tokio::task::JoinHandle<Answered> = tokio::spawn({
        let (rides, command) = (rides.clone(), command.clone());
        async move { rides.start(&command, "ride 7").await }
    });
    gate.begun().await;
    first.abort();
    assert!(first.await.is_err(), "nobody waits any more");
    gate.open();
    until(&kept, &command.scope.record_id(), |record| record.head.state.is_terminal()).await;
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

async fn an_unconfirmed_claim_is_in_doubt_and_freed_even_after_its_lease(lab: impl Phased) {
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let faulty = Arc::new(FaultyStore::new(kept.store()));
    let rides = lab.rides(faulty.clone(), Ride::new(&provider));
    let command = command("key");
    // The claim is made, and its answer lost. When it is released, its lease has just expired: a completer may take it.
    let (mut claims, mut changes, clock) = (0, 0, kept.clone());
    let lease = command.policy.lease;
    faulty.script(move |call| match call {
        Call::Claim => {
            claims += 1;
            (claims == 1).then_some(Fault::AnswerLost)
        }
        Call::Apply => {
            changes += 1;
            if changes == 1 {
                clock.shift_clock(lease * 2);
            }
            None
        }
        Call::Renew | Call::Other => None,
    });
    assert_eq!(start(&rides, &command).await, Saw::InDoubt);
    let is_free = |record: &Record| record.head.state.name() == StateName::FailedRetryable;
    let record = until(&kept, &command.scope.record_id(), is_free).await;
    assert_eq!(record.head.reason, Reason::ClaimUnconfirmed);
    assert_eq!((written(&lab).await, provider.counts()), ((0, 0, 0), (0, 0)));
    assert_eq!(start(&rides, &command).await, Saw::Executed(201, ANSWER.replace("attempt 1", "attempt 3")));
}
