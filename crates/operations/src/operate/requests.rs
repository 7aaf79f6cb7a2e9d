//! Stored request of a command, as an operator sees it: read only on demand, and never without a note of the
//! reader and the reason.

use semel_core::request::INPUT_FORMAT;
use semel_core::text::steers;
use semel_core::{Note, OperationId, Record, Records, Request, StateName, StoreError};
use serde_json::{Value, json};

use super::{fields, insert_bytes, records};

/// Action in the audit log for reading a request.
pub const ACTION: &str = "request";

/// Result of reading a request.
pub enum RequestLookup {
    /// The request.
    Kept(Box<Request>),
    /// No such command exists.
    Absent(String),
    /// No request is stored, for this reason.
    NotKept(String),
    /// The stored request cannot be read, for this reason.
    Unreadable(String),
}

/// Reads the request of a command, and records a note. Without a stored request, no note is recorded.
pub async fn read(store: &dyn Records, id: OperationId, note: &Note) -> Result<RequestLookup, StoreError> {
    let Some(record) = store.find(id).await?.record else {
        return Ok(RequestLookup::Absent(records::absent(id)));
    };
    let Some(kept) = store.read_request(id, note).await? else {
        return Ok(RequestLookup::NotKept(not_kept(&record)));
    };
    if kept.format == INPUT_FORMAT {
        let why = format!("{id} runs in phases: it has an input, which only its own service can read");
        return Ok(RequestLookup::Unreadable(why));
    }
    Ok(match kept.decode() {
        Ok(request) => RequestLookup::Kept(Box::new(request)),
        Err(why) if kept.encryption_key_id.is_some() => {
            RequestLookup::Unreadable(format!("{why}: it does not open under the keys of `[encryption]`"))
        }
        Err(why) => RequestLookup::Unreadable(why.to_string()),
    })
}

/// Returns the reason for which this command has no stored request.
fn not_kept(record: &Record) -> String {
    let (id, state) = (record.operation_id, record.head.state.name());
    match state {
        StateName::Claimed | StateName::Processing | StateName::Unknown => format!(
            "no request of {id} is kept: its operation did not have `keep_request = \"while-unknown\"` when \
             it was claimed"
        ),
        StateName::Succeeded | StateName::FailedFinal | StateName::FailedRetryable | StateName::Expired => {
            format!(
                "no request of {id} is kept: it is {state}, and a request is erased when its outcome is known"
            )
        }
    }
}

/// Returns a request as JSON. The names are stable.
pub fn to_json(id: OperationId, request: &Request) -> Value {
    let mut shown = json!({
        "operationId": id.to_string(),
        "method": request.method.as_str(),
        "target": request.target.to_string(),
        "headers": fields(&request.headers),
    });
    insert_bytes(&mut shown, "body", &request.body);
    shown
}

/// Returns a request for a terminal, line by line. Nothing in it steers the terminal.
pub fn to_text(request: &Request) -> Vec<String> {
    let mut lines = vec![escaped(&format!("{} {}", request.method, request.target))];
    for (name, value) in &request.headers {
        lines.push(format!("{name}: {}", escaped(&String::from_utf8_lossy(value.as_bytes()))));
    }
    lines.push(String::new());
    match std::str::from_utf8(&request.body) {
        Ok(text) => lines.extend(text.split('\n').map(|line| escaped(line.trim_end_matches('\r')))),
        Err(_) => lines
            .push(format!("{} bytes that are no text: `--json` shows them in base64", request.body.len())),
    }
    lines
}

fn escaped(line: &str) -> String {
    line.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Method, Uri};

    use super::*;

    fn request(body: &'static [u8]) -> Request {
        let mut headers = HeaderMap::new();
        headers.append("x-odd", HeaderValue::from_bytes(b"a\xffb").expect("it may be sent"));
        headers.append("x-two", HeaderValue::from_static("1"));
        headers.append("x-two", HeaderValue::from_static("2"));
        let target = Uri::from_static("/payments?dry=1");
        Request { method: Method::POST, target, headers, body: Bytes::from_static(body) }
    }

    #[test]
    fn a_request_cannot_steer_a_terminal() {
        let lines = to_text(&request(b"{\n\t\"a\": \"\x1b[31m\"\r\n}"));
        let expected = [
            "POST /payments?dry=1",
            "x-odd: a\u{fffd}b",
            "x-two: 1",
            "x-two: 2",
            "",
            "{",
            "\\t\"a\": \"\\u{1b}[31m\"",
            "}",
        ];
        assert_eq!(lines, expected);
        let binary = to_text(&request(b"\xff\x00"));
        assert_eq!(
            binary.last().map(String::as_str),
            Some("2 bytes that are no text: `--json` shows them in base64")
        );
    }

    #[test]
    fn a_request_is_shown_whole_in_json() {
        let id = OperationId::from_bytes([7; 16]);
        let shown = to_json(id, &request(b"\xff\x00"));
        assert_eq!((&shown["method"], &shown["target"]), (&json!("POST"), &json!("/payments?dry=1")));
        assert_eq!(shown["headers"]["x-two"], json!(["1", "2"]));
        assert_eq!((&shown["bodyBase64"], &shown["body"]), (&json!("/wA="), &Value::Null));
        assert_eq!(to_json(id, &request(b"text"))["body"], "text");
    }
}
