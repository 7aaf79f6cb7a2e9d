//! Commands with a committed part: the part, and what was committed with it, is never given up.

use std::time::Duration;

use semel_core::policy::OnLeaseExpired;
use semel_core::transition::{
    PhaseVerdict, Proof, Recorded, ReferenceWrite, Refusal, RequestWrite, Verdict, age,
};
use semel_core::{
    Attempt, AttemptToken, ClaimFence, Decision, Event, Fingerprint, Head, Policy, Reason, Reference, Start,
    State, StateName, Terms, Timestamp, Write, transition,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const MINE: AttemptToken = AttemptToken::from_bytes([1; 16]);
const FRESH: AttemptToken = AttemptToken::from_bytes([2; 16]);
const WITHIN: Duration = Duration::from_secs(3600);
const ALL_IS_THERE: Recorded = Recorded { fits: true, has_input: true };

fn later(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

fn attempt(token: AttemptToken, on_lease_expired: OnLeaseExpired) -> Attempt {
    let fingerprint = Fingerprint::from_parts(semel_core::fingerprint::FingerprintVersion::V1, [7; 32]);
    let terms = Terms { on_lease_expired, ..Policy::default().terms() };
    let start = match on_lease_expired {
        OnLeaseExpired::Resume => Start::Resumable(WITHIN),
        OnLeaseExpired::Unknown | OnLeaseExpired::Rerun => Start::Now,
    };
    Attempt { fingerprint, token, terms, start, reference: Reference::Free, fence: ClaimFence::Open }
}

fn claimed(on_lease_expired: OnLeaseExpired) -> Head {
    let claim = Event::Claim(attempt(MINE, on_lease_expired));
    let Write::Create(head) = transition(None, &claim, NOW).write else { panic!("it is the first") };
    head
}

/// Returns the head after an event, and the write to the reference.
fn then(head: &Head, event: Event, now: Timestamp) -> (Head, ReferenceWrite) {
    let step = transition(Some(head), &event, now);
    match step.write {
        Write::Update(after) => (after, step.reference),
        other => panic!("{event:?} of {head:?}: {other:?}, {:?}", step.decision),
    }
}

fn refusal(head: &Head, event: Event, now: Timestamp) -> Refusal {
    let step = transition(Some(head), &event, now);
    match (step.write, step.decision) {
        (Write::Keep, Decision::Refused(refusal)) => refusal,
        other => panic!("{event:?} of {head:?}: {other:?}"),
    }
}

/// Returns a command in phases, one of which is committed.
fn in_phases() -> Head {
    then(&claimed(OnLeaseExpired::Resume), Event::Advance, NOW).0
}

/// Returns a command in phases with an open call of unknown outcome.
fn open() -> Head {
    let head = in_phases();
    then(&head, Event::Abandon { fence: head.fence(), reason: Reason::TimedOut }, NOW).0
}

fn verdict(head: &Head, verdict: PhaseVerdict) -> Event {
    Event::ResolvePhase { epoch: head.epoch, verdict, seen: None, within: WITHIN, recorded: ALL_IS_THERE }
}

#[test]
fn a_part_that_is_committed_is_remembered_in_every_state_and_attempt() {
    let head = claimed(OnLeaseExpired::Unknown);
    let (part, reference) = then(&head, Event::Advance, NOW);
    assert!(part.partly_done && reference == ReferenceWrite::Keep);
    assert_eq!(Head { partly_done: false, ..part }, head, "nothing else changes");
    let again = transition(Some(&part), &Event::Advance, NOW);
    assert_eq!((again.write, again.decision), (Write::Keep, Decision::Applied));
    let (settled, _) = then(&part, Event::Complete { fence: part.fence() }, NOW);
    let again = transition(Some(&settled), &Event::Advance, NOW);
    assert_eq!((again.write, again.decision), (Write::Keep, Decision::Applied), "it was said before");
    let (free, _) = then(&part, Event::Release { fence: part.fence(), reason: Reason::NotExecuted }, NOW);
    let (next, _) = then(&free, Event::Claim(attempt(FRESH, OnLeaseExpired::Unknown)), later(1));
    assert!(next.partly_done && next.epoch == part.epoch + 1);
}

#[test]
fn a_final_failure_keeps_its_reference_only_after_a_committed_part() {
    for part in [claimed(OnLeaseExpired::Resume), in_phases(), deferred()] {
        let declined = Event::Fail { fence: part.fence(), reason: Reason::Answered };
        let kept = if part.partly_done { ReferenceWrite::Keep } else { ReferenceWrite::GiveBack };
        assert_eq!(then(&part, declined, NOW).1, kept, "{part:?}");
    }
}

fn deferred() -> Head {
    let head = claimed(OnLeaseExpired::Unknown);
    then(&head, Event::Defer { fence: head.fence(), time: WITHIN }, NOW).0
}

#[test]
fn a_deferred_command_whose_message_died_is_not_run_again() {
    let left = deferred();
    let dead = then(&left, Event::Abandon { fence: left.fence(), reason: Reason::MessageDead }, NOW).0;
    for proof in [Proof::Quarantine, Proof::ProviderTombstone, Proof::ProviderDeduplicates] {
        let not_executed = Event::resolve(Verdict::NotExecuted(proof));
        assert_eq!(refusal(&dead, not_executed, later(1_000_000)), Refusal::PartlyDone, "{proof:?}");
    }
    for event in [
        Event::Release { fence: dead.fence(), reason: Reason::NotExecuted },
        Event::Requeue { fence: dead.fence(), reason: Reason::NotExecuted, after: WITHIN },
    ] {
        assert_eq!(transition(Some(&dead), &event, NOW).decision, Decision::Fenced, "{event:?}");
    }
    let (failed, reference) = then(&dead, Event::resolve(Verdict::FailedFinal), NOW);
    assert_eq!((failed.state.name(), reference), (StateName::FailedFinal, ReferenceWrite::Keep));
    assert_eq!(then(&dead, Event::resolve(Verdict::Succeeded), NOW).0.state.name(), StateName::Succeeded);
}

#[test]
fn partly_done_command_is_kept_for_its_own_key_only() {
    let head = claimed(OnLeaseExpired::Rerun);
    let (free, reference) =
        then(&head, Event::Release { fence: head.fence(), reason: Reason::PartlyDone }, NOW);
    assert!(free.partly_done && reference == ReferenceWrite::Keep);
    let a_century_on = later(100 * 365 * 24 * 3600);
    assert_eq!(age(free, a_century_on), Some(free), "it is not forgotten");
    assert_eq!(refusal(&free, Event::Free, NOW), Refusal::PartlyDone);
    let (next, _) = then(&free, Event::Claim(attempt(FRESH, OnLeaseExpired::Rerun)), a_century_on);
    let (lost, reference) =
        then(&next, Event::Release { fence: next.fence(), reason: Reason::NotExecuted }, a_century_on);
    assert_eq!((lost.state.name(), reference), (StateName::FailedRetryable, ReferenceWrite::Keep));
    let verdict = Event::resolve(Verdict::NotExecuted(Proof::ProviderTombstone));
    let (unsure, _) =
        then(&next, Event::Abandon { fence: next.fence(), reason: Reason::Panicked }, a_century_on);
    let (free, reference) = then(&unsure, verdict, a_century_on);
    assert_eq!((free.partly_done, reference), (true, ReferenceWrite::Keep), "its key goes on");
}

#[test]
fn a_late_partly_done_release_retakes_the_business_reference() {
    let head = claimed(OnLeaseExpired::Unknown);
    let unsure = then(&head, Event::Abandon { fence: head.fence(), reason: Reason::TimedOut }, NOW).0;
    let verdict = Event::resolve(Verdict::NotExecuted(Proof::ProviderTombstone));
    let (free, reference) = then(&unsure, verdict, NOW);
    assert_eq!(reference, ReferenceWrite::GiveBack);
    for late in [Event::Release { fence: head.fence(), reason: Reason::PartlyDone }, Event::Advance] {
        let (part, reference) = then(&free, late, NOW);
        assert_eq!((part.partly_done, reference), (true, ReferenceWrite::TakeBack), "{late:?}");
        assert_eq!(part.state, State::FailedRetryable { expires_at: Timestamp::MAX }, "{late:?}");
    }
}

#[test]
fn evidence_about_the_whole_settles_no_command_in_phases() {
    let head = in_phases();
    let free = then(&head, Event::Release { fence: head.fence(), reason: Reason::ClaimUnconfirmed }, NOW).0;
    for head in [head, open(), free] {
        for verdict in
            [Verdict::Succeeded, Verdict::FailedFinal, Verdict::NotExecuted(Proof::ProviderTombstone)]
        {
            assert_eq!(refusal(&head, Event::resolve(verdict), later(9)), Refusal::InPhases, "{verdict:?}");
        }
    }
}

#[test]
fn a_verdict_on_the_open_call_lets_the_command_be_resumed() {
    let open = open();
    let over = NOW.plus(open.terms.quarantine);
    let ways = [
        (PhaseVerdict::Executed, NOW, Reason::VerdictExecuted),
        (PhaseVerdict::NotExecuted(Proof::ProviderTombstone), NOW, Reason::VerdictNotExecuted),
        (PhaseVerdict::NotExecuted(Proof::Quarantine), over, Reason::VerdictNotExecuted),
        (PhaseVerdict::NotExecuted(Proof::ProviderDeduplicates), NOW, Reason::VerdictDeduplicated),
        (PhaseVerdict::NothingOpen, NOW, Reason::Resumed),
    ];
    for (said, now, reason) in ways {
        let step = transition(Some(&open), &verdict(&open, said), now);
        let Write::Update(waits) = step.write else { panic!("{said:?}: {step:?}") };
        let state = State::Claimed { start_by: now.plus(WITHIN), ready_at: now };
        assert_eq!((waits.state, waits.reason, waits.epoch), (state, reason, open.epoch + 1), "{said:?}");
        assert_eq!((step.request, step.reference), (RequestWrite::Keep, ReferenceWrite::Keep), "{said:?}");
        assert!(waits.partly_done, "{said:?}");
        assert_eq!(waits.earlier_may_have_run, reason == Reason::VerdictDeduplicated, "{said:?}");
        let late = Event::Complete { fence: open.fence() };
        assert_eq!(transition(Some(&waits), &late, now).decision, Decision::Fenced, "{said:?}");
    }
}

#[test]
fn a_phased_command_without_input_is_resumed_by_the_next_request() {
    let open = open();
    let recorded = Recorded { has_input: false, ..ALL_IS_THERE };
    let executed = Event::ResolvePhase {
        epoch: open.epoch,
        verdict: PhaseVerdict::Executed,
        seen: None,
        within: WITHIN,
        recorded,
    };
    let (free, reference) = then(&open, executed, NOW);
    assert_eq!((free.state.name(), free.epoch), (StateName::FailedRetryable, open.epoch + 1));
    assert_eq!((free.partly_done, reference), (true, ReferenceWrite::Keep));
    assert_eq!(age(free, later(1_000_000_000)), Some(free), "its phases are not forgotten");
    let claim = Event::Claim(attempt(FRESH, OnLeaseExpired::Resume));
    let step = transition(Some(&free), &claim, later(1));
    assert_eq!((step.decision, step.request), (Decision::Execute, RequestWrite::Store));
}

#[test]
fn a_verdict_on_a_call_counts_only_for_the_open_call_of_the_attempt_that_it_names() {
    let open = open();
    let said = |epoch, verdict, recorded| Event::ResolvePhase {
        epoch,
        verdict,
        seen: None,
        within: WITHIN,
        recorded,
    };
    let executed = PhaseVerdict::Executed;
    let other_attempt = refusal(&open, said(open.epoch + 1, executed, ALL_IS_THERE), NOW);
    assert_eq!(other_attempt, Refusal::OtherAttempt { epoch: open.epoch });
    let other = Recorded { fits: false, ..ALL_IS_THERE };
    assert_eq!(refusal(&open, said(open.epoch, executed, other), NOW), Refusal::NotOpen);
    let Refusal::StillInFlight { until } =
        refusal(&open, verdict(&open, PhaseVerdict::NotExecuted(Proof::Quarantine)), NOW)
    else {
        panic!("a call may still land")
    };
    let seen = Event::ResolvePhase {
        epoch: open.epoch,
        verdict: PhaseVerdict::NotExecuted(Proof::Quarantine),
        seen: Some(NOW),
        within: WITHIN,
        recorded: ALL_IS_THERE,
    };
    assert_eq!(refusal(&open, seen, until), Refusal::StillInFlight { until }, "it was seen too early");
    let plain = Head { terms: claimed(OnLeaseExpired::Unknown).terms, ..open };
    assert_eq!(refusal(&plain, verdict(&plain, executed), NOW), Refusal::NotOpen);
    assert_eq!(refusal(&in_phases(), verdict(&in_phases(), executed), NOW), Refusal::WrongState);
    assert_eq!(transition(None, &verdict(&open, executed), NOW).decision, Decision::Refused(Refusal::Absent));
}
