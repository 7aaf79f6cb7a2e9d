//! Reconcilers in processes of their own that are killed with SIGKILL at every step: no command is settled twice or
//! lost, and received evidence is used.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_core::{Change, LookUpAnswer, OperationId, Record, StateName, Statement, StoreAnswer, StoreError};
use semel_flow::reconcile::{Finding, LookUp, NoLookUp, Settle};
use semel_testkit::sample;

use crate::killed::{PLACE, Process, TASK, say, stand};
use crate::lab::{Kept, Lab, Postgres, Sqlite};
use crate::reconcile::{options, reconciler, state_of, unknown};

/// Look-up that blocks, or answers.
struct Asked {
    stands: bool,
}

#[async_trait]
impl LookUp for Asked {
    async fn look_up(&self, record: &Record) -> Finding {
        say(&format!("asked {}", record.operation_id));
        if self.stands {
            stand();
        }
        Finding::new(LookUpAnswer::Executed(sample::created("charged")), "it has it")
    }
}

/// Settler that blocks before it settles.
struct NeverSettles;

#[async_trait]
impl Settle for NeverSettles {
    async fn settle(&self, _: &Record, _: &Change) -> Result<StoreAnswer, StoreError> {
        stand();
        Err(StoreError::Unavailable("nobody comes here".into()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_reconciles() {
    let (Ok(place), Ok(task)) = (std::env::var(PLACE), std::env::var(TASK)) else { return };
    let kept = Kept::at(&place).await;
    let look_up = Arc::new(Asked { stands: task == "while it asks" });
    let reconciler = reconciler(&kept, look_up);
    let reconciler = match task.as_str() {
        "while it asks" => reconciler,
        _ => reconciler.settle_with(Arc::new(NeverSettles)),
    };
    say("\nready");
    if let Some(about) = task.strip_prefix("before it uses evidence about ") {
        let about: OperationId = about.parse().expect("it is an id");
        let found = LookUpAnswer::Executed(sample::created("charged"));
        let statement = Statement::new("provider".into(), "e1".into(), about, found, "it came".into());
        kept.store().take_in(&statement.expect("it is a verdict")).await.expect("it is kept");
        let _ = reconciler.use_evidence_about(about).await;
    } else {
        reconciler.once().await;
    }
}

async fn killed_at(lab: impl Lab, step: &str) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    let mut process = Process::running("reconcile_killed::a_process_that_reconciles", &lab.place(), step);
    process.until(&format!("asked {}", record.operation_id));
    process.until("here");
    process.kill();
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown, "{step}");
    let reconciler = reconciler(&kept, Arc::new(Asked { stands: false }));
    assert!(reconciler.once().await.looks.is_empty(), "{step}: it was put off before the look");
    kept.shift_clock(options().terms.max_delay);
    assert_eq!(reconciler.once().await.looks.len(), 1, "{step}: and it is looked for again");
    assert_eq!(state_of(&kept, &record).await, StateName::Succeeded, "{step}");
}

async fn killed_with_evidence(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    // Not due for a long time: only the evidence can bring it up.
    let until = kept.store().now().await.expect("it has a clock").plus(Duration::from_secs(3600));
    kept.store().apply(&record.id, &Change::postpone(until, 0)).await.expect("the store answers");
    let task = format!("before it uses evidence about {}", record.operation_id);
    let mut process = Process::running("reconcile_killed::a_process_that_reconciles", &lab.place(), &task);
    process.until("here");
    process.kill();
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown);
    let reconciler = reconciler(&kept, Arc::new(NoLookUp));
    assert_eq!(reconciler.once().await.by_evidence, 1, "what was taken in is used");
    assert_eq!(state_of(&kept, &record).await, StateName::Succeeded);
}

const STEPS: [&str; 2] = ["while it asks", "before it settles"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciler_that_is_killed_on_postgres_leaves_its_command_to_the_next() {
    for step in STEPS {
        killed_at(Postgres::new().await, step).await;
    }
    killed_with_evidence(Postgres::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciler_that_is_killed_on_sqlite_leaves_its_command_to_the_next() {
    for step in STEPS {
        killed_at(Sqlite::new(), step).await;
    }
    killed_with_evidence(Sqlite::new()).await;
}
