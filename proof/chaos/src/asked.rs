//! Commands that clients ask for. A seed always gives the same commands.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use semel_checker::event::{Answered, Command, Item, Undone};
use semel_core::Timestamp;
use semel_testkit::Chance;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client::Reply;
use crate::settings::{BATCHES, CHARGES, DRAFTS, ORDERS, PAYMENTS, REPORTS, TRANSFERS};

/// Command that clients ask for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    number: u64,
    pub(crate) command: Command,
    path: &'static str,
    pub(crate) reference: Option<String>,
}

/// Number of commands in a row that may share a reference.
const SAME_REFERENCE: u64 = 16;

impl Asked {
    /// Returns the command of this number. Two in a row share a key under different tenants.
    pub(crate) fn number(seed: u64, number: u64, broken: bool) -> Asked {
        let pair = number / 2;
        let mut chance = Chance::of(seed, &format!("command {pair}"));
        let (operation, path) = match chance.below(100) {
            _ if broken => (PAYMENTS, "/payments"),
            0..40 => (PAYMENTS, "/payments"),
            40..48 => (DRAFTS, "/drafts"),
            48..58 => (REPORTS, "/reports"),
            58..68 => (TRANSFERS, "/transfers"),
            68..82 => (ORDERS, "/orders"),
            82..92 => (CHARGES, "/charges"),
            _ => (BATCHES, "/batches"),
        };
        let key = format!("key-{pair:06}-{:08x}", chance.draw() as u32);
        let command = Command {
            tenant: format!("tenant-{}", (pair + number % 2) % 3),
            caller: format!("caller-{}", chance.below(2)),
            operation: operation.to_owned(),
            key,
        };
        let referring = ![DRAFTS, REPORTS].contains(&operation) && !broken && chance.percent(25);
        let reference = referring.then(|| format!("order-{:06}", number / SAME_REFERENCE));
        Asked { number, command, path, reference }
    }

    /// Returns true if the service executes the command, and not a gateway.
    pub(crate) fn is_local(&self) -> bool {
        [TRANSFERS, ORDERS, CHARGES, BATCHES].contains(&self.command.operation.as_str())
    }

    /// Returns the canary, which is unique to this command and payload.
    pub(crate) fn canary(&self, payload: u32) -> String {
        format!("{CANARY}{:08x}-{payload}", self.number)
    }

    /// Returns the request with this payload.
    pub(crate) fn request(&self, payload: u32) -> Result<Request<Full<Bytes>>, String> {
        let mut body = json!({ "canary": self.canary(payload), "amount": self.number });
        if let Some(reference) = &self.reference {
            body["reference"] = reference.as_str().into();
        }
        if self.command.operation == BATCHES {
            body["items"] = self.items(&body);
        }
        let request = Request::builder()
            .method("POST")
            .uri(self.path)
            .header("host", "lab")
            .header("content-type", "application/json")
            .header("idempotency-key", &self.command.key)
            .header("x-tenant", &self.command.tenant)
            .header("x-caller", &self.command.caller)
            .body(Full::new(Bytes::from(body.to_string())));
        request.map_err(|error| error.to_string())
    }
}

/// Largest number of items in a bulk request.
const MOST_ITEMS: u64 = 5;

impl Asked {
    fn items(&self, body: &Value) -> Value {
        let item = |number: u64| {
            let mut item = body.clone();
            item["clientItemId"] = format!("item-{number}").into();
            item
        };
        (0..2 + self.number % (MOST_ITEMS - 1)).map(item).collect()
    }
}

/// Prefixes of canaries and of effect names.
const CANARY: &str = "canary-";
pub(crate) const EFFECT: &str = "effect-";

/// Returns every canary in this text.
pub(crate) fn canaries(text: &[u8]) -> Vec<String> {
    marks(text, CANARY)
}

/// Returns the name of every effect in this text.
pub(crate) fn effects(text: &[u8]) -> Vec<String> {
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
pub(crate) fn answered(request: u64, reply: &Reply) -> Answered {
    let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let is_problem = reply.header("content-type") == Some("application/problem+json");
    let code = document["code"].as_str().filter(|_| is_problem).map(str::to_owned);
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
        operation_id: reply.header("idempotency-operation-id").map(str::to_owned),
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
pub(crate) const NOT_EXECUTED: &str = "x-not-executed";

/// Returns a short digest for comparisons.
pub(crate) fn digest(bytes: &[u8]) -> String {
    short(&Sha256::digest(bytes))
}

fn short(digest: &[u8]) -> String {
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_commands_in_a_row_share_a_key_but_no_canary() {
        for pair in 0..200 {
            let [one, two] = [pair * 2, pair * 2 + 1].map(|number| Asked::number(5, number, false));
            assert_eq!(one.command.key, two.command.key);
            assert_ne!(one.command, two.command);
            assert_ne!(one.canary(0), two.canary(0));
        }
    }

    #[test]
    fn marks_are_found_anywhere_in_a_text() {
        let text =
            b"\x01{\"canary\":\"canary-0000002a-1\",\"effect\":\"effect-00000007\"}canary-0000002b-0 canary-";
        assert_eq!(canaries(text), ["canary-", "canary-0000002a-1", "canary-0000002b-0"]);
        assert_eq!(effects(text), ["effect-00000007"]);
    }
}
