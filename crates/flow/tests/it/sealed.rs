//! Transactions with a vault: stored data is sealed, and returned data is clear.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use semel_core::envelope::is_envelope;
use semel_core::outbox::{Intervention, Message, MessageFilter, MessageState, Outbox, RetryTerms, Tried};
use semel_core::{Change, Decision, Note, Record, Records, StateName, Transacted, Vault};
use semel_flow::Settled;
use semel_flow::outbox::{OutboxWorker, OutboxWorkerOptions, Sink};
use semel_stores::encryption::{AesVault, Rotation, RotationStep, SealedStore};

use crate::lab::{End, Lab, PAY, Postgres, Saw, Sqlite, Step, Work, both, command, pays, saw, stored};
use crate::rides::{Act, Phased, Provider, Ride, resumed};

both!(
    a_response_is_sealed_and_replayed_in_the_clear,
    a_final_failure_is_stored_sealed,
    a_deferred_command_is_settled_with_a_sealed_response,
    evidence_is_stored_sealed,
    without_its_key_a_command_is_not_run_again,
    a_response_stored_in_the_clear_is_replayed,
    payloads_of_messages_are_sealed_and_delivered_in_the_clear,
    outputs_of_phases_are_sealed_and_a_run_is_resumed_from_them,
    the_output_that_a_verdict_brings_is_sealed_and_read_by_the_run_after_it,
);

fn vault(id: &str) -> Arc<dyn Vault> {
    let key = [id.as_bytes()[0]; 32];
    Arc::new(AesVault::new(id, [(id.to_owned(), key)]).expect("the key is good"))
}

/// A lab that can be given a vault, or another one.
trait Sealable: Lab {
    fn under(self, id: &str) -> Self;
}

impl Sealable for Postgres {
    fn under(mut self, id: &str) -> Postgres {
        self.transactions = self.transactions.vault(vault(id));
        self
    }
}

impl Sealable for Sqlite {
    fn under(mut self, id: &str) -> Sqlite {
        self.transactions = self.transactions.vault(vault(id));
        self
    }
}

/// Returns the record as the holder of the key sees it, after a check that the stored one shows nothing of its
/// response.
async fn opened(lab: &impl Lab, record: &Record, id: &str) -> Record {
    let store = lab.store().await;
    let kept = store.get(&record.id).await.expect("it reads").record.expect("it is there");
    let result = kept.result.expect("it is settled");
    assert_eq!(result.response.encryption_key_id.as_deref(), Some(id));
    assert_eq!(result.resource, None);
    let shows = |text: &[u8]| result.response.bytes.windows(text.len()).any(|window| window == text);
    assert!(!shows(b"answer of") && !shows(b"/payments"), "{result:?}");
    let store = SealedStore::new(store, vault(id));
    semel_core::Store::get(&store, &record.id).await.expect("it reads").record.expect("it is there")
}

async fn a_response_is_sealed_and_replayed_in_the_clear(lab: impl Sealable) {
    let lab = lab.under("a");
    let answered = lab.transact(&command("k"), pays()).await;
    let Transacted::Executed { record, .. } = answered.outcome() else { panic!("it runs: {answered:?}") };
    let answer = format!("answer of {}", record.operation_id);
    assert_eq!(stored(record), (201, answer.clone().into()), "the layer gets it in the clear");
    assert_eq!(opened(&lab, record, "a").await, **record);
    assert_eq!(record.result.as_ref().and_then(|result| result.resource.as_deref()), Some("/payments/7"));
    assert_eq!(lab.see(&command("k"), pays()).await, Saw::Replayed(201, answer));
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn a_final_failure_is_stored_sealed(lab: impl Sealable) {
    let lab = lab.under("a");
    let answered = lab.transact(&command("k"), pays().ending(End::Final(402))).await;
    let Transacted::Executed { record, .. } = answered.outcome() else { panic!("it runs: {answered:?}") };
    assert_eq!(stored(&opened(&lab, record, "a").await).0, 402);
}

async fn a_deferred_command_is_settled_with_a_sealed_response(lab: impl Sealable) {
    let lab = lab.under("a");
    let later = Work { steps: vec![Step::Sql(PAY), Step::Push("charge")], end: End::Deferred };
    let answered = lab.transact(&command("k"), later.clone()).await;
    let Transacted::Deferred { record, .. } = answered.outcome() else { panic!("{answered:?}") };
    let done = Work { steps: Vec::new(), end: End::Created };
    let Settled::Now(settled) = lab.settle(record.operation_id, None, done.clone()).await else {
        panic!("its message settles it")
    };
    assert_eq!(stored(&settled).0, 201);
    assert_eq!(opened(&lab, &settled, "a").await, *settled);
    let Settled::Before(before) = lab.settle(record.operation_id, None, done).await else {
        panic!("it is settled")
    };
    assert_eq!(*before, *settled);
    assert!(lab.see(&command("k"), later).await.replayed());
}

async fn evidence_is_stored_sealed(lab: impl Sealable) {
    let lab = lab.under("a");
    let later = Work { steps: vec![Step::Sql(PAY), Step::Push("charge")], end: End::Deferred };
    let answered = lab.transact(&command("k"), later).await;
    let Transacted::Deferred { record, .. } = answered.outcome() else { panic!("{answered:?}") };
    let note = Note { who: "a test".into(), action: "resolve".into(), why: "it was captured".into() };
    let done = Work { steps: Vec::new(), end: End::Created };
    let Settled::Now(settled) = lab.settle(record.operation_id, Some(note), done).await else {
        panic!("evidence settles it")
    };
    assert_eq!(opened(&lab, &settled, "a").await, *settled);
}

async fn without_its_key_a_command_is_not_run_again(lab: impl Sealable) {
    let lab = lab.under("a");
    assert!(lab.see(&command("k"), pays()).await.executed());
    let lab = lab.under("b");
    let answered = lab.transact(&command("k"), pays()).await;
    let Transacted::Decided { decision: Decision::Replay, record: Some(record), .. } = answered.outcome()
    else {
        panic!("it is not run: {answered:?}")
    };
    assert!(record.result.as_ref().expect("it is settled").response.decode().is_err());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn a_response_stored_in_the_clear_is_replayed(lab: impl Sealable) {
    assert!(lab.see(&command("k"), pays()).await.executed());
    assert!(lab.under("a").see(&command("k"), pays()).await.replayed());
}

/// A receiver that keeps the messages it gets.
#[derive(Default)]
struct Payloads(Mutex<Vec<Bytes>>);

#[async_trait]
impl Sink for Payloads {
    async fn deliver(&self, message: &Message) -> Tried {
        self.0.lock().expect("nobody panics here").push(message.payload.clone());
        Tried::Accepted { reference: None }
    }
}

/// Runs a worker on this outbox until the message is in this state.
async fn work(outbox: Arc<dyn Outbox>, event_id: &str, state: MessageState) -> Vec<Bytes> {
    let sink = Arc::new(Payloads::default());
    let retry = RetryTerms { max_attempts: 1, ..RetryTerms::default() };
    let options =
        OutboxWorkerOptions { poll: Duration::from_millis(5), retry, ..OutboxWorkerOptions::default() };
    let worker = OutboxWorker::new(outbox.clone(), sink.clone(), options);
    let (stop, working) = (worker.stopper(), tokio::spawn(worker.run()));
    while outbox.message(event_id).await.expect("it reads").0.is_none_or(|message| message.state != state) {
        tokio::task::yield_now().await;
    }
    stop.stop();
    working.await.expect("it ends");
    sink.0.lock().expect("nobody panics here").clone()
}

async fn payloads_of_messages_are_sealed_and_delivered_in_the_clear(lab: impl Sealable) {
    let lab = lab.under("a");
    assert!(lab.see(&command("k"), pays()).await.executed());
    let kept = lab.kept().await;
    let plain = kept.outbox();
    let listed = plain.messages(&MessageFilter::default()).await.expect("it reads");
    let [Message { event_id, .. }] = &listed[..] else { panic!("{listed:?}") };
    let stored = plain.message(event_id).await.expect("it reads").0.expect("it is there").payload;
    assert!(is_envelope(&stored) && !stored.ends_with(b"{}"), "{stored:?}");

    assert_eq!(
        work(plain.clone(), event_id, MessageState::Dead).await,
        [] as [Bytes; 0],
        "sealed, it is not sent"
    );
    let note = Note { who: "a test".into(), action: "retry".into(), why: "the key is back".into() };
    assert!(plain.intervene(event_id, Intervention::Retry, &note).await.expect("it writes"));
    let sealed = |id: &str| -> Arc<dyn Outbox> { Arc::new(SealedStore::new(plain.clone(), vault(id))) };
    assert_eq!(work(sealed("b"), event_id, MessageState::Dead).await, [] as [Bytes; 0], "under another key");
    assert!(plain.intervene(event_id, Intervention::Retry, &note).await.expect("it writes"));
    let shown = sealed("a").message(event_id).await.expect("it reads").0.expect("it is there");
    assert_eq!(shown.payload, "{}");
    assert_eq!(work(sealed("a"), event_id, MessageState::Delivered).await, [Bytes::from_static(b"{}")]);
}

async fn outputs_of_phases_are_sealed_and_a_run_is_resumed_from_them(lab: impl Sealable + Phased) {
    let lab = lab.under("a");
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let sealed =
        |vault: Arc<dyn Vault>| -> Arc<dyn Records> { Arc::new(SealedStore::new(kept.store(), vault)) };
    let rides = lab.rides(sealed(vault("a")), Ride::new(&provider).once("after the ride", || Act::Panic));
    let command = command("key");
    assert_eq!(saw(&rides.start(&command, "ride 7").await), Saw::Decided(Decision::Wait));
    let id = command.scope.record_id();
    kept.shift_clock(Duration::from_secs(3600));
    let record = resumed(&[&rides], &kept, &id).await;
    assert_eq!(record.head.state.name(), StateName::Succeeded);
    let opened = sealed(vault("a")).get(&id).await.expect("it reads").record.expect("it is there");
    let body = String::from_utf8_lossy(&stored(&opened).1).into_owned();
    assert!(body.contains("ride_created by attempt 1"), "its output was read again: {body}");

    let outputs = async |store: Arc<dyn Records>| {
        let steps = store.progress(record.operation_id).await.expect("it reads");
        steps.iter().filter_map(|step| step.what.output().cloned()).collect::<Vec<_>>()
    };
    let below = outputs(kept.store()).await;
    assert!(below.len() == 3 && below.iter().all(|output| is_envelope(output)), "{below:?}");
    let clear = outputs(sealed(vault("a"))).await;
    assert!(clear.iter().all(|output| !is_envelope(output)), "{clear:?}");

    let reseal = kept.store();
    let keys = ["b", "a"].map(|id| (id.to_owned(), [id.as_bytes()[0]; 32]));
    let both: Arc<dyn Vault> = Arc::new(AesVault::new("b", keys).expect("the keys are good"));
    let mut rotation = Rotation::new(reseal.clone(), both, 2);
    while rotation.step().await.expect("the store works") != RotationStep::Done {}
    assert!(rotation.so_far().is_complete(), "{:?}", rotation.so_far());
    let uses = reseal.key_uses().await.expect("it reads");
    assert!(uses.iter().all(|used| used.key_id.as_deref() == Some("b")), "{uses:?}");
    assert!(uses.iter().any(|used| used.kind.as_str() == "phase" && used.count == 3), "{uses:?}");
    assert!(uses.iter().any(|used| used.kind.as_str() == "message"), "{uses:?}");
    assert_eq!(outputs(sealed(vault("b"))).await, clear);
    assert!(
        outputs(sealed(vault("a"))).await.iter().all(|output| is_envelope(output)),
        "the old key is of no use"
    );
}

async fn the_output_that_a_verdict_brings_is_sealed_and_read_by_the_run_after_it(
    lab: impl Sealable + Phased,
) {
    let lab = lab.under("a");
    let (provider, kept) = (Provider::start(false).await, lab.kept().await);
    let store: Arc<dyn Records> = Arc::new(SealedStore::new(kept.store(), vault("a")));
    let rides = lab.rides(store.clone(), Ride::new(&provider).once("after sending", || Act::Panic));
    let command = command("key");
    assert_eq!(saw(&rides.start(&command, "ride 7").await), Saw::Decided(Decision::Reconcile));
    let id = command.scope.record_id();
    let open = store.get(&id).await.expect("it reads").record.expect("it is there");
    let output = Bytes::from_static(b"1");
    let verdict = Change::resolve_call_executed(open.head.epoch, "charge_created", output.clone());
    let verdict = verdict.expect("it is JSON").noted(Note {
        who: "a test".into(),
        action: "resolve".into(),
        why: "it is in the ledger".into(),
    });
    let answer = store.apply(&id, &verdict).await.expect("the store answers");
    assert_eq!(answer.decision, Decision::Applied);

    let charge = async |store: Arc<dyn Records>| {
        let steps = store.progress(open.operation_id).await.expect("it reads");
        let charge = steps.into_iter().find(|step| step.name == "charge_created");
        charge.and_then(|step| step.what.output().cloned()).expect("it has an output")
    };
    assert!(is_envelope(&charge(kept.store()).await));
    assert_eq!(charge(store.clone()).await, output);
    let notes = store.notes(open.operation_id).await.expect("it reads");
    assert_eq!(notes.last().map(|taken| taken.note.action.as_str()), Some("resolve executed"));
    let done = resumed(&[&rides], &kept, &id).await;
    assert_eq!(done.head.state.name(), StateName::Succeeded);
    assert_eq!(provider.counts(), (1, 1), "it is not called again");
}
