//! Reading of answers and of stored responses: canaries, effects and digests, for the history. Used by every run that writes
//! one; knows nothing of the command that was asked for.

use semel_checker::event::{Answered, Item, Undone};
use semel_core::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::client::Reply;

/// Prefix of canaries.
pub const CANARY: &str = "canary-";
/// Prefix of the names of effects.
pub const EFFECT: &str = "effect-";

/// Returns every canary in this text.
pub fn canaries(text: &[u8]) -> Vec<String> {
    marks(text, CANARY)
}

/// Returns the name of every effect in this text.
pub fn effects(text: &[u8]) -> Vec<String> {
    marks(text, EFFECT)
}

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

/// Headers that differ by design between the first answer and its replay.
const FRESH: [&str; 7] = [
    "date",
    "x-request-id",
    "idempotency-replayed",
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
];

/// Returns the history's event for an answer to a client.
pub fn answered(request: u64, reply: &Reply) -> Answered {
    let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let is_problem = reply.header("content-type") == Some("application/problem+json");
    let code = document["code"].as_str().filter(|_| is_problem).map(str::to_owned);
    let named = document["operationId"].as_str().filter(|_| is_problem);
    let mut lines: Vec<String> = Vec::new();
    for (name, value) in &reply.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        // Replays get this header if their stored response has none.
        let added = name == "cache-control" && value == "no-store";
        if !FRESH.contains(&name.as_str()) && !added {
            lines.push(format!("{name}: {value}"));
        }
    }
    let all = lines.join("\n").into_bytes();
    lines.sort();
    let mut digest = Sha256::new();
    digest.update(format!("{}\n{}\n\n", reply.status.as_u16(), lines.join("\n")));
    digest.update(&reply.body);
    Answered {
        at: 0,
        request,
        status: reply.status.as_u16(),
        code,
        operation_id: reply.header("idempotency-operation-id").or(named).map(str::to_owned),
        replayed: reply.header("idempotency-replayed") == Some("true"),
        expires: reply
            .header("idempotency-expires")
            .and_then(Timestamp::from_http_date)
            .map(Timestamp::as_millis),
        digest: short(&digest.finalize()),
        effect: document["effect"].as_str().map(str::to_owned),
        canaries: canaries(&[&all[..], b"\n", &reply.body].concat()),
        not_executed: reply.header(NOT_EXECUTED).and_then(|attempt| attempt.parse().ok()),
        undone: undone(&document),
        items: document["items"].as_array().into_iter().flatten().map(item).collect(),
    }
}

fn undone(document: &Value) -> Option<Undone> {
    let effect = format!("{EFFECT}{}", document["undone"].as_str()?);
    Some(Undone { effect, end: document["end"].as_str().unwrap_or_default().to_owned() })
}

fn item(item: &Value) -> Item {
    Item {
        name: item["clientItemId"].as_str().unwrap_or_default().to_owned(),
        outcome: item["outcome"].as_str().unwrap_or_default().to_owned(),
        effect: item["body"]["effect"].as_str().map(str::to_owned),
    }
}

/// Header by which the service says that it did nothing, with the attempt.
pub const NOT_EXECUTED: &str = "x-not-executed";

/// Returns a short digest for comparisons.
pub fn digest(bytes: &[u8]) -> String {
    short(&Sha256::digest(bytes))
}

fn short(digest: &[u8]) -> String {
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_anywhere_in_a_text() {
        let text =
            b"\x01{\"canary\":\"canary-0000002a-1\",\"effect\":\"effect-00000007\"}canary-0000002b-0 canary-";
        assert_eq!(canaries(text), ["canary-", "canary-0000002a-1", "canary-0000002b-0"]);
        assert_eq!(effects(text), ["effect-00000007"]);
    }
}
