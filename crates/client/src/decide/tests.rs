//! Tests of the decision for what the shared cases cannot show: its bounds, and properties over all answers.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;

use super::*;

fn rules(profile: ClientProfile) -> CallRules {
    let url = Url::parse("https://pay.example/payments").expect("an address");
    CallRules::new(&ClientOptions::default(), profile, true, url)
}

fn state(ambiguous: bool) -> CallState {
    CallState { attempts: 1, tokens: 500, wall: 1_800_000_000_000, ..CallState::new(ambiguous) }
}

fn answer(status: u16, fields: &[(&'static str, &str)], body: &str) -> CommandResponse {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let value = HeaderValue::from_str(value).expect("a value");
        headers.append(HeaderName::from_static(name), value);
    }
    let status = StatusCode::from_u16(status).expect("a status");
    CommandResponse::new(status, headers, Bytes::copy_from_slice(body.as_bytes()))
}

fn unknown() -> CommandResponse {
    answer(409, &[("idempotency-operation-id", "op_1"), ("idempotency-retry", "poll")], "")
}

#[test]
fn a_poll_after_the_last_one_is_not_made() {
    let polled = |polls| {
        let state = CallState { polls, ..state(true) };
        decide(&rules(ClientProfile::Semel), state, Ok(unknown()), &|| 0.0).1
    };
    assert!(matches!(polled(MAX_POLLS - 1), CallDecision::Poll(0)));
    assert!(matches!(polled(MAX_POLLS), CallDecision::Finish(CallEnding::Unknown)));
}

#[test]
fn an_operation_address_with_credentials_is_not_asked_for() {
    let body = r#"{"type": "urn:semel:problem:x", "code": "IDEMPOTENCY_OUTCOME_UNKNOWN", "operationId": "op_1",
                   "operationUrl": "https://user:secret@pay.example/op_1"}"#;
    let answer = answer(409, &[("content-type", "application/problem+json")], body);
    let (_, decision) = decide(&rules(ClientProfile::Semel), state(false), Ok(answer), &|| 0.0);
    assert!(matches!(decision, CallDecision::Finish(CallEnding::Unknown)), "{decision:?}");
}

#[test]
fn the_exponent_of_the_backoff_is_bounded() {
    let state = CallState { attempts: u32::MAX - 1, ..state(false) };
    let rules = CallRules { attempts: u32::MAX, deadline: u64::MAX, ..rules(ClientProfile::Semel) };
    let (_, decision) = decide(&rules, state, Err(AttemptFault::Connect), &|| 0.999_999);
    assert!(matches!(decision, CallDecision::Retry(4999)), "{decision:?}");
}

#[test]
fn a_number_is_drawn_only_for_a_wait() {
    let draws = std::cell::Cell::new(0);
    let draw = || {
        draws.set(draws.get() + 1);
        0.5
    };
    let cancelled = CallState { cancelled: true, ..state(false) };
    decide(&rules(ClientProfile::Semel), cancelled, Err(AttemptFault::Lost), &draw);
    assert_eq!(draws.get(), 0);
    decide(&rules(ClientProfile::Semel), state(false), Err(AttemptFault::Lost), &draw);
    assert_eq!(draws.get(), 1);
}

fn results() -> impl Strategy<Value = RequestResult> {
    let faults = prop::sample::select(vec![
        AttemptFault::Connect,
        AttemptFault::Name,
        AttemptFault::UnknownHost,
        AttemptFault::Certificate,
        AttemptFault::Lost,
        AttemptFault::Timeout,
        AttemptFault::TooLarge,
    ]);
    let codes = prop::sample::select(vec![
        "",
        "IDEMPOTENCY_OUTCOME_UNKNOWN",
        "IDEMPOTENCY_REQUEST_IN_PROGRESS",
        "UPSTREAM_UNREACHABLE",
        "DUPLICATE_BUSINESS_REFERENCE",
        "IDEMPOTENCY_RECORD_EXPIRED",
        "UNAUTHENTICATED",
        "SOMETHING_NEW",
    ]);
    let advice = prop::sample::select(vec!["", "poll", "same-key", "never", "perhaps"]);
    let answers = (100u16..600, codes, advice, any::<bool>(), any::<bool>());
    let answers = answers.prop_map(|(status, code, advice, is_named, has_location)| {
        let mut fields = vec![("content-type", "application/problem+json")];
        fields.extend((!advice.is_empty()).then_some(("idempotency-retry", advice)));
        fields.extend(is_named.then_some(("idempotency-operation-id", "op_1")));
        fields.extend(has_location.then_some(("location", "/.well-known/semel/operations/op_1")));
        answer(status, &fields, &format!(r#"{{"type": "urn:semel:problem:x", "code": "{code}"}}"#))
    });
    prop_oneof![faults.prop_map(Err), answers.prop_map(Ok)]
}

proptest! {
    /// The promise of the client: once a command may have run, nothing but its own outcome says otherwise.
    #[test]
    fn an_ambiguous_call_ends_with_the_commands_own_outcome_or_without_any(result in results()) {
        let is_own = matches!(&result, Ok(answer) if answer.headers().contains_key("idempotency-operation-id"));
        let (after, decision) = decide(&rules(ClientProfile::Semel), state(true), result, &|| 0.5);
        prop_assert!(after.ambiguous);
        match decision {
            CallDecision::Finish(CallEnding::Final { .. } | CallEnding::NotRetained(_)) => prop_assert!(is_own),
            CallDecision::Finish(
                CallEnding::NotExecuted(_) | CallEnding::Certificate | CallEnding::UnknownHost | CallEnding::Refused(..),
            ) => prop_assert!(false, "an ambiguous call ended with {decision:?}"),
            CallDecision::Finish(CallEnding::Unknown | CallEnding::Accepted | CallEnding::Unresolved(_))
            | CallDecision::Retry(_)
            | CallDecision::Poll(_)
            | CallDecision::FetchResult => {}
        }
    }

    #[test]
    fn no_wait_reaches_the_deadline(result in results(), elapsed in 0u64..40_000, draw in 0.0f64..1.0) {
        let state = CallState { elapsed, ..state(false) };
        let rules = rules(ClientProfile::Semel);
        let (_, decision) = decide(&rules, state, result, &|| draw);
        if let CallDecision::Retry(wait) | CallDecision::Poll(wait) = decision {
            prop_assert!(elapsed + wait < rules.deadline);
        }
    }

    #[test]
    fn an_unnamed_origin_is_asked_once(result in results()) {
        let rules = CallRules { named: false, ..rules(ClientProfile::Semel) };
        let (_, decision) = decide(&rules, state(false), result, &|| 0.5);
        prop_assert!(matches!(decision, CallDecision::Finish(_)), "{decision:?}");
    }
}
