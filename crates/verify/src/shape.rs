//! Checks the shape of a refusal: a problem document of RFC 9457, or the error envelope of Stripe.

use serde_json::Value;

use crate::client::HttpAnswer;
use crate::options::AnswerProfile;

/// The field with the advice about a retry.
const RETRY_ADVICE: &str = "idempotency-retry";
/// The words of that field.
const ADVICE: [&str; 3] = ["same-key", "poll", "never"];

/// Checks the shape of a refusal. `is_changed` is true for the refusal of a changed request under a used key.
pub(super) fn check(answer: &HttpAnswer, profile: AnswerProfile, is_changed: bool) -> Result<(), String> {
    let document: Value =
        serde_json::from_slice(&answer.body).map_err(|_| "its body is not JSON".to_owned())?;
    match profile {
        AnswerProfile::Ietf => problem(answer, &document)?,
        AnswerProfile::Stripe => envelope(answer, &document, is_changed)?,
    }
    match answer.header(RETRY_ADVICE) {
        Some(word) if !ADVICE.contains(&word) => {
            Err(format!("its Idempotency-Retry is {word:?}, and not same-key, poll or never"))
        }
        _ => Ok(()),
    }
}

/// Checks the media type of an answer.
fn media_type(answer: &HttpAnswer, expected: &str) -> Result<(), String> {
    let media_type = answer.header("content-type").unwrap_or("").split(';').next().unwrap_or("").trim();
    if media_type.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(format!("its content type is {media_type:?}, not {expected}"))
}

/// Checks a problem document. All members are optional (RFC 9457, 3.1); a present one has its type, and `status` is that of
/// the answer.
fn problem(answer: &HttpAnswer, document: &Value) -> Result<(), String> {
    media_type(answer, "application/problem+json")?;
    let Some(members) = document.as_object() else { return Err("its body is not a JSON object".to_owned()) };
    for name in ["type", "title", "detail", "instance"] {
        if let Some(value) = members.get(name).filter(|value| !value.is_string()) {
            return Err(format!("its `{name}` is {value}, and no text"));
        }
    }
    let status = answer.status.as_u16();
    match members.get("status").filter(|value| value.as_u64() != Some(status.into())) {
        Some(value) => Err(format!("its `status` is {value}, not {status}")),
        None => Ok(()),
    }
}

/// Checks Stripe's envelope, whose `type` decides the exception of an SDK.
fn envelope(answer: &HttpAnswer, document: &Value, is_changed: bool) -> Result<(), String> {
    media_type(answer, "application/json")?;
    let error = &document["error"];
    if !error.is_object() {
        return Err("its body has no object `error`, so that Stripe's SDKs take it for a success".to_owned());
    }
    let expected = if is_changed { "idempotency_error" } else { "invalid_request_error" };
    if error["type"] != expected {
        return Err(format!("its `error.type` is {}, not {expected:?}", error["type"]));
    }
    if !error["message"].is_string() {
        return Err(format!("its `error.message` is {}, and no text", error["message"]));
    }
    match error.get("code").filter(|code| !code.is_string()) {
        Some(code) => Err(format!("its `error.code` is {code}, and no text")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn answer(media_type: &'static str, body: &'static str, advice: Option<&'static str>) -> HttpAnswer {
        let field =
            |name: &str, value: &str| (name.parse().expect("a name"), value.parse().expect("a value"));
        let headers = [Some(field("content-type", media_type)), advice.map(|word| field(RETRY_ADVICE, word))];
        HttpAnswer {
            status: http::StatusCode::CONFLICT,
            headers: headers.into_iter().flatten().collect(),
            body: body.into(),
            took: Duration::ZERO,
        }
    }

    fn judged(media_type: &'static str, body: &'static str) -> Result<(), String> {
        check(&answer(media_type, body, None), AnswerProfile::Ietf, false)
    }

    #[test]
    fn a_problem_document_without_optional_members_is_accepted() {
        for body in [
            "{}",
            r#"{"title":"in progress"}"#,
            r#"{"type":"about:blank","status":409}"#,
            r#"{"type":"/problems/1","title":"t","status":409,"detail":"d","instance":"/1","code":7}"#,
        ] {
            assert_eq!(judged("application/problem+json; charset=utf-8", body), Ok(()), "{body}");
        }
    }

    #[test]
    fn members_of_a_problem_document_have_their_types() {
        for (body, why) in [
            ("[]", "its body is not a JSON object"),
            ("oops", "its body is not JSON"),
            (r#"{"type":7}"#, "its `type` is 7, and no text"),
            (r#"{"title":null}"#, "its `title` is null, and no text"),
            (r#"{"detail":{}}"#, "its `detail` is {}, and no text"),
            (r#"{"instance":false}"#, "its `instance` is false, and no text"),
            (r#"{"status":"409"}"#, "its `status` is \"409\", not 409"),
            (r#"{"status":400}"#, "its `status` is 400, not 409"),
        ] {
            assert_eq!(judged("application/problem+json", body), Err(why.to_owned()), "{body}");
        }
        let why = "its content type is \"application/json\", not application/problem+json";
        assert_eq!(judged("application/json", "{}"), Err(why.to_owned()));
    }

    #[test]
    fn retry_advice_is_one_of_three_words() {
        let advised =
            |word| check(&answer("application/problem+json", "{}", Some(word)), AnswerProfile::Ietf, false);
        for word in ["same-key", "poll", "never"] {
            assert_eq!(advised(word), Ok(()), "{word}");
        }
        let why = "its Idempotency-Retry is \"later\", and not same-key, poll or never";
        assert_eq!(advised("later"), Err(why.to_owned()));
    }

    #[test]
    fn a_refusal_of_stripes_has_stripes_envelope() {
        let judged = |media_type, body, is_changed| {
            check(&answer(media_type, body, None), AnswerProfile::Stripe, is_changed)
        };
        let invalid = r#"{"error":{"type":"invalid_request_error","code":"c","message":"m"}}"#;
        let mismatch = r#"{"error":{"type":"idempotency_error","message":"m"}}"#;
        assert_eq!(judged("application/json", invalid, false), Ok(()));
        assert_eq!(judged("application/json; charset=utf-8", mismatch, true), Ok(()));
        for (media_type, body, is_changed, why) in [
            (
                "application/json",
                "[]",
                false,
                "its body has no object `error`, so that Stripe's SDKs take it for a success",
            ),
            (
                "application/json",
                r#"{"error":"no"}"#,
                false,
                "its body has no object `error`, so that Stripe's SDKs take it for a success",
            ),
            (
                "application/json",
                r#"{"error":{"message":"m"}}"#,
                false,
                "its `error.type` is null, not \"invalid_request_error\"",
            ),
            (
                "application/json",
                invalid,
                true,
                "its `error.type` is \"invalid_request_error\", not \"idempotency_error\"",
            ),
            (
                "application/json",
                mismatch,
                false,
                "its `error.type` is \"idempotency_error\", not \"invalid_request_error\"",
            ),
            (
                "application/json",
                r#"{"error":{"type":"idempotency_error"}}"#,
                true,
                "its `error.message` is null, and no text",
            ),
            (
                "application/json",
                r#"{"error":{"type":"idempotency_error","message":"m","code":7}}"#,
                true,
                "its `error.code` is 7, and no text",
            ),
            (
                "application/problem+json",
                invalid,
                false,
                "its content type is \"application/problem+json\", not application/json",
            ),
        ] {
            assert_eq!(judged(media_type, body, is_changed), Err(why.to_owned()), "{body}");
        }
    }
}
