//! Evidence of the effect that arrives after "not executed": it settles a free command, and contradicts one
//! that was run again.

use std::time::Duration;

use semel_core::reconcile::{Bearing, bearing, bearing_of_fenced, bearing_on_notes};
use semel_core::transition::{Proof, ReferenceWrite, Verdict};
use semel_core::{
    About, Attempt, AttemptToken, Change, Claim, Decision, Event, LookUpAnswer, Note, NoteTaken, Reason,
    Record, StateName, Statement, Timestamp, transition,
};

use crate::records::{claim, result};

const TOMBSTONE: Verdict = Verdict::NotExecuted(Proof::ProviderTombstone);

/// The events of a record, one second apart.
struct Life {
    record: Record,
    now: Timestamp,
}

impl Life {
    fn begin() -> Life {
        let (now, claim) = (Timestamp::from_millis(1_000_000), claim());
        let write = transition(None, &Event::Claim(claim.attempt), now).write;
        let record = Record::after(None, write, Some(&claim), None, now);
        Life { record: record.expect("it is claimed"), now }
    }

    fn meet(&mut self, event: Event) -> (Decision, ReferenceWrite) {
        self.now = self.now.plus(Duration::from_secs(1));
        let step = transition(Some(&self.record.head), &event, self.now);
        let brought = result(201);
        let after = Record::after(Some(&self.record), step.write, Some(&claim()), Some(&brought), self.now);
        self.record = after.expect("it is not forgotten");
        (step.decision, step.reference)
    }

    fn lose(&mut self) {
        let (fence, reason) = (self.record.head.fence(), Reason::TimedOut);
        assert_eq!(self.meet(Event::Abandon { fence, reason }).0, Decision::Applied);
    }

    fn run_again(&mut self) {
        let Claim { attempt, .. } = claim();
        let token = AttemptToken::from_bytes([self.record.head.epoch as u8 + 1; 16]);
        assert_eq!(self.meet(Event::Claim(Attempt { token, ..attempt })).0, Decision::Execute);
    }

    /// Returns a command that was lost, declared not executed with this proof, and run again.
    fn rerun_after(proof: Proof) -> Life {
        let mut life = Life::begin();
        life.lose();
        assert_eq!(life.meet(Event::resolve(Verdict::NotExecuted(proof))).0, Decision::Applied);
        life.run_again();
        life
    }

    fn finish(mut self, event: impl FnOnce(semel_core::Fence) -> Event) -> Life {
        assert_eq!(self.meet(event(self.record.head.fence())).0, Decision::Applied);
        self
    }

    fn evidence(&mut self, about: About) -> (Decision, ReferenceWrite) {
        self.meet(Event::Resolve { verdict: Verdict::Succeeded, seen: None, about })
    }

    fn bearing(&self, verdict: Verdict, about: About) -> Bearing {
        bearing(&self.record, verdict, about, false)
    }
}

fn complete(fence: semel_core::Fence) -> Event {
    Event::Complete { fence }
}

fn decline(fence: semel_core::Fence) -> Event {
    Event::Fail { fence, reason: Reason::Answered }
}

#[test]
fn evidence_after_not_executed_settles_and_retakes_the_reference() {
    for proof in [Proof::ProviderTombstone, Proof::ProviderDeduplicates] {
        for about in [About::Command, About::UpTo(1), About::Only(1)] {
            let mut life = Life::begin();
            life.lose();
            life.meet(Event::resolve(Verdict::NotExecuted(proof)));
            assert_eq!(life.record.head.state.name(), StateName::FailedRetryable);
            assert_eq!(life.evidence(about), (Decision::Applied, ReferenceWrite::TakeBack), "{about:?}");
            let head = life.record.head;
            assert_eq!((head.state.name(), head.reason), (StateName::Succeeded, Reason::VerdictExecuted));
            assert_eq!(life.bearing(Verdict::Succeeded, about), Bearing::Confirms, "it was not run again");
            let again = transition(Some(&head), &Event::Claim(claim().attempt), life.now);
            assert_eq!(again.decision, Decision::Replay, "and is not");
        }
    }
}

#[test]
fn evidence_of_an_attempt_before_a_rerun_contradicts_every_outcome() {
    let rerun = || Life::rerun_after(Proof::ProviderTombstone);
    let succeeded = rerun().finish(complete);
    assert_eq!(succeeded.bearing(Verdict::Succeeded, About::UpTo(1)), Bearing::Contradicts, "two effects");
    assert_eq!(succeeded.bearing(Verdict::Succeeded, About::UpTo(2)), Bearing::Confirms, "it is its own");
    assert_eq!(succeeded.bearing(Verdict::Succeeded, About::Command), Bearing::Confirms, "it may be");
    assert_eq!(succeeded.bearing(TOMBSTONE, About::UpTo(1)), Bearing::Confirms, "hence the second attempt");
    assert_eq!(succeeded.bearing(TOMBSTONE, About::Command), Bearing::Contradicts);
    let once = bearing(&succeeded.record, Verdict::Succeeded, About::UpTo(1), true);
    assert_eq!(once, Bearing::Confirms, "whoever deduplicates has one effect");

    let mut declined = rerun().finish(decline);
    assert!(matches!(declined.evidence(About::UpTo(1)).0, Decision::Refused(_)), "a final answer stays");
    let contradicted = declined.bearing(Verdict::Succeeded, About::UpTo(1));
    assert_eq!(contradicted, Bearing::Contradicts);
    let reference = contradicted.reference(Verdict::Succeeded);
    assert_eq!(reference, ReferenceWrite::TakeBack, "nobody else is to make the effect again");
    assert_eq!(contradicted.reference(TOMBSTONE), ReferenceWrite::Keep);
    assert_eq!(Bearing::Confirms.reference(Verdict::Succeeded), ReferenceWrite::Keep);

    let mut running = rerun();
    assert!(matches!(running.evidence(About::UpTo(1)).0, Decision::Refused(_)));
    assert_eq!(
        running.bearing(Verdict::Succeeded, About::UpTo(1)),
        Bearing::Waits,
        "its executor speaks first"
    );

    let mut lost = rerun();
    lost.lose();
    assert_eq!(lost.evidence(About::UpTo(1)).0, Decision::Applied, "nobody runs it a third time");
    assert_eq!(lost.bearing(Verdict::Succeeded, About::UpTo(1)), Bearing::Contradicts);
}

#[test]
fn an_attempt_that_may_have_run_is_no_contradiction() {
    let deduplicated = Life::rerun_after(Proof::ProviderDeduplicates).finish(complete);
    assert!(deduplicated.record.head.earlier_may_have_run);
    assert_eq!(deduplicated.bearing(Verdict::Succeeded, About::UpTo(1)), Bearing::Confirms);
}

#[test]
fn evidence_about_an_earlier_attempt_does_not_settle_the_last() {
    for verdict in [Verdict::FailedFinal, TOMBSTONE, Verdict::NotExecuted(Proof::ProviderDeduplicates)] {
        let mut lost = Life::rerun_after(Proof::ProviderTombstone);
        lost.lose();
        let about = |about| Event::Resolve { verdict, seen: None, about };
        let refused = Decision::Refused(semel_core::transition::Refusal::OtherAttempt { epoch: 2 });
        assert_eq!(lost.meet(about(About::UpTo(1))).0, refused, "{verdict:?}");
        assert_eq!(lost.meet(about(About::Only(1))).0, refused, "{verdict:?}");
        assert_eq!(lost.bearing(verdict, About::UpTo(1)), Bearing::Waits);
        assert_eq!(lost.meet(about(About::UpTo(2))).0, Decision::Applied, "{verdict:?}");
    }
}

#[test]
fn an_expired_record_still_confirms_or_contradicts_late_evidence() {
    let expired = |finish: fn(semel_core::Fence) -> Event| {
        let mut life = Life::begin().finish(finish);
        assert_eq!(life.meet(Event::Purge).0, Decision::Applied);
        life
    };
    let (succeeded, declined) = (expired(complete), expired(decline));
    assert_eq!(succeeded.bearing(Verdict::Succeeded, About::Command), Bearing::Confirms);
    assert_eq!(succeeded.bearing(TOMBSTONE, About::Command), Bearing::Contradicts);
    assert_eq!(declined.bearing(Verdict::Succeeded, About::Command), Bearing::Contradicts);
    assert_eq!(declined.bearing(TOMBSTONE, About::Command), Bearing::Confirms);
}

#[test]
fn notes_of_verdicts_decide_evidence_about_a_deleted_command() {
    let noted = |change: Change, action: &str| {
        let note = Note { who: "ann".into(), action: action.into(), why: "looked".into() };
        let note = change.noted(note).note().expect("it is noted").clone();
        NoteTaken { at: Timestamp::from_millis(1), note }
    };
    let executed = noted(Change::resolve_executed(result(201)), "resolve");
    let failed = noted(Change::resolve_executed(result(402)), "resolve");
    let not_executed = noted(Change::resolve_not_executed(Proof::Quarantine), "resolve");
    let released = noted(Change::free(), "release");
    let purged = noted(Change::purge(), "purge");
    assert_eq!(executed.note.action, "resolve executed");
    assert_eq!(failed.note.action, "resolve failed");
    assert_eq!(not_executed.note.action, "resolve not_executed");
    let table = [
        (vec![], Bearing::Waits),
        (vec![purged.clone()], Bearing::Waits),
        (vec![executed.clone()], Bearing::Confirms),
        (vec![executed.clone(), purged], Bearing::Confirms),
        (vec![failed], Bearing::Contradicts),
        (vec![not_executed.clone()], Bearing::Contradicts),
        (vec![released], Bearing::Contradicts),
        (vec![not_executed.clone(), executed], Bearing::Confirms),
    ];
    for (notes, expected) in table {
        assert_eq!(bearing_on_notes(&notes, Verdict::Succeeded), expected, "{notes:?}");
    }
    assert_eq!(bearing_on_notes(&[not_executed], TOMBSTONE), Bearing::Confirms);
}

#[test]
fn a_statement_is_about_the_attempt_that_it_names_or_that_was_begun_when_it_was_heard() {
    let life = Life::rerun_after(Proof::ProviderTombstone);
    let began = life.record.history.began(2).expect("it was begun");
    let found = LookUpAnswer::Executed(result(201));
    let said = Statement::new("p".into(), "e".into(), life.record.operation_id, found, "seen".into());
    let said = said.expect("it is a verdict");
    let heard = |received_at, attempt| {
        let mut heard = said.clone();
        (heard.received_at, heard.attempt) = (received_at, attempt);
        heard.about(&life.record)
    };
    let before = Timestamp::from_millis(began.as_millis() - 1);
    assert_eq!(heard(None, None), About::Command);
    assert_eq!(heard(Some(began), None), About::Command);
    assert_eq!(heard(Some(before), None), About::UpTo(1), "the second attempt had not begun");
    assert_eq!(heard(Some(before), Some(2)), About::UpTo(2), "its own word goes first");
    let (first, mut early) = (Life::begin(), said.clone());
    early.received_at = Some(Timestamp::from_millis(0));
    assert_eq!(early.about(&first.record), About::Command, "there is no attempt before the first");
}

#[test]
fn a_fenced_verdict_confirms_or_contradicts_the_record() {
    let fenced = |life: &Life, verdict| bearing_of_fenced(Some(&life.record), verdict, 1);
    let mut failed = Life::begin();
    failed.lose();
    assert_eq!(failed.meet(Event::resolve(Verdict::FailedFinal)).0, Decision::Applied);
    assert_eq!(fenced(&failed, Verdict::Succeeded), Bearing::Contradicts);
    assert_eq!(fenced(&failed, Verdict::FailedFinal), Bearing::Confirms);
    let mut done = Life::begin();
    done.lose();
    assert_eq!(done.meet(Event::resolve(Verdict::Succeeded)).0, Decision::Applied);
    assert_eq!(fenced(&done, Verdict::Succeeded), Bearing::Confirms);
    assert_eq!(fenced(&done, TOMBSTONE), Bearing::Contradicts);
    // Another attempt runs, since this one counted as not executed.
    let rerun = Life::rerun_after(Proof::ProviderTombstone);
    assert_eq!(fenced(&rerun, Verdict::Succeeded), Bearing::Contradicts);
    assert_eq!(fenced(&rerun, Verdict::FailedFinal), Bearing::Confirms);
    let deduplicated = Life::rerun_after(Proof::ProviderDeduplicates);
    assert_eq!(fenced(&deduplicated, Verdict::Succeeded), Bearing::Confirms, "it was reckoned with");
    assert_eq!(bearing_of_fenced(None, Verdict::Succeeded, 1), Bearing::Contradicts);
    assert_eq!(bearing_of_fenced(None, TOMBSTONE, 1), Bearing::Confirms);
}
