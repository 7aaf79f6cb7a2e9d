//! Tests of every pair of state and event, and of the passage of time. Then random lives, which must keep the
//! rules.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;
use semel_core::policy::OnLeaseExpired;
use semel_core::state::SettledBy;
use semel_core::transition::{
    CACHE_RECHECK, PURGE_GRACE, PhaseVerdict, Proof, Recorded, ReferenceWrite, Refusal, RequestWrite,
    Verdict, age,
};
use semel_core::{
    About, Attempt, AttemptToken, ClaimFence, Decision, Event, Fence, Fingerprint, FingerprintInput, Head,
    Lapse, Policy, Reason, Reference, Start, State, StateName, Terms, Timestamp, Write, transition,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const MINE: AttemptToken = AttemptToken::from_bytes([1; 16]);
const FRESH: AttemptToken = AttemptToken::from_bytes([2; 16]);
const EPOCH: u32 = 3;

fn later(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

fn fingerprint(body: &str) -> Fingerprint {
    let input = FingerprintInput {
        method: "POST",
        path: "/",
        query: None,
        content_type: None,
        content_encoding: None,
        body: body.as_bytes(),
        exclude: &[],
    };
    input.fingerprint()
}

fn attempt(token: AttemptToken, body: &str) -> Attempt {
    let terms = Policy::default().terms();
    let (reference, fence) = (Reference::None, ClaimFence::Open);
    Attempt { fingerprint: fingerprint(body), token, terms, start: Start::Now, reference, fence }
}

fn head(state: State) -> Head {
    let Attempt { fingerprint, token, terms, .. } = attempt(MINE, "body");
    let (reason, earlier_may_have_run, partly_done) = (Reason::Claimed, false, false);
    Head { fingerprint, epoch: EPOCH, token, terms, state, reason, earlier_may_have_run, partly_done }
}

fn unknown(quarantine_until: Timestamp) -> State {
    State::Unknown { since: NOW, reconcile_after: NOW, attempts: 0, quarantine_until }
}

/// Returns the columns of the tables below: no record, and each state, the settled ones by either settler.
fn columns() -> [Option<Head>; 10] {
    let (expires_at, executor, verdict) = (later(60), SettledBy::Executor, SettledBy::Verdict);
    [
        None,
        Some(head(State::Claimed { start_by: later(60), ready_at: NOW })),
        Some(head(State::Processing { lease_until: later(60), start_by: None })),
        Some(head(State::Succeeded { expires_at, settled_by: executor })),
        Some(head(State::Succeeded { expires_at, settled_by: verdict })),
        Some(head(State::FailedFinal { expires_at, settled_by: executor })),
        Some(head(State::FailedFinal { expires_at, settled_by: verdict })),
        Some(head(State::FailedRetryable { expires_at })),
        Some(head(unknown(later(60)))),
        Some(head(State::Expired { forget_at: later(60) })),
    ]
}

/// Returns a cell: the decision's letter, and the new state if it changes.
fn cell(before: Option<Head>, event: &Event) -> String {
    let step = transition(before.as_ref(), event, NOW);
    let letter = match step.decision {
        Decision::Execute => "X",
        Decision::Replay => "R",
        Decision::Wait => "W",
        Decision::Mismatch => "M",
        Decision::Reconcile => "C",
        Decision::Expired => "E",
        Decision::Vacant => "V",
        Decision::Applied => "A",
        Decision::Fenced => "F",
        Decision::Refused(Refusal::WrongState) => "N",
        Decision::Refused(Refusal::Absent) => "Z",
        Decision::Refused(Refusal::Overtaken) => "O",
        Decision::Refused(Refusal::StillInFlight { .. }) => "Q",
        Decision::Refused(Refusal::OtherAttempt { epoch: EPOCH }) => "T",
        Decision::Refused(Refusal::OtherAttempt { .. }) => "?",
        Decision::Refused(Refusal::PartlyDone) => "P",
        Decision::Refused(Refusal::InPhases) => "H",
        Decision::Refused(Refusal::NotOpen) => "L",
        Decision::Refused(Refusal::FingerprintVersion) => "K",
        Decision::Refused(Refusal::StoreFenced) => "S",
        Decision::Refused(Refusal::PhasesForgotten) => "G",
        Decision::Idle => "I",
        Decision::Duplicate => "D",
    };
    let target = match step.write {
        Write::Keep => "",
        Write::Delete => ">none",
        Write::Create(head) | Write::Update(head) => match head.state.name() {
            StateName::Claimed => ">clai",
            StateName::Processing => ">proc",
            StateName::Succeeded => ">succ",
            StateName::FailedFinal => ">fail",
            StateName::FailedRetryable => ">retr",
            StateName::Unknown => ">unkn",
            StateName::Expired => ">expi",
        },
    };
    format!("{letter}{target}")
}

/// Returns every event with the expected cells.
fn table() -> Vec<(&'static str, Event, &'static str)> {
    let mine = Fence { epoch: EPOCH, token: MINE };
    let old_epoch = Fence { epoch: EPOCH - 1, token: MINE };
    let stranger = Fence { epoch: EPOCH, token: FRESH };
    let reason = Reason::NotExecuted;
    let after = Duration::from_secs(9);
    let claim = |token, body| Event::Claim(attempt(token, body));
    let taken = Event::Claim(Attempt { reference: Reference::Taken, ..attempt(FRESH, "body") });
    let under = |fence| Event::Claim(Attempt { fence, ..attempt(FRESH, "body") });
    let for_worker =
        Event::Claim(Attempt { start: Start::Within(Duration::from_secs(9)), ..attempt(FRESH, "body") });
    let look = |body| Event::Look { fingerprint: fingerprint(body) };
    let not_executed = |proof| Event::resolve(Verdict::NotExecuted(proof));
    let about = |verdict, epoch| Event::Resolve { verdict, seen: None, about: About::UpTo(epoch) };
    let only = |verdict, epoch| Event::Resolve { verdict, seen: None, about: About::Only(epoch) };
    const TOMBSTONE: Verdict = Verdict::NotExecuted(Proof::ProviderTombstone);
    let all_fenced = "F F F F F F F F F F";
    #[rustfmt::skip]
    let table = vec![
        // event                                               none   clai   proc   succ    succ*   fail    fail*   retr   unkn   expi
        ("claim",          claim(FRESH, "body"),              "X>proc W W R R R R X>proc C E"),
        ("claim for later", for_worker,                       "W>clai W W R R R R W>clai C E"),
        ("claim, reference taken", taken,                      "D W W R R R R D C E"),
        ("claim, fenced",  under(ClaimFence::Closed),         "S W W R R R R S C E"),
        ("claim, looked up first", under(ClaimFence::LookUpFirst), "C>unkn W W R R R R C>unkn C E"),
        ("claim again",    claim(MINE, "body"),               "X>proc W X R R R R V C E"),
        ("claim other",    claim(FRESH, "other"),             "X>proc M M M M M M M M M"),
        ("look",           look("body"),                      "V W W R R R R V C E"),
        ("look other",     look("other"),                     "V M M M M M M M M M"),
        ("start",          Event::Start { fence: mine, token: FRESH },      "F X>proc F F F F F F F F"),
        ("start again",    Event::Start { fence: stranger, token: MINE },   "F F X F F F F F F F"),
        ("start stranger", Event::Start { fence: stranger, token: FRESH },  all_fenced),
        ("renew",          Event::Renew { fence: mine },                    "F F A>proc F F F F F F F"),
        ("renew stranger", Event::Renew { fence: stranger },                all_fenced),
        ("renew old",      Event::Renew { fence: old_epoch },               all_fenced),
        ("complete",       Event::Complete { fence: mine },                 "F F A>succ A F F F A>succ A>succ F"),
        ("complete stranger", Event::Complete { fence: stranger },          all_fenced),
        ("complete old",   Event::Complete { fence: old_epoch },            all_fenced),
        ("fail",           Event::Fail { fence: mine, reason },             "F F A>fail F F A F F A>fail F"),
        ("fail stranger",  Event::Fail { fence: stranger, reason },         all_fenced),
        ("fail old",       Event::Fail { fence: old_epoch, reason },        all_fenced),
        ("release",        Event::Release { fence: mine, reason },          "F A>retr A>retr F F F F A A>retr F"),
        ("release stranger", Event::Release { fence: stranger, reason },    all_fenced),
        ("release old",    Event::Release { fence: old_epoch, reason },     all_fenced),
        ("requeue",        Event::Requeue { fence: mine, reason, after },   "F F A>retr F F F F F A>retr F"),
        ("requeue stranger", Event::Requeue { fence: stranger, reason, after }, all_fenced),
        ("defer",          Event::Defer { fence: mine, time: after },       "F F A>proc F F F F F F F"),
        ("defer old",      Event::Defer { fence: old_epoch, time: after },  all_fenced),
        ("abandon",        Event::Abandon { fence: mine, reason },          "F F A>unkn F F F F F A F"),
        ("abandon stranger", Event::Abandon { fence: stranger, reason },    all_fenced),
        ("abandon old",    Event::Abandon { fence: old_epoch, reason },     all_fenced),
        ("age",            Event::Age,                        "I I I I I I I I I I"),
        ("executed",       Event::resolve(Verdict::Succeeded),              "Z A>succ N N N N N A>succ A>succ N"),
        ("executed before", about(Verdict::Succeeded, EPOCH - 1),           "Z A>succ N N N N N A>succ A>succ N"),
        ("executed now",   about(Verdict::Succeeded, EPOCH),                "Z N N N N N N A>succ A>succ N"),
        ("executed, of a look", only(Verdict::Succeeded, EPOCH),            "Z N N N N N N A>succ A>succ N"),
        ("executed, of another look", only(Verdict::Succeeded, EPOCH - 1),  "Z T T T T T T T T T"),
        ("failed before",  about(Verdict::FailedFinal, EPOCH - 1),          "Z T T T T T T T T T"),
        ("failed",         Event::resolve(Verdict::FailedFinal),            "Z N N N N N N N A>fail N"),
        ("not executed",   not_executed(Proof::Quarantine),                 "Z N N N N N N N Q N"),
        ("deduplicated",   not_executed(Proof::ProviderDeduplicates),       "Z N N N N N N N A>retr N"),
        ("tombstone",      not_executed(Proof::ProviderTombstone),          "Z N N N N N N N A>retr N"),
        ("tombstone before", about(TOMBSTONE, EPOCH - 1),                   "Z T T T T T T T T T"),
        ("tombstone now",  about(TOMBSTONE, EPOCH),                         "Z N N N N N N N A>retr N"),
        ("postpone",       Event::Postpone { until: later(9), attempts: 0, counts: true }, "Z N N N N N N N A>unkn N"),
        ("postpone late",  Event::Postpone { until: later(9), attempts: 7, counts: true }, "Z N N N N N N N O N"),
        ("doubt",          Event::Doubt,                      "I A>unkn A>unkn I I I I I A>unkn I"),
        ("free",           Event::Free,                       "Z A>none N N N N N A>none N N"),
        ("purge",          Event::Purge,                      "Z N N A>expi A>expi A>expi A>expi N N A>expi"),
    ];
    table
}

#[test]
fn every_event_has_its_tabulated_result_in_every_state() {
    for (name, event, expected) in table() {
        let cells: Vec<String> = columns().into_iter().map(|head| cell(head, &event)).collect();
        assert_eq!(cells.join(" "), expected, "{name}");
    }
}

/// Returns commands with more than one call: running and waiting with phases, deferred, and deferred for too
/// long.
fn long_running() -> [(&'static str, Head); 4] {
    let phased = |state| Head {
        terms: Terms { on_lease_expired: OnLeaseExpired::Resume, ..head(state).terms },
        ..head(state)
    };
    let deferred = head(State::Processing { lease_until: later(60), start_by: None });
    let deferred = Head { reason: Reason::Deferred, partly_done: true, ..deferred };
    [
        ("phas", phased(State::Processing { lease_until: later(60), start_by: Some(later(99)) })),
        ("wait", phased(State::Claimed { start_by: later(99), ready_at: NOW })),
        ("defe", deferred),
        (
            "late",
            Head { reason: Reason::DeferralExpired, partly_done: true, ..head(unknown(Timestamp::MAX)) },
        ),
    ]
}

#[test]
fn every_event_has_its_tabulated_result_for_phased_or_deferred_commands() {
    let mine = Fence { epoch: EPOCH, token: MINE };
    let reason = Reason::NotExecuted;
    let requeue = |seconds| Event::Requeue { fence: mine, reason, after: Duration::from_secs(seconds) };
    let not_executed = |proof| Event::resolve(Verdict::NotExecuted(proof));
    #[rustfmt::skip]
    let table = [
        // event                                                              phas   wait   defe   late
        ("claim",         Event::Claim(attempt(FRESH, "body")),              "W W W C"),
        ("claim again",   Event::Claim(attempt(MINE, "body")),               "X W W C"),
        ("start",         Event::Start { fence: mine, token: FRESH },        "F X>proc F F"),
        ("renew",         Event::Renew { fence: mine },                      "A>proc F F F"),
        ("complete",      Event::Complete { fence: mine },                   "A>succ F A>succ A>succ"),
        ("fail",          Event::Fail { fence: mine, reason },               "A>fail F A>fail A>fail"),
        ("requeue",       requeue(9),                                        "A>clai F F F"),
        ("requeue late",  requeue(99),                                       "A>unkn F F F"),
        ("release",       Event::Release { fence: mine, reason },            "A>retr A>retr F F"),
        ("defer",         Event::Defer { fence: mine, time: Duration::ZERO }, "A>proc F A>proc F"),
        ("abandon",       Event::Abandon { fence: mine, reason },            "A>unkn F A>unkn A>unkn"),
        ("executed",      Event::resolve(Verdict::Succeeded),                "H H A>succ A>succ"),
        ("failed",        Event::resolve(Verdict::FailedFinal),              "H H A>fail A>fail"),
        ("not executed",  not_executed(Proof::Quarantine),                   "H H N Q"),
        ("deduplicated",  not_executed(Proof::ProviderDeduplicates),         "H H N Q"),
        ("tombstone",     not_executed(Proof::ProviderTombstone),            "H H N Q"),
        ("doubt",         Event::Doubt,                                      "A>unkn A>unkn I I"),
        ("free",          Event::Free,                                       "N N N N"),
        ("purge",         Event::Purge,                                      "N N N N"),
    ];
    for (name, event, expected) in table {
        let cells: Vec<String> = long_running().map(|(_, head)| cell(Some(head), &event)).to_vec();
        assert_eq!(cells.join(" "), expected, "{name}");
    }
    let aged: Vec<_> = long_running()
        .map(|(_, head)| age(head, later(60)).map(|aged| (aged.state.name(), aged.epoch)))
        .to_vec();
    let at = |name, epoch| Some((name, epoch));
    assert_eq!(
        aged,
        [
            at(StateName::Claimed, EPOCH + 1),
            at(StateName::Claimed, EPOCH),
            at(StateName::Unknown, EPOCH),
            at(StateName::Unknown, EPOCH)
        ]
    );
    let given_up =
        long_running().map(|(_, head)| age(head, later(99)).map(|aged| aged.state.name())).to_vec();
    assert_eq!(given_up, [Some(StateName::Unknown); 4], "something may have happened in each");
}

/// Returns every event that settles or frees an unknown command, with the result for one that a restored store may have
/// forgotten attempts of.
#[test]
fn of_a_forgotten_command_only_its_executor_or_evidence_about_the_whole_says_more() {
    let claim = Event::Claim(Attempt { fence: ClaimFence::LookUpFirst, ..attempt(MINE, "body") });
    let Write::Create(looked_up) = transition(None, &claim, NOW).write else { panic!("it has a record") };
    assert!(looked_up.is_in_doubt() && looked_up.may_have_run() && !looked_up.left_nothing());
    let phased = Terms { on_lease_expired: OnLeaseExpired::Resume, ..looked_up.terms };
    let (mine, reason, after) = (looked_up.fence(), Reason::ClaimUnconfirmed, Duration::ZERO);
    let phase = |verdict| Event::ResolvePhase {
        epoch: 1,
        verdict,
        seen: None,
        within: after,
        recorded: Recorded { fits: true, has_input: true },
    };
    let quarantine = Event::resolve(Verdict::NotExecuted(Proof::Quarantine));
    #[rustfmt::skip]
    let table = [
        ("complete",         Event::Complete { fence: mine },                   "A>succ"),
        ("release",          Event::Release { fence: mine, reason },            "F"),
        ("requeue",          Event::Requeue { fence: mine, reason, after },     "F"),
        ("executed",         Event::resolve(Verdict::Succeeded),                "A>succ"),
        ("failed",           Event::resolve(Verdict::FailedFinal),              "A>fail"),
        ("not executed",     quarantine,                                        "Q"),
        ("tombstone",        Event::resolve(Verdict::NotExecuted(Proof::ProviderTombstone)), "Q"),
        ("doubt",            Event::Doubt,                                      "I"),
        ("free",             Event::Free,                                       "N"),
        ("claim again",      claim,                                             "C"),
    ];
    for head in [looked_up, Head { terms: phased, ..looked_up }] {
        for (name, event, expected) in table {
            assert_eq!(cell(Some(head), &event), expected, "{name}");
        }
        let waited = NOW.plus(head.terms.quarantine);
        assert_eq!(transition(Some(&head), &quarantine, waited).decision, Decision::Applied);
    }
    let phased = Head { terms: phased, ..looked_up };
    for verdict in [PhaseVerdict::Executed, PhaseVerdict::NothingOpen] {
        assert_eq!(cell(Some(phased), &phase(verdict)), "G", "{verdict:?}");
    }
}

#[test]
fn a_fenced_claim_forgets_a_record_whose_time_is_over_and_begins_nothing() {
    let fenced = Event::Claim(Attempt { fence: ClaimFence::Closed, ..attempt(FRESH, "body") });
    let settled = head(State::Succeeded { expires_at: later(60), settled_by: SettledBy::Executor });
    let step = transition(Some(&settled), &fenced, later(60));
    assert_eq!((step.decision, step.write), (Decision::Refused(Refusal::StoreFenced), Write::Delete));
}

#[test]
fn a_message_that_may_still_be_sent_keeps_its_command_in_quarantine() {
    let [.., (_, deferred), _] = long_running();
    let left = age(deferred, later(60)).expect("it is never forgotten");
    let verdict = Event::resolve(Verdict::NotExecuted(Proof::Quarantine));
    let a_year_on = later(365 * 24 * 3600);
    assert!(matches!(
        transition(Some(&left), &verdict, a_year_on).decision,
        Decision::Refused(Refusal::StillInFlight { .. })
    ));
    let abandon = Event::Abandon { fence: left.fence(), reason: Reason::MessageDead };
    let Write::Update(dead) = transition(Some(&left), &abandon, later(70)).write else {
        panic!("a message that is given up begins the quarantine")
    };
    let over = later(70).plus(dead.terms.quarantine);
    let refused = transition(Some(&dead), &verdict, over).decision;
    assert_eq!(refused, Decision::Refused(Refusal::PartlyDone), "its transaction is committed");
    let again = Event::Defer { fence: left.fence(), time: Duration::ZERO };
    let Write::Update(retried) = transition(Some(&dead), &again, later(80)).write else {
        panic!("a message that is sent after all ends the quarantine")
    };
    assert_eq!((retried.state.name(), retried.reason), (StateName::Unknown, Reason::DeferralExpired));
    assert_ne!(transition(Some(&retried), &verdict, a_year_on).decision, Decision::Applied);
}

#[test]
fn a_request_is_kept_as_long_as_a_worker_may_need_it() {
    let later_claim =
        Event::Claim(Attempt { start: Start::Within(Duration::from_secs(9)), ..attempt(FRESH, "body") });
    let phased =
        Event::Claim(Attempt { start: Start::Resumable(Duration::from_secs(9)), ..attempt(FRESH, "body") });
    let write = |head: Option<Head>, event: &Event, now| transition(head.as_ref(), event, now).request;
    for claim in [later_claim, phased] {
        assert_eq!(write(None, &claim, NOW), RequestWrite::Store);
        let free = head(State::FailedRetryable { expires_at: later(60) });
        assert_eq!(write(Some(free), &claim, NOW), RequestWrite::Store);
    }
    assert_eq!(write(None, &Event::Claim(attempt(FRESH, "body")), NOW), RequestWrite::Keep);
    let fence = Fence { epoch: EPOCH, token: MINE };
    let [(_, phased), (_, waits), ..] = long_running();
    let requeue = Event::Requeue { fence, reason: Reason::NotExecuted, after: Duration::ZERO };
    assert_eq!(write(Some(phased), &requeue, NOW), RequestWrite::Keep);
    assert_eq!(write(Some(phased), &Event::Age, later(60)), RequestWrite::Keep, "it is resumed");
    assert_eq!(write(Some(phased), &Event::Claim(attempt(FRESH, "body")), later(60)), RequestWrite::Keep);
    assert_eq!(write(Some(waits), &Event::Start { fence, token: FRESH }, NOW), RequestWrite::Keep);
    for event in [Event::Complete { fence }, Event::Fail { fence, reason: Reason::Answered }] {
        assert_eq!(write(Some(phased), &event, NOW), RequestWrite::Erase, "{event:?}");
    }
    let abandon = Event::Abandon { fence, reason: Reason::TimedOut };
    assert_eq!(write(Some(phased), &abandon, NOW), RequestWrite::Keep, "a verdict lets it be resumed");
    assert_eq!(write(Some(waits), &Event::Age, later(99)), RequestWrite::Keep, "also after it is given up");
    let plain = Head { terms: head(waits.state).terms, ..phased };
    assert_eq!(write(Some(plain), &abandon, NOW), RequestWrite::Erase);
    let plain = head(State::Claimed { start_by: later(60), ready_at: NOW });
    assert_eq!(write(Some(plain), &Event::Free, NOW), RequestWrite::Erase);
}

/// Returns every head of a command whose claim brought its request, and its counterpart without one.
fn heads_with_and_without_a_request() -> Vec<Option<Head>> {
    let executing =
        [None, Some(later(99))].map(|start_by| State::Processing { lease_until: later(60), start_by });
    let states = columns().into_iter().flatten().map(|head| head.state).chain(executing);
    let mut heads = vec![None];
    for state in states {
        for on_lease_expired in [OnLeaseExpired::Unknown, OnLeaseExpired::Rerun] {
            for keep_request in [true, false] {
                let plain = head(state);
                heads.push(Some(Head {
                    terms: Terms { on_lease_expired, keep_request, ..plain.terms },
                    ..plain
                }));
            }
        }
    }
    heads.extend(long_running().map(|(_, head)| Some(head)));
    heads
}

#[test]
fn a_request_is_stored_with_its_acquisition_and_erased_when_its_time_ends() {
    let starts =
        [Start::Now, Start::Within(Duration::from_secs(9)), Start::Resumable(Duration::from_secs(9))];
    let claims = starts.into_iter().flat_map(|start| {
        [true, false].map(|keep_request| {
            let plain = attempt(FRESH, "body");
            let terms = Terms { keep_request, ..plain.terms };
            Event::Claim(Attempt { start, terms, ..plain })
        })
    });
    let events: Vec<Event> = table().into_iter().map(|(_, event, _)| event).chain(claims).collect();
    let mut seen = HashMap::new();
    for (before, event) in heads_with_and_without_a_request()
        .iter()
        .flat_map(|head| events.iter().map(move |event| (head, event)))
    {
        for now in [NOW, later(60), later(61), later(9_999), later(999_999_999)] {
            let step = transition(before.as_ref(), event, now);
            let after = match step.write {
                Write::Keep => *before,
                Write::Create(after) | Write::Update(after) => Some(after),
                Write::Delete => None,
            };
            let kept = |head: &Option<Head>| head.is_some_and(|head| head.keeps_request());
            let fence = |head: &Option<Head>| head.map(|head| head.fence());
            let aged = before.and_then(|head| age(head, now));
            let acquires = match event {
                Event::Claim(attempt) => {
                    after.is_some_and(|after| after.token == attempt.token) && fence(&aged) != fence(&after)
                }
                _ => false,
            };
            let expected = match (kept(before), kept(&after)) {
                (_, true) if acquires => RequestWrite::Store,
                (true, false) => RequestWrite::Erase,
                (true, true) | (false, false) => RequestWrite::Keep,
                (false, true) => panic!("{event:?} has it kept, and nobody brings it: {before:?}"),
            };
            assert_eq!(step.request, expected, "{event:?} at {now} on {before:?}");
            *seen.entry(step.request).or_insert(0) += 1;
        }
    }
    assert!(seen.len() == 3 && seen.values().all(|count| *count > 20), "{seen:?}");
}

#[test]
fn a_request_that_its_terms_keep_is_there_until_the_outcome_is_known() {
    let keeping = |state| {
        let plain = head(state);
        Some(Head { terms: Terms { keep_request: true, ..plain.terms }, ..plain })
    };
    let write = |head: Option<Head>, event: &Event, now| transition(head.as_ref(), event, now).request;
    let plain = attempt(FRESH, "body");
    let claim = Event::Claim(Attempt { terms: Terms { keep_request: true, ..plain.terms }, ..plain });
    let fence = Fence { epoch: EPOCH, token: MINE };
    let running = keeping(State::Processing { lease_until: later(60), start_by: None });
    let lost = keeping(unknown(later(60)));
    assert_eq!(write(None, &claim, NOW), RequestWrite::Store);
    assert_eq!(write(running, &claim, NOW), RequestWrite::Keep, "a duplicate");
    assert_eq!(write(running, &Event::Renew { fence }, NOW), RequestWrite::Keep);
    assert_eq!(write(running, &Event::Abandon { fence, reason: Reason::TimedOut }, NOW), RequestWrite::Keep);
    assert_eq!(write(running, &Event::Age, later(60)), RequestWrite::Keep, "its executor died");
    assert_eq!(write(running, &Event::Complete { fence }, NOW), RequestWrite::Erase);
    let postpone = Event::Postpone { until: later(9), attempts: 0, counts: true };
    assert_eq!(write(lost, &postpone, NOW), RequestWrite::Keep);
    for event in [
        Event::Complete { fence },
        Event::Fail { fence, reason: Reason::Answered },
        Event::Release { fence, reason: Reason::NotExecuted },
        Event::resolve(Verdict::Succeeded),
        Event::resolve(Verdict::FailedFinal),
        Event::resolve(Verdict::NotExecuted(Proof::ProviderTombstone)),
    ] {
        assert_eq!(write(lost, &event, NOW), RequestWrite::Erase, "{event:?}");
    }
    // Declared safe to repeat: the next claim brings its own, with or without a sweep between.
    let terms = Terms { on_lease_expired: OnLeaseExpired::Rerun, keep_request: true, ..plain.terms };
    let rerun = running.map(|head| Head { terms, ..head });
    assert_eq!(write(rerun, &Event::Age, later(60)), RequestWrite::Erase);
    assert_eq!(write(rerun, &claim, later(60)), RequestWrite::Store);
    assert_eq!(write(rerun, &Event::Claim(plain), later(60)), RequestWrite::Erase, "which is not kept");
}

#[test]
fn command_whose_call_may_still_land_cannot_be_freed() {
    // The provider deduplicates: a call of this command may land, and gets the same answer as the next one.
    // But the next request after this would be another command, with another id.
    let not_executed = Event::resolve(Verdict::NotExecuted(Proof::ProviderDeduplicates));
    let Write::Update(freed) = transition(Some(&head(unknown(later(60)))), &not_executed, NOW).write else {
        panic!("the verdict counts at once");
    };
    let step = transition(Some(&freed), &Event::Free, NOW);
    assert_eq!(step.reference, ReferenceWrite::Keep, "another key would run beside the call");
    assert!(matches!(step.decision, Decision::Refused(_)), "the same key would: {:?}", step.decision);
    let State::FailedRetryable { expires_at } = freed.state else { panic!("it is free for one retry") };
    let brief =
        Head { terms: Terms { ttl: Duration::from_secs(1), ..freed.terms }, ..head(unknown(later(60))) };
    let Write::Update(brief) = transition(Some(&brief), &not_executed, NOW).write else {
        panic!("the verdict counts at once");
    };
    assert!(expires_at > later(60));
    assert_eq!(
        brief.state,
        State::FailedRetryable { expires_at: later(60) },
        "no sooner than the call can have landed"
    );
}

#[test]
fn not_executed_counts_only_if_it_was_seen_after_the_quarantine_of_this_attempt() {
    let unknown = head(unknown(later(60)));
    let seen_at = |seen| {
        let event = Event::Resolve {
            verdict: Verdict::NotExecuted(Proof::Quarantine),
            seen: Some(seen),
            about: About::Command,
        };
        transition(Some(&unknown), &event, later(1000)).decision
    };
    let refused = Decision::Refused(Refusal::StillInFlight { until: later(60) });
    assert_eq!(seen_at(NOW), refused);
    assert_eq!(seen_at(later(59)), refused);
    assert_eq!(seen_at(later(60)), Decision::Applied);
    let early = Event::Resolve {
        verdict: Verdict::NotExecuted(Proof::Quarantine),
        seen: Some(later(1000)),
        about: About::Command,
    };
    assert_eq!(transition(Some(&unknown), &early, later(59)).decision, refused, "nobody sees the future");
}

#[test]
fn a_reference_is_kept_where_a_call_may_still_land_or_have_landed() {
    let reference = |head: &Head, event: &Event, now| transition(Some(head), event, now).reference;
    let lost = head(unknown(NOW));
    for (proof, expected) in [
        (Proof::ProviderDeduplicates, ReferenceWrite::Keep),
        (Proof::ProviderTombstone, ReferenceWrite::GiveBack),
        (Proof::Quarantine, ReferenceWrite::GiveBack),
    ] {
        let verdict = Event::resolve(Verdict::NotExecuted(proof));
        assert_eq!(reference(&lost, &verdict, NOW), expected, "{proof:?}");
    }
    let running = head(State::Processing { lease_until: NOW, start_by: Some(later(60)) });
    let terms = Terms { on_lease_expired: OnLeaseExpired::Rerun, ..running.terms };
    let running = Head { terms, ..running };
    let requeue =
        Event::Requeue { fence: running.fence(), reason: Reason::NotExecuted, after: Duration::ZERO };
    let waits = |event: &Event, now| match transition(Some(&running), event, now).write {
        Write::Update(waits) if waits.state.name() == StateName::Claimed => waits,
        other => panic!("a worker starts it again: {other:?}"),
    };
    let (lost, unhurt) = (waits(&Event::Age, NOW), waits(&requeue, Timestamp::from_millis(0)));
    for event in [Event::Age, Event::Free] {
        assert_eq!(reference(&lost, &event, later(60)), ReferenceWrite::Keep, "an attempt may have run");
        assert_eq!(reference(&unhurt, &event, later(60)), ReferenceWrite::GiveBack, "nobody has run it");
    }
    let refused = Decision::Refused(Refusal::WrongState);
    assert_eq!(transition(Some(&lost), &Event::Free, NOW).decision, refused);
    assert_eq!(transition(Some(&unhurt), &Event::Free, NOW).decision, Decision::Applied);
}

/// Returns commands that are free for one retry although they may have run, one for each reason.
fn taken_without_proof() -> [Head; 2] {
    [Reason::LeaseExpired, Reason::VerdictDeduplicated]
        .map(|reason| Head { reason, ..head(State::FailedRetryable { expires_at: later(60) }) })
}

/// Returns the head after a change.
fn after(head: &Head, event: &Event, now: Timestamp) -> Head {
    match transition(Some(head), event, now).write {
        Write::Update(after) => after,
        other => panic!("{event:?} changes it: {other:?}"),
    }
}

#[test]
fn possible_effect_of_an_earlier_attempt_is_remembered_until_known() {
    let claim = Event::Claim(Attempt { reference: Reference::Free, ..attempt(FRESH, "body") });
    for before in taken_without_proof() {
        let again = after(&before, &claim, NOW);
        assert!(again.earlier_may_have_run);
        let fence = again.fence();
        let fail = |reason| Event::Fail { fence, reason };
        let release = Event::Release { fence, reason: Reason::NotExecuted };
        let requeue = Event::Requeue { fence, reason: Reason::NotExecuted, after: Duration::ZERO };
        let abandon = Event::Abandon { fence, reason: Reason::TimedOut };
        let verdict = |proof| Event::resolve(Verdict::NotExecuted(proof));
        let lost = after(&again, &abandon, NOW);
        let over = NOW.plus(again.terms.quarantine);
        for (name, before, event, kept) in [
            ("release", again, release, true),
            ("requeue", again, requeue, true),
            ("stored 4xx", again, fail(Reason::Answered), true),
            ("late release", lost, release, true),
            ("late requeue", lost, requeue, true),
            ("late 4xx", lost, fail(Reason::Answered), true),
            ("failed", lost, Event::resolve(Verdict::FailedFinal), true),
            ("deduplicated", lost, verdict(Proof::ProviderDeduplicates), true),
            ("tombstone", lost, verdict(Proof::ProviderTombstone), false),
            ("not executed", lost, verdict(Proof::Quarantine), false),
        ] {
            let step = transition(Some(&before), &event, over);
            let expected = if kept { ReferenceWrite::Keep } else { ReferenceWrite::GiveBack };
            assert_eq!((step.decision, step.reference), (Decision::Applied, expected), "{name}");
            let ended = after(&before, &event, over);
            assert_eq!(ended.may_have_run(), kept, "{name}");
            let State::FailedRetryable { expires_at } = ended.state else { continue };
            let freed = transition(Some(&ended), &Event::Free, over);
            let refused = Decision::Refused(Refusal::StillInFlight { until: expires_at });
            assert_eq!(freed.decision, if kept { refused } else { Decision::Applied }, "{name}");
            assert_eq!(freed.reference, expected, "{name}");
            let third =
                after(&ended, &Event::Claim(attempt(AttemptToken::from_bytes([3; 16]), "body")), over);
            assert_eq!(third.earlier_may_have_run, kept, "{name}");
        }
    }
    let released = head(State::FailedRetryable { expires_at: later(60) });
    let again = after(&Head { reason: Reason::NotExecuted, ..released }, &claim, NOW);
    assert!(!again.earlier_may_have_run, "what provably did not run leaves nothing behind");
}

#[test]
fn a_declined_resumed_run_frees_the_business_reference() {
    let [(_, phased), ..] = long_running();
    let waits = age(phased, later(60)).expect("it waits for whoever resumes it");
    assert!(!waits.earlier_may_have_run, "whoever resumes it knows what its phases have come to");
    let resumed = after(&waits, &Event::Start { fence: waits.fence(), token: FRESH }, later(60));
    let declined = Event::Fail { fence: resumed.fence(), reason: Reason::Answered };
    assert_eq!(transition(Some(&resumed), &declined, later(61)).reference, ReferenceWrite::GiveBack);
}

#[test]
fn a_late_release_by_its_executor_frees_the_business_reference() {
    for taken in taken_without_proof() {
        let release = Event::Release { fence: taken.fence(), reason: Reason::ClaimUnconfirmed };
        let step = transition(Some(&taken), &release, NOW);
        assert_eq!((step.decision, step.reference), (Decision::Applied, ReferenceWrite::GiveBack));
        let released = after(&taken, &release, NOW);
        assert_eq!(released.reason, Reason::ClaimUnconfirmed);
        let again = transition(Some(&released), &release, later(1));
        assert_eq!((again.decision, again.write), (Decision::Applied, Write::Keep), "sent again");
        let haunted = Head { earlier_may_have_run: true, ..taken };
        let step = transition(Some(&haunted), &release, NOW);
        assert_eq!((step.decision, step.reference), (Decision::Applied, ReferenceWrite::Keep));
        let stranger = Fence { token: FRESH, ..taken.fence() };
        let stranger = Event::Release { fence: stranger, reason: Reason::ClaimUnconfirmed };
        assert_eq!(transition(Some(&taken), &stranger, NOW).decision, Decision::Fenced);
    }
    // The lease expires at the moment of the report.
    let running = head(State::Processing { lease_until: NOW, start_by: None });
    let terms = Terms { on_lease_expired: OnLeaseExpired::Rerun, ..running.terms };
    let release = Event::Release { fence: running.fence(), reason: Reason::ClaimUnconfirmed };
    let step = transition(Some(&Head { terms, ..running }), &release, NOW);
    assert_eq!((step.decision, step.reference), (Decision::Applied, ReferenceWrite::GiveBack));
}

#[test]
fn a_record_outlives_the_quarantine_of_its_earlier_attempts() {
    let brief = |quarantine| Terms {
        ttl: Duration::from_secs(1),
        quarantine: Duration::from_secs(quarantine),
        on_lease_expired: OnLeaseExpired::Rerun,
        ..Policy::default().terms()
    };
    let running = head(State::Processing { lease_until: NOW, start_by: None });
    let freed = age(Head { terms: brief(50), ..running }, NOW).expect("it is free for one retry");
    assert_eq!(freed.state, State::FailedRetryable { expires_at: later(50) });
    // The next attempt has other terms, and does not run.
    let claim = Event::Claim(Attempt { terms: brief(5), ..attempt(FRESH, "body") });
    let again = after(&freed, &claim, NOW);
    assert_eq!(again.terms, brief(50), "the longer wait is the one that counts");
    let (fence, reason) = (again.fence(), Reason::NotExecuted);
    let released = after(&again, &Event::Release { fence, reason }, NOW);
    assert_eq!(released.state, State::FailedRetryable { expires_at: later(50) });
    let declined = after(&again, &Event::Fail { fence, reason: Reason::Answered }, NOW);
    assert_eq!(declined.state.expires_at(), Some(later(50)));
    let lost = after(&again, &Event::Abandon { fence, reason: Reason::TimedOut }, NOW);
    let tombstone = Event::resolve(Verdict::NotExecuted(Proof::ProviderTombstone));
    assert_eq!(after(&lost, &tombstone, NOW).state, State::FailedRetryable { expires_at: later(1) });
    let alone = Head { terms: brief(50), ..running };
    let released = after(&alone, &Event::Release { fence: alone.fence(), reason }, NOW);
    assert_eq!(released.state, State::FailedRetryable { expires_at: later(1) }, "nothing can land");
}

/// Lists, for each event, the columns in which the business reference is not kept.
#[test]
fn events_take_and_free_the_business_reference_as_tabulated() {
    let free = |token| Event::Claim(Attempt { reference: Reference::Free, ..attempt(token, "body") });
    let server_error =
        Event::Fail { fence: Fence { epoch: EPOCH, token: MINE }, reason: Reason::ServerError };
    let mut events: Vec<(&str, Event)> = table().into_iter().map(|(name, event, _)| (name, event)).collect();
    events.extend([
        ("claim free", free(FRESH)),
        ("claim free again", free(MINE)),
        ("server error", server_error),
    ]);
    let (take, give_back, take_back) =
        (ReferenceWrite::Take, ReferenceWrite::GiveBack, ReferenceWrite::TakeBack);
    for (name, event) in events {
        let changed: Vec<(StateName, ReferenceWrite)> = columns()
            .iter()
            .map(|before| (before, transition(before.as_ref(), &event, NOW).reference))
            .filter(|(_, write)| *write != ReferenceWrite::Keep)
            .map(|(before, write)| (before.map_or(StateName::Expired, |head| head.state.name()), write))
            .collect();
        use StateName::{Claimed, Expired as Absent, FailedRetryable, Processing, Unknown};
        let expected: &[(StateName, ReferenceWrite)] = match name {
            "claim free" => &[(Absent, take), (FailedRetryable, take)],
            "claim free again" => &[(Absent, take)],
            "complete" => &[(FailedRetryable, take_back)],
            "fail" | "requeue" => &[(Processing, give_back), (Unknown, give_back)],
            "release" => &[(Claimed, give_back), (Processing, give_back), (Unknown, give_back)],
            "executed" | "executed before" | "executed now" | "executed, of a look" => {
                &[(FailedRetryable, take_back)]
            }
            "failed" | "tombstone" | "tombstone now" => &[(Unknown, give_back)],
            "free" => &[(Claimed, give_back), (FailedRetryable, give_back)],
            _ => &[],
        };
        assert_eq!(changed, expected, "{name}");
    }
}

#[test]
fn freeing_an_expired_record_keeps_its_reference() {
    let (expires_at, settled_by) = (NOW, SettledBy::Executor);
    let expired = [State::Succeeded { expires_at, settled_by }, State::Expired { forget_at: NOW }].map(head);
    for forgotten in expired {
        let step = transition(Some(&forgotten), &Event::Free, NOW);
        assert_eq!((step.write, step.decision), (Write::Delete, Decision::Refused(Refusal::Absent)));
        assert_eq!(step.reference, ReferenceWrite::Keep, "it had an effect");
    }
}

#[test]
fn starting_a_command_fences_its_claimer() {
    let waits = head(State::Claimed { start_by: later(60), ready_at: NOW });
    let step = transition(Some(&waits), &Event::Start { fence: waits.fence(), token: FRESH }, NOW);
    let Write::Update(started) = step.write else { panic!("a worker takes it up") };
    assert_eq!(started.fence(), Fence { epoch: EPOCH, token: FRESH });
    let said = |fence| transition(Some(&started), &Event::Complete { fence }, NOW).decision;
    assert_eq!(said(waits.fence()), Decision::Fenced, "the claimer has left it to the worker");
    assert_eq!(said(started.fence()), Decision::Applied);
}

#[test]
fn unknown_command_in_phases_is_not_requeued_as_not_executed() {
    let lost = head(unknown(later(60)));
    let after = Duration::from_secs(9);
    let requeue = Event::Requeue { fence: lost.fence(), reason: Reason::NotExecuted, after };
    let said = |on_lease_expired| {
        let terms = Terms { on_lease_expired, ..lost.terms };
        transition(Some(&Head { terms, ..lost }), &requeue, NOW).decision
    };
    assert_eq!(said(OnLeaseExpired::Unknown), Decision::Applied, "there was one call, and it did not happen");
    assert_eq!(said(OnLeaseExpired::Resume), Decision::Fenced, "phases before it may have happened");
}

#[test]
fn lease_expiry_with_rerun_keeps_the_business_reference() {
    let running = head(State::Processing { lease_until: NOW, start_by: None });
    let terms = Terms { on_lease_expired: OnLeaseExpired::Rerun, ..running.terms };
    let step = transition(Some(&Head { epoch: 1, terms, ..running }), &Event::Age, NOW);
    let Write::Update(after) = step.write else { panic!("the lease has ended") };
    assert_eq!(after.state.name(), StateName::FailedRetryable);
    assert_eq!(step.reference, ReferenceWrite::Keep);
}

#[test]
fn the_purge_grace_is_two_cache_recheck_intervals() {
    assert_eq!(PURGE_GRACE, 2 * CACHE_RECHECK);
}

#[test]
fn a_claim_takes_the_terms_of_its_attempt_and_starts_a_lease() {
    let attempt = attempt(FRESH, "body");
    let step = transition(None, &Event::Claim(attempt), NOW);
    let Write::Create(created) = step.write else { panic!("a first claim creates") };
    assert_eq!(created.epoch, 1);
    let lease_until = NOW.plus(attempt.terms.lease);
    assert_eq!(created.state, State::Processing { lease_until, start_by: None });
    let released = head(State::FailedRetryable { expires_at: later(60) });
    let Write::Update(again) = transition(Some(&released), &Event::Claim(attempt), NOW).write else {
        panic!("a re-acquisition updates")
    };
    assert_eq!((again.epoch, again.token), (EPOCH + 1, FRESH));
}

#[test]
fn a_record_ages_exactly_at_its_deadline_and_not_1_ms_before() {
    let due = later(60);
    let just_before = Timestamp::from_millis(due.as_millis() - 1);
    let settled_by = SettledBy::Executor;
    let cases = [
        (State::Claimed { start_by: due, ready_at: NOW }, Some(StateName::FailedRetryable)),
        (State::Processing { lease_until: due, start_by: None }, Some(StateName::Unknown)),
        (State::Succeeded { expires_at: due, settled_by }, None),
        (State::FailedFinal { expires_at: due, settled_by }, None),
        (State::FailedRetryable { expires_at: due }, None),
        (State::Expired { forget_at: due }, None),
        (unknown(due), Some(StateName::Unknown)),
    ];
    for (state, expected) in cases {
        let head = head(state);
        assert_eq!(age(head, just_before), Some(head), "{state:?}");
        assert_eq!(age(head, due).map(|aged| aged.state.name()), expected, "{state:?}");
        let step = transition(Some(&head), &Event::Age, due);
        let changed = age(head, due) != Some(head);
        assert_eq!(step.decision, if changed { Decision::Applied } else { Decision::Idle }, "{state:?}");
    }
}

#[test]
fn a_transition_tells_what_had_lapsed_only_if_it_carries_that_out() {
    let (mut leases, mut retentions) = (0, 0);
    for before in columns().into_iter().flatten() {
        for (name, event, _) in table() {
            for seconds in [0, 20, 3600, 40 * 24 * 3600] {
                let step = transition(Some(&before), &event, later(seconds));
                let has_lapsed = age(before, later(seconds)) != Some(before);
                let expected = match before.state.expires_at() {
                    _ if !has_lapsed || step.write == Write::Keep => None,
                    // Doubt asks for no time.
                    _ if event == Event::Doubt => None,
                    Some(_) if before.state.name() == StateName::FailedRetryable => Some(Lapse::Remainder),
                    Some(_) if before.reason == Reason::Purged => Some(Lapse::Remainder),
                    Some(_) => Some(Lapse::Retention),
                    None => Some(Lapse::Lease),
                };
                assert_eq!(step.lapse, expected, "{name} on {:?} after {seconds} s", before.state);
                leases += usize::from(step.lapse == Some(Lapse::Lease));
                retentions += usize::from(step.lapse == Some(Lapse::Retention));
            }
        }
    }
    assert!(leases > 0 && retentions > 0, "{leases} leases and {retentions} retentions had lapsed");
    assert_eq!(transition(None, &Event::Claim(attempt(FRESH, "body")), later(0)).lapse, None);
}

#[test]
fn a_claim_of_an_expired_lease_reconciles_or_reruns_as_declared() {
    let processing = head(State::Processing { lease_until: NOW, start_by: None });
    let with =
        |on_lease_expired| Head { terms: Terms { on_lease_expired, ..processing.terms }, ..processing };
    let claim = Event::Claim(attempt(FRESH, "body"));
    for choice in [OnLeaseExpired::Unknown, OnLeaseExpired::Resume] {
        assert_eq!(transition(Some(&with(choice)), &claim, NOW).decision, Decision::Reconcile);
    }
    assert_eq!(transition(Some(&with(OnLeaseExpired::Rerun)), &claim, NOW).decision, Decision::Execute);
}

#[test]
fn a_command_of_a_worker_waits_again_only_while_it_may_still_be_started() {
    let aged = |on_lease_expired, start_by| {
        let head = head(State::Processing { lease_until: NOW, start_by: Some(start_by) });
        let head = Head { terms: Terms { on_lease_expired, ..head.terms }, ..head };
        age(head, NOW).expect("it is not forgotten").state.name()
    };
    for (choice, otherwise) in
        [(OnLeaseExpired::Rerun, StateName::FailedRetryable), (OnLeaseExpired::Resume, StateName::Unknown)]
    {
        assert_eq!(aged(choice, later(1)), StateName::Claimed);
        assert_eq!(aged(choice, NOW), otherwise);
    }
}

#[test]
fn evidence_of_an_effect_settles_a_waiting_command_only_after_an_earlier_attempt() {
    let waiting = head(State::Claimed { start_by: later(60), ready_at: NOW });
    let decided = |epoch| {
        let event = Event::resolve(Verdict::Succeeded);
        transition(Some(&Head { epoch, ..waiting }), &event, NOW).decision
    };
    assert_eq!((decided(1), decided(2)), (Decision::Refused(Refusal::WrongState), Decision::Applied));
}

#[test]
fn the_quarantine_counts_a_whole_lease_from_when_the_outcome_became_unknown() {
    let processing = head(State::Processing { lease_until: NOW, start_by: None });
    let swept_late = later(10_000);
    let Some(Head { state: State::Unknown { quarantine_until, .. }, terms, .. }) =
        age(processing, swept_late)
    else {
        panic!("its lease has ended")
    };
    assert_eq!(quarantine_until, swept_late.plus(terms.quarantine));
    let verdict = Event::resolve(Verdict::NotExecuted(Proof::Quarantine));
    let lost = head(unknown(later(60)));
    let until = later(60);
    assert_eq!(
        transition(Some(&lost), &verdict, NOW).decision,
        Decision::Refused(Refusal::StillInFlight { until })
    );
    assert_eq!(transition(Some(&lost), &verdict, until).decision, Decision::Applied);
}

#[test]
fn an_expired_record_leaves_a_tombstone_where_asked_to() {
    let settled_by = SettledBy::Executor;
    let week = Duration::from_secs(7 * 24 * 3600);
    let settled = head(State::Succeeded { expires_at: NOW, settled_by });
    let kept = Head { terms: Terms { tombstone_ttl: Some(week), ..settled.terms }, ..settled };
    assert_eq!(age(settled, NOW), None);
    assert_eq!(
        age(kept, NOW),
        Some(kept.moved(State::Expired { forget_at: NOW.plus(week) }, Reason::Expired))
    );
    assert_eq!(age(kept, NOW.plus(week)), None, "it may miss its time as a tombstone altogether");
    let claim = Event::Claim(attempt(FRESH, "body"));
    assert_eq!(transition(Some(&kept), &claim, NOW).decision, Decision::Expired);
    let other = Event::Claim(attempt(FRESH, "other"));
    assert_eq!(transition(Some(&kept), &other, NOW).decision, Decision::Mismatch);
    assert!(matches!(transition(Some(&settled), &other, NOW).write, Write::Create(_)));
}

#[test]
fn a_purged_record_is_forgotten_after_the_grace() {
    let settled = head(State::Succeeded { expires_at: later(9_999), settled_by: SettledBy::Executor });
    let Write::Update(purged) = transition(Some(&settled), &Event::Purge, NOW).write else {
        panic!("a purge leaves a tombstone first")
    };
    assert_eq!(purged.state, State::Expired { forget_at: NOW.plus(PURGE_GRACE) });
}

/// Returns the events of a random life, each with its delay.
fn events() -> impl Strategy<Value = (u64, Event)> {
    let tokens = prop::sample::select(vec![[1_u8; 16], [2; 16], [3; 16]]).prop_map(AttemptToken::from_bytes);
    let bodies = prop::sample::select(vec!["body", "body", "body", "other"]);
    let reruns =
        prop::sample::select(vec![OnLeaseExpired::Unknown, OnLeaseExpired::Rerun, OnLeaseExpired::Resume]);
    let tombstones = prop::option::of(Just(Duration::from_secs(500)));
    (0..60_u64, 0..24_u8, tokens, 1..6_u32, bodies, reruns, tombstones, any::<bool>()).prop_map(
        |(seconds, which, token, epoch, body, on_lease_expired, tombstone_ttl, keep_request)| {
            let fence = Fence { epoch, token };
            let reason = Reason::Answered;
            let mut attempt = attempt(token, body);
            attempt.terms = Terms {
                lease: Duration::from_secs(30),
                ttl: Duration::from_secs(200),
                tombstone_ttl,
                on_lease_expired,
                quarantine: Duration::from_secs(60),
                // Commands in phases store their input anyway.
                keep_request: keep_request && on_lease_expired != OnLeaseExpired::Resume,
            };
            let event = match which {
                0..4 => Event::Claim(attempt),
                4 => Event::Claim(Attempt { start: Start::Within(Duration::from_secs(20)), ..attempt }),
                5 => Event::Start { fence, token: FRESH },
                6 => Event::Renew { fence },
                7 => Event::Complete { fence },
                8 => Event::Fail { fence, reason },
                9 => Event::Release { fence, reason },
                10 => Event::Abandon { fence, reason: Reason::BrokeOff },
                11 => Event::Age,
                12 => Event::resolve(match epoch {
                    1 => Verdict::Succeeded,
                    2 => Verdict::FailedFinal,
                    3 => Verdict::NotExecuted(Proof::ProviderDeduplicates),
                    4 => Verdict::NotExecuted(Proof::ProviderTombstone),
                    _ => Verdict::NotExecuted(Proof::Quarantine),
                }),
                13 => {
                    Event::Requeue { fence, reason: Reason::NotExecuted, after: Duration::from_secs(seconds) }
                }
                14 => Event::Defer { fence, time: Duration::from_secs(seconds) },
                15 => Event::Claim(Attempt { start: Start::Resumable(Duration::from_secs(90)), ..attempt }),
                16 => Event::Free,
                17 => Event::Advance,
                18 => Event::ResolvePhase {
                    epoch,
                    verdict: match seconds % 5 {
                        0 => PhaseVerdict::Executed,
                        1 => PhaseVerdict::NotExecuted(Proof::ProviderDeduplicates),
                        2 => PhaseVerdict::NotExecuted(Proof::ProviderTombstone),
                        3 => PhaseVerdict::NotExecuted(Proof::Quarantine),
                        _ => PhaseVerdict::NothingOpen,
                    },
                    seen: None,
                    within: Duration::from_secs(90),
                    recorded: Recorded { fits: seconds % 7 > 0, has_input: seconds % 2 == 0 },
                },
                19 => Event::Release { fence, reason: Reason::PartlyDone },
                20 => Event::Doubt,
                21 => Event::Claim(Attempt { fence: ClaimFence::Closed, ..attempt }),
                22 => {
                    let start = match on_lease_expired {
                        OnLeaseExpired::Resume => Start::Resumable(Duration::from_secs(90)),
                        OnLeaseExpired::Unknown | OnLeaseExpired::Rerun => Start::Now,
                    };
                    Event::Claim(Attempt { fence: ClaimFence::LookUpFirst, start, ..attempt })
                }
                _ => Event::Purge,
            };
            (seconds, event)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The rules hold between any two moments of a record's life, for all events in all orders.
    #[test]
    fn random_event_sequences_keep_the_record_invariants(life in prop::collection::vec(events(), 1..60)) {
        let mut now = NOW;
        let mut head: Option<Head> = None;
        // Tokens that were told to execute, by life and epoch.
        let mut executors: HashMap<(u32, u32), AttemptToken> = HashMap::new();
        // For the current life: the epoch of the last claim, and the epochs whose execution may have had an
        // effect.
        let (mut claimed, mut suspects, mut committed) = (0, HashSet::new(), false);
        let mut lives = 0;
        // True if the last acquisition brought a request that was not erased since; true if it is stored.
        let (mut brought, mut stored) = (false, false);
        for (seconds, event) in life {
            now = now.plus(Duration::from_secs(seconds));
            let event = match event {
                Event::ResolvePhase { epoch, verdict, seen, within, recorded } => {
                    let recorded = Recorded { has_input: stored, ..recorded };
                    Event::ResolvePhase { epoch, verdict, seen, within, recorded }
                }
                other => other,
            };
            let step = transition(head.as_ref(), &event, now);

            // An earlier sweep changes neither the answer nor the record.
            let swept = head.and_then(|head| age(head, now));
            let after_sweep = transition(swept.as_ref(), &event, now);
            if !matches!(event, Event::Age | Event::Doubt) {
                prop_assert_eq!(after_sweep.decision, step.decision);
            }

            let next = match step.write {
                Write::Keep => head,
                Write::Create(head) => { lives += 1; suspects.clear(); committed = false; Some(head) }
                Write::Update(head) => Some(head),
                Write::Delete => None,
            };
            if let Some(after) = next.filter(|after| matches!(after.state, State::Unknown { .. })) {
                prop_assert!(after.reason.is_of_unknown(), "{:?} has no counter at zero", after.reason);
            }
            let born = matches!(step.write, Write::Create(_));
            if let (Some(before), Some(after), false) = (head, next, born) {
                prop_assert!(after.epoch >= before.epoch, "epochs rise");
                prop_assert_eq!(after.fingerprint, before.fingerprint);
                if before.state.is_terminal() {
                    let expired = after.state.name() == StateName::Expired;
                    prop_assert!(after == before || expired, "terminal records do not change");
                }
                if matches!(before.state, State::Unknown { .. }) && after.state != before.state {
                    let verdict = matches!(event, Event::Resolve { .. } | Event::ResolvePhase { .. });
                    let word = match event {
                        Event::Complete { fence }
                        | Event::Fail { fence, .. }
                        | Event::Release { fence, .. }
                        | Event::Requeue { fence, .. }
                        | Event::Abandon { fence, .. } => fence == before.fence(),
                        _ => false,
                    };
                    let doubted = matches!(event, Event::Doubt) && after.is_in_doubt();
                    prop_assert!(verdict || word || doubted, "only evidence leaves Unknown, not {:?}", event);
                }
                if after.epoch > before.epoch {
                    let declared = before.terms.on_lease_expired != OnLeaseExpired::Unknown;
                    let free = matches!(before.state, State::FailedRetryable { .. } | State::Claimed { .. });
                    let word = matches!(event, Event::Requeue { fence, .. } if fence == before.fence());
                    prop_assert!(free || word || declared, "only what did not run is acquired again");
                }
            }
            if let (Some(before), None) = (head, next) {
                let open = matches!(before.state, State::Processing { .. } | State::Unknown { .. });
                prop_assert!(!open, "what runs or is unknown is never forgotten");
            }
            let fence = |head: Option<Head>| head.map(|head| head.fence());
            if let (Event::Claim(attempt), Some(after)) = (event, next)
                && after.token == attempt.token && fence(next) != fence(swept)
            {
                brought = attempt.start != Start::Now || attempt.terms.keep_request;
                prop_assert_eq!(step.request == RequestWrite::Store, brought, "{:?}", event);
            } else {
                prop_assert!(step.request != RequestWrite::Store, "nobody brings one: {:?}", event);
            }
            stored = match step.request {
                RequestWrite::Keep => stored,
                RequestWrite::Store => true,
                RequestWrite::Erase => false,
            };
            // An erased request is gone until the next acquisition: a command in phases that was deferred.
            brought &= step.request != RequestWrite::Erase;
            let kept = next.is_some_and(|head| head.keeps_request());
            prop_assert_eq!(stored, brought && kept, "{:?} leads to {:?}", event, next);
            prop_assert!(step.request != RequestWrite::Erase || !kept, "{:?} leads to {:?}", event, next);
            if let (Event::Claim(_), Some(after)) = (event, next)
                && Some(after.epoch) != swept.map(|swept| swept.epoch)
            {
                claimed = after.epoch;
            }
            // A second check of the rule about references, by the reports about each attempt and not by the
            // record.
            let speaks_for = |epoch: u32, head: Head| match head.terms.on_lease_expired {
                OnLeaseExpired::Resume => claimed..=epoch,
                OnLeaseExpired::Unknown | OnLeaseExpired::Rerun => epoch..=epoch,
            };
            let acquitted = match (event, head.filter(|_| step.decision == Decision::Applied)) {
                (
                    Event::Release { fence, .. } | Event::Requeue { fence, .. } | Event::Fail { fence, .. },
                    Some(head),
                ) => speaks_for(fence.epoch, head),
                (Event::Resolve { verdict: Verdict::FailedFinal, .. }, Some(head)) => {
                    speaks_for(head.epoch, head)
                }
                (Event::Resolve { verdict: Verdict::NotExecuted(proof), .. }, Some(_))
                    if proof != Proof::ProviderDeduplicates => 0..=u32::MAX,
                (
                    Event::ResolvePhase {
                        verdict:
                            PhaseVerdict::NotExecuted(Proof::ProviderTombstone | Proof::Quarantine)
                            | PhaseVerdict::NothingOpen,
                        ..
                    },
                    Some(head),
                ) => speaks_for(head.epoch, head),
                // No attempt: epochs begin with 1.
                _ => 0..=0,
            };
            suspects.retain(|epoch| !acquitted.contains(epoch));
            if event == Event::Free && step.decision == Decision::Applied {
                prop_assert!(suspects.is_empty(), "attempts {:?} may have had an effect", suspects);
            }
            // Commits by the events that commit, and not by the record.
            let commits = match event {
                Event::Advance | Event::Defer { .. } | Event::Release { reason: Reason::PartlyDone, .. } => true,
                Event::ResolvePhase { verdict, .. } => verdict == PhaseVerdict::Executed,
                _ => false,
            };
            committed |= commits && step.decision == Decision::Applied && !born;
            if committed {
                prop_assert!(step.reference != ReferenceWrite::GiveBack, "{:?}", event);
                let terminal = head.is_some_and(|head| {
                    head.state.is_terminal() || head.state.name() == StateName::Expired
                });
                prop_assert!(next.is_some() || terminal, "what is partly done is never forgotten");
            }
            if step.reference == ReferenceWrite::GiveBack {
                prop_assert!(suspects.is_empty(), "attempts {:?} may have had an effect", suspects);
            }
            if step.decision == Decision::Execute {
                suspects.extend(next.map(|head| head.epoch));
                let held = next.expect("what is executed has a record");
                let executor = executors.entry((lives, held.epoch)).or_insert(held.token);
                prop_assert_eq!(*executor, held.token, "one executor for each epoch");
            }
            committed &= next.is_some();
            head = next;
        }
    }
}
