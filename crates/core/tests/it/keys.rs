//! Keys as clients send them: both spellings, every way to be wrong.

use proptest::prelude::*;
use semel_core::key::{IdempotencyKey, KeyError, KeyRules, KeySyntax, MAX_FIELD_BYTES, PersonalData};

const LENIENT: KeyRules = KeyRules { syntax: KeySyntax::Lenient, min_length: 1, max_length: 255 };
const STRICT: KeyRules = KeyRules { syntax: KeySyntax::Strict, min_length: 1, max_length: 255 };

fn parse(rules: KeyRules, line: impl AsRef<[u8]>) -> Result<IdempotencyKey, KeyError> {
    rules.parse([line.as_ref()]).map(|key| key.expect("one line is one key"))
}

fn value(rules: KeyRules, line: &str) -> Result<String, KeyError> {
    parse(rules, line).map(|key| key.as_str().to_owned())
}

fn is_malformed(rules: KeyRules, line: impl AsRef<[u8]>) -> bool {
    matches!(parse(rules, line), Err(KeyError::Malformed { .. }))
}

#[test]
fn a_request_without_a_key_field_line_has_no_key() {
    assert_eq!(LENIENT.parse([]), Ok(None));
    assert_eq!(STRICT.parse([]), Ok(None));
}

#[test]
fn two_field_lines_are_refused_even_if_equal() {
    for rules in [LENIENT, STRICT] {
        assert_eq!(rules.parse([b"\"k\"".as_slice(), b"\"k\""]), Err(KeyError::Repeated));
        assert_eq!(rules.parse([b"".as_slice(), b""]), Err(KeyError::Repeated));
    }
}

#[test]
fn the_two_spellings_of_a_key_are_one_key() {
    let bare = parse(LENIENT, "8e03978e-40d5-43e8-bc93-6894a57f9324");
    let quoted = parse(LENIENT, "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"");
    let strict = parse(STRICT, "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"");
    assert!(bare.is_ok());
    assert_eq!(bare, quoted);
    assert_eq!(bare, strict);
}

#[test]
fn keys_are_case_sensitive() {
    assert_ne!(parse(LENIENT, "abc"), parse(LENIENT, "ABC"));
}

#[test]
fn a_bare_key_is_refused_where_syntax_is_strict() {
    for line in ["abcdefgh", "1234567890", "1.5", "?1", ":YWJj:", "@1700000000", "(\"a\" \"b\")", "%\"a\""] {
        assert!(is_malformed(STRICT, line), "{line}");
    }
}

#[test]
fn any_bare_key_of_allowed_characters_is_accepted_unchanged() {
    for line in
        ["abc", "1234", "-1", "1.5", "a.b_c:d~e-f", "~", "00", "1.2.3.4", ":YWJj", "YWJj:", ":", "a/b+c="]
    {
        assert_eq!(value(LENIENT, line).as_deref(), Ok(line));
    }
}

#[test]
fn keys_of_real_systems_are_one_key_in_both_spellings() {
    for key in [
        "order/1234/2026-11-16",
        "8QsbVVXS+2a/9xP0kz5y1w==",
        "urn:uuid:8e03978e-40d5-43e8-bc93-6894a57f9324",
        "stripe-node-retry-8e03978e-40d5-43e8-bc93-6894a57f9324",
        "01JCQ3M6Z8W9V7T5R4Q2P1N0AB",
        "V1StGXR8_Z5jdHi6B-myT",
    ] {
        let bare = parse(KeyRules::default(), key);
        assert_eq!(bare.as_ref().map(IdempotencyKey::as_str), Ok(key));
        assert_eq!(parse(KeyRules::default(), format!("\"{key}\"")), bare);
    }
}

#[test]
fn a_byte_sequence_is_no_bare_key() {
    for line in [":YWJj:", "::", " :8QsbVVXS+2a/9xP0kz5y1w==: ", ":not base64:", ":a:b:"] {
        assert!(is_malformed(LENIENT, line), "{line}");
    }
    assert_eq!(value(LENIENT, "\":YWJj:\"").as_deref(), Ok(":YWJj:"), "a string says what it is");
}

#[test]
fn parameters_are_ignored() {
    for line in [r#""k-1";v=1"#, r#""k-1";a;b="x";c=?0"#, r#""k-1"; v=1"#, r#""k-1";v=1;v=2  "#] {
        for rules in [LENIENT, STRICT] {
            assert_eq!(value(rules, line).as_deref(), Ok("k-1"), "{line}");
        }
    }
}

#[test]
fn broken_parameters_are_refused() {
    for line in [r#""k-1";"#, r#""k-1";V=1"#, r#""k-1";v="#, r#""k-1" ;v=1"#, r#""k-1";v=(1)"#, r#""k-1",v"#]
    {
        for rules in [LENIENT, STRICT] {
            assert!(is_malformed(rules, line), "{line}");
        }
    }
    assert!(is_malformed(LENIENT, "abc;v=1"), "only a String Item has parameters");
}

#[test]
fn escapes_are_undone() {
    for rules in [LENIENT, STRICT] {
        assert_eq!(value(rules, r#""say \"k\"""#).as_deref(), Ok(r#"say "k""#));
        assert_eq!(value(rules, r#""\\a\\""#).as_deref(), Ok(r"\a\"));
        assert_eq!(value(rules, r#""\"""#).as_deref(), Ok("\""));
        for line in [r#""\n""#, r#""\u0041""#, r#""\"#, r#""a\""#] {
            assert!(is_malformed(rules, line), "{line}");
        }
    }
}

#[test]
fn surrounding_whitespace_is_no_part_of_the_key() {
    assert_eq!(value(LENIENT, "  \tabc\t ").as_deref(), Ok("abc"));
    assert_eq!(value(LENIENT, "\t\"abc\"\t").as_deref(), Ok("abc"));
    assert_eq!(value(STRICT, "  \"abc\"  ").as_deref(), Ok("abc"));
    assert_eq!(value(STRICT, "\" abc \"").as_deref(), Ok(" abc "));
    assert!(is_malformed(STRICT, "\t\"abc\""), "a structured field allows spaces only");
}

#[test]
fn other_spellings_are_malformed() {
    for line in [
        "\"",
        "\"abc",
        "abc\"",
        "a\"b",
        "'abc'",
        "\"a\"b",
        "\"a\" \"b\"",
        "\"a\",\"b\"",
        "a b",
        "a,b",
        "a@b",
        "a%b",
        "*abc",
        "{abc}",
        "a\u{e9}",
        "\"a\u{e9}\"",
    ] {
        for rules in [LENIENT, STRICT] {
            assert!(is_malformed(rules, line), "{line}");
        }
    }
}

#[test]
fn bytes_outside_printable_ascii_are_refused() {
    for byte in (0..0x20).chain(0x7f..=0xff) {
        for line in [[b'a', byte, b'b'].to_vec(), [b'"', b'a', byte, b'b', b'"'].to_vec()] {
            assert!(is_malformed(LENIENT, &line), "{line:?}");
            assert!(is_malformed(STRICT, &line), "{line:?}");
        }
    }
}

#[test]
fn an_empty_key_is_refused_in_both_syntaxes_even_with_min_length_0() {
    for syntax in [KeySyntax::Lenient, KeySyntax::Strict] {
        let rules = KeyRules { syntax, min_length: 0, max_length: 255 };
        for line in ["", "  ", "\t", "\"\"", " \"\" ", "\"\";v=1"] {
            assert_eq!(parse(rules, line), Err(KeyError::Empty), "{line:?}");
        }
    }
}

#[test]
fn lengths_are_counted_in_characters_after_unescaping() {
    let rules = KeyRules::default();
    assert_eq!((rules.syntax, rules.min_length, rules.max_length), (KeySyntax::Lenient, 16, 255));
    let bare = |length| "k".repeat(length);
    let escaped = |length| format!("\"{}\"", r"\\".repeat(length));
    for spelled in [bare, escaped] {
        assert_eq!(parse(rules, spelled(15)), Err(KeyError::TooShort { min: 16 }));
        assert!(parse(rules, spelled(16)).is_ok());
        assert!(parse(rules, spelled(255)).is_ok());
        assert_eq!(parse(rules, spelled(256)), Err(KeyError::TooLong { max: 255 }));
    }
}

#[test]
fn a_field_is_bounded_before_it_is_read() {
    let line = |bytes: usize| format!("\"k-1\";v={}", "a".repeat(bytes - "\"k-1\";v=".len()));
    assert_eq!(value(STRICT, &line(MAX_FIELD_BYTES)).as_deref(), Ok("k-1"));
    assert_eq!(parse(STRICT, line(MAX_FIELD_BYTES + 1)), Err(KeyError::FieldTooLong));
    assert_eq!(parse(LENIENT, "k".repeat(MAX_FIELD_BYTES + 1)), Err(KeyError::FieldTooLong));
}

#[test]
fn personal_data_is_refused_in_either_spelling() {
    for (line, kind) in [
        (r#""alice.smith@example.com""#, PersonalData::EmailAddress),
        (r#""+1 (555) 010-0199""#, PersonalData::PhoneNumber),
        (r#""4111 1111 1111 1111""#, PersonalData::PaymentCardNumber),
        ("4111-1111-1111-1111", PersonalData::PaymentCardNumber),
        ("4111111111111111", PersonalData::PaymentCardNumber),
        ("4111/1111/1111/1111", PersonalData::PaymentCardNumber),
        ("4111=1111+1111=1111", PersonalData::PaymentCardNumber),
        ("+49/151/1234/5678", PersonalData::PhoneNumber),
    ] {
        assert_eq!(parse(KeyRules::default(), line), Err(KeyError::PersonalData(kind)), "{line}");
    }
    assert!(parse(KeyRules::default(), "2026-11-15-000123").is_ok());
}

#[test]
fn the_message_about_an_invalid_key_names_the_rule_it_breaks() {
    let long = "k".repeat(256);
    for (line, message) in [
        ("short", "the idempotency key must have at least 16 characters (`key_min_length`)"),
        (long.as_str(), "the idempotency key must have at most 255 characters (`key_max_length`)"),
        ("\"\"", "the idempotency key is empty"),
        (
            r#""alice.smith@example.com""#,
            "the idempotency key looks like an e-mail address: use a random value instead",
        ),
    ] {
        assert_eq!(
            parse(KeyRules::default(), line).map_err(|error| error.to_string()),
            Err(message.to_owned())
        );
    }
}

#[test]
fn debug_output_does_not_show_the_key() {
    let key = parse(LENIENT, "abc").expect("a valid key");
    assert_eq!(key.hash_prefix(), "ba7816bf");
    assert_eq!(key.digest_prefix(), [0xba, 0x78, 0x16, 0xbf]);
    assert_eq!(format!("{key:?}"), "IdempotencyKey(hash ba7816bf…)");
}

proptest! {
    #[test]
    fn any_bytes_are_a_key_or_an_error(line in prop::collection::vec(any::<u8>(), 0..64)) {
        let strict = parse(STRICT, &line);
        if strict.is_ok() {
            prop_assert_eq!(parse(LENIENT, &line), strict);
        }
    }

    #[test]
    fn every_printable_key_can_be_sent_as_a_string(key in "[a-z][ -?A-~]{0,63}") {
        let line = format!("\"{}\"", key.replace('\\', r"\\").replace('"', "\\\""));
        prop_assert_eq!(value(STRICT, &line), Ok(key.clone()));
        prop_assert_eq!(value(LENIENT, &line), Ok(key));
    }
}
