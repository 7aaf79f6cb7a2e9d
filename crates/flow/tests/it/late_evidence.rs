//! Evidence of an effect that arrives after "not executed": it settles a released command, and raises a contradiction
//! if the command was run again, was answered otherwise, or has expired.

use std::sync::Arc;
use std::time::Duration;

use semel_core::transition::{Proof, Verdict};
use semel_core::{AttemptToken, Change, Claim, Decision, LookUpAnswer, Note, Record, StateName, Statement};
use semel_flow::reconcile::{CONTRADICTION, NoLookUp, SourceBounds};
use semel_testkit::sample;

use crate::lab::{Kept, Lab, both, stored};
use crate::reconcile::{lost, now_is, open_about, processing, reconciler, says, state_of};

both!(
    late_evidence_settles_a_released_command,
    late_evidence_retakes_the_business_reference,
    late_evidence_for_a_retaken_business_reference_is_a_contradiction,
    evidence_of_an_earlier_attempt_is_a_contradiction_and_stops_reruns,
    evidence_from_before_a_rerun_is_about_an_earlier_attempt,
    a_provider_that_deduplicates_does_not_contradict_itself,
    evidence_against_a_final_failure_retakes_the_business_reference,
    evidence_about_a_reaped_command_is_noted_as_a_contradiction,
    evidence_about_a_command_in_hand_waits_for_its_executor,
    evidence_from_an_unbound_source_or_for_another_tenant_is_ignored,
    open_evidence_stays_while_its_command_is_open,
);

fn executed() -> LookUpAnswer {
    LookUpAnswer::Executed(sample::created("charged"))
}

/// Stores evidence of the effect that names its attempt.
async fn says_of_attempt(kept: &Kept, event_id: &str, about: &Record, attempt: Option<u32>) {
    let (id, seen) = (about.operation_id, format!("event {event_id}"));
    let said = Statement::new("provider".into(), event_id.into(), id, executed(), seen);
    let said = said.expect("it is a verdict").of_attempt(attempt);
    kept.store().take_in(&said).await.expect("it is kept");
}

/// Returns a command whose executor was lost, and that an operator declared not executed.
async fn freed(kept: &Kept, claim: &Claim) -> Record {
    let answer = kept.store().claim(claim).await.expect("the store answers");
    let record = lost(kept, &answer.record.expect("it was just made")).await;
    let note = Note { who: "ann".into(), action: "resolve".into(), why: "not in the ledger".into() };
    let verdict = Change::resolve_not_executed(Proof::ProviderTombstone).noted(note);
    let answer = kept.store().apply(&record.id, &verdict).await.expect("the store answers");
    assert_eq!(answer.decision, Decision::Applied);
    answer.record.expect("it is free")
}

/// Starts the next attempt, a second later.
async fn run_again(kept: &Kept, claim: &Claim) -> Record {
    kept.shift_clock(Duration::from_secs(1));
    let mut again = claim.clone();
    again.attempt.token = AttemptToken::from_bytes([9; 16]);
    let answer = kept.store().claim(&again).await.expect("the store answers");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("it runs")
}

/// Returns the noted actions about a command.
async fn noted(kept: &Kept, record: &Record) -> Vec<String> {
    let notes = kept.store().notes(record.operation_id).await.expect("the store answers");
    notes.into_iter().map(|taken| taken.note.action).collect()
}

async fn late_evidence_settles_a_released_command(lab: impl Lab) {
    let (kept, claim) = (lab.kept().await, sample::claim("k"));
    let record = freed(&kept, &claim).await;
    says(&kept, "provider", "e1", &record, executed()).await;
    let report = reconciler(&kept, Arc::new(NoLookUp)).once().await;
    assert_eq!((report.by_evidence, report.trouble), (1, None));
    assert_eq!(stored(&now_is(&kept, &record).await), (201, "charged".into()));
    assert_eq!(noted(&kept, &record).await, ["resolve not_executed", "resolve executed"]);
    let retry = kept.store().claim(&claim).await.expect("the store answers");
    assert_eq!(retry.decision, Decision::Replay, "it does not run again");
}

async fn late_evidence_retakes_the_business_reference(lab: impl Lab) {
    let kept = lab.kept().await;
    let claim = sample::with_reference(sample::claim("k"), "order-1");
    let record = freed(&kept, &claim).await;
    says(&kept, "provider", "e1", &record, executed()).await;
    assert_eq!(reconciler(&kept, Arc::new(NoLookUp)).once().await.by_evidence, 1);
    let other = sample::with_reference(sample::claim("other"), "order-1");
    let answer = kept.store().claim(&other).await.expect("the store answers");
    assert_eq!(answer.decision, Decision::Duplicate, "another key does not repeat the order");
}

async fn late_evidence_for_a_retaken_business_reference_is_a_contradiction(lab: impl Lab) {
    let kept = lab.kept().await;
    let order = |key: &str| sample::with_reference(sample::claim(key), "order-1");
    let record = freed(&kept, &order("k")).await;
    let other = kept.store().claim(&order("other")).await.expect("the store answers").record;
    let other = other.expect("it runs");
    let complete = Change::complete(other.head.fence(), sample::created("again"));
    kept.store().apply(&other.id, &complete).await.expect("the store answers");
    says(&kept, "provider", "e1", &record, executed()).await;
    assert_eq!(reconciler(&kept, Arc::new(NoLookUp)).once().await.by_evidence, 1);
    let notes = kept.store().notes(record.operation_id).await.expect("the store answers");
    let told = notes.iter().filter(|taken| taken.note.action == CONTRADICTION).collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{notes:?}");
    assert!(told[0].note.why.contains(&other.operation_id.to_string()), "{notes:?}");
}

async fn evidence_of_an_earlier_attempt_is_a_contradiction_and_stops_reruns(lab: impl Lab) {
    let (kept, reconciler) =
        (lab.kept().await, async |kept: &Kept| reconciler(kept, Arc::new(NoLookUp)).once().await);
    let contradicted = |event: &str| {
        format!("SELECT count(*) FROM semel_evidence WHERE event_id = '{event}' AND outcome = 'contradicted'")
    };
    // The second attempt succeeded: two effects.
    let claim = sample::claim("succeeded");
    freed(&kept, &claim).await;
    let second = run_again(&kept, &claim).await;
    let complete = Change::complete(second.head.fence(), sample::created("again"));
    kept.store().apply(&second.id, &complete).await.expect("the store answers");
    says_of_attempt(&kept, "own", &second, Some(2)).await;
    says_of_attempt(&kept, "earlier", &second, Some(1)).await;
    assert_eq!(reconciler(&kept).await.by_evidence, 0);
    assert_eq!(stored(&now_is(&kept, &second).await), (201, "again".into()), "a final answer stays");
    assert_eq!(noted(&kept, &second).await, ["resolve not_executed", CONTRADICTION]);
    assert_eq!(lab.number(&contradicted("earlier")).await, 1);
    assert_eq!(lab.number(&contradicted("own")).await, 0);
    // The second attempt is lost: the command is settled, so that there is no third, and a contradiction is raised.
    let claim = sample::claim("lost");
    freed(&kept, &claim).await;
    let second = run_again(&kept, &claim).await;
    lost(&kept, &second).await;
    says_of_attempt(&kept, "before", &second, Some(1)).await;
    assert_eq!(reconciler(&kept).await.by_evidence, 1);
    assert_eq!(state_of(&kept, &second).await, StateName::Succeeded);
    let actions = noted(&kept, &second).await;
    assert_eq!(actions, ["resolve not_executed", "resolve executed", CONTRADICTION]);
    assert_eq!(lab.number(&contradicted("before")).await, 1);
    // It is raised only once.
    reconciler(&kept).await;
    assert_eq!(noted(&kept, &second).await.len(), 3);
}

async fn evidence_from_before_a_rerun_is_about_an_earlier_attempt(lab: impl Lab) {
    let (kept, claim) = (lab.kept().await, sample::claim("k"));
    let record = freed(&kept, &claim).await;
    // It names no attempt, but it arrived before the second began.
    says(&kept, "provider", "e1", &record, executed()).await;
    let second = run_again(&kept, &claim).await;
    let complete = Change::complete(second.head.fence(), sample::created("again"));
    kept.store().apply(&second.id, &complete).await.expect("the store answers");
    reconciler(&kept, Arc::new(NoLookUp)).once().await;
    assert_eq!(noted(&kept, &second).await, ["resolve not_executed", CONTRADICTION]);
}

async fn a_provider_that_deduplicates_does_not_contradict_itself(lab: impl Lab) {
    let (kept, claim) = (lab.kept().await, sample::claim("k"));
    freed(&kept, &claim).await;
    let second = run_again(&kept, &claim).await;
    let complete = Change::complete(second.head.fence(), sample::created("again"));
    kept.store().apply(&second.id, &complete).await.expect("the store answers");
    says_of_attempt(&kept, "e1", &second, Some(1)).await;
    let reconciler = reconciler(&kept, Arc::new(NoLookUp));
    let bounds = SourceBounds::operations(vec![second.operation.clone()]);
    reconciler.bind("provider", SourceBounds { deduplicates: true, ..bounds });
    reconciler.once().await;
    assert_eq!((noted(&kept, &second).await.len(), open_about(&kept, &second).await), (1, 0));
}

async fn evidence_against_a_final_failure_retakes_the_business_reference(lab: impl Lab) {
    let kept = lab.kept().await;
    let claim = |key: &str| sample::with_reference(sample::claim(key), "order-1");
    let answer = kept.store().claim(&claim("k")).await.expect("the store answers");
    let record = answer.record.expect("it runs");
    let reason = semel_core::Reason::Answered;
    let fail = Change::fail(record.head.fence(), reason, sample::result(&sample::response(402, "declined")));
    kept.store().apply(&record.id, &fail).await.expect("the store answers");
    says(&kept, "provider", "e1", &record, executed()).await;
    reconciler(&kept, Arc::new(NoLookUp)).once().await;
    assert_eq!(stored(&now_is(&kept, &record).await), (402, "declined".into()), "a final answer stays");
    assert_eq!(noted(&kept, &record).await, [CONTRADICTION]);
    let other = kept.store().claim(&claim("other")).await.expect("the store answers");
    assert_eq!(other.decision, Decision::Duplicate, "nobody else makes the effect again");
}

async fn evidence_about_a_reaped_command_is_noted_as_a_contradiction(lab: impl Lab) {
    let (kept, claim) = (lab.kept().await, sample::claim("k"));
    let record = freed(&kept, &claim).await;
    kept.shift_clock(Duration::from_secs(400 * 24 * 3600));
    assert_eq!(kept.store().reap(10).await.expect("the store answers").len(), 1);
    says(&kept, "provider", "e1", &record, executed()).await;
    reconciler(&kept, Arc::new(NoLookUp)).once().await;
    assert_eq!(noted(&kept, &record).await, ["resolve not_executed", CONTRADICTION]);
    let contradicted = "SELECT count(*) FROM semel_evidence WHERE outcome = 'contradicted'";
    assert_eq!(lab.number(contradicted).await, 1);
}

async fn evidence_about_a_command_in_hand_waits_for_its_executor(lab: impl Lab) {
    let (kept, claim) = (lab.kept().await, sample::claim("k"));
    freed(&kept, &claim).await;
    let second = run_again(&kept, &claim).await;
    says_of_attempt(&kept, "e1", &second, Some(1)).await;
    let reconciler = reconciler(&kept, Arc::new(NoLookUp));
    reconciler.once().await;
    assert_eq!(
        (state_of(&kept, &second).await, open_about(&kept, &second).await),
        (StateName::Processing, 1)
    );
    // The second attempt did not run: the first effect is the only one, and there is no third attempt.
    let release = Change::release(second.head.fence(), semel_core::Reason::NotExecuted);
    kept.store().apply(&second.id, &release).await.expect("the store answers");
    let verdict = reconciler.use_evidence_about(second.operation_id).await.expect("the store answers");
    assert_eq!(verdict, Some(Verdict::Succeeded));
    assert_eq!(state_of(&kept, &second).await, StateName::Succeeded);
    let last = noted(&kept, &second).await.pop();
    assert_eq!(last.as_deref(), Some(CONTRADICTION), "somebody was wrong about the first attempt");
}

async fn evidence_from_an_unbound_source_or_for_another_tenant_is_ignored(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = lost(&kept, &processing(&kept, "k").await).await;
    says(&kept, "removed", "e1", &record, executed()).await;
    let reconciler = reconciler(&kept, Arc::new(NoLookUp));
    assert_eq!(reconciler.once().await.by_evidence, 0);
    assert_eq!((state_of(&kept, &record).await, open_about(&kept, &record).await), (StateName::Unknown, 1));
    // Nor about another tenant's commands, once the source is bound to a tenant.
    let operations = SourceBounds::operations(vec![record.operation.clone()]);
    let elsewhere = SourceBounds { tenants: Some(vec!["somebody-else".into()]), ..operations.clone() };
    reconciler.bind("removed", elsewhere);
    assert_eq!(reconciler.once().await.by_evidence, 0);
    assert_eq!((state_of(&kept, &record).await, open_about(&kept, &record).await), (StateName::Unknown, 0));
    let own = SourceBounds { tenants: Some(vec![record.principal.tenant().to_owned()]), ..operations };
    reconciler.bind("removed", own);
    says(&kept, "removed", "e2", &record, executed()).await;
    assert_eq!(reconciler.once().await.by_evidence, 1);
}

async fn open_evidence_stays_while_its_command_is_open(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = lost(&kept, &processing(&kept, "k").await).await;
    says(&kept, "removed", "e1", &record, executed()).await;
    says(&kept, "removed", "e2", &record, executed()).await;
    let settled = processing(&kept, "settled").await;
    says(&kept, "removed", "e3", &settled, executed()).await;
    kept.store()
        .close_statement("removed", "e2", semel_core::reconcile::StatementOutcome::Confirmed)
        .await
        .expect("it is written");
    let complete = Change::complete(settled.head.fence(), sample::created("done"));
    kept.store().apply(&settled.id, &complete).await.expect("the store answers");
    kept.shift_clock(Duration::from_secs(3600));
    let reaped = kept.store().reap_statements(Duration::from_secs(60), 10).await;
    assert_eq!(reaped.expect("the store answers"), 2, "what is done, and what nobody needs");
    assert_eq!(open_about(&kept, &record).await, 1);
}
