//! Backlogs: messages that wait for earlier ones of their command block neither commands nor other messages, and none
//! of them is lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_core::outbox::{Intervention, Message, MessageFilter, MessageState, Next, Outbox, Take, Tried};
use semel_core::{Ids, Note, RandomIds};
use semel_flow::outbox::{OutboxWorker, OutboxWorkerOptions, Sink};

use crate::lab::{End, Lab, PAY, Step, Work, both, command};

both!(
    a_hundred_thousand_blocked_commands_do_not_block_other_deliveries,
    blocked_messages_of_a_command_are_delivered_one_by_one_in_order,
    nothing_is_forgotten_while_messages_are_marked_delivered_and_pushed_at_once,
);

/// Creates commands whose first message is dead and whose second waits for it, all due, none of them marked yet.
async fn fill(lab: &impl Lab, commands: usize) {
    let (id, text) = match lab_is_postgres(lab) {
        true => ("('00000000-0000-4000-8000-' || lpad(to_hex(x), 12, '0'))::uuid", "operation_id::text"),
        false => ("CAST(printf('%016d', x) AS BLOB)", "lower(hex(operation_id))"),
    };
    let empty = empty(lab);
    lab.run(&format!(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {commands})
         INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at, done_at)
         SELECT {text} || ':first', operation_id, 0, 'first', {empty}, 'dead', 0, 0 FROM (SELECT {id} AS operation_id FROM n) AS made"
    ))
    .await;
    lab.run(&format!(
        "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at)
         SELECT {text} || ':second', operation_id, 1, 'second', {empty}, 'pending', 0 FROM semel_outbox WHERE kind = 'first'"
    ))
    .await;
}

fn empty(lab: &impl Lab) -> &'static str {
    if lab_is_postgres(lab) { "''::bytea" } else { "x''" }
}

fn lab_is_postgres<L: Lab>(_: &L) -> bool {
    L::ID_TYPE == "uuid"
}

async fn push(lab: &impl Lab, key: &str, kinds: &[&'static str]) {
    let mut steps = vec![Step::Sql(PAY)];
    steps.extend(kinds.iter().map(|kind| Step::Push(kind)));
    let saw = lab.see(&command(key), Work { steps, end: End::Created }).await;
    assert!(saw.executed(), "{saw:?}");
}

async fn take(outbox: &Arc<dyn Outbox>) -> Vec<Message> {
    let take = Take {
        token: RandomIds.attempt_token(),
        lease: Duration::from_secs(60),
        limit: 10,
        except: Vec::new(),
    };
    outbox.take(&take).await.expect("they can be taken")
}

async fn deliver(outbox: &Arc<dyn Outbox>, message: &Message) {
    let fence = message.fence().expect("it was taken");
    assert!(outbox.settle(&fence, Next::Delivered, None).await.expect("it writes").is_written());
}

/// A receiver that accepts everything.
struct Takes;

#[async_trait]
impl Sink for Takes {
    async fn deliver(&self, _: &Message) -> Tried {
        tokio::task::yield_now().await;
        Tried::Accepted { reference: None }
    }
}

async fn until_delivered(lab: &impl Lab, count: i64) {
    let delivered = "SELECT count(*) FROM semel_outbox WHERE state = 'delivered'";
    while lab.number(delivered).await < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_hundred_thousand_blocked_commands_do_not_block_other_deliveries(lab: impl Lab) {
    const BLOCKED: usize = 100_000;
    fill(&lab, BLOCKED).await;
    let kept = lab.kept().await;
    let options = OutboxWorkerOptions { poll: Duration::from_millis(5), ..OutboxWorkerOptions::default() };
    let worker = OutboxWorker::new(kept.outbox(), Arc::new(Takes), options);
    let (stop, running) = (worker.stopper(), tokio::spawn(worker.run()));
    for key in 0..20 {
        push(&lab, &format!("key-{key}"), &["one", "two"]).await;
    }
    until_delivered(&lab, 40).await;
    stop.stop();
    running.await.expect("it ends");
    let marked = lab.number("SELECT count(*) FROM semel_outbox WHERE blocked = 1 AND kind = 'second'").await;
    assert_eq!(marked, i64::try_from(BLOCKED).expect("it is a number"), "each was met once");
    let depth = kept.outbox().depth().await.expect("it reads");
    assert_eq!((depth.pending, depth.dead), (BLOCKED as u64, BLOCKED as u64));
    // One of them is released, and is delivered.
    let dead = MessageFilter { state: Some(MessageState::Dead), limit: 1, ..MessageFilter::default() };
    let dead = kept.outbox().messages(&dead).await.expect("it reads").remove(0);
    assert!(
        kept.outbox().intervene(&dead.event_id, Intervention::Discard, &note()).await.expect("it writes")
    );
    let freed = take(&kept.outbox()).await;
    assert_eq!(freed.len(), 1);
    assert_eq!((freed[0].operation_id, freed[0].kind.as_str()), (dead.operation_id, "second"));
}

fn note() -> Note {
    Note { who: "olga".into(), action: "outbox".into(), why: "a test".into() }
}

async fn blocked_messages_of_a_command_are_delivered_one_by_one_in_order(lab: impl Lab) {
    let kept = lab.kept().await;
    let outbox = kept.outbox();
    push(&lab, "key", &["a", "b", "c", "d"]).await;
    let next = || async {
        let mut taken = take(&outbox).await;
        assert!(taken.len() <= 1, "one of a command at a time");
        taken.pop()
    };
    let first = next().await.expect("it is due");
    assert_eq!(first.kind, "a");
    assert!(next().await.is_none(), "the others have to wait");
    assert_eq!(lab.number("SELECT count(*) FROM semel_outbox WHERE blocked = 1").await, 3);
    // Given up, retried, delivered.
    let fence = first.fence().expect("it was taken");
    assert!(outbox.settle(&fence, Next::Dead, Some("no")).await.expect("it writes").is_written());
    assert!(next().await.is_none());
    assert!(outbox.intervene(&first.event_id, Intervention::Retry, &note()).await.expect("it writes"));
    let again = next().await.expect("it is due again");
    assert_eq!(again.kind, "a");
    // The second is discarded while the first is in delivery: the third still has to wait.
    let second = format!("{}:b", first.operation_id);
    assert!(outbox.intervene(&second, Intervention::Discard, &note()).await.expect("it writes"));
    assert!(next().await.is_none());
    deliver(&outbox, &again).await;
    for kind in ["c", "d"] {
        let taken = next().await.expect("its turn has come");
        assert_eq!(taken.kind, kind);
        deliver(&outbox, &taken).await;
    }
    assert_eq!(lab.number("SELECT count(*) FROM semel_outbox WHERE state <> 'delivered'").await, 0);
}

async fn nothing_is_forgotten_while_messages_are_marked_delivered_and_pushed_at_once(lab: impl Lab) {
    const COMMANDS: i64 = 30;
    for key in 0..COMMANDS {
        push(&lab, &format!("key-{key}"), &["a", "b"]).await;
    }
    let mut workers = Vec::new();
    for _ in 0..4 {
        let options = OutboxWorkerOptions {
            poll: Duration::from_millis(1),
            concurrency: 4,
            ..OutboxWorkerOptions::default()
        };
        let worker = OutboxWorker::new(lab.kept().await.outbox(), Arc::new(Takes), options);
        workers.push((worker.stopper(), tokio::spawn(worker.run())));
    }
    // Pushed by a later phase of the same command, in a transaction of its own.
    let empty = empty(&lab);
    for round in 0..6 {
        lab.run(&format!(
            "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at)
             SELECT min(event_id) || '{round}', operation_id, max(position) + 1, 'late', {empty}, 'pending', 0
             FROM semel_outbox GROUP BY operation_id"
        ))
        .await;
        tokio::task::yield_now().await;
    }
    until_delivered(&lab, COMMANDS * 8).await;
    for (stop, running) in workers {
        stop.stop();
        running.await.expect("it ends");
    }
    assert_eq!(lab.number("SELECT max(attempts) FROM semel_outbox").await, 1);
}
