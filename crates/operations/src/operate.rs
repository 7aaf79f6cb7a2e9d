//! What an operator can see and do, once for the command line and the admin API: how records, stories, messages and quotas are
//! written as JSON, and what an action comes to. Nothing is decided here: stores ask `transition`.

pub mod looks;
pub mod messages;
pub mod quotas;
pub mod records;
pub mod requests;
pub mod story;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use semel_core::text::steers;
use semel_core::{OperationId, Timestamp};
use serde_json::{Map, Value, json};

/// The most characters of a reason.
const MAX_REASON: usize = 1000;

/// What an action came to.
pub enum Acted<S> {
    /// It is done, and this is where things stand now; `None` if there is nothing left.
    Done(Option<S>),
    /// It does not apply, and nothing was changed.
    Refused(String),
    /// There is nothing of this name; says so.
    Absent(String),
}

/// Why somebody does something, as it is kept for good.
///
/// # Errors
/// Goes on after the reason's own name: what is wrong with it.
pub fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must say something".to_owned());
    }
    if text.chars().any(steers) {
        return Err("is one line of text".to_owned());
    }
    if text.chars().count() > MAX_REASON {
        return Err(format!("has at most {MAX_REASON} characters"));
    }
    Ok(text.to_owned())
}

/// The id of a command, as it is written.
pub fn operation_id(text: &str) -> Result<OperationId, String> {
    text.parse().map_err(|_| {
        format!(
            "{:?} is not an operation id, such as 01a1df42-c587-7cff-b888-276f0e1e6aeb",
            text.chars().take(80).collect::<String>()
        )
    })
}

/// How long ago, as it is written.
pub fn age(text: &str) -> Result<Duration, String> {
    semel_settings::parse_duration(text)
        .ok_or_else(|| format!("{text:?} is not a duration such as \"30s\", \"5m\" or \"7d\""))
}

/// That long before now.
pub fn before(now: Timestamp, age: Duration) -> Timestamp {
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

/// One line, whatever a client, a file or a server put into it, and nothing that steers a terminal or turns its text
/// around.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Bytes as a text, if they are one, and otherwise in base64 under another name.
pub fn insert_bytes(shown: &mut Value, name: &str, bytes: &Bytes) {
    match std::str::from_utf8(bytes) {
        Ok(text) => shown[name] = text.into(),
        Err(_) => shown[format!("{name}Base64")] = STANDARD.encode(bytes).into(),
    }
}

/// Header fields as JSON: for each name its lines, as far as they are text.
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
