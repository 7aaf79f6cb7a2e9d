//! Operations that require a store of a tier: refused on a weaker store, at the start and at run time.

use std::sync::Arc;

use semel_core::policy::{Mode, Profile};
use semel_core::{Policy, Tier};
use semel_http::{ConfigError, IdempotencyLayer, Operation};
use semel_stores::MemoryStore;
use semel_testkit::faulty::Call;
use tokio::sync::Semaphore;

use crate::lab::{KEY, Lab, identify, pay, problem};
use crate::later_lab::{Later, later};

const UNAVAILABLE: &str = "IDEMPOTENCY_STORE_UNAVAILABLE";

fn payments() -> Operation {
    Operation::new("payments.create", "POST /payments").needs_tier(Tier::One)
}

#[test]
fn a_layer_on_a_store_that_promises_less_is_not_built() {
    let build = |defaults: Policy, operation: Operation| {
        let builder = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
        builder.defaults(defaults).operation(operation).build().err()
    };
    let error = build(Policy::default(), payments()).expect("it is refused");
    assert!(matches!(error, ConfigError::Tier(..)));
    assert_eq!(
        error.to_string(),
        "operation \"payments.create\": it needs a store of tier 1 (`needs_tier`), and the store promises tier 3"
    );
    let refunds = || Operation::new("refunds.create", "POST /refunds");
    let needy = Policy { needs_tier: Tier::Two, ..Policy::default() };
    let error = build(needy, refunds().needs_tier(Tier::Three)).expect("it is refused").to_string();
    assert!(error.starts_with("defaults: it needs a store of tier 2"), "{error}");
    assert!(build(Policy::default(), refunds()).is_none(), "nothing is needed unless something says so");
}

#[tokio::test]
async fn an_operation_does_not_run_while_the_store_is_below_its_required_tier() {
    let lab = Lab::with(|builder| builder.operation(payments())).await;
    let first = lab.send(pay("{}")).await;
    assert_eq!((first.status.as_u16(), lab.count()), (201, 1));

    lab.store.promise(Tier::Two);
    let claims = lab.count_claims();
    let other = || pay("{}").set("idempotency-key", KEY.replace("0001", "0002"));
    let refused = lab.send(other()).await;
    assert_eq!(refused.problem(), problem(503, UNAVAILABLE));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("needs a store of tier 1, and the store promises tier 2"), "{detail}");
    assert_eq!((lab.count(), claims.available_permits()), (1, 0), "nothing is claimed");

    // Settled commands are answered: from memory, and by a process with an empty cache.
    assert!(lab.send(pay("{}")).await.replayed());
    let mismatch = problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    assert_eq!(lab.send(pay("{\"amount\":2}")).await.problem(), mismatch);
    // Another operation requires nothing, and runs.
    assert_eq!(lab.send(other().target("/refunds")).await.status, 201);

    lab.store.promise(Tier::One);
    assert_eq!((lab.send(other()).await.status.as_u16(), lab.count()), (201, 3), "the key was never taken");
}

#[tokio::test]
async fn records_are_read_from_the_store_while_nothing_runs() {
    let lab = Lab::with(|builder| builder.cache_bytes(0).operation(payments())).await;
    let first = lab.send(pay("{}")).await;
    lab.begun().await;
    let slow = || pay("{\"slow\":1}").doing("gate").set("idempotency-key", KEY.replace("0001", "0003"));
    let running = tokio::spawn(slow().to(lab.address));
    lab.begun().await;
    lab.store.promise(Tier::Three);
    let claims = lab.count_claims();
    let replay = lab.send(pay("{}")).await;
    assert!(replay.replayed() && replay.body == first.body, "{replay:?}");
    assert_eq!(lab.send(pay("{\"amount\":2}")).await.status, 422);
    assert_eq!(lab.send(slow()).await.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    assert_eq!(claims.available_permits(), 0);
    lab.open_gate();
    assert_eq!(running.await.expect("it ends").status, 201, "what had begun comes to its end");
}

#[tokio::test]
async fn the_stripe_profile_gets_503_when_the_store_tier_drops() {
    let stripe = |policy: &mut Policy| policy.profile = Profile::Stripe;
    let lab = Lab::with(|builder| builder.operation(payments().with(stripe))).await;
    lab.store.promise(Tier::Two);
    assert_eq!(lab.send(pay("{}")).await.status, 503);
    assert_eq!(lab.count(), 0);
}

#[tokio::test]
async fn a_worker_starts_nothing_while_the_store_has_dropped_below_the_need() {
    let operation = || Operation::new("payments.create", "POST /payments").needs_tier(Tier::One);
    let lab = Later::with(Later::in_a_file(), |builder| {
        builder.defaults(later()).operation(operation().with(|policy| policy.mode = Mode::Async))
    })
    .await;
    let accepted = lab.send(pay("{}")).await;
    assert_eq!(accepted.status, 202);
    lab.store.promise(Tier::Two);
    let looks = Arc::new(Semaphore::new(0));
    let seen = looks.clone();
    lab.store.script(move |call| {
        if call == Call::Other {
            seen.add_permits(1);
        }
        None
    });
    let (stop, worker) = lab.work();
    looks.acquire_many(5).await.expect("it is never closed").forget();
    assert_eq!((lab.count(), &lab.poll(&accepted).await["state"]), (0, &"claimed".into()));
    stop.stop();
    worker.await.expect("it ends");

    lab.store.promise(Tier::One);
    let (stop, worker) = lab.work();
    lab.becomes(&accepted, "succeeded").await;
    assert_eq!(lab.count(), 1);
    stop.stop();
    worker.await.expect("it ends");
}
