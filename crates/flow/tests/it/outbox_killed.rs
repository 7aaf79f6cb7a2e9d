//! Workers in processes of their own that are killed with SIGKILL at every step: no message is lost, and repeated
//! deliveries have the same event id.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_core::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageState, MessageWrite, Next, Outbox,
    Take, Tried,
};
use semel_core::{Note, StoreError, Timestamp};
use semel_flow::outbox::{OutboxWorker, OutboxWorkerOptions, Sink};

use crate::killed::{PLACE, Process, TASK, say, stand};
use crate::lab::{Kept, Lab, Postgres, Sqlite, command, pays};

/// Receiver that prints messages to this process's output.
struct Out {
    stands_before: bool,
    stands_after: bool,
}

#[async_trait]
impl Sink for Out {
    async fn deliver(&self, message: &Message) -> Tried {
        if self.stands_before {
            stand();
        }
        say(&format!("got {}", message.event_id));
        if self.stands_after {
            stand();
        }
        Tried::Accepted { reference: Some("ref-1".to_owned()) }
    }
}

/// Outbox that blocks before it marks a message.
struct NeverMarks(Arc<dyn Outbox>);

#[async_trait]
impl Outbox for NeverMarks {
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError> {
        self.0.take(take).await
    }
    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError> {
        self.0.accept(fence, reference).await
    }
    async fn settle(&self, _: &MessageFence, _: Next, _: Option<&str>) -> Result<MessageWrite, StoreError> {
        stand();
        Ok(MessageWrite::Fenced)
    }
    async fn message(&self, event_id: &str) -> Result<(Option<Message>, Timestamp), StoreError> {
        self.0.message(event_id).await
    }
    async fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        self.0.messages(filter).await
    }
    async fn intervene(&self, id: &str, what: Intervention, note: &Note) -> Result<bool, StoreError> {
        self.0.intervene(id, what, note).await
    }
    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.0.reap_messages(retention, limit).await
    }
    async fn depth(&self) -> Result<Depth, StoreError> {
        self.0.depth().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_delivers() {
    let (Ok(place), Ok(task)) = (std::env::var(PLACE), std::env::var(TASK)) else { return };
    let mut outbox = Kept::at(&place).await.outbox();
    let sink = Out { stands_before: task == "before sending", stands_after: task == "after sending" };
    if task == "before marking" {
        outbox = Arc::new(NeverMarks(outbox));
    }
    say("\nready");
    OutboxWorker::new(outbox, Arc::new(sink), OutboxWorkerOptions::default()).run().await;
}

/// Receiver in this process.
struct Here(std::sync::Mutex<Vec<String>>);

#[async_trait]
impl Sink for Here {
    async fn deliver(&self, message: &Message) -> Tried {
        self.0.lock().expect("nobody panics here").push(message.event_id.clone());
        Tried::Accepted { reference: Some("ref-2".to_owned()) }
    }
}

async fn killed_at(lab: impl Lab, step: &str, sent: bool, sent_again: bool, reference: &str) {
    let saw = lab.see(&command("key"), pays()).await;
    assert!(saw.executed(), "{saw:?}");
    let kept = lab.kept().await;
    let outbox = kept.outbox();
    let all = outbox.messages(&MessageFilter::default()).await.expect("it can be read");
    let id = &all[0].event_id;
    let mut process = Process::running("outbox_killed::a_process_that_delivers", &lab.place(), step);
    if sent {
        process.until(&format!("got {id}"));
    }
    process.until("here");
    process.kill();
    let (left, _) = outbox.message(id).await.expect("it can be read");
    assert_eq!(left.map(|left| left.state), Some(MessageState::Pending), "{step}: nothing is lost");
    // Its lease expires; the next worker comes.
    kept.shift_clock(OutboxWorkerOptions::default().lease + Duration::from_secs(1));
    let here = Arc::new(Here(std::sync::Mutex::default()));
    let worker = OutboxWorker::new(outbox.clone(), here.clone(), OutboxWorkerOptions::default());
    let stop = worker.stopper();
    let running = tokio::spawn(worker.run());
    let mut found = None;
    for _ in 0..4000 {
        found = outbox.message(id).await.expect("it can be read").0;
        if found.as_ref().is_some_and(|found| found.state == MessageState::Delivered) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.stop();
    running.await.expect("it ends");
    let found = found.expect("it is there");
    assert_eq!(found.state, MessageState::Delivered, "{step}");
    assert_eq!(found.provider_reference.as_deref(), Some(reference), "{step}");
    let seen = here.0.lock().expect("nobody panics here").clone();
    let expected: Vec<String> = sent_again.then(|| id.clone()).into_iter().collect();
    assert_eq!(seen, expected, "{step}: the same id, or not again");
}

/// Each step: whether the receiver had the message then, whether it is sent again, and whose reference counts.
const STEPS: [(&str, bool, bool, &str); 3] = [
    ("before sending", false, true, "ref-2"),
    ("after sending", true, true, "ref-2"),
    ("before marking", true, false, "ref-1"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_at_any_step_on_postgres_loses_nothing() {
    for (step, sent, sent_again, reference) in STEPS {
        killed_at(Postgres::new().await, step, sent, sent_again, reference).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_at_any_step_on_sqlite_loses_nothing() {
    for (step, sent, sent_again, reference) in STEPS {
        killed_at(Sqlite::new(), step, sent, sent_again, reference).await;
    }
}
