//! The count of commands that become unknown: each once, whichever call carries it out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel_core::{
    AttemptToken, Change, Command, Decision, Filter, OperationId, Policy, Reason, Record, Records, Store,
};
use semel_http::Operation;
use semel_testkit::faulty::{Call, Fault};
use semel_testkit::sample;
use tokio::sync::Semaphore;

use crate::counted::Counted;
use crate::lab::{KEY, Lab, pay};
use crate::later_lab::{Kept, Later, later};

const SECOND: Duration = Duration::from_secs(1);

fn unknown(counted: &Counted, operation: &str, cause: &str) -> Option<f64> {
    counted.value(&format!(r#"idempotency_unknown_total{{operation="{operation}",cause="{cause}"}}"#))
}

/// Starts a service with the operation `payments`.
async fn lab() -> Lab {
    Lab::with(|builder| builder.operation(Operation::new("payments", "POST /payments"))).await
}

async fn only_record(store: &dyn Records) -> Record {
    let mut records = store.list(&Filter::default()).await.expect("the store lists").records;
    assert_eq!(records.len(), 1);
    records.remove(0)
}

#[tokio::test]
async fn a_command_that_a_shutdown_gives_up_between_two_tries_of_its_executor_is_counted_once() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab().await;
    let gate = lab.hold_calls(&[Call::Apply]);
    let (tries, tried) = (AtomicUsize::new(0), Arc::new(Semaphore::new(0)));
    let made = tried.clone();
    lab.store.script(move |call| {
        if call != Call::Apply {
            return None;
        }
        made.add_permits(1);
        // The executor's three, of which the shutdown's comes after the first.
        matches!(tries.fetch_add(1, Ordering::SeqCst), 0 | 2 | 3).then_some(Fault::Unavailable)
    });
    let running = tokio::spawn(pay("{}").doing("panic-after").to(lab.address));
    gate.arrived().await;
    let layer = lab.layer.clone();
    let shutting_down = tokio::spawn(async move { layer.shutdown(Duration::ZERO).await });
    gate.arrived().await;
    gate.let_one_go();
    tried.acquire().await.expect("it is never closed").forget();
    gate.let_one_go();
    assert_eq!(shutting_down.await.expect("it ends").abandoned, 1);
    gate.open();
    assert_eq!(running.await.expect("it is answered").status, 500);
    assert!(lab.layer.shutdown(SECOND * 60).await.drained, "the last try is in the background");
    assert_eq!(lab.state().await, "unknown");
    assert_eq!(unknown(&counted, "payments", "shut_down"), Some(1.0));
    assert_eq!(unknown(&counted, "payments", "panicked"), Some(0.0));
}

#[tokio::test]
async fn a_start_that_finds_the_expired_lease_of_another_worker_counts_an_unknown_command() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = Later::with(Later::in_a_file(), |builder| builder.defaults(later())).await;
    let Kept::Sqlite(sqlite, _) = &lab.kept else { panic!("it is on a file") };
    assert_eq!(lab.send(pay("{}")).await.status, 202);
    let (arrived, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (comes, goes) = (arrived.clone(), open.clone());
    lab.store.hold(move |call| {
        let (comes, goes) = (comes.clone(), goes.clone());
        Box::pin(async move {
            if call == Call::Apply {
                comes.add_permits(1);
                let _ = goes.acquire().await;
            }
        })
    });
    let (stop, ended) = lab.work();
    arrived.acquire().await.expect("it is never closed").forget();
    let waiting = only_record(&**sqlite).await;
    let start = Change::start(waiting.head.fence(), AttemptToken::from_bytes([7; 16]));
    let started = sqlite.apply(&waiting.id, &start).await.expect("it answers");
    assert_eq!(started.decision, Decision::Execute);
    sqlite.shift_clock(Policy::default().lease + SECOND);
    open.close();
    stop.stop();
    ended.await.expect("it ends by itself");
    assert_eq!(only_record(&**sqlite).await.head.reason, Reason::LeaseExpired);
    assert_eq!(unknown(&counted, "unmatched", "lease_expired"), Some(1.0));
}

#[tokio::test]
async fn a_give_back_that_finds_the_expired_lease_of_another_attempt_counts_an_unknown_command() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let lab = lab().await;
    let gate = lab.hold_calls(&[Call::Claim, Call::Apply]);
    let claiming = tokio::spawn(pay("{}").to(lab.address));
    gate.arrived().await;
    assert!(!lab.layer.shutdown(Duration::ZERO).await.drained);
    gate.let_one_go();
    gate.arrived().await;

    // Another process gives the command back, and the next one dies with it.
    let record = only_record(&*lab.sqlite).await;
    let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
    lab.sqlite.apply(&record.id, &release).await.expect("it answers");
    let command = Command {
        scope: sample::scope(KEY).under(record.operation.clone()),
        fingerprint: record.head.fingerprint,
        business_reference: None,
        former: Arc::default(),
        policy: Arc::default(),
        trace: None,
    };
    let claim = command.claim(OperationId::from_bytes([7; 16]), AttemptToken::from_bytes([7; 16]));
    assert_eq!(lab.sqlite.claim(&claim).await.expect("it answers").decision, Decision::Execute);
    lab.sqlite.shift_clock(Policy::default().lease + SECOND);

    gate.open();
    assert_eq!(claiming.await.expect("it is answered").status, 409);
    assert_eq!(unknown(&counted, "payments", "lease_expired"), Some(1.0));
}
