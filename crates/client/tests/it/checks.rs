//! Checks of one call against its expectations. Called by `case_run`.

use std::collections::BTreeSet;

use semel_client::{CallError, ClientProfile, CommandOutcome, LastAttempt};
use serde_json::{Map, Value, json};

use crate::scripted_server::ScriptedServer;
use crate::scripted_transport::Sent;

/// Result of a check: the reason of a failure.
pub(crate) type Checked = Result<(), String>;

/// Fails the case if a condition does not hold.
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

pub(crate) use check;

/// Facts of a case that the checks of a call need.
pub(crate) struct CallFacts<'a> {
    pub(crate) server: &'a ScriptedServer,
    pub(crate) profile: ClientProfile,
    /// Keys of the case's earlier calls.
    pub(crate) keys: &'a [String],
}

/// Checks what every call must show.
pub(crate) fn check_always(call: &CallFacts<'_>, request: &Map<String, Value>, sent: &[Sent]) -> Checked {
    let method = request.get("method").map_or("POST", |method| method.as_str().unwrap());
    let commands = sent.iter().filter(|one| one.method == method);
    let sames: BTreeSet<_> = commands.map(|one| (&one.target, key_of(one), &one.body)).collect();
    check!(sames.len() <= 1, "the attempts differ: {sames:?}");
    for one in sent {
        let received = call.server.received(one.item);
        check!(received.is_none_or(|body| body == one.body), "the server read another body");
        check!(
            request.contains_key("url") || one.authority == call.server.authority(),
            "a request to {}",
            one.authority
        );
        let key = key_of(one);
        check!(one.method != "GET" || (key.is_none() && one.body.is_empty()), "a GET with a key or a body");
        let deadline = one.headers.get("semel-deadline").map(|value| value.to_str().unwrap());
        if key.is_some() && call.profile == ClientProfile::Semel {
            let is_whole = deadline.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            check!(is_whole && deadline != Some("0"), "Semel-Deadline is {deadline:?}");
        } else {
            check!(deadline.is_none(), "Semel-Deadline where none belongs");
        }
        let is_drawn =
            !request.contains_key("key") && (call.keys.is_empty() || !request.contains_key("intent"));
        if let Some(key) = key.filter(|_| is_drawn) {
            check_drawn(&key, call.profile)?;
        }
    }
    Ok(())
}

/// Checks that a key which the client drew is a UUID of version 7.
fn check_drawn(key: &str, profile: ClientProfile) -> Checked {
    let bare = match profile {
        ClientProfile::Stripe => Some(key),
        _ => key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')),
    };
    let bare = bare.ok_or_else(|| format!("the key {key} is not quoted"))?;
    let groups: Vec<_> = bare.split('-').map(str::len).collect();
    let is_hex = bare.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    let is_version_7 = groups == [8, 4, 4, 4, 12] && is_hex && bare.as_bytes()[14] == b'7';
    check!(
        is_version_7 && matches!(bare.as_bytes()[19], b'8' | b'9' | b'a' | b'b'),
        "{bare} is no UUID of version 7"
    );
    Ok(())
}

/// Members that outcomes and errors have, by their names in the cases.
fn members(ended: &Result<CommandOutcome, CallError>) -> Map<String, Value> {
    let last = |last: &Option<Box<LastAttempt>>| {
        last.as_ref().map_or(Value::Null, |last| {
            json!({"reason": last.reason.as_str(), "status": last.status().map(|status| status.as_u16()), "code": last.code})
        })
    };
    let found = match ended {
        Ok(outcome) => match outcome {
            CommandOutcome::Final { response, replayed, operation_id, expires, attempts, .. } => json!({
                "status": response.status().as_u16(), "body": response.text(), "replayed": replayed,
                "operation": operation_id, "expires": expires, "attempts": attempts,
            }),
            CommandOutcome::Unknown { operation, attempts, .. }
            | CommandOutcome::Accepted { operation, attempts, .. } => {
                json!({"operation": operation.id(), "attempts": attempts})
            }
            CommandOutcome::Unresolved { operation, attempts, last: ended, stopped, .. } => json!({
                "operation": operation.as_ref().map(|operation| operation.id()), "attempts": attempts,
                "stopped": stopped.as_str(), "last": last(ended),
            }),
        },
        Err(CallError::NotExecuted { attempts, last: ended, stopped, .. }) => {
            json!({"attempts": attempts, "stopped": stopped.as_str(), "last": last(ended)})
        }
        Err(error) => error.answer().map_or(json!({}), |answer| {
            json!({
                "status": answer.response.status().as_u16(), "body": answer.response.text(),
                "operation": answer.operation.as_ref().map(|operation| operation.id()),
            })
        }),
    };
    found.as_object().unwrap().clone()
}

pub(crate) fn check_outcome(
    expect: &Map<String, Value>,
    ended: &Result<CommandOutcome, CallError>,
    sent: &[Sent],
) -> Checked {
    let word =
        ended.as_ref().map_or_else(|error| format!("error:{}", error.kind()), |done| done.kind().into());
    check!(expect.get("outcome").is_none_or(|wanted| *wanted == word), "{word}: {ended:?}");
    let shown = format!("{ended:?} {}", ended.as_ref().err().map_or_else(String::new, ToString::to_string));
    for key in sent.iter().filter_map(key_of) {
        check!(!shown.contains(key.trim_matches('"')), "a key is shown");
    }
    let found = members(ended);
    for name in ["status", "replayed", "operation", "expires", "attempts", "stopped"] {
        if let Some(wanted) = expect.get(name) {
            check!(found.get(name) == Some(wanted), "{name} is {:?}", found.get(name));
        }
    }
    if let Some(wanted) = expect.get("body") {
        let body = found.get("body").and_then(Value::as_str).ok_or("there is no body")?;
        check_body(body.as_bytes(), wanted)?;
    }
    for (name, wanted) in expect.get("last").and_then(Value::as_object).into_iter().flatten() {
        check!(found["last"].get(name) == Some(wanted), "last is {}", found["last"]);
    }
    Ok(())
}

pub(crate) fn check_body(found: &[u8], wanted: &Value) -> Checked {
    let found = std::str::from_utf8(found).map_err(|error| error.to_string())?;
    let is_same = match wanted {
        Value::String(wanted) => found == wanted,
        wanted => serde_json::from_str::<Value>(found).is_ok_and(|found| found == *wanted),
    };
    check!(is_same, "body is {found:?}");
    Ok(())
}

pub(crate) fn check_key(key: Option<&String>, wanted: &Value, earlier: &[String]) -> Checked {
    match wanted {
        Value::String(word) if word == "absent" => check!(key.is_none(), "there is a key"),
        Value::String(word) if word == "same" => {
            check!(key.is_some() && key == earlier.first(), "another key than the first");
        }
        Value::String(word) if word == "new" => {
            check!(key.is_some_and(|key| !earlier.contains(key)), "the key is missing, or was used before");
        }
        wanted => check!(wanted["is"].as_str() == key.map(String::as_str), "the key is {key:?}"),
    }
    Ok(())
}

pub(crate) fn key_of(sent: &Sent) -> Option<String> {
    let value = sent.headers.get("idempotency-key")?;
    Some(value.to_str().unwrap().to_owned())
}

/// Fails for a member that no runner would look at.
pub(crate) fn only(found: &Map<String, Value>, known: &[&str]) -> Checked {
    let unknown = found.keys().find(|name| !known.contains(&name.as_str()));
    check!(unknown.is_none(), "unknown member {unknown:?}");
    Ok(())
}
