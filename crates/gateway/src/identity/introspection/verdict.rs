//! Answer of the introspection service.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{Response, StatusCode};
use semel_core::{Principal, Timestamp};
use semel_settings::{IntrospectionSettings, JwtClaim, Presentation, TenantSource};
use serde_json::{Map, Value};

/// Verdict on a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CredentialVerdict {
    Caller(Principal),
    Refused,
    Forbidden,
    Unavailable,
}

/// Meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerMeaning {
    /// The caller, and the remaining lifetime of the credential, if the answer gives it.
    Caller(Principal, Option<Duration>),
    /// Denied, with the failed check.
    Refused(&'static str),
    /// A known caller that is not allowed.
    Forbidden,
}

/// Reads an answer.
///
/// # Errors
/// Returns the reason for which the answer is neither a yes nor a no.
pub(super) fn read(
    answer: &Response<Bytes>,
    settings: &IntrospectionSettings,
    now: Timestamp,
) -> Result<AnswerMeaning, String> {
    match (settings.presentation, answer.status()) {
        (_, StatusCode::OK) => {}
        // With the form, a 401 concerns the gateway's own credential.
        (Presentation::Forward, StatusCode::UNAUTHORIZED) => return Ok(AnswerMeaning::Refused("inactive")),
        (Presentation::Forward, StatusCode::FORBIDDEN) => return Ok(AnswerMeaning::Forbidden),
        (_, status) => return Err(format!("it answers {status}")),
    }
    if answer.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err("its answer has a Content-Encoding, and the request accepts none".to_owned());
    }
    let document: Map<String, Value> =
        serde_json::from_slice(answer.body()).map_err(|_| "its answer is no JSON object".to_owned())?;
    match (document.get("active"), settings.presentation) {
        (Some(Value::Bool(true)), _) | (None, Presentation::Forward) => {}
        (Some(Value::Bool(false)), _) => return Ok(AnswerMeaning::Refused("inactive")),
        (Some(_) | None, _) => return Err("its answer has no `active` of true or false".to_owned()),
    }
    let left = match document.get("exp") {
        None | Some(Value::Null) => None,
        Some(end) => match end.as_f64().map(|end| end - now.as_millis() as f64 / 1000.0) {
            Some(left) if left > 0.0 => Some(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)),
            Some(_) => return Ok(AnswerMeaning::Refused("exp")),
            None => return Err("its answer has an `exp` that is no number".to_owned()),
        },
    };
    let document = Value::Object(document);
    let tenant = match &settings.tenant {
        TenantSource::Fixed(name) => name.clone(),
        TenantSource::Claim(claim) => match name(claim, &document) {
            Some(name) => name,
            None => return Ok(AnswerMeaning::Refused("tenant_claim")),
        },
    };
    let Some(caller) = name(&settings.caller, &document) else {
        return Ok(AnswerMeaning::Refused("caller_claim"));
    };
    Ok(match (Principal::new(&tenant, &caller), Principal::new(&tenant, "caller")) {
        (Ok(principal), _) => AnswerMeaning::Caller(principal, left),
        (Err(_), Ok(_)) => AnswerMeaning::Refused("caller_claim"),
        (Err(_), Err(_)) => AnswerMeaning::Refused("tenant_claim"),
    })
}

/// Returns a name from a string or an integer.
fn name(claim: &JwtClaim, document: &Value) -> Option<String> {
    match claim.of(document)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::introspection::tests::settings;

    const NOW: i64 = 1_000_000;

    fn reading(presentation: Presentation, status: u16, body: &'static str) -> Result<AnswerMeaning, String> {
        let answer = Response::builder().status(status).body(Bytes::from(body)).expect("it is a response");
        read(&answer, &IntrospectionSettings { presentation, ..settings() }, Timestamp::from_millis(NOW))
    }

    #[test]
    fn introspection_answers_become_a_caller_or_a_named_refusal() {
        let alice = |left: Option<u64>| {
            let principal = Principal::new("acme", "alice").expect("they are names");
            Ok(AnswerMeaning::Caller(principal, left.map(Duration::from_secs)))
        };
        let form = |body| reading(Presentation::Form, 200, body);
        assert_eq!(form(r#"{"active":true,"tenant":"acme","sub":"alice"}"#), alice(None));
        assert_eq!(form(r#"{"active":true,"tenant":"acme","sub":"alice","exp":1060}"#), alice(Some(60)));
        assert_eq!(form(r#"{"active":false}"#), Ok(AnswerMeaning::Refused("inactive")));
        assert_eq!(
            form(r#"{"active":true,"tenant":"acme","sub":"alice","exp":1000}"#),
            Ok(AnswerMeaning::Refused("exp"))
        );
        assert_eq!(form(r#"{"active":true,"tenant":"acme"}"#), Ok(AnswerMeaning::Refused("caller_claim")));
        assert_eq!(form(r#"{"active":true,"sub":"alice"}"#), Ok(AnswerMeaning::Refused("tenant_claim")));
        assert_eq!(
            form(r#"{"active":true,"tenant":"acme","sub":["alice"]}"#),
            Ok(AnswerMeaning::Refused("caller_claim"))
        );
        let number = form(r#"{"active":true,"tenant":"acme","sub":42}"#);
        assert!(matches!(number, Ok(AnswerMeaning::Caller(caller, None)) if caller.caller() == "42"));
        let forward = |status, body| reading(Presentation::Forward, status, body);
        assert_eq!(forward(200, r#"{"tenant":"acme","sub":"alice"}"#), alice(None));
        assert_eq!(
            forward(200, r#"{"active":false,"tenant":"acme","sub":"a"}"#),
            Ok(AnswerMeaning::Refused("inactive"))
        );
        assert_eq!(forward(401, ""), Ok(AnswerMeaning::Refused("inactive")));
        assert_eq!(forward(403, ""), Ok(AnswerMeaning::Forbidden));
    }

    #[test]
    fn an_unclear_answer_is_an_error() {
        for (status, body) in [
            (200, ""),
            (200, "<html>"),
            (200, "[]"),
            (200, r#"{"tenant":"acme","sub":"alice"}"#),
            (200, r#"{"active":"true","tenant":"acme","sub":"alice"}"#),
            (200, r#"{"active":true,"tenant":"acme","sub":"alice","exp":"soon"}"#),
            (204, ""),
            (302, ""),
            (401, ""),
            (403, ""),
            (500, r#"{"active":false}"#),
        ] {
            assert!(reading(Presentation::Form, status, body).is_err(), "{status} {body}");
        }
        for (status, body) in [(200, "ok"), (204, ""), (302, ""), (404, "{}"), (500, "{}")] {
            assert!(reading(Presentation::Forward, status, body).is_err(), "{status} {body}");
        }
    }

    #[test]
    fn one_tenant_may_be_fixed() {
        let settings = IntrospectionSettings { tenant: TenantSource::Fixed("acme".to_owned()), ..settings() };
        let answer = Response::new(Bytes::from(r#"{"active":true,"sub":"alice","tenant":"other"}"#));
        let read = read(&answer, &settings, Timestamp::from_millis(NOW));
        assert!(matches!(read, Ok(AnswerMeaning::Caller(caller, None)) if caller.tenant() == "acme"));
    }
}
