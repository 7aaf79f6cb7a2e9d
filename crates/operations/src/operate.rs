//! Views and actions of operators, shared by the command line and the admin API: the JSON of records,
//! stories, messages, holds and quotas, and the results of actions. Nothing is decided here: stores ask
//! `transition`.

pub mod busy;
pub mod content;
pub mod filters;
pub mod find;
pub mod holds;
pub mod looks;
pub mod messages;
pub mod names;
pub mod quotas;
pub mod records;
pub mod requests;
pub mod settle;
pub mod settling;
pub mod status;
pub mod story;
pub mod strict_json;
pub mod turns;
pub mod verdicts;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use semel_core::text::steers;
use semel_core::{OperationId, Timestamp};
use serde_json::{Map, Value, json};

/// Largest number of characters in a reason.
const MAX_REASON: usize = 1000;

/// Largest number of characters that a message repeats of a text that a person typed.
const MAX_SHOWN: usize = 80;

/// Result of an action.
pub enum Acted<S> {
    /// Done, with the new state; `None` if nothing is left.
    Done(Option<S>),
    /// The action does not apply, and changed nothing.
    Refused(String),
    /// No such record or message exists, with the text that says so.
    Absent(String),
}

/// Checks the reason of an action, which is stored permanently.
///
/// # Errors
/// Returns the fault, as the rest of a sentence that begins with the name of the reason.
pub fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if text.chars().any(steers) {
        return Err("is one line of text".to_owned());
    }
    if text.chars().count() > MAX_REASON {
        return Err(format!("has at most {MAX_REASON} characters"));
    }
    Ok(text.to_owned())
}

/// Parses an operation id.
pub fn operation_id(text: &str) -> Result<OperationId, String> {
    text.parse().map_err(|_| {
        let shown = beginning(text);
        format!("{shown:?} is not an operation id, such as 01a1df42-c587-7cff-b888-276f0e1e6aeb")
    })
}

/// Returns the time that lies `age` before `now`.
pub fn before(now: Timestamp, age: Duration) -> Timestamp {
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

/// Returns the beginning of a text that a person typed, for a message.
fn beginning(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// Returns a text as one line without characters that steer a terminal or reverse its text.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Inserts bytes as text if they are UTF-8, else in base64 under another name.
pub fn insert_bytes(shown: &mut Value, name: &str, bytes: &Bytes) {
    match std::str::from_utf8(bytes) {
        Ok(text) => shown[name] = text.into(),
        Err(_) => shown[format!("{name}Base64")] = STANDARD.encode(bytes).into(),
    }
}

/// Returns header fields as JSON: for each name its lines, as far as they are text.
pub fn fields(headers: &HeaderMap) -> Map<String, Value> {
    let mut fields = Map::new();
    for name in headers.keys() {
        let lines = headers.get_all(name).iter();
        let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        fields.insert(name.to_string(), json!(lines));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_that_says_something() {
        assert_eq!(reason("found in the ledger").as_deref(), Ok("found in the ledger"));
        assert!(reason(&"x".repeat(MAX_REASON)).is_ok());
        for text in [
            "",
            " \t ",
            "two\nlines",
            "two\u{2028}lines",
            "two\u{2029}lines",
            "turned\u{202e}round",
            &"x".repeat(MAX_REASON + 1),
        ] {
            assert!(reason(text).is_err(), "{text:?}");
        }
    }
}
