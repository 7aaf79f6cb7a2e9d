//! Fingerprints: equal for retries of one command, different for anything else.

use proptest::prelude::*;
use semel_core::fingerprint::{CanonicalBody, Fingerprint, FingerprintInput, FingerprintVersion, WhyRaw};
use semel_core::json::NotCanonical;
use semel_core::pointer::JsonPointer;
use sha2::{Digest, Sha256};

use crate::canonical::model::{Choices, json};

const PAYMENT: FingerprintInput<'static> = FingerprintInput {
    method: "POST",
    path: "/payments",
    query: None,
    content_type: Some(b"application/json"),
    content_encoding: None,
    body: br#"{"amount":100,"currency":"EUR"}"#,
    exclude: &[],
};

fn of_body(body: &[u8]) -> Fingerprint {
    FingerprintInput { body, ..PAYMENT }.fingerprint()
}

/// The bytes `v1` hashes, laid out a second time.
fn v1(required: [&[u8]; 2], optional: [Option<&[u8]>; 3], tag: &[u8], body: &[u8]) -> [u8; 32] {
    let field = |bytes: &[u8]| [&(bytes.len() as u64).to_be_bytes(), bytes].concat();
    let mut hashed = field(b"semel/fingerprint/1");
    hashed.extend(required.map(field).concat());
    for bytes in optional {
        hashed.extend(bytes.map_or(vec![0], |bytes| [vec![1], field(bytes)].concat()));
    }
    hashed.extend([field(tag), field(body)].concat());
    Sha256::digest(hashed).into()
}

#[test]
fn version_1_is_frozen() {
    let json = v1([b"POST", b"/payments"], [None, Some(b"application/json"), None], b"json", PAYMENT.body);
    assert_eq!(PAYMENT.fingerprint(), Fingerprint::from_parts(FingerprintVersion::V1, json));
    assert_eq!(
        PAYMENT.fingerprint().to_string(),
        "v1:8584b60495872c39462797f8eb3486ee67412a9a1c46db4f67e5e9bf2ac760ea",
    );

    let csv = FingerprintInput {
        query: Some("dry_run=1"),
        content_type: Some(b"Text/CSV; header=present"),
        content_encoding: Some(b"gzip"),
        body: b"a,b\n",
        ..PAYMENT
    };
    let optional = [Some(b"dry_run=1".as_slice()), Some(b"Text/CSV; header=present"), Some(b"gzip")];
    assert_eq!(csv.fingerprint().digest(), &v1([b"POST", b"/payments"], optional, b"raw", b"a,b\n"));
}

#[test]
fn every_field_counts() {
    let variants = [
        PAYMENT,
        FingerprintInput { method: "PATCH", ..PAYMENT },
        FingerprintInput { path: "/payments/", ..PAYMENT },
        FingerprintInput { query: Some(""), ..PAYMENT },
        FingerprintInput { query: Some("a=1"), ..PAYMENT },
        FingerprintInput { content_type: None, ..PAYMENT },
        FingerprintInput { content_type: Some(b""), ..PAYMENT },
        FingerprintInput { content_type: Some(b"application/problem+json"), ..PAYMENT },
        FingerprintInput { content_type: Some(b"text/plain"), ..PAYMENT },
        FingerprintInput { content_type: Some(b"text/plain; charset=utf-8"), ..PAYMENT },
        FingerprintInput { content_encoding: Some(b""), ..PAYMENT },
        FingerprintInput { content_encoding: Some(b"identity"), ..PAYMENT },
        FingerprintInput { content_encoding: Some(b"gzip"), ..PAYMENT },
        FingerprintInput { body: b"", ..PAYMENT },
        FingerprintInput { body: br#"{"amount":101,"currency":"EUR"}"#, ..PAYMENT },
    ];
    for (index, one) in variants.iter().enumerate() {
        for other in &variants[index + 1..] {
            assert_ne!(one.fingerprint(), other.fingerprint(), "{one:?}\n{other:?}");
        }
    }
}

#[test]
fn text_cannot_move_between_the_fields() {
    let one = FingerprintInput { path: "/a", query: Some("b"), ..PAYMENT };
    let other = FingerprintInput { path: "/ab", query: Some(""), ..PAYMENT };
    assert_ne!(one.fingerprint(), other.fingerprint());
}

#[test]
fn parameters_and_case_of_a_json_media_type_do_not_count() {
    for content_type in
        ["Application/JSON", "application/json; charset=utf-8", "application/json ;a=b", " application/json"]
    {
        let input = FingerprintInput { content_type: Some(content_type.as_bytes()), ..PAYMENT };
        assert_eq!(input.fingerprint(), PAYMENT.fingerprint(), "{content_type}");
    }
}

#[test]
fn json_is_read_only_where_it_is_declared_and_not_encoded() {
    let canonical = |content_type: Option<&'static [u8]>, content_encoding: Option<&'static [u8]>| {
        FingerprintInput { content_type, content_encoding, body: b" {} ", ..PAYMENT }.canonical_body()
    };
    let json = Some(b"application/json".as_slice());
    for encoding in [None, Some(b"".as_slice()), Some(b"identity"), Some(b" Identity ")] {
        assert_eq!(canonical(json, encoding), CanonicalBody::Json(b"{}".to_vec()));
    }
    assert_eq!(canonical(Some(b"application/hal+json"), None), CanonicalBody::Json(b"{}".to_vec()));
    for encoding in [b"gzip".as_slice(), b"identity, gzip", b"\xff"] {
        assert_eq!(canonical(json, Some(encoding)), CanonicalBody::Raw(b" {} ", WhyRaw::Encoded));
    }
    for content_type in
        [None, Some(b"text/plain".as_slice()), Some(b"application/x-ndjson"), Some(b"\xff+json")]
    {
        assert_eq!(canonical(content_type, None), CanonicalBody::Raw(b" {} ", WhyRaw::NotJson));
    }
}

#[test]
fn what_has_no_canonical_form_goes_in_as_sent() {
    for (body, why) in [
        (b"".as_slice(), NotCanonical::Syntax { offset: 0 }),
        (b"{", NotCanonical::Syntax { offset: 1 }),
        (b"\xff", NotCanonical::InvalidUtf8),
        (br#""\ud800""#, NotCanonical::LoneSurrogate),
        (br#"{"a":1,"a":1}"#, NotCanonical::DuplicateMember),
        (&b"[".repeat(100_000), NotCanonical::TooDeep),
    ] {
        let input = FingerprintInput { body, ..PAYMENT };
        assert_eq!(input.canonical_body(), CanonicalBody::Raw(body, WhyRaw::NoCanonicalForm(why)));
        assert_ne!(
            input.fingerprint(),
            FingerprintInput { body: &[body, b" "].concat(), ..PAYMENT }.fingerprint()
        );
    }
}

#[test]
fn a_body_without_a_canonical_form_has_its_own_tag() {
    let body = br#"{"a":1,"a":1}"#;
    let raw = v1([b"POST", b"/payments"], [None, Some(b"application/json"), None], b"raw", body);
    assert_eq!(of_body(body).digest(), &raw);
}

#[test]
fn numbers_that_share_a_double_are_still_two_commands() {
    for (one, other) in [
        ("9007199254740993", "9007199254740992"),
        ("0.1", "0.10000000000000000001"),
        ("1e400", "1e401"),
        ("1e-400", "0"),
        ("1e999999999999999999999", "1e999999999999999999998"),
    ] {
        assert_ne!(of_body(one.as_bytes()), of_body(other.as_bytes()), "{one} and {other}");
    }
}

#[test]
fn spellings_of_one_number_are_one_command() {
    for (one, other) in [
        ("1.0", "1"),
        ("2e0", "2"),
        ("-0", "0"),
        ("100e-2", "1"),
        ("9007199254740993.0", "9007199254740993"),
        ("9007199254740993e0", "9007199254740993"),
        ("900719925474099300e-2", "9007199254740993"),
        ("10e399", "1e400"),
        ("0.1e1000000000000000000000000000000000000000000", "1e999999999999999999999999999999999999999999"),
    ] {
        assert_eq!(of_body(one.as_bytes()), of_body(other.as_bytes()), "{one} and {other}");
    }
}

#[test]
fn a_repeated_member_is_another_command_than_either_reading_of_it() {
    let repeated = of_body(br#"{"amount":1,"amount":2}"#);
    for read in [br#"{"amount":1}"#, br#"{"amount":2}"#] {
        assert_ne!(repeated, of_body(read));
    }
    assert_ne!(of_body(br#"{"a":1,"a":1}"#), of_body(br#"{"a":1}"#));
}

#[test]
fn an_excluded_member_does_not_count() {
    let exclude = [JsonPointer::parse("/clientTimestamp").expect("a valid pointer")];
    let of = |body| FingerprintInput { body, exclude: &exclude, ..PAYMENT }.fingerprint();
    let command = of(br#"{"amount":1,"clientTimestamp":"10:00"}"#);
    assert_eq!(command, of(br#"{"clientTimestamp":"10:01","amount":1}"#));
    assert_eq!(command, of(br#"{"amount":1}"#));
    assert_ne!(command, of(br#"{"amount":2,"clientTimestamp":"10:00"}"#));
    assert_ne!(command, of(br#"{"amount":1,"nested":{"clientTimestamp":"10:00"}}"#));
}

#[test]
fn a_fingerprint_survives_its_parts() {
    let fingerprint = PAYMENT.fingerprint();
    assert_eq!(Fingerprint::from_parts(fingerprint.version(), *fingerprint.digest()), fingerprint);
    assert_eq!(PAYMENT.fingerprint_in(FingerprintVersion::V1), fingerprint);
    assert_eq!(format!("{fingerprint:?}"), format!("Fingerprint({fingerprint})"));
}

proptest! {
    #[test]
    fn a_respelled_body_is_the_same_command(value in json(), one: u64, other: u64) {
        let one = value.spell(&mut Choices::new(one));
        let other = value.spell(&mut Choices::new(other));
        prop_assert_eq!(of_body(one.as_bytes()), of_body(other.as_bytes()), "{} and {}", one, other);
    }

    #[test]
    fn a_changed_value_is_another_command(value in json(), seed: u64) {
        let mut choices = Choices::new(seed);
        let changed = value.mutate(&mut choices).spell(&mut choices);
        let text = value.spell(&mut choices);
        prop_assert_ne!(of_body(text.as_bytes()), of_body(changed.as_bytes()), "{} and {}", text, changed);
    }

    #[test]
    fn a_repeated_member_is_another_command(name in "[a-z]{0,4}", value in json(), seed: u64) {
        let value = value.spell(&mut Choices::new(seed));
        let once = format!(r#"{{"{name}":{value}}}"#);
        let twice = format!(r#"{{"{name}":{value},"{name}":{value}}}"#);
        prop_assert_ne!(of_body(once.as_bytes()), of_body(twice.as_bytes()));
    }

    #[test]
    fn no_request_is_refused(
        content_type in prop::option::of(prop::collection::vec(any::<u8>(), 0..24)),
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let input = FingerprintInput { content_type: content_type.as_deref(), body: &body, ..PAYMENT };
        prop_assert_eq!(input.fingerprint(), input.fingerprint());
    }
}
