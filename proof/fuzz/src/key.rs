//! Fuzz target of the `Idempotency-Key`: valid keys and their values, compared with a second reader of RFC 9651.
//!
//! The input is the field lines, separated by line feeds.

use semel_core::key::MAX_FIELD_BYTES;
use semel_core::{IdempotencyKey, KeyError, KeyRules, KeySyntax};

use crate::structured::{self, Item};

const SHORT: KeyRules = KeyRules { syntax: KeySyntax::Lenient, min_length: 1, max_length: 40 };

/// Checks that both readers find the same key, or both refuse.
pub fn check(input: &[u8]) {
    let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let defaults = KeyRules::default();
    for rules in [SHORT, KeyRules { syntax: KeySyntax::Strict, ..SHORT }, defaults] {
        let found: Vec<_> = lines.iter().map(|line| check_line(&rules, line)).collect();
        check_together(&rules, &lines, &found);
    }
}

/// Checks one field line: both readers agree, and a key reads back as itself.
fn check_line(rules: &KeyRules, line: &[u8]) -> Result<IdempotencyKey, KeyError> {
    let found = rules.parse([line]).map(|key| key.expect("there is a line"));
    match (expected(rules, line), &found) {
        (Expected::Unsure, _) => {}
        // The second reader has no rule for personal data.
        (Expected::Key(key), Err(KeyError::PersonalData(_))) => assert!(fits(rules, &key), "{key:?}"),
        (Expected::Key(key), found) => {
            let right = match key.len() {
                0 => *found == Err(KeyError::Empty),
                length if length < rules.min_length => matches!(found, Err(KeyError::TooShort { .. })),
                length if length > rules.max_length => matches!(found, Err(KeyError::TooLong { .. })),
                _ => found.as_ref().is_ok_and(|found| found.as_str() == key),
            };
            assert!(right, "{:?} under {rules:?} is {found:?}, and should be {key:?}", line.escape_ascii());
        }
        (Expected::Not(why), Err(found)) => {
            assert_eq!(
                std::mem::discriminant(found),
                std::mem::discriminant(&why),
                "{}",
                line.escape_ascii()
            );
        }
        (Expected::Not(_), Ok(_)) => panic!("{:?} under {rules:?} is no key", line.escape_ascii()),
    }
    found.iter().for_each(|key| check_key(rules, key));
    found
}

/// Checks that a key is within its bounds, is the same key in every spelling, and is never printed.
fn check_key(rules: &KeyRules, key: &IdempotencyKey) {
    let text = key.as_str();
    assert!(fits(rules, text) && text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    for spelled in [format!("\"{escaped}\""), format!("  \"{escaped}\";a;b=?0 ")] {
        assert_eq!(rules.parse([spelled.as_bytes()]).as_ref(), Ok(&Some(key.clone())), "{spelled:?}");
    }
    let is_bare = is_bare(text.as_bytes());
    let bare = rules.parse([text.as_bytes()]);
    match rules.syntax {
        KeySyntax::Lenient if is_bare => assert_eq!(bare.as_ref(), Ok(&Some(key.clone()))),
        KeySyntax::Strict => assert_ne!(bare.as_ref(), Ok(&Some(key.clone()))),
        KeySyntax::Lenient => {}
    }
    assert_eq!(
        format!("{key:?}"),
        format!("IdempotencyKey(hash {}…)", key.hash_prefix()),
        "a key is never shown"
    );
}

/// Checks that several field lines are refused, and that two lines are one key only if they have the same text.
fn check_together(rules: &KeyRules, lines: &[&[u8]], found: &[Result<IdempotencyKey, KeyError>]) {
    if lines.len() > 1 {
        assert_eq!(rules.parse(lines.iter().copied()), Err(KeyError::Repeated));
    }
    let keys: Vec<&IdempotencyKey> = found.iter().filter_map(|found| found.as_ref().ok()).take(8).collect();
    for (one, other) in keys.iter().flat_map(|one| keys.iter().map(move |other| (one, other))) {
        let same = one.as_str() == other.as_str();
        assert_eq!(one == other, same);
        assert!(!same || one.digest_prefix() == other.digest_prefix(), "one key has one prefix");
    }
}

fn fits(rules: &KeyRules, key: &str) -> bool {
    !key.is_empty() && (rules.min_length..=rules.max_length).contains(&key.len())
}

enum Expected {
    /// A key of any length.
    Key(String),
    /// No key, for this kind of reason.
    Not(KeyError),
    /// RFC 9651 leaves it open.
    Unsure,
}

fn expected(rules: &KeyRules, line: &[u8]) -> Expected {
    if line.len() > MAX_FIELD_BYTES {
        return Expected::Not(KeyError::FieldTooLong);
    }
    let malformed = Expected::Not(KeyError::Malformed { expected: "" });
    // Bytes that are not UTF-8 are malformed before anything is trimmed.
    if str::from_utf8(line).is_err() {
        return malformed;
    }
    let start = line.iter().position(|byte| !b" \t".contains(byte));
    let Some(start) = start else { return Expected::Not(KeyError::Empty) };
    let end = line.iter().rposition(|byte| !b" \t".contains(byte)).unwrap_or(start);
    let trimmed = &line[start..=end];
    let item = match rules.syntax {
        KeySyntax::Strict => structured::string_item(line),
        KeySyntax::Lenient if trimmed[0] == b'"' => structured::string_item(trimmed),
        KeySyntax::Lenient => {
            let text = is_bare(trimmed).then(|| String::from_utf8_lossy(trimmed).into_owned());
            text.map_or(Item::Malformed, Item::String)
        }
    };
    match item {
        Item::String(key) => Expected::Key(key),
        Item::Malformed => malformed,
        Item::Unsure => Expected::Unsure,
    }
}

/// Returns true if these bytes are a bare key. Those between two colons are a byte sequence of RFC 9651.
fn is_bare(text: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || "._:~/+=-".contains(char::from(*byte));
    text.iter().all(is_allowed) && !matches!(text, [b':', .., b':'])
}
