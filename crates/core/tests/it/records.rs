//! Records of commands, and their relation to claims.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use semel_core::policy::{KeepRequest, OnLeaseExpired};
use semel_core::state::SettledBy;
use semel_core::{
    AttemptToken, Change, Claim, Command, Decision, Fingerprint, FingerprintInput, Head, IdempotencyKey,
    KeyRules, Lapse, OperationId, OperationName, Policy, Principal, Reason, Record, RecordId, Reference,
    Request, Response, Scope, Start, State, StateName, StepKind, StoreAnswer, StoredRequest, StoredResult,
    Timestamp, TraceContext, Waiting, WaitingFilter, WaitingPage, Write,
};

const THEN: Timestamp = Timestamp::from_millis(1_000);
const NOW: Timestamp = Timestamp::from_millis(2_000);
const COMMAND: OperationId = OperationId::from_bytes([7; 16]);
const TOKEN: AttemptToken = AttemptToken::from_bytes([1; 16]);

pub(crate) fn key() -> IdempotencyKey {
    let rules = KeyRules { min_length: 1, ..KeyRules::default() };
    rules.parse([b"\"a-key\"".as_slice()]).expect("it is a key").expect("one line was given")
}

pub(crate) fn fingerprint() -> Fingerprint {
    let input = FingerprintInput {
        method: "POST",
        path: "/",
        query: None,
        content_type: None,
        content_encoding: None,
        body: b"body",
        exclude: &[],
    };
    input.fingerprint()
}

fn name(text: &str) -> OperationName {
    OperationName::new(text).expect("it is a name")
}

fn scope(operation: &str) -> Scope {
    let principal = Principal::new("acme", "alice").expect("these are names");
    Scope::new(principal, name(operation), key())
}

fn command() -> Command {
    Command {
        scope: scope("payments.create"),
        fingerprint: fingerprint(),
        business_reference: None,
        former: Arc::new([name("payments.make"), name("payments.do")]),
        policy: Arc::new(Policy { start_within: Duration::from_secs(77), ..Policy::default() }),
        trace: TraceContext::new([7; 16], [8; 8], true),
    }
}

pub(crate) fn request() -> StoredRequest {
    let headers = HeaderMap::new();
    let parts = Request {
        method: http::Method::POST,
        target: http::Uri::from_static("/payments"),
        headers,
        body: Bytes::from_static(b"body"),
    };
    parts.encode(|_| true)
}

pub(crate) fn result(status: u16) -> StoredResult {
    let status = StatusCode::from_u16(status).expect("tests use real statuses");
    let mut headers = HeaderMap::new();
    headers.insert(header::LOCATION, HeaderValue::from_static("/payments/1"));
    let kept = Response::retain(status, &headers, Bytes::from_static(b"made"), &HeaderMap::new());
    StoredResult::of(&kept)
}

pub(crate) fn claim() -> Claim {
    command().claim(COMMAND, TOKEN)
}

fn head(state: State) -> Head {
    let attempt = claim().attempt;
    Head {
        fingerprint: attempt.fingerprint,
        epoch: 1,
        token: attempt.token,
        terms: attempt.terms,
        state,
        reason: Reason::Claimed,
        earlier_may_have_run: false,
        partly_done: false,
    }
}

fn processing() -> Head {
    head(State::Processing { lease_until: NOW, start_by: None })
}

fn succeeded() -> Head {
    head(State::Succeeded { expires_at: NOW, settled_by: SettledBy::Executor })
}

pub(crate) fn record() -> Record {
    Record::after(None, Write::Create(processing()), Some(&claim()), None, THEN).expect("it is created")
}

fn settled() -> Record {
    let write = Write::Update(succeeded());
    Record::after(Some(&record()), write, None, Some(&result(201)), NOW).expect("it is kept")
}

#[test]
fn a_record_is_created_from_its_claim() {
    let record = record();
    let scope = claim().scope;
    assert_eq!(record.id, scope.record_id());
    assert_eq!(record.operation_id, COMMAND);
    assert_eq!((record.principal, record.operation), (scope.principal().clone(), scope.operation().clone()));
    assert_eq!(record.key_hash_prefix, scope.key().hash_prefix());
    assert_eq!((record.created_at, record.updated_at), (THEN, THEN));
    assert_eq!((record.head, record.result), (processing(), None));
    assert_eq!(record.history.steps().count(), 1);
    assert_eq!(Record::after(None, Write::Create(processing()), None, None, THEN), None, "nobody claims it");
}

#[test]
fn settled_record_keeps_its_result_until_it_is_reopened() {
    let settled = settled();
    assert_eq!((settled.head, settled.result.clone()), (succeeded(), Some(result(201))));
    assert_eq!((settled.created_at, settled.updated_at), (THEN, NOW));
    assert_eq!(settled.history.steps().count(), 2);

    let still = Record::after(Some(&settled), Write::Update(succeeded()), None, None, NOW);
    assert_eq!(still.expect("it is kept").result, Some(result(201)), "without another one, it keeps its own");
    let other = Record::after(Some(&settled), Write::Update(succeeded()), None, Some(&result(402)), NOW);
    assert_eq!(other.expect("it is kept").result, Some(result(402)));
    let tombstone = Write::Update(head(State::Expired { forget_at: NOW }));
    let tombstone = Record::after(Some(&settled), tombstone, None, Some(&result(201)), NOW);
    assert_eq!(tombstone.expect("it is kept").result, None, "a tombstone has none");
}

#[test]
fn record_after_applies_keep_and_delete_writes() {
    let record = record();
    assert_eq!(Record::after(Some(&record), Write::Keep, None, None, NOW), Some(record.clone()));
    assert_eq!(Record::after(None, Write::Keep, None, None, NOW), None);
    assert_eq!(Record::after(Some(&record), Write::Delete, None, None, NOW), None);
    assert_eq!(Record::after(None, Write::Update(processing()), None, None, NOW), None, "there is nothing");
}

#[test]
fn a_record_is_the_first_of_only_the_claim_that_created_it() {
    let (record, claim) = (record(), claim());
    assert!(record.is_first_of(&claim));
    let again = Claim { operation_id: OperationId::from_bytes([8; 16]), ..claim.clone() };
    assert!(!record.is_first_of(&again), "another id: another claim made it");
    let mut other = claim.clone();
    other.attempt.token = AttemptToken::from_bytes([2; 16]);
    assert!(!record.is_first_of(&other), "another attempt made it");
    let later = Record { head: Head { epoch: 2, ..record.head }, ..record };
    assert!(!later.is_first_of(&claim), "it was claimed before");
}

#[test]
fn a_command_may_have_its_record_under_each_of_its_names() {
    let under = ["payments.make", "payments.do", "payments.create"].map(|name| scope(name).record_id());
    assert_eq!(command().record_ids(), under);
    assert_eq!(claim().record_ids().collect::<Vec<_>>(), under);
    let names: Vec<_> = claim().reference_operations().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, ["payments.create", "payments.make", "payments.do"]);
}

#[test]
fn each_kind_of_claim_sets_its_start_its_terms_and_its_stored_request() {
    let (command, input) = (command(), request());
    let now = command.claim(COMMAND, TOKEN);
    assert_eq!((now.operation_id, now.attempt.token), (COMMAND, TOKEN));
    assert_eq!((now.scope.clone(), now.attempt.fingerprint), (command.scope.clone(), command.fingerprint));
    assert_eq!(now.attempt.terms, command.policy.terms());
    assert_eq!((now.attempt.start, &now.request), (Start::Now, &None));

    let later = command.claim_for_later(COMMAND, TOKEN, input.clone());
    assert_eq!(later.attempt.start, Start::Within(Duration::from_secs(77)));
    assert_eq!((&later.request, later.attempt.terms), (&Some(input.clone()), command.policy.terms()));

    let unasked = command.claim_keeping(COMMAND, TOKEN, || panic!("nobody wants it"));
    assert_eq!(unasked, now);

    let resume_for = Duration::from_secs(99);
    let phases = command.claim_in_phases(COMMAND, TOKEN, input.clone(), resume_for);
    assert_eq!((phases.attempt.start, phases.request), (Start::Resumable(resume_for), Some(input)));
    assert_eq!(phases.attempt.terms.on_lease_expired, OnLeaseExpired::Resume);
}

#[test]
fn a_claim_with_keep_request_carries_its_request() {
    let policy = Policy { keep_request: KeepRequest::WhileUnknown, ..Policy::default() };
    let command = Command { policy: policy.into(), ..command() };
    let resume_for = Duration::from_secs(99);
    let claims = [
        command.claim(COMMAND, TOKEN),
        command.claim_keeping(COMMAND, TOKEN, request),
        command.claim_for_later(COMMAND, TOKEN, request()),
        command.claim_in_phases(COMMAND, TOKEN, request(), resume_for),
    ];
    let kept = claims.each_ref().map(|claim| claim.attempt.terms.keep_request);
    assert_eq!(
        kept,
        [false, true, true, false],
        "a transaction has nothing to keep, and phases keep their input"
    );
    assert!(claims.iter().all(|claim| claim.request.is_some() || !claim.attempt.terms.keep_request));
    assert_eq!(claims[1].attempt.start, Start::Now);
    let empty = Claim { request: None, ..claims[1].clone() }.kept_while_unknown();
    assert!(!empty.attempt.terms.keep_request, "there is nothing to keep");
}

#[test]
fn a_business_reference_counts_as_free_until_the_store_says_otherwise() {
    let with = Command { business_reference: Some("order-1".into()), ..command() }.claim(COMMAND, TOKEN);
    assert_eq!((with.attempt.reference, with.business_reference), (Reference::Free, Some("order-1".into())));
    assert_eq!((claim().attempt.reference, claim().business_reference), (Reference::None, None));
}

#[test]
fn a_stored_result_holds_its_status_its_resource_and_its_body() {
    let result = result(201);
    assert_eq!((result.status, result.resource.as_deref()), (201, Some("/payments/1")));
    let decoded = result.response.decode().expect("it was encoded");
    assert_eq!(decoded.body, Some(Bytes::from_static(b"made")));
}

#[test]
fn an_item_step_shows_the_state_and_status_of_its_record() {
    let none = StepKind::Item { operation_id: None, state: None, status: None };
    assert_eq!(StepKind::item(None), none);
    let done =
        StepKind::Item { operation_id: Some(COMMAND), state: Some(StateName::Succeeded), status: Some(201) };
    assert_eq!(StepKind::item(Some(&settled())), done);
    let running =
        StepKind::Item { operation_id: Some(COMMAND), state: Some(StateName::Processing), status: None };
    assert_eq!(StepKind::item(Some(&record())), running);
    let local = StepKind::Local { output: Bytes::new() };
    let external = StepKind::External { deduplicated: true, output: None };
    assert_eq!([local.as_str(), external.as_str(), none.as_str()], ["local", "external", "item"]);
}

#[test]
fn only_a_change_to_unknown_records_the_observation_of_its_executor() {
    let unknown =
        head(State::Unknown { since: NOW, reconcile_after: NOW, attempts: 0, quarantine_until: NOW });
    let lost = Record::after(Some(&record()), Write::Update(unknown), None, None, NOW).expect("it is kept");
    let observed = lost.clone().observing(Write::Update(unknown), Some("no answer"));
    assert_eq!(observed.history.observation(), Some("no answer"));
    assert_eq!(Record { history: lost.history.clone(), ..observed }, lost, "nothing else changes");
    assert_eq!(lost.clone().observing(Write::Update(unknown), None), lost);
    assert_eq!(lost.clone().observing(Write::Keep, Some("no answer")), lost);
    let settled = settled();
    assert_eq!(settled.clone().observing(Write::Update(succeeded()), Some("201")), settled);
}

#[test]
fn an_answer_tells_why_its_own_call_made_the_command_unknown() {
    let abandon = Change::abandon(processing().fence(), Reason::TimedOut);
    let requeue = Change::requeue(processing().fence(), Reason::TimedOut, Duration::ZERO);
    let renew = Change::renew(processing().fence());
    let other = Change::abandon(processing().fence(), Reason::Panicked);
    let unknown = State::Unknown { since: NOW, reconcile_after: NOW, attempts: 0, quarantine_until: NOW };
    let unknown = head(unknown).moved(unknown, Reason::TimedOut);
    let unknown = Record { head: unknown, ..record() };
    let made = |record: &Record, decision, lapse, change| {
        let answer = StoreAnswer { decision, record: Some(record.clone()), now: NOW, holder: None, lapse };
        answer.made_unknown(change)
    };
    let (applied, fenced) = (Decision::Applied, Decision::Fenced);
    for given_up in [&abandon, &requeue] {
        assert_eq!(made(&unknown, applied, None, Some(given_up)), Some(Reason::TimedOut));
        assert_eq!(made(&unknown, fenced, None, Some(given_up)), None, "it changed nothing");
    }
    assert_eq!(made(&unknown, applied, None, Some(&other)), None, "it was unknown for another reason");
    for (decision, change) in [(Decision::Reconcile, None), (fenced, Some(&renew)), (applied, Some(&other))] {
        assert_eq!(made(&unknown, decision, Some(Lapse::Lease), change), Some(Reason::TimedOut));
        assert_eq!(made(&record(), decision, Some(Lapse::Lease), change), None, "another attempt runs");
    }
    assert_eq!(made(&unknown, Decision::Reconcile, None, None), None, "it was unknown before");
    assert_eq!(made(&unknown, Decision::Reconcile, Some(Lapse::Retention), None), None);
}

#[test]
fn a_command_is_open_while_its_outcome_is_not_known() {
    let (settled_by, at) = (SettledBy::Executor, NOW);
    for (state, open) in [
        (State::Claimed { start_by: at, ready_at: at }, true),
        (State::Processing { lease_until: at, start_by: None }, true),
        (State::Unknown { since: at, reconcile_after: at, attempts: 0, quarantine_until: at }, true),
        (State::Succeeded { expires_at: at, settled_by }, false),
        (State::FailedFinal { expires_at: at, settled_by }, false),
        (State::FailedRetryable { expires_at: at }, false),
        (State::Expired { forget_at: at }, false),
    ] {
        assert_eq!(state.is_open(), open, "{state:?}");
    }
}

fn waiting(tenant: &str, ready_at: i64, id: u8) -> Waiting {
    let state = State::Claimed { start_by: Timestamp::MAX, ready_at: Timestamp::from_millis(ready_at) };
    let principal = Principal::new(tenant, "alice").expect("these are names");
    let record = Record { id: RecordId::from_bytes([id; 32]), principal, head: head(state), ..record() };
    Waiting { record, request: request() }
}

#[test]
fn a_waiting_page_continues_after_its_place_and_limits_each_tenants_share() {
    let all = || vec![waiting("b", 1, 4), waiting("a", 2, 3), waiting("a", 1, 2), waiting("a", 1, 1)];
    let select = |after: Option<Waiting>, share, limit| {
        let after = after.map(|waiting| waiting.place());
        let page = WaitingPage::select(
            all(),
            &WaitingFilter { after, share, limit, ..WaitingFilter::default() },
            NOW,
        );
        let ids: Vec<u8> = page.found.iter().map(|waiting| waiting.record.id.as_bytes()[0]).collect();
        (ids, page.next.map(|place| place.id.as_bytes()[0]))
    };
    assert_eq!(select(None, 9, 9), (vec![1, 2, 3, 4], None));
    assert_eq!(select(None, 2, 9), (vec![1, 2, 4], None));
    assert_eq!(select(None, 2, 3), (vec![1, 2, 4], Some(4)));
    assert_eq!(select(None, 9, 3), (vec![1, 2, 3], Some(3)));
    assert_eq!(select(Some(waiting("a", 1, 2)), 9, 9), (vec![3, 4], None));
    assert_eq!(select(Some(waiting("b", 1, 4)), 9, 9), (vec![], None));
}
