//! Conversion of answers and records to events of the history.

use semel_checker::event::{Answered, Record, Step};
use semel_core::Timestamp;
use sha2::{Digest, Sha256};

use crate::port::Reply;

/// Prefixes of canaries and of effect names in bodies.
pub(crate) const CANARY: &str = "canary-";
pub(crate) const EFFECT: &str = "effect-";

/// Header by which the provider says that it did nothing, with the attempt.
pub(crate) const NOT_EXECUTED: &str = "x-not-executed";

/// Headers that differ by design between the first answer and its replay.
const FRESH: [&str; 4] = ["date", "idempotency-replayed", "content-length", "cache-control"];

/// Returns the history's event for an answer to a client.
pub(crate) fn answered(at: i64, request: u64, reply: &Reply) -> Answered {
    let header = |name: &str| reply.headers.get(name).and_then(|value| value.to_str().ok());
    let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let is_problem = header("content-type") == Some("application/problem+json");
    let named = document["operationId"].as_str().filter(|_| is_problem);
    let kept = reply.headers.iter().filter(|(name, _)| !FRESH.contains(&name.as_str()));
    let mut lines: Vec<String> =
        kept.map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect();
    lines.sort();
    let lines = lines.join("\n");
    let whole = [format!("{}\n{lines}\n\n", reply.status.as_u16()).as_bytes(), &reply.body].concat();
    Answered {
        at,
        request,
        status: reply.status.as_u16(),
        code: document["code"].as_str().filter(|_| is_problem).map(str::to_owned),
        operation_id: header("idempotency-operation-id").or(named).map(str::to_owned),
        replayed: header("idempotency-replayed") == Some("true"),
        expires: header("idempotency-expires").and_then(Timestamp::from_http_date).map(Timestamp::as_millis),
        digest: digest(&whole),
        effect: document["effect"].as_str().map(str::to_owned),
        canaries: marks(&whole, CANARY),
        not_executed: header(NOT_EXECUTED).and_then(|attempt| attempt.parse().ok()),
        undone: None,
        items: Vec::new(),
    }
}

/// Returns the history's event for a record in the store.
pub(crate) fn record(look: u32, record: &semel_core::Record) -> Record {
    let bytes = record.result.as_ref().map(|result| &result.response.bytes);
    Record {
        look,
        operation_id: record.operation_id.to_string(),
        tenant: record.principal.tenant().to_owned(),
        caller: record.principal.caller().to_owned(),
        operation: record.operation.to_string(),
        state: record.head.state.name().as_str().to_owned(),
        reason: record.head.reason.as_str().to_owned(),
        epoch: record.head.epoch,
        expires_at: record.head.state.expires_at().map(Timestamp::as_millis),
        status: record.result.as_ref().map(|result| result.status),
        response: bytes.map(|bytes| digest(bytes)),
        effects: bytes.map(|bytes| marks(bytes, EFFECT)).unwrap_or_default(),
        canaries: bytes.map(|bytes| marks(bytes, CANARY)).unwrap_or_default(),
        steps: record.history.steps().map(step).collect(),
    }
}

fn step(step: semel_core::Step) -> Step {
    Step {
        at: step.at.as_millis(),
        epoch: step.epoch,
        state: step.state.as_str().to_owned(),
        reason: step.reason.as_str().to_owned(),
    }
}

/// Returns every word in `text` that begins with `begin`.
fn marks(text: &[u8], begin: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in 0..text.len() {
        let rest = &text[start..];
        if !rest.starts_with(begin.as_bytes()) {
            continue;
        }
        let fits = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
        let length = rest[begin.len()..].iter().take_while(|byte| fits(byte)).count();
        found.push(String::from_utf8_lossy(&rest[..begin.len() + length]).into_owned());
    }
    found.sort();
    found.dedup();
    found
}

/// Returns a short digest for comparisons.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_anywhere_in_a_text() {
        let text = b"\x01{\"canary\":\"canary-0000002a-1\",\"effect\":\"effect-00000007\"}canary-0000002b-0";
        assert_eq!(marks(text, CANARY), ["canary-0000002a-1", "canary-0000002b-0"]);
        assert_eq!(marks(text, EFFECT), ["effect-00000007"]);
    }
}
