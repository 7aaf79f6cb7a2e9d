//! Metrics of the layer: each starts at zero, and moves when its event happens.

use std::time::Duration;

use semel_core::policy::OnExpired;
use semel_core::quota::{Allowance, Limits, Rate};
use semel_core::{Policy, Reason};
use semel_http::{Maintenance, Operation};

use crate::counted::Counted;
use crate::lab::{KEY, Lab, Send, pay};
use crate::later_lab::get;

const SECOND: Duration = Duration::from_secs(1);

fn another(number: usize) -> String {
    KEY.replace("0001", &format!("{number:04}"))
}

/// Returns a payment under another key.
fn pay_as(number: usize) -> Send {
    pay("{}").set("idempotency-key", another(number))
}

/// Starts a service with the operation `payments`, and without a memory for replays.
async fn lab(change: impl Fn(&mut Policy) + std::marker::Send + Sync + 'static) -> Lab {
    Lab::with(|builder| {
        builder.cache_bytes(0).operation(Operation::new("payments", "POST /payments").with(change))
    })
    .await
}

#[tokio::test]
async fn counters_with_known_labels_start_at_zero() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let _lab = lab(|_| {}).await;
    for series in [
        r#"idempotency_claims_total{operation="payments",outcome="reacquired"}"#,
        r#"idempotency_claims_total{operation="unmatched",outcome="store_error"}"#,
        r#"idempotency_unknown_total{operation="payments",cause="lease_expired"}"#,
        r#"idempotency_refused_total{operation="payments",code="IDEMPOTENCY_HELD"}"#,
        r#"idempotency_fingerprint_mismatch_total{operation="payments",tenant="other"}"#,
        r#"idempotency_quota_exceeded_total{whose="caller",limit="stored_bytes",tenant="other"}"#,
        r#"idempotency_late_retries_total{operation="payments"}"#,
        r#"idempotency_late_answers_total{operation="payments",outcome="none"}"#,
        r#"idempotency_held_total{operation="payments"}"#,
        r#"idempotency_new_keys_total{tenant="other"}"#,
        r#"idempotency_passed_total{method="other"}"#,
        r#"idempotency_store_errors_total{call="claim"}"#,
        r#"idempotency_zombies_total{operation="payments"}"#,
        "idempotency_busiest_caller_share",
    ] {
        assert_eq!(counted.value(series), Some(0.0), "{series}");
    }
    assert!(counted.series("idempotency_execution_seconds").iter().any(|line| line.ends_with(" 0")));
}

#[tokio::test]
async fn every_cause_of_an_unknown_outcome_starts_at_zero() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let _lab = lab(|_| {}).await;
    let begun = |cause: &Reason| {
        let cause = cause.as_str();
        counted.value(&format!(r#"idempotency_unknown_total{{operation="payments",cause="{cause}"}}"#))
    };
    let causes = Reason::ALL.into_iter().filter(|cause| begun(cause) == Some(0.0)).count();
    assert_eq!(causes, Reason::ALL.into_iter().filter(|cause| cause.is_of_unknown()).count());
    assert_eq!(begun(&Reason::NotExecuted), Some(0.0), "a command in phases has had all its attempts");
    assert_eq!(begun(&Reason::Answered), None);
}

#[tokio::test]
async fn a_command_that_becomes_unknown_is_counted_by_its_cause() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|policy| policy.timeout = Duration::from_millis(50)).await;
    let unknown = |cause: &str| {
        counted.value(&format!(r#"idempotency_unknown_total{{operation="payments",cause="{cause}"}}"#))
    };
    lab.send(pay_as(1).doing("outcome-unknown")).await;
    lab.send(pay_as(2).doing("panic-after")).await;
    lab.send(pay_as(3).doing("broken-body")).await;
    lab.send(pay_as(4).doing("status-500")).await;
    lab.send(pay_as(5).doing("gate")).await;
    for cause in ["handler_unsure", "panicked", "broke_off", "server_error", "timed_out"] {
        assert_eq!(unknown(cause), Some(1.0), "{cause}");
    }
    lab.send(pay_as(1)).await;
    assert_eq!(unknown("handler_unsure"), Some(1.0), "it was unknown before");
}

#[tokio::test]
async fn a_request_that_finds_an_expired_lease_counts_an_unknown_command() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|policy| policy.wait = Duration::ZERO).await;
    let running = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    lab.sqlite.shift_clock(Policy::default().lease + SECOND);
    assert_eq!(lab.send(pay("{}")).await.status, 409);
    assert_eq!(lab.send(pay("{}")).await.status, 409);
    let unknown = r#"idempotency_unknown_total{operation="payments",cause="lease_expired"}"#;
    assert_eq!(counted.value(unknown), Some(1.0), "it became unknown once");
    lab.open_gate();
    running.await.expect("it ends");
}

#[tokio::test]
async fn a_shutdown_counts_the_commands_that_it_gives_up() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|_| {}).await;
    let running = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    assert_eq!(lab.layer.shutdown(Duration::ZERO).await.abandoned, 1);
    let unknown = r#"idempotency_unknown_total{operation="payments",cause="shut_down"}"#;
    assert_eq!(counted.value(unknown), Some(1.0));
    lab.open_gate();
    running.await.expect("it ends");
}

#[tokio::test]
async fn a_mismatch_is_counted_for_its_tenant_and_a_refusal_by_its_code() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|_| {}).await;
    lab.send(pay("{}")).await;
    lab.send(pay("[]")).await;
    let mismatches = r#"idempotency_fingerprint_mismatch_total{operation="payments",tenant="acme"}"#;
    assert_eq!(counted.value(mismatches), Some(1.0));
    lab.send(pay("{}").without("idempotency-key")).await;
    lab.send(pay("{}").without("x-user")).await;
    lab.send(pay("{}").set("x-user", "mallory")).await;
    for code in ["MISSING_IDEMPOTENCY_KEY", "UNAUTHENTICATED", "FORBIDDEN"] {
        let refused = format!(r#"idempotency_refused_total{{operation="payments",code="{code}"}}"#);
        assert_eq!(counted.value(&refused), Some(1.0), "{code}");
    }
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_counted_for_its_tenant() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let rate = Rate::new(1, Duration::from_secs(3600));
    let caller = Allowance { new_keys: rate, ..Allowance::default() };
    let lab = Lab::limited(Limits { caller, ..Limits::default() }).await;
    lab.send(pay_as(1)).await;
    assert_eq!(lab.send(pay_as(2)).await.status, 429);
    let exceeded = r#"idempotency_quota_exceeded_total{whose="caller",limit="new_keys",tenant="acme"}"#;
    assert_eq!(counted.value(exceeded), Some(1.0));
    let refused = r#"idempotency_refused_total{operation="unmatched",code="IDEMPOTENCY_KEY_QUOTA_EXCEEDED"}"#;
    assert_eq!(counted.value(refused), Some(1.0));
}

#[tokio::test]
async fn requests_that_pass_are_counted_by_their_method() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|_| {}).await;
    lab.send(get("/payments/1")).await;
    lab.send(get("/payments/1").method("DELETE")).await;
    lab.send(get("/payments/1").method("PROPFIND")).await;
    lab.send(pay("{}")).await;
    let passed = |method: &str| counted.value(&format!(r#"idempotency_passed_total{{method="{method}"}}"#));
    assert_eq!(["GET", "DELETE", "other", "POST"].map(passed), [1.0, 1.0, 1.0, 0.0].map(Some));
}

#[tokio::test]
async fn a_retry_after_the_expiry_of_its_record_is_counted() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|_| {}).await;
    let late = || counted.value(r#"idempotency_late_retries_total{operation="payments"}"#);
    let ttl = Policy::default().ttl + SECOND;
    lab.send(pay_as(1)).await;
    lab.send(pay_as(2)).await;
    lab.sqlite.shift_clock(ttl);
    lab.send(pay_as(1)).await;
    assert_eq!(late(), Some(1.0), "its record was still in the store");

    let done = lab.layer.maintain_once(&Maintenance::default(), &*lab.sqlite).await.expect("it reaps");
    assert_eq!(done.reaped, 1);
    assert!(counted.value("idempotency_reaped_total").is_some_and(|reaped| reaped == 1.0));
    lab.send(pay_as(2)).await;
    assert_eq!(late(), Some(2.0), "its record was deleted by this process");
    lab.send(pay_as(3)).await;
    lab.send(pay_as(2)).await;
    assert_eq!((late(), lab.count()), (Some(2.0), 5), "one is new, and one has a record");
}

#[tokio::test]
async fn a_retry_of_a_command_that_had_not_run_is_no_late_retry() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|_| {}).await;
    let ttl = Policy::default().ttl + SECOND;
    for reaped in [false, true] {
        lab.send(pay_as(1).doing("not-executed")).await;
        lab.sqlite.shift_clock(ttl);
        if reaped {
            lab.layer.maintain_once(&Maintenance::default(), &*lab.sqlite).await.expect("it reaps");
        }
        lab.send(pay_as(1).doing("not-executed")).await;
        assert_eq!(
            counted.value(r#"idempotency_late_retries_total{operation="payments"}"#),
            Some(0.0),
            "{reaped}"
        );
        lab.sqlite.shift_clock(ttl);
    }
}

#[tokio::test]
async fn a_duplicate_of_an_expired_record_is_counted_while_its_tombstone_stays() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|policy| policy.on_expired = OnExpired::Refuse).await;
    lab.send(pay_as(1)).await;
    lab.sqlite.shift_clock(Policy::default().ttl + SECOND);
    for times in [1.0, 2.0] {
        assert_eq!(lab.send(pay_as(1)).await.status.as_u16(), 410);
        assert_eq!(counted.value(r#"idempotency_expired_total{operation="payments"}"#), Some(times));
    }
}

#[tokio::test]
async fn the_census_shows_the_size_of_the_store() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab(|_| {}).await;
    let maintenance = lab.layer.maintain(Maintenance::default(), lab.sqlite.clone(), None);
    let seen = async {
        while counted.value("idempotency_stored_bytes").is_none_or(|bytes| bytes == 0.0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = maintenance => {}
        () = seen => {}
    }
    assert!(counted.value("idempotency_stored_bytes").is_some_and(|bytes| bytes > 4096.0));
}

#[tokio::test]
async fn the_busiest_callers_and_the_hottest_keys_are_shown() {
    let lab = lab(|policy| policy.key = semel_core::policy::KeyRequirement::Required).await;
    for number in 1..=3 {
        lab.send(pay_as(number)).await;
    }
    lab.send(pay_as(4).set("x-user", "bob")).await;
    lab.send(pay_as(2)).await;
    lab.send(pay_as(2)).await;
    lab.send(pay_as(1)).await;
    lab.send(pay("[]").set("idempotency-key", another(1))).await;
    lab.send(pay("{}").without("idempotency-key").set("x-user", "carol")).await;

    let busy = lab.layer.busy();
    let callers = busy.callers().current;
    let told = |ranking: &semel_http::CallerRanking| -> Vec<(String, u64)> {
        ranking.callers.iter().map(|caller| (caller.principal.caller().to_owned(), caller.count)).collect()
    };
    assert_eq!(told(&callers.new_keys), [("alice".to_owned(), 3), ("bob".to_owned(), 1)]);
    assert_eq!(callers.new_keys.total, 4);
    assert_eq!(told(&callers.mismatches), [("alice".to_owned(), 1)]);
    assert_eq!(told(&callers.refusals), [("carol".to_owned(), 1)]);

    let keys = busy.hot_keys().current;
    let prefix = semel_testkit::sample::scope(&another(2)).key().hash_prefix();
    assert_eq!((&*keys[0].operation, &keys[0].key_hash_prefix, keys[0].count), ("payments", &prefix, 2));
    assert_eq!((keys.len(), keys[1].count), (2, 1));
}
