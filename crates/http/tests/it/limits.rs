//! Quotas: requests over a quota are refused, and other callers do not notice.

use std::sync::Arc;
use std::time::Duration;

use semel_core::policy::{KeepRequest, StoreResponse};
use semel_core::quota::{Allowance, Exception, Limits, Rate};
use semel_core::{Change, Decision, Filter, Policy, Records, Store, Upkeep};
use semel_http::{Builder, Operation};
use semel_stores::SqliteStore;
use semel_testkit::sample;

use crate::lab::{Lab, Reply, Send, pay, problem};

/// Returns a rate of this many, and then none for the rest of the test.
fn only(count: u32) -> Option<Rate> {
    Rate::new(count, Duration::from_secs(24 * 3600))
}

fn new_keys(count: u32) -> Allowance {
    Allowance { new_keys: only(count), ..Allowance::default() }
}

fn lookups(count: u32) -> Allowance {
    Allowance { lookups: only(count), ..Allowance::default() }
}

fn of_tenant(tenant: Allowance) -> Limits {
    Limits { tenant, ..Limits::default() }
}

fn of_caller(caller: Allowance) -> Limits {
    Limits { caller, ..Limits::default() }
}

fn numbered(number: usize) -> Send {
    pay("{}").set("idempotency-key", format!("limited-key-number-{number}"))
}

fn is_over_quota(reply: &Reply) -> bool {
    let is = reply.status == 429 && reply.problem() == problem(429, "IDEMPOTENCY_KEY_QUOTA_EXCEEDED");
    let wait: Option<u64> = reply.header("retry-after").and_then(|wait| wait.parse().ok());
    assert!(!is || wait.is_some_and(|wait| wait > 0), "it says when to come back: {wait:?}");
    is
}

#[tokio::test]
async fn a_caller_over_its_new_key_quota_still_gets_replays_of_known_keys() {
    let lab = Lab::limited(of_caller(new_keys(3))).await;
    for number in 0..3 {
        assert_eq!(lab.send(numbered(number)).await.status, 201);
    }
    for number in 3..6 {
        assert!(is_over_quota(&lab.send(numbered(number)).await));
    }
    assert_eq!(lab.count(), 3, "what is refused is not run");
    for number in 0..3 {
        assert!(lab.send(numbered(number)).await.replayed(), "from memory");
    }
    let mismatch = lab.send(numbered(0).body("[]")).await;
    assert_eq!(mismatch.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    let other = lab.send(numbered(9).set("x-user", "bob")).await;
    assert_eq!(other.status, 201, "of another caller");
}

#[tokio::test]
async fn a_retry_goes_on_where_only_the_store_knows_its_key() {
    let lab = Lab::limited(of_caller(new_keys(1))).await;
    assert_eq!(lab.send(numbered(0)).await.status, 201);
    assert_eq!(lab.send(numbered(1).set("x-user", "bob").doing("not-executed")).await.status, 503);
    let other = lab.second_limited(of_caller(new_keys(1))).await;
    let bob = |number| numbered(number).set("x-user", "bob");
    // It may know of the use there already, or not.
    for (one, two) in [(numbered(7), numbered(8)), (bob(7), bob(8))] {
        let reply = one.to(other).await;
        assert!(reply.status == 201 || is_over_quota(&reply));
        assert!(is_over_quota(&two.to(other).await));
    }
    assert!(numbered(0).to(other).await.replayed(), "it is known to the store alone");
    // A command that provably did not run is run by a retry, whatever was used since.
    assert_eq!(bob(1).to(other).await.status, 201);
}

#[tokio::test]
async fn callers_share_the_quota_of_their_tenant_and_not_of_other_tenants() {
    let lab = Lab::limited(of_tenant(new_keys(2))).await;
    assert_eq!(lab.send(numbered(0).set("x-user", "alice")).await.status, 201);
    assert_eq!(lab.send(numbered(0).set("x-user", "bob")).await.status, 201);
    for user in ["alice", "bob", "carol"] {
        let refused = lab.send(numbered(1).set("x-user", user)).await;
        assert!(is_over_quota(&refused), "{user}");
        let detail = refused.json()["detail"].as_str().expect("it is told why").to_owned();
        assert_eq!(detail, "This tenant has begun too many commands with new keys in a short time.");
    }
    assert_eq!(lab.send(numbered(1).with("x-tenant", "globex")).await.status, 201);
}

#[tokio::test]
async fn a_refusal_of_the_tenant_takes_nothing_from_the_caller() {
    let limits = Limits { tenant: new_keys(1), caller: new_keys(2), exceptions: Vec::new() };
    let exception = Exception { tenant: "acme".into(), caller: None, allowance: new_keys(1) };
    let lab = Lab::limited(Limits { exceptions: vec![exception], ..limits }).await;
    assert_eq!(lab.send(numbered(0)).await.status, 201);
    for number in 1..5 {
        let detail = lab.send(numbered(number)).await.json()["detail"].to_string();
        assert!(detail.contains("tenant"), "the caller still has one: {detail}");
    }
}

#[tokio::test]
async fn a_command_that_its_client_no_longer_waits_for_uses_up_no_new_key() {
    let lab = Lab::limited(of_caller(new_keys(1))).await;
    for number in 0..3 {
        let over = lab.send(numbered(number).with("semel-deadline", "0")).await;
        assert_eq!(over.problem(), problem(503, "DEADLINE_EXCEEDED"));
    }
    assert_eq!(lab.send(numbered(3)).await.status, 201);
    assert_eq!(lab.send(numbered(4)).await.status, 429);
}

#[tokio::test]
async fn concurrent_new_keys_run_up_to_their_rate_limit() {
    let lab = Arc::new(Lab::limited(of_caller(new_keys(10))).await);
    let requests: Vec<_> = (0..60)
        .map(|number| {
            let lab = lab.clone();
            tokio::spawn(async move { lab.send(numbered(number)).await })
        })
        .collect();
    let mut refused = 0;
    for request in requests {
        refused += usize::from(is_over_quota(&request.await.expect("it is answered")));
    }
    assert_eq!((lab.count(), refused), (10, 50));
}

#[tokio::test]
async fn a_caller_over_its_lookup_quota_learns_nothing() {
    let lab = Lab::limited(of_caller(lookups(4))).await;
    let first = lab.send(numbered(0)).await;
    assert_eq!(first.status, 201);
    let id = first.operation_id().expect("it is named");
    let page = pay("").method("GET").without("idempotency-key");
    let page = page.target(format!("/.well-known/semel/operations/{id}"));
    assert_eq!(lab.send(page.clone()).await.status, 200, "a question is a look");
    assert!(lab.send(numbered(0)).await.replayed(), "and so is a retry");
    assert_eq!(lab.send(numbered(0).body("[]")).await.status, 422, "and one that is refused");
    for request in [numbered(0), numbered(1), numbered(0).body("[]"), page.clone()] {
        let refused = lab.send(request).await;
        assert_eq!(refused.problem(), problem(429, "LOOKUP_QUOTA_EXCEEDED"));
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.header("idempotency-operation-id"), None);
    }
    assert_eq!(lab.count(), 1);
    assert_eq!(lab.send(page.set("x-user", "bob")).await.status, 404, "others still get their answers");
}

#[tokio::test]
async fn active_keys_are_capped() {
    let cap = Allowance { active_keys: Some(2), ..Allowance::default() };
    let lab = Lab::limited(of_tenant(cap)).await;
    assert_eq!(lab.send(numbered(0)).await.status, 201);
    assert_eq!(lab.send(numbered(1)).await.status, 201);
    let refused = lab.send(numbered(2)).await;
    assert!(is_over_quota(&refused));
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert!(lab.send(numbered(1)).await.replayed());
    let second = lab.second_limited(of_tenant(cap)).await;
    assert!(is_over_quota(&numbered(3).to(second).await), "another node counts what is kept, too");
    lab.sqlite.shift_clock(Policy::default().ttl);
    assert_eq!(lab.sqlite.reap(100).await.expect("it is reaped").len(), 2);
    let third = lab.second_limited(of_tenant(cap)).await;
    assert_eq!(numbered(4).to(third).await.status, 201, "what is forgotten makes room");
}

#[tokio::test]
async fn reaped_records_make_room_on_a_full_node() {
    let cap = Allowance { active_keys: Some(1), ..Allowance::default() };
    let lab = Lab::limited(of_tenant(cap)).await;
    assert_eq!(lab.send(numbered(0)).await.status, 201);
    assert!(is_over_quota(&lab.send(numbered(1)).await));
    lab.sqlite.shift_clock(Policy::default().ttl);
    assert_eq!(lab.sqlite.reap(100).await.expect("it is reaped").len(), 1);
    // The node counts again within seconds.
    for _ in 0..600 {
        if lab.send(numbered(1)).await.status == 201 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never counted again");
}

#[tokio::test]
async fn stored_bytes_are_capped() {
    let cap = Allowance { stored_bytes: Some(1000), ..Allowance::default() };
    let lab = Lab::limited(of_caller(cap)).await;
    let large = "x".repeat(2000);
    let first = numbered(0).body(large.clone());
    assert_eq!(lab.send(first.clone()).await.status, 201, "nobody knows before how large a response is");
    let refused = lab.send(numbered(1)).await;
    assert!(is_over_quota(&refused));
    assert_eq!(refused.json()["detail"], "This caller has as much stored as it may have at a time.");
    assert!(lab.send(first).await.replayed());
    let second = lab.second_limited(of_caller(cap)).await;
    assert!(is_over_quota(&numbered(2).to(second).await), "it is counted in the store");
    assert_eq!(lab.send(numbered(1).set("x-user", "bob")).await.status, 201);
}

#[tokio::test]
async fn a_request_that_is_kept_counts_until_its_outcome_is_known() {
    let cap = Allowance { stored_bytes: Some(1000), ..Allowance::default() };
    let keeping = |builder: Builder| {
        let keeps = |policy: &mut Policy| {
            policy.keep_request = KeepRequest::WhileUnknown;
            policy.store_response = StoreResponse::Headers;
        };
        builder.operation(Operation::new("payments.create", "POST /payments").with(keeps))
    };
    let lab = Lab::limited_with(of_caller(cap), keeping).await;
    let large = "x".repeat(2000);
    assert_eq!(lab.send(numbered(0).body(large).doing("status-500")).await.status, 500);
    assert!(is_over_quota(&lab.send(numbered(1)).await), "this node knows it at once");
    let second = lab.second_limited(of_caller(cap)).await;
    assert!(is_over_quota(&numbered(2).to(second).await), "others count it in the store");
    let record =
        lab.store.list(&Filter { limit: 1, ..Filter::default() }).await.expect("it reads").records.remove(0);
    let found = Change::resolve_executed(sample::created("found"));
    assert_eq!(lab.store.apply(&record.id, &found).await.expect("it writes").decision, Decision::Applied);
    let third = lab.second_limited(of_caller(cap)).await;
    assert_eq!(numbered(3).to(third).await.status, 201, "it is erased with the verdict");
}

#[tokio::test]
async fn waiting_async_commands_count_as_active_keys() {
    let cap = Allowance { active_keys: Some(2), ..Allowance::default() };
    let later = |policy: &mut Policy| policy.mode = semel_core::policy::Mode::Async;
    let lab = Lab::limited_with(of_caller(cap), |builder| {
        builder.operation(Operation::new("payments.create", "POST /payments").with(later))
    })
    .await;
    assert_eq!(lab.send(numbered(0)).await.status, 202);
    assert_eq!(lab.send(numbered(1)).await.status, 202);
    assert!(is_over_quota(&lab.send(numbered(2)).await), "so nobody can fill the queue");
    assert_eq!(lab.send(numbered(1)).await.status, 202, "what waits goes on waiting");
}

#[tokio::test]
async fn a_new_key_gets_503_while_the_store_cannot_count() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let elsewhere = SqliteStore::open(folder.path().join("usage.db")).expect("a new file can be opened");
    let file = rusqlite::Connection::open(folder.path().join("usage.db")).expect("the file opens");
    file.execute_batch("ALTER TABLE semel_records RENAME TO gone").expect("it is renamed");
    let cap = Allowance { active_keys: Some(2), ..Allowance::default() };
    let lab = Lab::with(|builder| builder.usage(Arc::new(elsewhere)).limits(of_caller(cap))).await;
    let refused = lab.send(numbered(0)).await;
    assert_eq!(refused.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    assert_eq!(lab.count(), 0);
}

#[tokio::test]
async fn nodes_that_share_a_store_share_a_rate() {
    let limits = of_tenant(new_keys(40));
    let lab = Lab::limited(limits.clone()).await;
    let second = lab.second_limited(limits).await;
    let mut number = 0;
    let mut refused_in_a_row = 0;
    // In small steps, so that the nodes exchange their counts in between.
    while refused_in_a_row < 10 {
        for address in [lab.address, second] {
            number += 1;
            if is_over_quota(&numbered(number).to(address).await) {
                refused_in_a_row += 1;
            } else {
                refused_in_a_row = 0;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(number < 200, "nothing is limited");
    }
    // Each node alone would admit 40.
    assert!((40..70).contains(&lab.count()), "{} of 40", lab.count());
}
