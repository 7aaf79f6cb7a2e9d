//! Facts in an answer: the code of the server's problem, the operation, and the delay that it asks for.
//!
//! Called by `classify` and `decide`. A document that is the handler's own has no code.

use std::fmt;
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value};
use url::Url;

use crate::options::{ClientProfile, milliseconds};
use crate::response::CommandResponse;

pub(crate) const OPERATIONS_PATH: &str = "/.well-known/semel/operations/";
pub(crate) const OPERATION_ID: &str = "idempotency-operation-id";
pub(crate) const NOT_RETAINED: &str = "IDEMPOTENCY_RESPONSE_NOT_RETAINED";

const PROBLEM_TYPE: &str = "urn:semel:problem:";
/// Longest id of an operation in characters.
const MAX_OPERATION_ID: usize = 128;

/// Operation of a command at the server: its id, and the address to ask for it.
#[derive(Clone, PartialEq, Eq)]
pub struct OperationHandle {
    id: String,
    url: Url,
}

impl OperationHandle {
    pub(crate) fn new(id: String, url: Url) -> OperationHandle {
        OperationHandle { id, url }
    }

    /// Returns the operation's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the address that answers with the state of the operation.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    pub(crate) fn address(&self) -> &Url {
        &self.url
    }

    /// Returns the address of the operation's result; `None` if there can be none.
    pub(crate) fn result_address(&self) -> Option<Url> {
        Url::parse(&format!("{}/result", self.url)).ok()
    }
}

impl fmt::Debug for OperationHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OperationHandle").field(&self.id).finish()
    }
}

/// Code of a problem document, and the operation that the document names.
pub(crate) struct ServerProblem {
    pub(crate) code: String,
    pub(crate) operation_id: Option<String>,
    operation_url: Option<String>,
}

/// Returns the server's own problem; `None` if the document is the handler's, or no problem.
pub(crate) fn problem_of(response: &CommandResponse, profile: ClientProfile) -> Option<ServerProblem> {
    let document = response.document()?;
    let (members, code) = if text(&document, "type").is_some_and(|kind| kind.starts_with(PROBLEM_TYPE)) {
        (&document, text(&document, "code")?)
    } else if profile == ClientProfile::Stripe {
        let members = document.get("error")?.as_object()?;
        (members, code_of_envelope(members)?)
    } else {
        return None;
    };
    // A body with the mark of an operation is the handler's own, apart from this one.
    if response.headers().contains_key(OPERATION_ID) && code != NOT_RETAINED {
        return None;
    }
    Some(ServerProblem {
        code,
        operation_id: text(members, "operationId").filter(|id| !id.is_empty()),
        operation_url: text(members, "operationUrl"),
    })
}

fn code_of_envelope(error: &Map<String, Value>) -> Option<String> {
    if text(error, "type").as_deref() == Some("idempotency_error") {
        return Some("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST".into());
    }
    let code = text(error, "code")?;
    if code == "idempotency_key_in_use" {
        return Some("IDEMPOTENCY_REQUEST_IN_PROGRESS".into());
    }
    Some(code.to_uppercase())
}

fn text(members: &Map<String, Value>, name: &str) -> Option<String> {
    members.get(name)?.as_str().map(str::to_owned)
}

/// Returns the operation that a response to this address names.
pub(crate) fn operation_of(
    response: &CommandResponse,
    problem: Option<&ServerProblem>,
    base: &Url,
) -> Option<OperationHandle> {
    let named = problem.and_then(|problem| problem.operation_id.clone());
    let id = named.or_else(|| response.field(OPERATION_ID))?;
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if id.is_empty() || id.len() > MAX_OPERATION_ID || !id.bytes().all(is_known) {
        return None;
    }
    let reference = problem.and_then(|problem| problem.operation_url.clone()).filter(|url| !url.is_empty());
    let url = base.join(&reference.unwrap_or_else(|| format!("{OPERATIONS_PATH}{id}"))).ok()?;
    Some(OperationHandle::new(id, url))
}

/// Returns the delay that `Retry-After` asks for, in milliseconds; `None` if there is none that can be read.
pub(crate) fn retry_after(response: &CommandResponse, wall: u64) -> Option<u64> {
    let value = response.field("retry-after")?;
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let date = date.duration_since(UNIX_EPOCH).map_or(0, milliseconds);
    Some(date.saturating_sub(wall))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};
    use proptest::prelude::*;

    use super::*;

    fn answer(fields: &[(&'static str, &str)], body: &str) -> CommandResponse {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        CommandResponse::new(StatusCode::OK, headers, Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let wall = 1_800_000_000_000;
        let delay = |value: &str| retry_after(&answer(&[("retry-after", value)], ""), wall);
        assert_eq!(delay("2"), Some(2000));
        assert_eq!(delay("99999999999999999999"), Some(u64::MAX));
        assert_eq!(delay("Fri, 15 Jan 2027 08:00:03 GMT"), Some(3000));
        assert_eq!(delay("Friday, 15-Jan-27 08:00:03 GMT"), Some(3000));
        assert_eq!(delay("Fri Jan 15 08:00:03 2027"), Some(3000));
        assert_eq!(delay("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        for other in ["", "soon", "-1", "1.5", "+1", "1 2"] {
            assert_eq!(delay(other), None, "{other}");
        }
        assert_eq!(retry_after(&answer(&[("retry-after", "1"), ("retry-after", "2")], ""), wall), None);
    }

    #[test]
    fn an_id_in_two_lines_is_none() {
        let base = Url::parse("http://pay.example/payments").expect("an address");
        let twice = answer(&[(OPERATION_ID, "op_1"), (OPERATION_ID, "op_2")], "");
        assert_eq!(operation_of(&twice, None, &base), None);
    }

    proptest! {
        #[test]
        fn no_body_and_no_field_makes_the_reading_panic(body in "\\PC{0,80}", value in "[ -~]{0,60}") {
            let fields = [("content-type", "application/json"), ("retry-after", &*value), ("location", &*value)];
            let answer = answer(&fields, &body);
            let base = Url::parse("http://pay.example/payments").expect("an address");
            for profile in [ClientProfile::Semel, ClientProfile::Stripe] {
                let problem = problem_of(&answer, profile);
                operation_of(&answer, problem.as_ref(), &base);
            }
            retry_after(&answer, 0);
        }
    }
}
