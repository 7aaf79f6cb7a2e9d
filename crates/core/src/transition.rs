//! The one place that decides. Every store, test and tool calls [`transition`]; no other code decides.
//!
//! Time acts first ([`age`]): a lease past its end is expired and an expired record is gone, even before a
//! sweeper or reaper runs. Then one exhaustive match handles event and state, without a wildcard arm: a new
//! state or event does not compile until every combination is handled.

use std::time::Duration;

pub use crate::event::{
    About, Attempt, ClaimFence, Decision, Event, Lapse, PhaseVerdict, Proof, Recorded, Reference,
    ReferenceWrite, Refusal, RequestWrite, Start, Transition, Verdict, Write,
};
use crate::policy::OnLeaseExpired;
use crate::state::{Epoch, Fence, Head, Reason, SettledBy, State};
use crate::terms::Terms;
use crate::time::Timestamp;

/// Time for which a node may serve a settled record from memory before it asks the store again.
pub const CACHE_RECHECK: Duration = Duration::from_secs(10);

/// Time for which a purged record stays as a tombstone: until every node's memory must have noticed.
pub const PURGE_GRACE: Duration = Duration::from_secs(2 * CACHE_RECHECK.as_secs());

/// Decides the effects of `event` on the command with this `head`, at `now`.
///
/// `None` stands for a command without a record. A store carries out the write only if the record still has
/// exactly this head, and calls again otherwise.
pub fn transition(head: Option<&Head>, event: &Event, now: Timestamp) -> Transition {
    let before = head.copied();
    // What time ended in a restored store may have gone on elsewhere.
    let aged = if matches!(event, Event::Doubt) { before } else { before.and_then(|head| age(head, now)) };
    let (after, decision) = decide(aged, event, now);
    let aging = matches!(event, Event::Age) && after != before;
    let decision = if aging { Decision::Applied } else { decision };
    let write = match (before, after) {
        (None, None) => Write::Keep,
        (Some(before), Some(after)) if before == after => Write::Keep,
        (_, Some(after)) if aged.is_none() => Write::Create(after),
        (_, Some(after)) => Write::Update(after),
        (Some(_), None) => Write::Delete,
    };
    let (reference, request) = (reference(before, aged, after, event), request(before, aged, after, event));
    let lapse = before.filter(|_| write != Write::Keep).and_then(|before| lapse(&before, aged.as_ref()));
    Transition { write, reference, request, decision, lapse }
}

/// Returns what the passage of time ended, if it changed the record.
fn lapse(before: &Head, aged: Option<&Head>) -> Option<Lapse> {
    match (aged, before.state) {
        (Some(aged), _) if aged == before => None,
        (_, State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. }) => Some(Lapse::Lease),
        (_, State::FailedRetryable { .. }) => Some(Lapse::Remainder),
        (_, State::Expired { .. }) if before.reason == Reason::Purged => Some(Lapse::Remainder),
        (_, State::Succeeded { .. } | State::FailedFinal { .. } | State::Expired { .. }) => {
            Some(Lapse::Retention)
        }
    }
}

/// Returns the write to the request. It is stored when its command is acquired, and kept as long as a worker
/// may have to start or resume the command, or as its terms ask for.
fn request(before: Option<Head>, aged: Option<Head>, after: Option<Head>, event: &Event) -> RequestWrite {
    let kept = |head: Option<Head>| head.is_some_and(|head| head.keeps_request());
    // An unknown command without a stored request never had one.
    let acquired = !kept(aged)
        && kept(after)
        && (matches!(event, Event::Claim(_))
            || !after.is_some_and(|after| matches!(after.state, State::Unknown { .. })));
    match (kept(before), kept(after)) {
        (_, true) if acquired => RequestWrite::Store,
        (true, false) => RequestWrite::Erase,
        (true | false, true) | (false, false) => RequestWrite::Keep,
    }
}

/// Returns the write to the business reference. It is taken with the command, and freed only if no attempt
/// can have had an effect: the last one is proven not executed, or was answered with a stored 4xx, no earlier
/// one may have run, and none has committed a part. If its executor's late word proves otherwise, the
/// reference is taken back.
fn reference(before: Option<Head>, aged: Option<Head>, after: Option<Head>, event: &Event) -> ReferenceWrite {
    let acquired = after.map(|head| head.fence()) != before.map(|head| head.fence());
    let why = |head: Head| (head.state, head.reason);
    match (event, after) {
        (Event::Claim(attempt), Some(after)) if acquired && after.token == attempt.token => {
            match attempt.reference {
                Reference::Free => ReferenceWrite::Take,
                Reference::None | Reference::Taken => ReferenceWrite::Keep,
            }
        }
        // A command that expired was not freed, and may have had an effect.
        (Event::Free, None) if aged.is_some() => ReferenceWrite::GiveBack,
        (_, Some(after)) if before.is_some_and(|before| is_late_part(&before, &after)) => {
            ReferenceWrite::TakeBack
        }
        (_, Some(after)) if before.map(why) != Some(why(after)) => match after.state {
            State::Succeeded { .. }
                if before.is_some_and(|before| matches!(before.state, State::FailedRetryable { .. })) =>
            {
                ReferenceWrite::TakeBack
            }
            // An expired lease proves nothing, even if the operation is declared safe to repeat. And a
            // provider deduplicates on this command's key: another command has another key, and would run
            // beside it.
            State::FailedRetryable { .. } | State::FailedFinal { .. } if !after.left_nothing() => {
                ReferenceWrite::Keep
            }
            State::FailedRetryable { .. } => ReferenceWrite::GiveBack,
            State::FailedFinal { .. } if after.reason != Reason::ServerError => ReferenceWrite::GiveBack,
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => ReferenceWrite::Keep,
        },
        (_, Some(_) | None) => ReferenceWrite::Keep,
    }
}

/// Returns true if a command that counted as not executed turns out to be partly done.
fn is_late_part(before: &Head, after: &Head) -> bool {
    let free = |head: &Head| matches!(head.state, State::FailedRetryable { .. });
    free(before) && free(after) && after.partly_done && !before.partly_done
}

/// Returns the head after the passage of time. `Claimed`, `Processing` and `Unknown` are never forgotten.
pub fn age(head: Head, now: Timestamp) -> Option<Head> {
    match head.state {
        State::Claimed { start_by, .. } if start_by <= now => Some(given_up(head, Reason::NeverStarted, now)),
        State::Processing { lease_until, start_by } if lease_until <= now => {
            Some(lease_ended(head, lease_until, start_by, now))
        }
        State::Succeeded { expires_at, .. } | State::FailedFinal { expires_at, .. } if expires_at <= now => {
            let forget_at = expires_at.plus(head.terms.tombstone_ttl?);
            (forget_at > now).then(|| head.moved(State::Expired { forget_at }, Reason::Expired))
        }
        State::FailedRetryable { expires_at: end } | State::Expired { forget_at: end } if end <= now => None,
        State::Claimed { .. }
        | State::Processing { .. }
        | State::Succeeded { .. }
        | State::FailedFinal { .. }
        | State::FailedRetryable { .. }
        | State::Unknown { .. }
        | State::Expired { .. } => Some(head),
    }
}

/// Returns the head after the lease of a silent executor has expired.
fn lease_ended(head: Head, lease_until: Timestamp, start_by: Option<Timestamp>, now: Timestamp) -> Head {
    if head.reason == Reason::Deferred {
        return deferral_expired(head, now);
    }
    match (head.terms.on_lease_expired, start_by) {
        (OnLeaseExpired::Unknown, _) => unknown(head, Reason::LeaseExpired, now),
        // The next executor gets the results of its phases, and speaks for all of them.
        (OnLeaseExpired::Resume, Some(start_by)) if start_by > now => {
            waiting(head, start_by, lease_until, Reason::LeaseExpired)
        }
        (OnLeaseExpired::Rerun, Some(start_by)) if start_by > now => {
            let head = Head { earlier_may_have_run: true, ..head };
            waiting(head, start_by, lease_until, Reason::LeaseExpired)
        }
        (OnLeaseExpired::Resume, _) => unknown(head, Reason::LeaseExpired, now),
        (OnLeaseExpired::Rerun, _) => released(head, Reason::LeaseExpired, now),
    }
}

/// The state machine itself: returns the new head and the decision for the sender.
fn decide(head: Option<Head>, event: &Event, now: Timestamp) -> (Option<Head>, Decision) {
    let Some(head) = head else { return decide_without_record(event, now) };
    let keep = |decision| (Some(head), decision);
    let apply = |head| (Some(head), Decision::Applied);
    match *event {
        Event::Claim(Attempt { fingerprint, .. }) | Event::Look { fingerprint }
            if fingerprint.is_that_of(&head.fingerprint) != Some(true) =>
        {
            match fingerprint.is_that_of(&head.fingerprint) {
                Some(_) => keep(Decision::Mismatch),
                None => keep(Decision::Refused(Refusal::FingerprintVersion)),
            }
        }
        Event::Claim(attempt) => match head.state {
            State::Claimed { .. } => keep(Decision::Wait),
            // The claimer's own claim, sent again because the first answer was lost.
            State::Processing { .. } if head.token == attempt.token && head.reason != Reason::Deferred => {
                keep(Decision::Execute)
            }
            State::Processing { .. } => keep(Decision::Wait),
            State::Succeeded { .. } | State::FailedFinal { .. } => keep(Decision::Replay),
            // A claim overtaken by its own release: no executor is left to run it.
            State::FailedRetryable { .. } if head.token == attempt.token => keep(Decision::Vacant),
            State::FailedRetryable { .. } if attempt.fence == ClaimFence::Closed => {
                keep(Decision::Refused(Refusal::StoreFenced))
            }
            State::FailedRetryable { .. } if attempt.reference == Reference::Taken => {
                keep(Decision::Duplicate)
            }
            State::FailedRetryable { .. } if attempt.fence == ClaimFence::LookUpFirst => {
                let (head, _) = acquired_again(head, attempt, now);
                (head.map(|head| in_doubt(head, now)), Decision::Reconcile)
            }
            State::FailedRetryable { .. } => acquired_again(head, attempt, now),
            State::Unknown { .. } => keep(Decision::Reconcile),
            State::Expired { .. } => keep(Decision::Expired),
        },
        Event::Look { .. } => match head.state {
            State::Claimed { .. } | State::Processing { .. } => keep(Decision::Wait),
            State::Succeeded { .. } | State::FailedFinal { .. } => keep(Decision::Replay),
            State::FailedRetryable { .. } => keep(Decision::Vacant),
            State::Unknown { .. } => keep(Decision::Reconcile),
            State::Expired { .. } => keep(Decision::Expired),
        },
        Event::Start { fence, token } => match head.state {
            State::Claimed { start_by, .. } if head.fence() == fence => {
                let processing =
                    State::Processing { lease_until: now.plus(head.terms.lease), start_by: Some(start_by) };
                let started = head.moved(processing, Reason::Started);
                (Some(Head { token, ..started }), Decision::Execute)
            }
            // The worker's own start, sent again.
            State::Processing { .. } if head.fence() == (Fence { epoch: fence.epoch, token }) => {
                keep(Decision::Execute)
            }
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => keep(Decision::Fenced),
        },
        Event::Renew { fence }
        | Event::Complete { fence }
        | Event::Fail { fence, .. }
        | Event::Release { fence, .. }
        | Event::Requeue { fence, .. }
        | Event::Defer { fence, .. }
        | Event::Abandon { fence, .. }
            if fence != head.fence() =>
        {
            keep(Decision::Fenced)
        }
        Event::Renew { .. } => match head.state {
            State::Processing { start_by, .. } if head.reason != Reason::Deferred => {
                let lease_until = now.plus(head.terms.lease);
                apply(Head { state: State::Processing { lease_until, start_by }, ..head })
            }
            // A renewal is not evidence: it never leaves `Unknown`.
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => keep(Decision::Fenced),
        },
        Event::Complete { .. } => match head.state {
            // From `Unknown` and `FailedRetryable`, this is the executor's own late evidence of the effect.
            State::Processing { .. } | State::Unknown { .. } | State::FailedRetryable { .. } => {
                apply(succeeded(head, SettledBy::Executor, Reason::Answered, now))
            }
            State::Succeeded { settled_by: SettledBy::Executor, .. } => keep(Decision::Applied),
            State::Succeeded { settled_by: SettledBy::Verdict, .. }
            | State::Claimed { .. }
            | State::FailedFinal { .. }
            | State::Expired { .. } => keep(Decision::Fenced),
        },
        Event::Fail { reason, .. } => match head.state {
            State::Processing { .. } | State::Unknown { .. } => {
                apply(failed_final(head, SettledBy::Executor, reason, now))
            }
            State::FailedFinal { settled_by: SettledBy::Executor, .. } => keep(Decision::Applied),
            // Declared not executed, and it did fail: there is no effect that a rerun could double.
            State::FailedRetryable { .. }
            | State::FailedFinal { settled_by: SettledBy::Verdict, .. }
            | State::Claimed { .. }
            | State::Succeeded { .. }
            | State::Expired { .. } => keep(Decision::Fenced),
        },
        // No word undoes the committed part of a deferred command, or speaks for an attempt that the store has forgotten.
        Event::Release { .. } | Event::Requeue { .. }
            if head.is_left_to_a_message() || head.is_in_doubt() =>
        {
            keep(Decision::Fenced)
        }
        Event::Release { reason, .. } => match head.state {
            State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => {
                apply(released(head, reason, now))
            }
            // The command was taken from its executor without proof, and this is the proof; or it proves that
            // a part is done.
            State::FailedRetryable { .. }
                if head.reason.proves_nothing() || (reason == Reason::PartlyDone && !head.partly_done) =>
            {
                apply(released(head, reason, now))
            }
            State::FailedRetryable { .. } => keep(Decision::Applied),
            State::Succeeded { .. } | State::FailedFinal { .. } | State::Expired { .. } => {
                keep(Decision::Fenced)
            }
        },
        Event::Requeue { reason, after, .. } => match head.state {
            State::Processing { start_by: Some(start_by), .. } if now.plus(after) < start_by => {
                apply(waiting(head, start_by, now.plus(after), reason))
            }
            State::Processing { .. } => apply(given_up(head, reason, now)),
            State::Unknown { .. } if !head.is_phased() => apply(released(head, reason, now)),
            State::Unknown { .. }
            | State::Claimed { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => keep(Decision::Fenced),
        },
        Event::Defer { time, .. } => match head.state {
            State::Processing { .. } => {
                let deferred = State::Processing { lease_until: now.plus(time), start_by: None };
                apply(Head { partly_done: true, ..head.moved(deferred, Reason::Deferred) })
            }
            // An operator has the message sent after all: the outcome is open again.
            State::Unknown { .. } if head.reason == Reason::MessageDead => apply(deferral_expired(head, now)),
            State::Claimed { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => keep(Decision::Fenced),
        },
        Event::Abandon { reason, .. } => match head.state {
            State::Processing { .. } => apply(unknown(head, reason, now)),
            // The message is given up: from now on its calls can be waited for.
            State::Unknown { .. } if head.reason == Reason::DeferralExpired => {
                apply(unknown(head, reason, now))
            }
            State::Unknown { .. } => keep(Decision::Applied),
            State::Claimed { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => keep(Decision::Fenced),
        },
        Event::Advance if head.partly_done => keep(Decision::Applied),
        Event::Advance => match head.state {
            State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => {
                apply(Head { partly_done: true, ..head })
            }
            State::FailedRetryable { .. } => {
                apply(released(Head { partly_done: true, ..head }, head.reason, now))
            }
            // A settled command is not resumed.
            State::Succeeded { .. } | State::FailedFinal { .. } | State::Expired { .. } => {
                keep(Decision::Idle)
            }
        },
        Event::Age => keep(Decision::Idle),
        // The store may have forgotten that a worker started or ended it. A command that depends on its message is settled by it.
        Event::Doubt => match head.state {
            State::Claimed { .. } => apply(in_doubt(head, now)),
            State::Processing { .. } | State::Unknown { .. }
                if !head.is_left_to_a_message() && !head.is_in_doubt() =>
            {
                apply(in_doubt(head, now))
            }
            State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => keep(Decision::Idle),
        },
        // Phases after the recorded ones may have run.
        Event::ResolvePhase { .. } if head.is_in_doubt() => keep(Decision::Refused(Refusal::PhasesForgotten)),
        // Evidence about the whole says nothing about its open call, nor about the phases after that.
        Event::Resolve { .. } if head.is_phased() && !head.is_in_doubt() => {
            keep(Decision::Refused(Refusal::InPhases))
        }
        Event::ResolvePhase { epoch, verdict, seen, within, recorded } => match head.state {
            State::Unknown { .. } if !head.is_phased() => keep(Decision::Refused(Refusal::NotOpen)),
            State::Unknown { .. } if head.epoch != epoch => {
                keep(Decision::Refused(Refusal::OtherAttempt { epoch: head.epoch }))
            }
            State::Unknown { .. } if !recorded.fits => keep(Decision::Refused(Refusal::NotOpen)),
            State::Unknown { quarantine_until, .. } => match verdict {
                PhaseVerdict::Executed => {
                    let head = Head { partly_done: true, ..head };
                    apply(resumable(head, Reason::VerdictExecuted, within, recorded, now))
                }
                PhaseVerdict::NotExecuted(Proof::Quarantine)
                    if seen.unwrap_or(now).min(now) < quarantine_until =>
                {
                    keep(Decision::Refused(Refusal::StillInFlight { until: quarantine_until }))
                }
                PhaseVerdict::NotExecuted(Proof::ProviderTombstone | Proof::Quarantine) => {
                    apply(resumable(head, Reason::VerdictNotExecuted, within, recorded, now))
                }
                // The call may still land. The next call's answer then holds for both, but no run has to make
                // the next call.
                PhaseVerdict::NotExecuted(Proof::ProviderDeduplicates) => {
                    let head = Head { earlier_may_have_run: true, ..head };
                    apply(resumable(head, Reason::VerdictDeduplicated, within, recorded, now))
                }
                PhaseVerdict::NothingOpen => apply(resumable(head, Reason::Resumed, within, recorded, now)),
            },
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => keep(Decision::Refused(Refusal::WrongState)),
        },
        // The evidence is about another attempt; and an earlier attempt that did nothing says nothing about
        // the last one.
        Event::Resolve { verdict, about, .. }
            if about.excludes(head.epoch) || verdict != Verdict::Succeeded && about.is_before(head.epoch) =>
        {
            keep(Decision::Refused(Refusal::OtherAttempt { epoch: head.epoch }))
        }
        // Late evidence of the effect, after "not executed": it settles the command, like the executor's late
        // word, and no request runs it again. A command with phases is settled phase by phase.
        Event::Resolve { verdict: Verdict::Succeeded, about, .. }
            if proves_an_effect_of(&head, about) && head.terms.on_lease_expired != OnLeaseExpired::Resume =>
        {
            apply(succeeded(head, SettledBy::Verdict, Reason::VerdictExecuted, now))
        }
        Event::Resolve { verdict, seen, about: _ } => match head.state {
            // No executor runs it: evidence that arrives before the message's own end is as good as that.
            State::Processing { .. } if head.reason == Reason::Deferred => match verdict {
                Verdict::Succeeded => {
                    apply(succeeded(head, SettledBy::Verdict, Reason::VerdictExecuted, now))
                }
                Verdict::FailedFinal => {
                    apply(failed_final(head, SettledBy::Verdict, Reason::VerdictExecuted, now))
                }
                Verdict::NotExecuted(_) => keep(Decision::Refused(Refusal::WrongState)),
            },
            State::Unknown { quarantine_until, .. } => match verdict {
                Verdict::Succeeded => {
                    let settled = succeeded(head, SettledBy::Verdict, Reason::VerdictExecuted, now);
                    apply(settled)
                }
                Verdict::FailedFinal => {
                    let settled = failed_final(head, SettledBy::Verdict, Reason::VerdictExecuted, now);
                    apply(settled)
                }
                // Its message may still be sent, whatever the provider has seen so far.
                Verdict::NotExecuted(_) if head.reason == Reason::DeferralExpired => {
                    keep(Decision::Refused(Refusal::StillInFlight { until: quarantine_until }))
                }
                // Its transaction is committed: running it again would make it twice.
                Verdict::NotExecuted(_) if head.is_left_to_a_message() => {
                    keep(Decision::Refused(Refusal::PartlyDone))
                }
                // An effect that was absent at the look-up may have landed since: a call of this attempt or,
                // after a slow verdict, one of a later attempt.
                // Of a command in doubt, a lost attempt may have had another id, which the provider's word is not about.
                Verdict::NotExecuted(proof)
                    if (proof == Proof::Quarantine || head.is_in_doubt())
                        && seen.unwrap_or(now).min(now) < quarantine_until =>
                {
                    keep(Decision::Refused(Refusal::StillInFlight { until: quarantine_until }))
                }
                // The evidence is about the command, and so about every attempt: none has landed, and none
                // can any more.
                Verdict::NotExecuted(Proof::ProviderTombstone | Proof::Quarantine) => {
                    let head = Head { earlier_may_have_run: false, ..head };
                    apply(released(head, Reason::VerdictNotExecuted, now))
                }
                // A call may still land; it then gets the same answer as the next one.
                Verdict::NotExecuted(Proof::ProviderDeduplicates) => {
                    apply(released(head, Reason::VerdictDeduplicated, now))
                }
            },
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => keep(Decision::Refused(Refusal::WrongState)),
        },
        Event::Postpone { until, attempts: seen, counts } => match head.state {
            State::Unknown { attempts, .. } if attempts != seen => {
                keep(Decision::Refused(Refusal::Overtaken))
            }
            State::Unknown { since, attempts, quarantine_until, .. } => {
                let attempts = attempts.saturating_add(u32::from(counts));
                let state = State::Unknown { since, reconcile_after: until, attempts, quarantine_until };
                apply(Head { state, ..head })
            }
            State::Claimed { .. }
            | State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => keep(Decision::Refused(Refusal::WrongState)),
        },
        Event::Free => match head.state {
            // Some of its phases may have run, or all of it.
            State::Claimed { .. } if head.is_phased() || head.earlier_may_have_run || head.partly_done => {
                keep(Decision::Refused(Refusal::WrongState))
            }
            State::FailedRetryable { .. } if head.partly_done => keep(Decision::Refused(Refusal::PartlyDone)),
            State::FailedRetryable { expires_at } if head.may_have_run() => {
                keep(Decision::Refused(Refusal::StillInFlight { until: expires_at }))
            }
            State::Claimed { .. } | State::FailedRetryable { .. } => (None, Decision::Applied),
            State::Processing { .. }
            | State::Succeeded { .. }
            | State::FailedFinal { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => keep(Decision::Refused(Refusal::WrongState)),
        },
        Event::Purge => match head.state {
            State::Succeeded { .. } | State::FailedFinal { .. } | State::Expired { .. } => {
                let forget_at = now.plus(PURGE_GRACE);
                apply(head.moved(State::Expired { forget_at }, Reason::Purged))
            }
            State::Claimed { .. }
            | State::Processing { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. } => keep(Decision::Refused(Refusal::WrongState)),
        },
    }
}

/// Returns true for a command that is free or waits for a worker, and whose effect can only come from an
/// attempt that counted as not executed.
fn proves_an_effect_of(head: &Head, about: About) -> bool {
    match head.state {
        State::FailedRetryable { .. } => true,
        State::Claimed { .. } => match about {
            About::Command => head.epoch > 1,
            About::UpTo(_) | About::Only(_) => about.is_before(head.epoch),
        },
        State::Processing { .. }
        | State::Succeeded { .. }
        | State::FailedFinal { .. }
        | State::Unknown { .. }
        | State::Expired { .. } => false,
    }
}

fn decide_without_record(event: &Event, now: Timestamp) -> (Option<Head>, Decision) {
    match *event {
        Event::Claim(attempt) if attempt.fence == ClaimFence::Closed => {
            (None, Decision::Refused(Refusal::StoreFenced))
        }
        Event::Claim(attempt) if attempt.reference == Reference::Taken => (None, Decision::Duplicate),
        Event::Claim(attempt) if attempt.fence == ClaimFence::LookUpFirst => {
            let (head, _) = acquired(attempt, 1, now);
            (head.map(|head| in_doubt(head, now)), Decision::Reconcile)
        }
        Event::Claim(attempt) => acquired(attempt, 1, now),
        Event::Look { .. } => (None, Decision::Vacant),
        Event::Start { .. }
        | Event::Renew { .. }
        | Event::Complete { .. }
        | Event::Fail { .. }
        | Event::Release { .. }
        | Event::Requeue { .. }
        | Event::Defer { .. }
        | Event::Abandon { .. } => (None, Decision::Fenced),
        Event::Advance | Event::Age | Event::Doubt => (None, Decision::Idle),
        Event::Resolve { .. }
        | Event::ResolvePhase { .. }
        | Event::Postpone { .. }
        | Event::Free
        | Event::Purge => (None, Decision::Refused(Refusal::Absent)),
    }
}

fn acquired(attempt: Attempt, epoch: Epoch, now: Timestamp) -> (Option<Head>, Decision) {
    let Attempt { fingerprint, token, terms, start, reference: _, fence: _ } = attempt;
    let fingerprint = fingerprint.recorded();
    let (state, decision) = match start {
        Start::Now => {
            (State::Processing { lease_until: now.plus(terms.lease), start_by: None }, Decision::Execute)
        }
        Start::Within(time) => (State::Claimed { start_by: now.plus(time), ready_at: now }, Decision::Wait),
        Start::Resumable(time) => {
            let start_by = Some(now.plus(time));
            (State::Processing { lease_until: now.plus(terms.lease), start_by }, Decision::Execute)
        }
    };
    let (reason, earlier_may_have_run, partly_done) = (Reason::Claimed, false, false);
    let head = Head { fingerprint, epoch, token, terms, state, reason, earlier_may_have_run, partly_done };
    (Some(head), decision)
}

/// Acquires the command again. Effects of earlier attempts, certain or possible, are remembered, and their
/// quarantine follows their own terms.
fn acquired_again(before: Head, attempt: Attempt, now: Timestamp) -> (Option<Head>, Decision) {
    let (acquired, decision) = acquired(attempt, before.epoch.saturating_add(1), now);
    let acquired = acquired.map(|head| Head { partly_done: before.partly_done, ..head });
    let remembered = |head: Head| {
        let quarantine = head.terms.quarantine.max(before.terms.quarantine);
        Head { terms: Terms { quarantine, ..head.terms }, earlier_may_have_run: true, ..head }
    };
    (if before.may_have_run() { acquired.map(remembered) } else { acquired }, decision)
}

fn succeeded(head: Head, settled_by: SettledBy, reason: Reason, now: Timestamp) -> Head {
    head.moved(State::Succeeded { expires_at: now.plus(head.terms.ttl), settled_by }, reason)
}

fn failed_final(head: Head, settled_by: SettledBy, reason: Reason, now: Timestamp) -> Head {
    let head = Head { reason, ..head };
    Head { state: State::FailedFinal { expires_at: forgotten_at(&head, now), settled_by }, ..head }
}

fn released(head: Head, reason: Reason, now: Timestamp) -> Head {
    let partly_done = head.partly_done || reason == Reason::PartlyDone;
    let head = Head { reason, partly_done, ..head };
    // A partly done command is open, and forgotten no more than an unknown one: the next executor must find
    // it.
    let expires_at = if partly_done { Timestamp::MAX } else { forgotten_at(&head, now) };
    Head { state: State::FailedRetryable { expires_at }, ..head }
}

/// Returns the expiry of a record without effect so far: not while a call may still land. After expiry, the
/// next request would be another command with another id, and the two could not be linked.
fn forgotten_at(head: &Head, now: Timestamp) -> Timestamp {
    let Terms { ttl, quarantine, .. } = head.terms;
    now.plus(if head.may_have_run() { ttl.max(quarantine) } else { ttl })
}

/// Requeues the command for a worker. The epoch rises, which fences the last executor.
fn waiting(head: Head, start_by: Timestamp, ready_at: Timestamp, reason: Reason) -> Head {
    let epoch = head.epoch.saturating_add(1);
    Head { epoch, ..head.moved(State::Claimed { start_by, ready_at }, reason) }
}

/// Makes the command resumable after its open call, whose result is known now: by a worker if the store has
/// the input, otherwise by the next request with the key. The last executor is fenced.
fn resumable(head: Head, reason: Reason, within: Duration, recorded: Recorded, now: Timestamp) -> Head {
    if recorded.has_input {
        return waiting(head, now.plus(within), now, reason);
    }
    Head { epoch: head.epoch.saturating_add(1), ..released(head, reason, now) }
}

/// Gives the command up: no worker continues it. A command with phases may have had an effect; any other has
/// not run.
fn given_up(head: Head, reason: Reason, now: Timestamp) -> Head {
    if head.is_phased() { unknown(head, reason, now) } else { released(head, reason, now) }
}

/// Expires a deferral. The message may still be sent at any time: no quarantine ends that, only news of the
/// message.
fn deferral_expired(head: Head, now: Timestamp) -> Head {
    let quarantine_until = Timestamp::MAX;
    let state = State::Unknown { since: now, reconcile_after: now, attempts: 0, quarantine_until };
    head.moved(state, Reason::DeferralExpired)
}

/// Makes the outcome unknown, since the store may have forgotten attempts at the command.
fn in_doubt(head: Head, now: Timestamp) -> Head {
    unknown(Head { earlier_may_have_run: true, ..head }, Reason::StoreRestored, now)
}

fn unknown(head: Head, reason: Reason, now: Timestamp) -> Head {
    // Counted from now and by a whole lease: were it counted from the lease's end, a database clock that
    // jumped forward would declare a call impossible while its executor still believes in its lease.
    let quarantine_until = now.plus(head.terms.quarantine);
    head.moved(State::Unknown { since: now, reconcile_after: now, attempts: 0, quarantine_until }, reason)
}
