//! Holds: an operator stops an operation or a tenant. Nothing new begins, and known commands are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use semel_core::policy::Mode;
use semel_core::{Hold, HoldChange, HoldTarget, Holds, Note, StoreError};
use semel_http::{HoldBoard, Operation};
use semel_stores::MemoryStore;

use crate::counted::Counted;
use crate::lab::{KEY, Lab, Send, pay, problem};
use crate::later_lab::{Later, later};

const HELD: &str = "IDEMPOTENCY_HELD";

fn other(request: Send) -> Send {
    request.set("idempotency-key", KEY.replace("0001", "0002"))
}

fn note() -> Note {
    Note { who: "alice".to_owned(), action: "hold".to_owned(), why: "the provider is down".to_owned() }
}

/// Returns a store of holds, and its board.
fn board() -> (Arc<MemoryStore>, Arc<HoldBoard>) {
    let store = Arc::new(MemoryStore::new());
    (store.clone(), HoldBoard::new(store))
}

/// Holds a target, and lets the board read it.
async fn hold(store: &MemoryStore, board: &HoldBoard, kind: &str, name: &str) {
    let target = HoldTarget::new(kind, name).expect("it is a target");
    assert_eq!(store.hold(&target, &note()).await.expect("it writes"), HoldChange::Done);
    board.read().await.expect("it reads");
}

/// Lifts a hold, and lets the board read that.
async fn lift(store: &MemoryStore, board: &HoldBoard, kind: &str, name: &str) {
    let target = HoldTarget::new(kind, name).expect("it is a target");
    assert_eq!(store.lift(&target, &note()).await.expect("it writes"), HoldChange::Done);
    board.read().await.expect("it reads");
}

#[tokio::test]
async fn a_held_operation_claims_nothing_and_answers_from_its_records() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let (store, board) = board();
    for cache in [0, 1 << 20] {
        let lab = Lab::with(|builder| {
            let payments = Operation::new("payments.create", "POST /payments").alias("payments");
            builder.cache_bytes(cache).operation(payments).holds(board.clone())
        })
        .await;
        let first = lab.send(pay("{}")).await;
        hold(&store, &board, "operation", "payments.create").await;
        let claims = lab.count_claims();
        let held = lab.send(other(pay("{}"))).await;
        assert_eq!(held.problem(), problem(503, HELD));
        assert_eq!(
            (held.header("retry-after"), held.header("idempotency-retry")),
            (Some("10"), Some("same-key"))
        );
        let replay = lab.send(pay("{}")).await;
        assert!(replay.replayed() && replay.body == first.body, "{replay:?}");
        assert_eq!(lab.send(pay("[]")).await.status, 422);
        assert_eq!(lab.send(other(pay("{}").target("/refunds"))).await.status, 201, "it is not held");
        assert_eq!((claims.available_permits(), lab.count()), (1, 2));

        lift(&store, &board, "operation", "payments.create").await;
        assert_eq!(lab.send(other(pay("{}"))).await.status, 201, "its key was never taken");
        hold(&store, &board, "operation", "payments").await;
        let third = pay("{}").set("idempotency-key", KEY.replace("0001", "0003"));
        assert_eq!(lab.send(third).await.problem(), problem(503, HELD), "by its former name");
        lift(&store, &board, "operation", "payments").await;
    }
    assert_eq!(counted.value(r#"idempotency_held_total{operation="payments.create"}"#), Some(4.0));
    let refused = r#"idempotency_refused_total{operation="payments.create",code="IDEMPOTENCY_HELD"}"#;
    assert_eq!(counted.value(refused), Some(4.0));
}

#[tokio::test]
async fn a_held_tenant_and_an_unmatched_operation_begin_nothing() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let (store, board) = board();
    let lab = Lab::with(|builder| builder.holds(board.clone())).await;
    let held_targets = |kind: &str| counted.value(&format!(r#"idempotency_holds{{kind="{kind}"}}"#));
    assert_eq!(held_targets("tenant"), Some(0.0));
    hold(&store, &board, "tenant", "acme").await;
    hold(&store, &board, "operation", "POST /refunds/{id}").await;
    hold(&store, &board, "sink", "receipt").await;
    hold(&store, &board, "reconciler", "").await;
    let [held, free] = [Some(1.0), Some(0.0)];
    assert_eq!(HoldTarget::KINDS.map(held_targets), [held, held, held, held, free, free, free]);
    assert_eq!((board.held_sinks(), board.holds_reconciler()), (vec!["receipt".to_owned()], true));
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(503, HELD));
    let globex = || pay("{}").with("x-tenant", "globex");
    assert_eq!(lab.send(globex()).await.status, 201);
    assert_eq!(lab.send(globex().target("/refunds/17")).await.problem(), problem(503, HELD));
    assert_eq!(lab.count(), 1);
}

/// Holds of a store that may be away.
struct Away(AtomicBool);

#[async_trait]
impl Holds for Away {
    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("it is away".to_owned())),
            false => {
                let since = semel_core::Timestamp::from_millis(0);
                let target = HoldTarget::Tenant("acme".to_owned());
                Ok(vec![Hold { target, since, who: "alice".to_owned(), why: "why".to_owned() }])
            }
        }
    }

    async fn hold(&self, _: &HoldTarget, _: &Note) -> Result<HoldChange, StoreError> {
        Ok(HoldChange::AlreadySo)
    }

    async fn lift(&self, _: &HoldTarget, _: &Note) -> Result<HoldChange, StoreError> {
        Ok(HoldChange::AlreadySo)
    }
}

#[tokio::test]
async fn the_last_known_holds_stay_in_force_while_the_store_is_away() {
    let store = Arc::new(Away(AtomicBool::new(false)));
    let board = HoldBoard::new(store.clone());
    let lab = Lab::with(|builder| builder.holds(board.clone())).await;
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(503, HELD), "the first request reads the holds");
    store.0.store(true, Ordering::SeqCst);
    board.read().await.expect_err("the store is away");
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(503, HELD));
}

#[tokio::test]
async fn nothing_begins_before_the_holds_were_read() {
    let store = Arc::new(Away(AtomicBool::new(true)));
    let board = HoldBoard::new(store.clone());
    let lab = Lab::with(|builder| builder.holds(board)).await;
    let unavailable = problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE");
    assert_eq!(lab.send(pay("{}")).await.problem(), unavailable);
    assert_eq!(lab.count(), 0, "nothing is claimed");
    store.0.store(false, Ordering::SeqCst);
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(503, HELD), "they are read at the next request");
}

#[tokio::test]
async fn a_held_operation_passes_no_request_on_without_protection() {
    let (store, board) = board();
    let lab = Lab::with(|builder| {
        let optional =
            Operation::new("payments", "POST /payments").key(semel_core::policy::KeyRequirement::Optional);
        builder.holds(board.clone()).operation(optional)
    })
    .await;
    let keyless = || pay("{}").without("idempotency-key");
    assert_eq!(lab.send(keyless()).await.status, 201);
    for (kind, name) in [("operation", "payments"), ("tenant", "acme")] {
        hold(&store, &board, kind, name).await;
        assert_eq!(lab.send(keyless()).await.problem(), problem(503, HELD), "{kind}");
        lift(&store, &board, kind, name).await;
    }
    assert_eq!(lab.send(keyless()).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_running_board_reads_the_holds_again_and_again() {
    let (store, board) = board();
    let running = tokio::spawn(board.clone().run());
    board.ready().await;
    let target = HoldTarget::Reconciler;
    store.hold(&target, &note()).await.expect("it writes");
    while !board.holds_reconciler() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    store.lift(&target, &note()).await.expect("it writes");
    while board.holds_reconciler() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    running.abort();
}

#[tokio::test]
async fn a_worker_starts_no_command_of_a_held_operation_or_tenant() {
    for (kind, name) in [("operation", "reports.create"), ("tenant", "acme")] {
        let (store, board) = board();
        let lab = Later::with(Later::in_a_file(), |builder| {
            let asynchronous = |name: &str, route: &str| {
                Operation::new(name, route).with(|policy| policy.mode = Mode::Async)
            };
            builder
                .defaults(later())
                .operation(asynchronous("reports.create", "POST /reports"))
                .operation(asynchronous("payments.create", "POST /payments"))
                .holds(board.clone())
        })
        .await;
        let waiting = lab.send(pay("{}").target("/reports")).await;
        hold(&store, &board, kind, name).await;
        let (stop, worker) = lab.work();
        let free = lab.send(pay("{}").with("x-tenant", "globex")).await;
        assert_eq!(free.status, 202);
        lab.begun().await;
        // The worker has seen both: the list of waiting commands goes from tenant to tenant.
        assert_eq!(
            (lab.count() <= 1, &lab.poll(&waiting).await["state"]),
            (true, &"claimed".into()),
            "{kind}"
        );
        lift(&store, &board, kind, name).await;
        lab.becomes(&waiting, "succeeded").await;
        assert_eq!(lab.count(), 2);
        stop.stop();
        worker.await.expect("it ends");
    }
}
