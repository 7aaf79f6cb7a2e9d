//! Delivery of messages: order, concurrent workers, poison, dead letters, backoff, draining, reaping.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use metrics_exporter_prometheus::PrometheusBuilder;
use semel_core::outbox::{
    Intervention, Message, MessageFilter, MessageState, Next, Outbox, RetryTerms, Take, Tried,
};
use semel_core::{Ids, Note, RandomIds};
use semel_flow::outbox::{Drained, OutboxWorker, OutboxWorkerOptions, Sink, StopHandle};
use semel_stores::SqliteStore;
use semel_testkit::proxy::{Cut, FaultProxy, Matching};
use tokio::task::JoinHandle;

use crate::lab::{End, Gate, Kept, Lab, PAY, Postgres, Sqlite, Step, Work, both, command};

both!(
    messages_of_a_command_arrive_in_their_order,
    several_workers_never_have_the_same_message,
    a_command_that_is_rolled_back_sends_nothing,
    a_poison_message_does_not_stop_the_others,
    messages_of_held_kinds_wait_and_others_go_out,
    a_dead_message_holds_back_those_behind_it_until_it_is_retried,
    a_discarded_message_is_never_sent_and_frees_those_behind_it,
    a_leased_message_cannot_be_retried_or_discarded,
    the_backoff_is_measured_by_the_clock_of_the_database,
    a_late_worker_writes_nothing,
    a_message_with_a_reference_is_not_sent_again,
    a_message_that_kills_its_workers_dies_in_the_end,
    a_sink_that_panics_costs_a_try,
    a_stopped_worker_delivers_its_messages_in_flight,
    a_worker_that_cannot_finish_leaves_the_rest_to_the_next,
    delivered_messages_are_forgotten_and_dead_ones_are_not,
    messages_with_the_default_due_time_are_delivered,
    message_lists_apply_their_filters,
    a_worker_that_is_woken_looks_at_once,
);

/// Behaviour of a receiver for a message.
#[derive(Clone)]
enum Does {
    Accept,
    AcceptAs(&'static str),
    Fail,
    Refuse,
    Hang,
    Panic,
    Wait(Gate),
}

/// A receiver in this process, with the messages it saw.
struct Receiver {
    does: Box<dyn Fn(&Message) -> Does + Send + Sync>,
    seen: Mutex<Vec<String>>,
    in_hand: Mutex<HashSet<String>>,
}

impl Receiver {
    fn new(does: impl Fn(&Message) -> Does + Send + Sync + 'static) -> Arc<Receiver> {
        Arc::new(Receiver { does: Box::new(does), seen: Mutex::default(), in_hand: Mutex::default() })
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panics here").clone()
    }

    fn kinds(&self) -> Vec<String> {
        self.seen().iter().filter_map(|id| id.split_once(':')).map(|(_, kind)| kind.to_owned()).collect()
    }
}

#[async_trait]
impl Sink for Receiver {
    async fn deliver(&self, message: &Message) -> Tried {
        let id = message.event_id.clone();
        assert!(self.in_hand.lock().expect("nobody panics here").insert(id.clone()), "two have {id}");
        self.seen.lock().expect("nobody panics here").push(id.clone());
        tokio::task::yield_now().await;
        let does = (self.does)(message);
        // A hanging call is dropped, and no longer running by then.
        if !matches!(does, Does::Wait(_)) {
            self.in_hand.lock().expect("nobody panics here").remove(&id);
        }
        match does {
            Does::Accept => Tried::Accepted { reference: None },
            Does::AcceptAs(reference) => Tried::Accepted { reference: Some(reference.to_owned()) },
            Does::Fail => Tried::Failed { why: "status 500".to_owned(), retry_after: None },
            Does::Refuse => Tried::Refused { why: "status 400".to_owned() },
            Does::Hang => std::future::pending().await,
            Does::Panic => panic!("a sink that panics"),
            Does::Wait(gate) => {
                gate.pass().await;
                Tried::Accepted { reference: None }
            }
        }
    }
}

/// Returns options with few tries, and a backoff longer than any test.
fn options() -> OutboxWorkerOptions {
    OutboxWorkerOptions {
        concurrency: 8,
        poll: Duration::from_millis(5),
        timeout: Duration::from_secs(20),
        lease: Duration::from_secs(60),
        retry: RetryTerms {
            max_attempts: 3,
            first_delay: Duration::from_secs(3600),
            max_delay: Duration::from_secs(36_000),
        },
        drain: Duration::from_secs(20),
        ..OutboxWorkerOptions::default()
    }
}

/// A running worker.
struct Working {
    stop: StopHandle,
    task: JoinHandle<Drained>,
}

impl Working {
    fn begin(outbox: Arc<dyn Outbox>, sink: Arc<dyn Sink>, options: OutboxWorkerOptions) -> Working {
        let worker = OutboxWorker::new(outbox, sink, options);
        Working { stop: worker.stopper(), task: tokio::spawn(worker.run()) }
    }

    async fn end(self) -> Drained {
        self.stop.stop();
        self.task.await.expect("it ends")
    }
}

/// Waits until the condition is true.
async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    for _ in 0..4000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

async fn count(lab: &impl Lab, state: &str) -> i64 {
    lab.number(&format!("SELECT count(*) FROM semel_outbox WHERE state = '{state}'")).await
}

async fn until_count(lab: &impl Lab, state: &str, wanted: i64) {
    until(&format!("{wanted} are {state}"), || async { count(lab, state).await == wanted }).await;
}

/// Executes a command that sends these messages, one after the other.
async fn send(lab: &impl Lab, key: &str, kinds: &[&'static str]) {
    let mut steps = vec![Step::Sql(PAY)];
    steps.extend(kinds.iter().map(|kind| Step::Push(kind)));
    let saw = lab.see(&command(key), Work { steps, end: End::Created }).await;
    assert!(saw.executed(), "{saw:?}");
}

async fn only(outbox: &Arc<dyn Outbox>) -> Message {
    let mut all = outbox.messages(&MessageFilter::default()).await.expect("it can be read");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

async fn take(outbox: &Arc<dyn Outbox>) -> Vec<Message> {
    take_except(outbox, &[]).await
}

async fn take_except(outbox: &Arc<dyn Outbox>, kinds: &[&str]) -> Vec<Message> {
    let except = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let take = Take { token: RandomIds.attempt_token(), lease: Duration::from_secs(60), limit: 10, except };
    outbox.take(&take).await.expect("they can be taken")
}

fn note(action: &str) -> Note {
    Note { who: "olga".to_owned(), action: format!("outbox {action}"), why: "a test".to_owned() }
}

async fn messages_of_a_command_arrive_in_their_order(lab: impl Lab) {
    const KINDS: [&str; 3] = ["c.first", "a.second", "b.third"];
    for key in 0..12 {
        send(&lab, &format!("key-{key}"), &KINDS).await;
    }
    let receiver = Receiver::new(|_| Does::Accept);
    let kept = [lab.kept().await, lab.kept().await, lab.kept().await];
    let workers = kept.each_ref().map(|kept| Working::begin(kept.outbox(), receiver.clone(), options()));
    until_count(&lab, "delivered", 36).await;
    for worker in workers {
        assert_eq!(worker.end().await, Drained { left: 0 });
    }
    let mut of_each: HashMap<String, Vec<String>> = HashMap::new();
    for id in receiver.seen() {
        let (command, kind) = id.split_once(':').expect("it has both");
        of_each.entry(command.to_owned()).or_default().push(kind.to_owned());
    }
    assert_eq!(of_each.len(), 12);
    assert!(of_each.values().all(|kinds| kinds[..] == KINDS), "{of_each:?}");
}

async fn several_workers_never_have_the_same_message(lab: impl Lab) {
    for key in 0..40 {
        send(&lab, &format!("key-{key}"), &["payment.created"]).await;
    }
    // The receiver itself checks that no other worker has the message.
    let receiver = Receiver::new(|_| Does::Accept);
    let kept = [lab.kept().await, lab.kept().await, lab.kept().await, lab.kept().await];
    let workers = kept.each_ref().map(|kept| Working::begin(kept.outbox(), receiver.clone(), options()));
    until_count(&lab, "delivered", 40).await;
    for worker in workers {
        worker.end().await;
    }
    let seen = receiver.seen();
    let different: HashSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), different.len()), (40, 40));
    assert_eq!(lab.number("SELECT max(attempts) FROM semel_outbox").await, 1);
}

async fn a_command_that_is_rolled_back_sends_nothing(lab: impl Lab) {
    let steps = vec![Step::Push("payment.created")];
    lab.see(&command("back"), Work { steps: steps.clone(), end: End::Retryable(503) }).await;
    lab.see(&command("panic"), Work { steps, end: End::Panic }).await;
    send(&lab, "good", &["payment.good"]).await;
    let receiver = Receiver::new(|_| Does::Accept);
    let worker = Working::begin(lab.kept().await.outbox(), receiver.clone(), options());
    until_count(&lab, "delivered", 1).await;
    worker.end().await;
    assert_eq!(receiver.kinds(), ["payment.good"]);
}

async fn a_poison_message_does_not_stop_the_others(lab: impl Lab) {
    for (key, kind) in [("a", "hangs"), ("b", "fails"), ("c", "refused"), ("d", "panics")] {
        send(&lab, key, &[kind]).await;
    }
    for key in 0..20 {
        send(&lab, &format!("key-{key}"), &["good"]).await;
    }
    let receiver = Receiver::new(|message| match message.kind.as_str() {
        "hangs" => Does::Hang,
        "fails" => Does::Fail,
        "refused" => Does::Refuse,
        "panics" => Does::Panic,
        _ => Does::Accept,
    });
    let kept = lab.kept().await;
    let options = OutboxWorkerOptions { drain: Duration::ZERO, ..options() };
    let worker = Working::begin(kept.outbox(), receiver, options);
    until_count(&lab, "delivered", 20).await;
    until_count(&lab, "dead", 1).await;
    worker.end().await;
    assert_eq!(count(&lab, "pending").await, 3);
    let depth = kept.outbox().depth().await.expect("it counts");
    assert_eq!((depth.pending, depth.dead), (3, 1));
    assert!(depth.oldest_pending.is_some());
}

async fn messages_of_held_kinds_wait_and_others_go_out(lab: impl Lab) {
    for key in 0..70 {
        send(&lab, &format!("held-{key}"), &["held", "behind"]).await;
    }
    send(&lab, "free", &["free", "held"]).await;
    let (kept, held) = (lab.kept().await, ["other", "held"]);
    let outbox = kept.outbox();
    let taken = take_except(&outbox, &held).await;
    assert_eq!(taken.iter().map(|message| message.kind.as_str()).collect::<Vec<_>>(), ["free"]);
    assert_eq!(take_except(&outbox, &held).await, [], "what is behind a held one waits too");
    assert_eq!(lab.number("SELECT max(attempts) FROM semel_outbox WHERE kind <> 'free'").await, 0);
    let lifted = take(&outbox).await;
    assert_eq!(lifted.len(), 10);
    assert!(lifted.iter().all(|message| message.kind == "held"), "{lifted:?}");
}

/// Lets a worker give up the first of two messages.
async fn first_is_dead(lab: &impl Lab, kept: &Kept) -> Message {
    send(lab, "key", &["first", "second"]).await;
    let receiver = Receiver::new(|_| Does::Fail);
    let worker = Working::begin(kept.outbox(), receiver.clone(), options());
    for tries in 1..=3 {
        until("it is tried", || async { receiver.seen().len() == tries }).await;
        let attempts = format!(
            "SELECT count(*) FROM semel_outbox WHERE attempts = {tries} AND (token IS NULL OR state = 'dead')"
        );
        until("that is written down", || async { lab.number(&attempts).await == 1 }).await;
        kept.shift_clock(Duration::from_secs(36_000));
    }
    until_count(lab, "dead", 1).await;
    worker.end().await;
    assert_eq!(receiver.kinds(), ["first"; 3], "the second waits for it");
    let filter = MessageFilter { state: Some(MessageState::Dead), ..MessageFilter::default() };
    let dead = kept.outbox().messages(&filter).await.expect("it can be read").remove(0);
    assert_eq!(dead.last_error.as_deref(), Some("status 500"));
    assert!(dead.done_at.is_some());
    dead
}

async fn a_dead_message_holds_back_those_behind_it_until_it_is_retried(lab: impl Lab) {
    let kept = lab.kept().await;
    let dead = first_is_dead(&lab, &kept).await;
    assert_eq!(take(&kept.outbox()).await, [], "the second is held back");
    let retried = kept.outbox().intervene(&dead.event_id, Intervention::Retry, &note("retry")).await;
    assert!(retried.expect("it writes"));
    let receiver = Receiver::new(|_| Does::Accept);
    let worker = Working::begin(kept.outbox(), receiver.clone(), options());
    until_count(&lab, "delivered", 2).await;
    worker.end().await;
    assert_eq!(receiver.kinds(), ["first", "second"]);
    let notes = kept.store().notes(dead.operation_id).await.expect("it can be read");
    let note = &notes.last().expect("it was noted").note;
    assert_eq!((note.who.as_str(), note.action.as_str()), ("olga", "outbox retry first"));
    let again = kept.outbox().intervene(&dead.event_id, Intervention::Retry, &self::note("retry")).await;
    assert!(!again.expect("it reads"), "what is delivered stays so");
}

async fn a_discarded_message_is_never_sent_and_frees_those_behind_it(lab: impl Lab) {
    let kept = lab.kept().await;
    let dead = first_is_dead(&lab, &kept).await;
    let discarded = kept.outbox().intervene(&dead.event_id, Intervention::Discard, &note("discard")).await;
    assert!(discarded.expect("it writes"));
    let receiver = Receiver::new(|_| Does::Accept);
    let worker = Working::begin(kept.outbox(), receiver.clone(), options());
    until_count(&lab, "delivered", 1).await;
    worker.end().await;
    assert_eq!(receiver.kinds(), ["second"]);
    let notes = kept.store().notes(dead.operation_id).await.expect("it can be read");
    assert_eq!(notes.last().expect("it was noted").note.action, "outbox discard first");
    assert_eq!(kept.outbox().message(&dead.event_id).await.expect("it reads").0, None);
}

async fn a_leased_message_cannot_be_retried_or_discarded(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "key", &["message"]).await;
    let taken = take(&kept.outbox()).await.remove(0);
    for (intervention, name) in [(Intervention::Retry, "retry"), (Intervention::Discard, "discard")] {
        let done = kept.outbox().intervene(&taken.event_id, intervention, &note(name)).await;
        assert!(!done.expect("it reads"), "a worker has it");
    }
    assert_eq!(kept.store().notes(taken.operation_id).await.expect("it reads"), []);
    kept.shift_clock(Duration::from_secs(61));
    let done = kept.outbox().intervene(&taken.event_id, Intervention::Retry, &note("retry")).await;
    assert!(done.expect("it writes"), "its lease has ended");
    let fence = taken.fence().expect("it was taken");
    assert!(
        !kept.outbox().settle(&fence, Next::Delivered, None).await.expect("it reads").is_written(),
        "too late"
    );
}

async fn the_backoff_is_measured_by_the_clock_of_the_database(lab: impl Lab) {
    let kept = lab.kept().await;
    let outbox = kept.outbox();
    send(&lab, "key", &["message"]).await;
    let fence = take(&outbox).await[0].fence().expect("it was taken");
    let next = Next::Retry { after: Duration::from_secs(3600) };
    assert!(outbox.settle(&fence, next, Some("later")).await.expect("it writes").is_written());
    let waiting = only(&outbox).await;
    assert_eq!((waiting.attempts, waiting.token, waiting.done_at), (1, None, None));
    assert_eq!(waiting.last_error.as_deref(), Some("later"));
    kept.shift_clock(Duration::from_secs(3000));
    assert_eq!(take(&outbox).await, []);
    assert_eq!(take(&lab.kept().await.outbox()).await, [], "nor by a clock that was not moved");
    kept.shift_clock(Duration::from_secs(600));
    let taken = take(&outbox).await.remove(0);
    assert_eq!((taken.attempts, taken.epoch), (2, 2));
    assert_eq!(&taken.payload[..], b"{}");
}

async fn a_late_worker_writes_nothing(lab: impl Lab) {
    let kept = lab.kept().await;
    let outbox = kept.outbox();
    send(&lab, "key", &["message"]).await;
    let first = take(&outbox).await[0].fence().expect("it was taken");
    assert_eq!(take(&outbox).await, [], "it is in hand");
    kept.shift_clock(Duration::from_secs(61));
    let second = take(&outbox).await[0].fence().expect("it was taken");
    assert!(!outbox.accept(&first, "late").await.expect("it reads"));
    for next in [Next::Delivered, Next::Dead, Next::Retry { after: Duration::ZERO }] {
        assert!(!outbox.settle(&first, next, None).await.expect("it reads").is_written(), "{next:?}");
    }
    assert!(outbox.accept(&second, "ref-2").await.expect("it writes"));
    assert!(outbox.settle(&second, Next::Delivered, None).await.expect("it writes").is_written());
    assert!(
        !outbox.settle(&second, Next::Dead, None).await.expect("it reads").is_written(),
        "once is enough"
    );
    let message = only(&outbox).await;
    assert_eq!(
        (message.state, message.provider_reference.as_deref()),
        (MessageState::Delivered, Some("ref-2"))
    );
}

async fn a_message_with_a_reference_is_not_sent_again(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "key", &["message"]).await;
    let fence = take(&kept.outbox()).await[0].fence().expect("it was taken");
    assert!(kept.outbox().accept(&fence, "ref-1").await.expect("it writes"));
    kept.shift_clock(Duration::from_secs(61));
    let receiver = Receiver::new(|_| Does::AcceptAs("ref-2"));
    let worker = Working::begin(kept.outbox(), receiver.clone(), options());
    until_count(&lab, "delivered", 1).await;
    worker.end().await;
    assert_eq!(receiver.seen(), [""; 0]);
    assert_eq!(only(&kept.outbox()).await.provider_reference.as_deref(), Some("ref-1"));
}

async fn a_message_that_kills_its_workers_dies_in_the_end(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "key", &["message"]).await;
    for _ in 0..3 {
        assert_eq!(take(&kept.outbox()).await.len(), 1);
        kept.shift_clock(Duration::from_secs(61));
    }
    let receiver = Receiver::new(|_| Does::Accept);
    let worker = Working::begin(kept.outbox(), receiver.clone(), options());
    until_count(&lab, "dead", 1).await;
    worker.end().await;
    assert_eq!(receiver.seen(), [""; 0]);
    let why = only(&kept.outbox()).await.last_error.expect("it says why");
    assert!(why.contains("no worker lived"), "{why}");
}

async fn a_sink_that_panics_costs_a_try(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "key", &["message"]).await;
    let receiver =
        Receiver::new(|message| if message.attempts == 1 { Does::Panic } else { Does::AcceptAs("ref") });
    let worker = Working::begin(kept.outbox(), receiver.clone(), options());
    until("it is tried", || async { receiver.seen().len() == 1 }).await;
    kept.shift_clock(Duration::from_secs(61));
    until_count(&lab, "delivered", 1).await;
    worker.end().await;
    let message = only(&kept.outbox()).await;
    assert_eq!((message.attempts, message.provider_reference.as_deref()), (2, Some("ref")));
}

async fn a_stopped_worker_delivers_its_messages_in_flight(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "key", &["first", "second"]).await;
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::new(move |_| Does::Wait(held.clone()));
    let worker = Working::begin(kept.outbox(), receiver.clone(), options());
    gate.begun().await;
    worker.stop.stop();
    // Once for the first, and once for the second, which may be in flight already.
    gate.open();
    gate.open();
    assert_eq!(worker.end().await, Drained { left: 0 });
    let (seen, delivered) = (receiver.seen().len() as i64, count(&lab, "delivered").await);
    assert!(seen >= 1 && seen == delivered, "{seen} {delivered}");
    assert_eq!(lab.number("SELECT count(*) FROM semel_outbox WHERE token IS NOT NULL").await, delivered);
}

async fn a_worker_that_cannot_finish_leaves_the_rest_to_the_next(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "key", &["message"]).await;
    let receiver = Receiver::new(|message| if message.attempts == 1 { Does::Hang } else { Does::Accept });
    let options = OutboxWorkerOptions { drain: Duration::from_millis(1), ..options() };
    let worker = Working::begin(kept.outbox(), receiver.clone(), options);
    until("it is tried", || async { receiver.seen().len() == 1 }).await;
    assert_eq!(worker.end().await, Drained { left: 1 });
    kept.shift_clock(Duration::from_secs(61));
    let next = Working::begin(kept.outbox(), receiver.clone(), options);
    until_count(&lab, "delivered", 1).await;
    next.end().await;
    let seen = receiver.seen();
    assert!(seen.len() == 2 && seen[0] == seen[1], "the same id: {seen:?}");
}

async fn delivered_messages_are_forgotten_and_dead_ones_are_not(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "a", &["good", "dies", "waits"]).await;
    send(&lab, "b", &["good"]).await;
    let receiver = Receiver::new(|message| if message.kind == "dies" { Does::Refuse } else { Does::Accept });
    let options = OutboxWorkerOptions { upkeep: Duration::from_millis(5), ..options() };
    let worker = Working::begin(kept.outbox(), receiver, options);
    until_count(&lab, "delivered", 2).await;
    until_count(&lab, "dead", 1).await;
    let week = Duration::from_secs(7 * 24 * 3600);
    assert_eq!(kept.outbox().reap_messages(week, 10).await.expect("it writes"), 0, "too early");
    kept.shift_clock(week + Duration::from_secs(1));
    until_count(&lab, "delivered", 0).await;
    worker.end().await;
    assert_eq!((count(&lab, "dead").await, count(&lab, "pending").await), (1, 1));
}

async fn messages_with_the_default_due_time_are_delivered(lab: impl Lab) {
    send(&lab, "key", &["message"]).await;
    // The column's default.
    lab.run("UPDATE semel_outbox SET due_at = 0").await;
    let worker = Working::begin(lab.kept().await.outbox(), Receiver::new(|_| Does::Accept), options());
    until_count(&lab, "delivered", 1).await;
    worker.end().await;
}

async fn message_lists_apply_their_filters(lab: impl Lab) {
    let kept = lab.kept().await;
    let outbox = kept.outbox();
    for key in 0..5 {
        send(&lab, &format!("key-{key}"), &["one", "two"]).await;
    }
    let mut filter = MessageFilter { kind: Some("two".to_owned()), limit: 2, ..MessageFilter::default() };
    let mut all = Vec::new();
    loop {
        let page = outbox.messages(&filter).await.expect("it can be read");
        let Some(last) = page.last() else { break };
        filter.after = Some(last.event_id.clone());
        all.extend(page);
    }
    assert_eq!(all.len(), 5);
    assert!(all.is_sorted_by(|a, b| a.event_id < b.event_id));
    assert!(
        all.iter()
            .all(|message| message.kind == "two" && message.payload.is_empty() && message.payload_bytes == 2)
    );
    let (found, now) = outbox.message(&all[0].event_id).await.expect("it can be read");
    assert_eq!(&found.expect("it is there").payload[..], b"{}");
    let none = MessageFilter { created_before: Some(all[0].created_at), ..MessageFilter::default() };
    let older = outbox.messages(&none).await.expect("it can be read");
    assert!(older.iter().all(|message| message.created_at < all[0].created_at));
    let dead = MessageFilter { state: Some(MessageState::Dead), ..MessageFilter::default() };
    assert_eq!(outbox.messages(&dead).await.expect("it can be read"), []);
    assert!(outbox.message("nobody:knows").await.expect("it can be read").1 >= now);
}

async fn a_worker_that_is_woken_looks_at_once(lab: impl Lab) {
    let kept = lab.kept().await;
    send(&lab, "first", &["first"]).await;
    let receiver = Receiver::new(|_| Does::Accept);
    // The worker polls once, and then not again while this test runs.
    let rarely = OutboxWorkerOptions { poll: Duration::from_secs(3600), ..options() };
    let worker = OutboxWorker::new(kept.outbox(), receiver.clone(), rarely);
    let (stop, wake) = (worker.stopper(), worker.waker());
    let task = tokio::spawn(worker.run());
    until_count(&lab, "delivered", 1).await;
    for key in ["second", "third"] {
        send(&lab, key, &["message"]).await;
        wake.wake();
        let wanted = if key == "second" { 2 } else { 3 };
        until_count(&lab, "delivered", wanted).await;
    }
    Working { stop, task }.end().await;
}

/// Loses the answer to the write that marks a delivered message, and checks that the message still counts.
async fn a_lost_answer_does_not_make_it_late(
    lab: impl Lab,
    kept: Kept,
    lose_next_answer: impl Fn() + Send + Sync + 'static,
) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let counted = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    send(&lab, "key", &["lost.accepted", "lost.refused"]).await;
    let receiver = Receiver::new(move |message| {
        lose_next_answer();
        if message.kind == "lost.accepted" { Does::Accept } else { Does::Refuse }
    });
    // The worker looks for messages only after a delivery: nothing else is written meanwhile.
    let options = OutboxWorkerOptions { poll: Duration::from_secs(3600), ..options() };
    let worker = Working::begin(kept.outbox(), receiver.clone(), options);
    until_count(&lab, "dead", 1).await;
    worker.end().await;
    assert_eq!(count(&lab, "delivered").await, 1);
    let told = counted.render();
    for line in
        ["outbox_delivered_total{topic=\"lost.accepted\"} 1", "outbox_dead_total{topic=\"lost.refused\"} 1"]
    {
        assert!(told.lines().any(|told| told == line), "{line} is not in {told}");
    }
}

#[tokio::test]
async fn a_message_whose_settling_was_not_answered_counts_on_postgres() {
    let lab = Postgres::new().await;
    let proxy = FaultProxy::before(&lab.database.url()).await.expect("a port is free");
    let kept = Kept::at(&proxy.url(&lab.database.url())).await;
    let settling = Matching::statement("UPDATE semel_outbox SET state = $5");
    let lose = move || drop(proxy.cut_next(settling.clone(), Cut::AfterServerAnswered));
    a_lost_answer_does_not_make_it_late(lab, kept, lose).await;
}

#[tokio::test]
async fn a_message_whose_settling_was_not_answered_counts_on_sqlite() {
    let lab = Sqlite::new();
    let store = Arc::new(SqliteStore::open(lab.place()).expect("the file opens again"));
    let lever = store.clone();
    let lose = move || lever.lose_next_commit_answer();
    a_lost_answer_does_not_make_it_late(lab, Kept::Sqlite(store), lose).await;
}
