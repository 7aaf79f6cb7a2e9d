//! Operators' verdicts on whole commands, as members of JSON: of the admin API, and of evidence files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::Epoch;
use serde_json::{Map, Value};

use super::records::{FIRST_ATTEMPT, Said, is_an_answer};

/// Members of the response for retries.
pub const RESPONSE: [&str; 4] = ["status", "headers", "body", "bodyBase64"];

/// Parses the verdict on a whole command.
///
/// # Errors
/// Returns a sentence about the invalid member.
pub fn verdict(members: &Map<String, Value>) -> Result<Said, String> {
    let has_response = RESPONSE.iter().any(|name| members.contains_key(*name));
    match text(members, "verdict")? {
        Some("executed") => {}
        Some("not-executed") if has_response => {
            return Err("`status`, `headers` and `body` go with the verdict \"executed\".".to_owned());
        }
        Some("not-executed") => return Ok(Said::NotExecuted),
        Some(_) | None => {
            return Err("`verdict` must be \"executed\" or \"not-executed\".".to_owned());
        }
    }
    let status = match members.get("status") {
        None | Some(Value::Null) => {
            return Err("The verdict \"executed\" needs the `status` that retries get.".to_owned());
        }
        Some(status) => status.as_u64().and_then(|status| u16::try_from(status).ok()),
    };
    let status = status.and_then(|status| StatusCode::from_u16(status).ok()).filter(|it| is_an_answer(*it));
    let status = status.ok_or("`status` is a number from 200 to 599.")?;
    let said = Said::executed(status, headers(members.get("headers"))?, body(members)?);
    said.map_err(|wrong| format!("The body {wrong}."))
}

/// Parses the attempt of a verdict.
///
/// # Errors
/// Returns a sentence about the invalid number.
pub fn attempt(members: &Map<String, Value>) -> Result<Epoch, String> {
    let Some(given) = members.get("attempt") else { return Ok(FIRST_ATTEMPT) };
    let attempt = given.as_u64().and_then(|attempt| Epoch::try_from(attempt).ok());
    let attempt = attempt.filter(|attempt| *attempt >= FIRST_ATTEMPT);
    attempt.ok_or_else(|| "`attempt` must be a number from 1 on, as the record shows it.".to_owned())
}

/// Returns a member that is a text, if it is given.
///
/// # Errors
/// Returns a sentence about a member that is no text.
pub fn text<'m>(members: &'m Map<String, Value>, name: &str) -> Result<Option<&'m str>, String> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be a text.")),
    }
}

/// Returns the response body for retries: text, or bytes in base64.
fn body(members: &Map<String, Value>) -> Result<Option<Bytes>, String> {
    match (text(members, "body")?, text(members, "bodyBase64")?) {
        (Some(_), Some(_)) => Err("`body` and `bodyBase64` do not go together.".to_owned()),
        (Some(text), None) => Ok(Some(text.to_owned().into())),
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text).map_err(|_| "`bodyBase64` is not base64.")?;
            Ok(Some(bytes.into()))
        }
        (None, None) => Ok(None),
    }
}

/// Returns header fields: for each name a text, or a list of texts.
fn headers(given: Option<&Value>) -> Result<HeaderMap, String> {
    let wrong = "`headers` must have a text, or a list of texts, for the name of each field.";
    let mut headers = HeaderMap::new();
    let fields = match given {
        None | Some(Value::Null) => return Ok(headers),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(wrong.to_owned()),
    };
    for (name, value) in fields {
        let name: HeaderName = name.parse().map_err(|_| format!("{name:?} is not a header name."))?;
        let lines = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for line in lines {
            let value = HeaderValue::from_str(line.as_str().ok_or(wrong)?.trim());
            let value = value.map_err(|_| format!("`{name}` has no header value."))?;
            headers.append(name.clone(), value);
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(members: &Value) -> Result<Said, String> {
        verdict(members.as_object().expect("it is an object"))
    }

    #[test]
    fn a_body_that_is_not_the_json_of_its_type_is_refused() {
        for kind in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
            let headers = json!({ "Content-Type": kind });
            let whole =
                json!({ "verdict": "executed", "status": 201, "headers": headers, "body": "{\"id\":7}" });
            assert!(read(&whole).is_ok(), "{kind}");
            let broken =
                json!({ "verdict": "executed", "status": 201, "headers": headers, "body": "{\"id\":" });
            assert_eq!(
                read(&broken).err().as_deref(),
                Some("The body is not the JSON that its `Content-Type` says, at line 1, column 6."),
                "{kind}"
            );
            for empty in [json!(null), json!("")] {
                let none = json!({ "verdict": "executed", "status": 201, "headers": headers, "body": empty });
                assert!(read(&none).is_err_and(|why| why.contains("is empty")), "{kind} {empty}");
            }
        }
        let unsent = json!({ "verdict": "executed", "status": 204, "body": "{}" });
        assert!(read(&unsent).is_err_and(|why| why.contains("status 204 has none")));
        for name in ["Content-Length", "Transfer-Encoding", "Connection"] {
            let framed =
                json!({ "verdict": "executed", "status": 201, "headers": { name: "7" }, "body": "{}" });
            assert!(read(&framed).is_err_and(|why| why.contains("which the server sets")), "{name}");
        }
        assert!(read(&json!({ "verdict": "executed", "status": 204 })).is_ok());
        for kind in ["text/plain", "application/jsonl"] {
            let headers = json!({ "Content-Type": kind });
            assert!(
                read(&json!({ "verdict": "executed", "status": 200, "headers": headers, "body": "{" }))
                    .is_ok()
            );
        }
    }
}
