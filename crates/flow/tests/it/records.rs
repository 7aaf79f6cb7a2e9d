//! Commands and existing records: business references, expired records, and claims of other executors.

use semel_core::{
    Change, Claim, Command, Decision, Ids, RandomIds, Reason, Records, StoredResult, Transacted,
};
use semel_testkit::sample;

use crate::lab::{End, Gate, Lab, Saw, Step, both, command, command_with, pays, referring};

both!(
    a_business_reference_is_held_by_one_command,
    a_business_reference_outlives_its_record,
    a_business_reference_is_given_back_by_a_refusal,
    a_business_reference_is_not_taken_by_a_rolled_back_command,
    a_reference_that_another_command_is_about_to_take_is_waited_for_no_longer_than_for_a_key,
    an_expired_command_runs_again,
    an_expired_command_with_a_tombstone_is_refused,
    a_released_command_is_acquired_again,
    a_command_claimed_by_the_layer_is_not_run,
    an_unknown_command_is_not_run,
    a_command_under_a_former_operation_name_is_replayed,
);

async fn a_business_reference_is_held_by_one_command(lab: impl Lab) {
    let first = lab.transact(&referring(command("first"), "order-7"), pays()).await;
    let Transacted::Executed { record, .. } = first.outcome() else { panic!("it runs: {first:?}") };
    let second = lab.transact(&referring(command("second"), "order-7"), pays()).await;
    let Transacted::Decided { decision: Decision::Duplicate, holder: Some(holder), .. } = second.outcome()
    else {
        panic!("it is refused: {second:?}")
    };
    assert_eq!(holder.operation_id, record.operation_id);
    assert_eq!(lab.counts().await, (1, 1, 1));
    assert!(lab.see(&referring(command("first"), "order-7"), pays()).await.replayed());
    assert!(lab.see(&referring(command("third"), "order-8"), pays()).await.executed());
}

async fn a_business_reference_outlives_its_record(lab: impl Lab) {
    assert!(lab.see(&referring(command("first"), "order-7"), pays()).await.executed());
    lab.expire().await;
    let second = referring(command("second"), "order-7");
    assert_eq!(lab.see(&second, pays()).await, Saw::Decided(Decision::Duplicate), "expired");
    assert_eq!(lab.store().await.reap(10).await.expect("it reaps").len(), 1);
    assert_eq!(lab.counts().await, (1, 1, 0), "reaped");
    assert_eq!(lab.see(&second, pays()).await, Saw::Decided(Decision::Duplicate));
    // The record of its own key has expired, too: it cannot be told from another command's.
    let first = referring(command("first"), "order-7");
    assert_eq!(lab.see(&first, pays()).await, Saw::Decided(Decision::Duplicate));
    assert_eq!(lab.counts().await, (1, 1, 0));
}

async fn a_business_reference_is_given_back_by_a_refusal(lab: impl Lab) {
    let refused = lab.see(&referring(command("first"), "order-7"), pays().ending(End::Final(422))).await;
    assert!(refused.executed(), "{refused:?}");
    assert!(lab.see(&referring(command("second"), "order-7"), pays()).await.executed());
    assert_eq!(lab.counts().await, (1, 1, 2));
}

async fn a_business_reference_is_not_taken_by_a_rolled_back_command(lab: impl Lab) {
    let failed = lab.see(&referring(command("first"), "order-7"), pays().ending(End::Retryable(503))).await;
    assert_eq!(failed, Saw::RolledBack(503));
    assert_eq!(lab.number("SELECT count(*) FROM semel_references").await, 0);
    assert!(lab.see(&referring(command("second"), "order-7"), pays()).await.executed());
}

async fn a_reference_that_another_command_is_about_to_take_is_waited_for_no_longer_than_for_a_key<L: Lab>(
    lab: L,
) {
    let gate = Gate::new();
    let first = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&referring(command("first"), "order-7"), work).await })
    };
    gate.begun().await;
    let impatient = command_with("second", |policy| policy.wait = std::time::Duration::from_millis(50));
    let second = lab.second().await.see(&referring(impatient, "order-7"), pays()).await;
    assert_eq!(second, L::HELD_ELSEWHERE);
    gate.open();
    assert!(first.await.expect("it ends").executed());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn an_expired_command_runs_again(lab: impl Lab) {
    for round in 1..=3 {
        assert!(lab.see(&command("key"), pays()).await.executed(), "round {round}");
        lab.expire().await;
    }
    assert_eq!(lab.counts().await, (3, 3, 1));
}

async fn an_expired_command_with_a_tombstone_is_refused(lab: impl Lab) {
    let refusing = command_with("key", |policy| policy.on_expired = semel_core::policy::OnExpired::Refuse);
    assert!(lab.see(&refusing, pays()).await.executed());
    lab.expire().await;
    assert_eq!(lab.see(&refusing, pays()).await, Saw::Decided(Decision::Expired));
    assert_eq!(lab.counts().await, (1, 1, 1));
}

/// Claims a command as the ordinary layer does, before it calls its handler.
async fn claimed(lab: &impl Lab, command: &Command) -> (std::sync::Arc<dyn Records>, semel_core::Record) {
    let store = lab.store().await;
    let claim: Claim = command.claim(sample::claim("any").operation_id, RandomIds.attempt_token());
    let answer = store.claim(&claim).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute);
    (store, answer.record.expect("it is claimed"))
}

async fn a_released_command_is_acquired_again(lab: impl Lab) {
    let (store, record) = claimed(&lab, &command("key")).await;
    let release = Change::release(record.head.fence(), Reason::NotExecuted);
    assert_eq!(store.apply(&record.id, &release).await.expect("it is released").decision, Decision::Applied);
    let answered = lab.transact(&command("key"), pays()).await;
    let Transacted::Executed { record: ran, .. } = answered.outcome() else {
        panic!("it runs: {answered:?}")
    };
    assert_eq!((ran.head.epoch, ran.operation_id), (2, record.operation_id));
    assert!(lab.see(&command("key"), pays()).await.replayed());
    // A permanent failure of a command that was claimed again keeps its record, and only that.
    let (store, other) = claimed(&lab, &command("other")).await;
    let release = Change::release(other.head.fence(), Reason::NotExecuted);
    store.apply(&other.id, &release).await.expect("it is released");
    assert!(lab.see(&command("other"), pays().ending(End::Retryable(503))).await == Saw::RolledBack(503));
    let before = store.get(&other.id).await.expect("it reads").record.expect("it is there");
    assert_eq!((before.head.epoch, before.head.state.name().as_str()), (1, "failed_retryable"));
    assert!(lab.see(&command("other"), pays().ending(End::Final(402))).await.executed());
    let after = store.get(&other.id).await.expect("it reads").record.expect("it is there");
    assert_eq!((after.head.epoch, after.head.state.name().as_str()), (2, "failed_final"));
    assert_eq!(lab.counts().await, (1, 1, 2));
}

async fn a_command_claimed_by_the_layer_is_not_run(lab: impl Lab) {
    let (store, record) = claimed(&lab, &command("key")).await;
    assert_eq!(lab.see(&command("key"), pays()).await, Saw::Decided(Decision::Wait));
    let done: StoredResult = sample::created("by the layer");
    store.apply(&record.id, &Change::complete(record.head.fence(), done)).await.expect("it is completed");
    assert_eq!(lab.see(&command("key"), pays()).await, Saw::Replayed(201, "by the layer".into()));
    assert_eq!(lab.counts().await, (0, 0, 1));
}

async fn an_unknown_command_is_not_run(lab: impl Lab) {
    let (store, record) = claimed(&lab, &command("key")).await;
    let lost = Change::abandon(record.head.fence(), Reason::Panicked);
    store.apply(&record.id, &lost).await.expect("it is abandoned");
    assert_eq!(lab.see(&command("key"), pays()).await, Saw::Decided(Decision::Reconcile));
    // The claim itself finds and stores a lease expiry.
    claimed(&lab, &command("other")).await;
    lab.run("UPDATE semel_records SET due_at = 1 WHERE due_at IS NOT NULL").await;
    assert_eq!(lab.see(&command("other"), pays()).await, Saw::Decided(Decision::Reconcile));
    let unknown = "SELECT count(*) FROM semel_records WHERE state = 'unknown'";
    assert_eq!((lab.counts().await, lab.number(unknown).await), ((0, 0, 2), 2));
}

async fn a_command_under_a_former_operation_name_is_replayed(lab: impl Lab) {
    let mut renamed = command("key");
    let Saw::Executed(status, body) = lab.see(&renamed, pays()).await else { panic!("it runs") };
    renamed.former = [renamed.scope.operation().clone()].into();
    let new_name = semel_core::OperationName::new("payments.make").expect("it is a name");
    renamed.scope = renamed.scope.under(new_name.clone());
    assert_eq!(lab.see(&renamed, pays()).await, Saw::Replayed(status, body));
    renamed.scope = sample::scope("new").under(new_name);
    assert!(lab.see(&renamed, pays()).await.executed(), "a new one runs under the new name");
    assert!(lab.see(&renamed, pays()).await.replayed());
    assert_eq!(lab.counts().await, (2, 2, 2));
}
