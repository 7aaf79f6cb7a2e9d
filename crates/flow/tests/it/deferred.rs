//! Deferred commands: a message settles them after the first answer.

use std::time::Duration;

use semel_core::outbox::{Intervention, MessageFence, MessageState, MessageWrite, Next, Outbox, Take};
use semel_core::transition::{Proof, Refusal};
use semel_core::{
    Change, Decision, Ids, Note, OperationId, RandomIds, Reason, Record, StateName, Transacted,
};
use semel_flow::Settled;

use crate::lab::{End, Kept, Lab, PAY, Saw, Step, Work, both, command, pays, referring, stored};

both!(
    a_deferred_command_is_settled_by_its_message_and_retries_get_that,
    a_stable_failure_settles_a_deferred_command_without_its_writes,
    settling_a_deferred_command_again_keeps_its_first_result,
    one_of_many_concurrent_settlements_takes_effect,
    a_command_that_defers_and_sends_nothing_is_rolled_back,
    a_command_that_defers_and_takes_its_message_back_is_rolled_back,
    work_that_fails_settles_nothing_and_can_be_done_again,
    a_command_that_was_not_deferred_is_not_settled_by_a_message,
    evidence_settles_a_deferred_command_before_its_message,
    a_message_that_is_given_up_leaves_its_command_unknown,
    a_message_that_is_given_up_makes_its_command_unknown_once,
    a_discarded_message_leaves_its_command_unknown,
    a_retried_message_ends_the_quarantine_of_its_command,
    a_discarded_message_with_another_behind_it_permits_no_quarantine_verdict,
    verdicts_never_free_a_deferred_command_for_a_rerun,
    of_two_messages_one_of_which_was_delivered_the_other_is_sent_again,
    a_late_message_settles_a_command_that_was_waited_for_too_long,
);

/// Returns work that defers its outcome.
pub(crate) fn pays_later() -> Work {
    Work { steps: vec![Step::Sql(PAY), Step::Push("charge")], end: End::Deferred }
}

/// Returns the work that settles a known charge.
pub(crate) fn charged() -> Work {
    Work { steps: vec![Step::Sql("INSERT INTO payments (note) VALUES ('captured')")], end: End::Created }
}

fn note() -> Note {
    Note { who: "a test".into(), action: "resolve".into(), why: "charge ch_1 is captured".into() }
}

async fn defer(lab: &impl Lab, key: &str) -> Record {
    let answered = lab.transact(&command(key), pays_later()).await;
    let Transacted::Deferred { record, response } = answered.outcome() else { panic!("{answered:?}") };
    assert_eq!(response.status.as_u16(), 202);
    assert_eq!((record.head.state.name(), record.head.reason), (StateName::Processing, Reason::Deferred));
    (**record).clone()
}

async fn a_command_that_defers_and_takes_its_message_back_is_rolled_back(lab: impl Lab) {
    let mut later = pays_later();
    later.steps.insert(1, Step::Sql("SAVEPOINT part"));
    later.steps.push(Step::Sql("ROLLBACK TO part"));
    assert_eq!(lab.see(&command("key"), later).await, Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
}

async fn record(lab: &impl Lab, id: OperationId) -> Record {
    lab.store().await.find(id).await.expect("it can be read").record.expect("it is there")
}

/// Takes the one message that is due.
async fn take(outbox: &dyn Outbox) -> MessageFence {
    let take = Take {
        token: RandomIds.attempt_token(),
        lease: Duration::from_secs(60),
        limit: 1,
        except: Vec::new(),
    };
    let taken = outbox.take(&take).await.expect("messages can be taken");
    taken.first().expect("one is due").fence().expect("it is taken")
}

async fn a_deferred_command_is_settled_by_its_message_and_retries_get_that(lab: impl Lab) {
    let open = defer(&lab, "k").await;
    assert_eq!(lab.see(&command("k"), pays_later()).await, Saw::Decided(Decision::Wait));
    let Settled::Now(settled) = lab.settle(open.operation_id, None, charged()).await else {
        panic!("its message settles it")
    };
    assert_eq!(settled.head.state.name(), StateName::Succeeded);
    assert_eq!(stored(&settled).0, 201);
    let answer = format!("answer of {}", open.operation_id);
    assert_eq!(lab.see(&command("k"), pays_later()).await, Saw::Replayed(201, answer));
    assert_eq!(lab.counts().await, (2, 1, 1), "both transactions wrote once");
}

async fn a_stable_failure_settles_a_deferred_command_without_its_writes(lab: impl Lab) {
    let open = defer(&lab, "k").await;
    let declined = charged().ending(End::Final(402));
    let settled = lab.settle(open.operation_id, None, declined).await;
    assert!(matches!(&settled, Settled::Now(record) if record.head.state.name() == StateName::FailedFinal));
    assert_eq!(lab.counts().await.0, 1, "what the failure wrote is taken back");
    assert!(matches!(lab.see(&command("k"), pays_later()).await, Saw::Replayed(402, _)));
}

async fn settling_a_deferred_command_again_keeps_its_first_result(lab: impl Lab) {
    let open = defer(&lab, "k").await;
    assert!(matches!(lab.settle(open.operation_id, None, charged()).await, Settled::Now(_)));
    for evidence in [None, Some(note())] {
        let again = lab.settle(open.operation_id, evidence, charged().ending(End::Final(402))).await;
        let Settled::Before(record) = again else { panic!("{again:?}") };
        assert_eq!(stored(&record).0, 201, "the first word counts");
    }
    assert_eq!(lab.counts().await.0, 2);
    let nobody = RandomIds.operation_id(open.created_at);
    assert!(matches!(lab.settle(nobody, None, charged()).await, Settled::Absent));
}

async fn one_of_many_concurrent_settlements_takes_effect(lab: impl Lab) {
    let open = defer(&lab, "k").await;
    let other = lab.second().await;
    let settling = (0..12).map(|number| {
        let (lab, id) = (if number % 2 == 0 { lab.clone() } else { other.clone() }, open.operation_id);
        tokio::spawn(async move { lab.settle(id, (number % 3 == 0).then(note), charged()).await })
    });
    let mut now = 0;
    for task in settling.collect::<Vec<_>>() {
        match task.await.expect("it does not panic") {
            Settled::Now(_) => now += 1,
            Settled::Before(_) | Settled::Unavailable => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((now, lab.counts().await.0), (1, 2));
}

async fn a_command_that_defers_and_sends_nothing_is_rolled_back(lab: impl Lab) {
    let silent = Work { steps: vec![Step::Sql(PAY)], end: End::Deferred };
    assert_eq!(lab.see(&command("k"), silent).await, Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
}

async fn work_that_fails_settles_nothing_and_can_be_done_again(lab: impl Lab) {
    let open = defer(&lab, "k").await;
    for end in [End::Retryable(503), End::Panic] {
        let failed = lab.settle(open.operation_id, None, charged().ending(end)).await;
        assert!(matches!(failed, Settled::RolledBack), "{failed:?}");
    }
    assert_eq!(record(&lab, open.operation_id).await, open);
    assert!(matches!(lab.settle(open.operation_id, None, charged()).await, Settled::Now(_)));
    assert_eq!(lab.counts().await.0, 2);
}

async fn a_command_that_was_not_deferred_is_not_settled_by_a_message(lab: impl Lab) {
    let store = lab.store().await;
    let claim = command("k")
        .claim(RandomIds.operation_id(store.now().await.expect("it is there")), RandomIds.attempt_token());
    let running = store.claim(&claim).await.expect("it can be claimed").record.expect("it is there");
    for evidence in [None, Some(note())] {
        let settled = lab.settle(running.operation_id, evidence, charged()).await;
        assert!(matches!(settled, Settled::Before(_)), "{settled:?}");
    }
    assert_eq!(lab.counts().await.0, 0, "its executor is at it");
}

async fn evidence_settles_a_deferred_command_before_its_message(lab: impl Lab) {
    let open = defer(&lab, "k").await;
    let settled = lab.settle(open.operation_id, Some(note()), charged()).await;
    assert!(matches!(settled, Settled::Now(_)), "{settled:?}");
    let notes = lab.store().await.notes(open.operation_id).await.expect("they can be read");
    let said = Note { action: "resolve executed".into(), ..note() };
    assert_eq!(notes.into_iter().map(|taken| taken.note).collect::<Vec<_>>(), [said]);
    assert!(matches!(lab.settle(open.operation_id, None, charged()).await, Settled::Before(_)));
    assert_eq!(lab.counts().await.0, 2);
}

/// Checks the command of a message that was just given up: unknown, and released only after a quarantine that begins
/// now.
async fn is_given_up(kept: &Kept, id: OperationId) -> Record {
    let store = kept.store();
    let left = store.find(id).await.expect("it can be read").record.expect("it is there");
    assert_eq!((left.head.state.name(), left.head.reason), (StateName::Unknown, Reason::MessageDead));
    let not_executed = Change::resolve_not_executed(Proof::Quarantine);
    let early = store.apply(&left.id, &not_executed).await.expect("it answers").decision;
    assert!(matches!(early, Decision::Refused(_)), "a call may still be in flight");
    left
}

async fn a_message_that_is_given_up_leaves_its_command_unknown(lab: impl Lab) {
    let (open, kept) = (defer(&lab, "k").await, lab.kept().await);
    let fence = take(&*kept.outbox()).await;
    let dead = kept.outbox().settle(&fence, Next::Dead, Some("no")).await;
    assert_eq!(dead.expect("it can be written"), made_unknown(Some(&open)));
    let left = is_given_up(&kept, open.operation_id).await;
    kept.shift_clock(left.head.terms.quarantine);
    let late = kept.store().apply(&left.id, &Change::resolve_not_executed(Proof::Quarantine)).await;
    assert_eq!(late.expect("it answers").decision, Decision::Refused(Refusal::PartlyDone));
}

/// Returns the result of a write that has made this command unknown, if it has one.
fn made_unknown(command: Option<&Record>) -> MessageWrite {
    MessageWrite::Written { made_unknown: command.map(|record| record.operation.clone()) }
}

async fn a_message_that_is_given_up_makes_its_command_unknown_once(lab: impl Lab) {
    for (key, swept) in [("noticed", true), ("unnoticed", false)] {
        let (open, kept) = (defer(&lab, key).await, lab.kept().await);
        let fence = take(&*kept.outbox()).await;
        kept.shift_clock(Duration::from_secs(2 * 3600));
        if swept {
            assert_eq!(kept.store().sweep(10).await.expect("it sweeps").len(), 1);
        }
        let dead = kept.outbox().settle(&fence, Next::Dead, Some("no")).await.expect("it can be written");
        assert_eq!(dead, made_unknown((!swept).then_some(&open)), "{key}");
        assert_eq!(record(&lab, open.operation_id).await.head.reason, Reason::MessageDead);
    }
    let saw = lab.see(&command("executed"), pays()).await;
    assert!(saw.executed(), "{saw:?}");
    let kept = lab.kept().await;
    let fence = take(&*kept.outbox()).await;
    let dead = kept.outbox().settle(&fence, Next::Dead, None).await.expect("it can be written");
    assert_eq!(dead, made_unknown(None), "its command was executed");
    let again = kept.outbox().settle(&fence, Next::Dead, None).await.expect("it can be written");
    assert_eq!(again, MessageWrite::Fenced);
}

async fn a_discarded_message_leaves_its_command_unknown(lab: impl Lab) {
    let (open, kept) = (defer(&lab, "k").await, lab.kept().await);
    let event = format!("{}:charge", open.operation_id);
    assert!(kept.outbox().intervene(&event, Intervention::Discard, &note()).await.expect("it answers"));
    is_given_up(&kept, open.operation_id).await;
    assert_eq!(lab.counts().await.1, 0);
}

async fn a_retried_message_ends_the_quarantine_of_its_command(lab: impl Lab) {
    let (open, kept) = (defer(&lab, "k").await, lab.kept().await);
    let fence = take(&*kept.outbox()).await;
    assert!(kept.outbox().settle(&fence, Next::Dead, None).await.expect("it can be written").is_written());
    let left = is_given_up(&kept, open.operation_id).await;
    assert!(
        kept.outbox().intervene(&fence.event_id, Intervention::Retry, &note()).await.expect("it answers")
    );
    kept.shift_clock(left.head.terms.quarantine * 9);
    let early = kept.store().apply(&left.id, &Change::resolve_not_executed(Proof::Quarantine)).await;
    assert!(
        matches!(early.expect("it answers").decision, Decision::Refused(_)),
        "it may be sent at any time"
    );
    assert!(matches!(lab.settle(open.operation_id, None, charged()).await, Settled::Now(_)));
}

async fn a_discarded_message_with_another_behind_it_permits_no_quarantine_verdict(lab: impl Lab) {
    let kept = lab.kept().await;
    let two = pays_later().then(Step::Push("capture"));
    let answered = lab.transact(&command("k"), two).await;
    let Transacted::Deferred { record: open, .. } = answered.outcome() else { panic!("{answered:?}") };
    let fence = take(&*kept.outbox()).await;
    assert!(kept.outbox().settle(&fence, Next::Dead, None).await.expect("it can be written").is_written());
    is_given_up(&kept, open.operation_id).await;
    let discarded = kept.outbox().intervene(&fence.event_id, Intervention::Discard, &note()).await;
    assert!(discarded.expect("it answers"));
    let left = record(&lab, open.operation_id).await;
    assert_eq!(left.head.reason, Reason::DeferralExpired, "the other may be sent from now on");
    kept.shift_clock(left.head.terms.quarantine * 9);
    let early = kept.store().apply(&left.id, &Change::resolve_not_executed(Proof::Quarantine)).await;
    assert!(matches!(early.expect("it answers").decision, Decision::Refused(_)));
}

async fn verdicts_never_free_a_deferred_command_for_a_rerun(lab: impl Lab) {
    let kept = lab.kept().await;
    let order = |key: &str| referring(command(key), "order-7");
    let answered = lab.transact(&order("k"), pays_later()).await;
    let Transacted::Deferred { record: open, .. } = answered.outcome() else { panic!("{answered:?}") };
    let fence = take(&*kept.outbox()).await;
    assert!(kept.outbox().settle(&fence, Next::Dead, None).await.expect("it can be written").is_written());
    kept.shift_clock(open.head.terms.quarantine * 9);
    for proof in [Proof::Quarantine, Proof::ProviderTombstone, Proof::ProviderDeduplicates] {
        let verdict = Change::resolve_not_executed(proof);
        let refused = kept.store().apply(&open.id, &verdict).await.expect("it answers").decision;
        assert_eq!(refused, Decision::Refused(Refusal::PartlyDone), "{proof:?}");
    }
    assert_eq!(lab.see(&order("k"), pays_later()).await, Saw::Decided(Decision::Reconcile));
    assert_eq!(lab.see(&order("other"), pays_later()).await, Saw::Decided(Decision::Duplicate));
    assert_eq!(lab.counts().await.0, 1, "one row for one order");
    let retried = kept.outbox().intervene(&fence.event_id, Intervention::Retry, &note()).await;
    assert!(retried.expect("it answers"), "the message is sent again, and not the command run again");
    let (message, _) = kept.outbox().message(&fence.event_id).await.expect("it can be read");
    let message = message.expect("it is there");
    assert_eq!((message.state, message.attempts), (MessageState::Pending, 0));
    let late = kept.outbox().settle(&fence, Next::Delivered, None).await;
    assert_eq!(late.expect("it answers"), MessageWrite::Fenced, "whoever had it before is fenced");
    let declined = charged().ending(End::Final(402));
    assert!(matches!(lab.settle(open.operation_id, None, declined).await, Settled::Now(_)));
    let other = lab.see(&order("other"), pays_later()).await;
    assert_eq!(other, Saw::Decided(Decision::Duplicate), "what it committed stays");
}

async fn of_two_messages_one_of_which_was_delivered_the_other_is_sent_again(lab: impl Lab) {
    let kept = lab.kept().await;
    let answered = lab.transact(&command("k"), pays_later().then(Step::Push("capture"))).await;
    let Transacted::Deferred { record: open, .. } = answered.outcome() else { panic!("{answered:?}") };
    let first = take(&*kept.outbox()).await;
    assert!(
        kept.outbox().settle(&first, Next::Delivered, None).await.expect("it can be written").is_written()
    );
    let second = take(&*kept.outbox()).await;
    assert!(kept.outbox().settle(&second, Next::Dead, None).await.expect("it can be written").is_written());
    let left = is_given_up(&kept, open.operation_id).await;
    kept.shift_clock(left.head.terms.quarantine);
    let verdict = Change::resolve_not_executed(Proof::Quarantine);
    let refused = kept.store().apply(&left.id, &verdict).await.expect("it answers").decision;
    assert_eq!(refused, Decision::Refused(Refusal::PartlyDone), "its first message has told of it");
    let retried = kept.outbox().intervene(&second.event_id, Intervention::Retry, &note()).await;
    assert!(retried.expect("it answers"));
    assert_eq!(take(&*kept.outbox()).await.event_id, second.event_id);
    assert!(matches!(lab.settle(open.operation_id, None, charged()).await, Settled::Now(_)));
    assert_eq!(lab.counts().await.0, 2, "both transactions wrote once");
}

async fn a_late_message_settles_a_command_that_was_waited_for_too_long(lab: impl Lab) {
    let (open, kept) = (defer(&lab, "k").await, lab.kept().await);
    kept.shift_clock(Duration::from_secs(3601));
    assert_eq!(kept.store().sweep(9).await.expect("it sweeps").len(), 1);
    let left = record(&lab, open.operation_id).await;
    assert_eq!((left.head.state.name(), left.head.reason), (StateName::Unknown, Reason::DeferralExpired));
    assert!(matches!(lab.settle(open.operation_id, None, charged()).await, Settled::Now(_)));
    assert!(matches!(lab.see(&command("k"), pays_later()).await, Saw::Replayed(201, _)));
}
