//! JSON of operators: bodies of the admin API, and lines of evidence files.
//!
//! Invariant: a text that two readers could understand differently is refused.

use semel_core::json::{Numbers, canonicalize};
use serde_json::Value;

/// Parses a JSON text. A member that is given twice is refused: some readers take the first, others the last.
///
/// # Errors
/// Returns the fault, as the end of a sentence.
pub fn parse(text: &[u8]) -> Result<Value, String> {
    canonicalize(text, Numbers::Exact, &[]).map_err(|why| why.to_string())?;
    serde_json::from_slice(text).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_that_is_given_twice_is_refused_at_any_depth() {
        assert_eq!(parse(br#" {"a": [1, {"b": null}]} "#), Ok(json!({ "a": [1, { "b": null }] })));
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":[{"b":1,"c":2,"b":3}]}"#, r#"{"a":1,"\u0061":2}"#] {
            let refused = parse(text.as_bytes()).expect_err("it is refused");
            assert_eq!(refused, "an object has two members of the same name", "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_json_is_refused() {
        for text in ["", "{", "{} {}", "nul"] {
            let refused = parse(text.as_bytes()).expect_err("it is refused");
            assert!(refused.starts_with("not JSON: "), "{text}: {refused}");
        }
        let large = parse(b"1e999").expect_err("no double is that large");
        assert!(large.contains("out of range"), "{large}");
    }
}
