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

/// Hashes the bytes of `v1`, laid out independently.
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
fn every_request_field_changes_the_fingerprint() {
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
fn case_and_charset_of_a_json_media_type_do_not_count_and_other_parameters_do() {
    let of = |content_type: &str| {
        FingerprintInput { content_type: Some(content_type.as_bytes()), ..PAYMENT }.fingerprint()
    };
    for same in [
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;Charset=\"UTF-8\"",
        " application/json ",
    ] {
        assert_eq!(of(same), PAYMENT.fingerprint(), "{same}");
    }
    let others = [
        "application/json",
        "application/json; version=1",
        "application/json; version=2",
        "application/json; charset=utf-16",
        "application/json; charset=utf-8; charset=utf-8",
        "application/json; version",
        "application/json;",
        "application/hal+json",
    ];
    for (index, one) in others.iter().enumerate() {
        for other in &others[index + 1..] {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
    }
    assert_eq!(of("application/json; Version=\"1\""), of("application/json;version=1"));
    assert_eq!(of("application/json; v=\"1\t2\""), of("application/json;v=\"1\t2\""));
    let control = of("application/json; v=\"1\u{1}2\"");
    assert_ne!(control, of("application/json;v=\"1\u{1}2\""), "no such parameter: it counts as sent");
}

#[test]
fn the_fingerprint_uses_the_canonical_form_of_the_path() {
    let of = |path| FingerprintInput { path, ..PAYMENT }.fingerprint();
    assert_eq!(of("/p%61yments"), of("/payments"));
    assert_eq!(of("/caf%c3%a9"), of("/caf%C3%A9"));
    for other in ["/payments/", "/Payments", "/payments%2F", "/payments%3A", "//payments"] {
        assert_ne!(of(other), of("/payments"), "{other}");
    }
}

fn form(body: &[u8]) -> FingerprintInput<'_> {
    FingerprintInput { content_type: Some(b"application/x-www-form-urlencoded"), body, ..PAYMENT }
}

#[test]
fn forms_are_compared_by_their_decoded_pairs() {
    let of = |body: &str| form(body.as_bytes()).fingerprint();
    for (one, other) in
        [("a=1&b=%41", "%61=1&b=A"), ("a=x+y", "a=x%20y"), ("a=%c3%a9", "a=\u{e9}"), ("a=b%3D", "a=b=")]
    {
        assert_eq!(of(one), of(other), "{one} {other}");
    }
    let different = [
        "",
        "a",
        "a=",
        "a=1",
        "a=1&",
        "&a=1",
        "a=1&a=1",
        "a=1&b=2",
        "b=2&a=1",
        "a=1%26b=2",
        "a=%",
        "a=%zz",
        "a=%2",
        "a=%00",
    ];
    for (index, one) in different.iter().enumerate() {
        for other in &different[index + 1..] {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
    }
    let one = 1_u64.to_be_bytes();
    let pairs = [&one[..], b"a", &[1], &one, b"1", &one, b"b", &[0]].concat();
    assert_eq!(form(b"a=1&b").canonical_body(), CanonicalBody::Form(pairs));
    assert!(matches!(form(b"a=%zz").canonical_body(), CanonicalBody::Raw(_, WhyRaw::NotAForm)));
    let plain = FingerprintInput { content_type: Some(b"text/plain"), ..form(b"a=1") };
    assert_ne!(plain.fingerprint(), of("a=1"));
    let charset =
        |content_type: &'static [u8]| FingerprintInput { content_type: Some(content_type), ..form(b"a=%41") };
    let same = charset(b"Application/X-WWW-Form-Urlencoded; charset=UTF-8");
    assert_eq!(same.fingerprint(), of("a=A"));
    let other = charset(b"application/x-www-form-urlencoded; charset=latin1");
    assert!(matches!(other.canonical_body(), CanonicalBody::Raw(_, WhyRaw::NotAForm)));
    let encoded = FingerprintInput { content_encoding: Some(b"gzip"), ..form(b"a=1") };
    assert!(matches!(encoded.canonical_body(), CanonicalBody::Raw(_, WhyRaw::Encoded)));
}

/// Returns a multipart body of these parts: their field lines and contents.
fn parts(boundary: &str, parts: &[(Vec<String>, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (fields, content) in parts {
        body.extend(format!("--{boundary}\r\n").bytes());
        fields.iter().for_each(|line| body.extend(format!("{line}\r\n").bytes()));
        body.extend(b"\r\n");
        body.extend(content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").bytes());
    body
}

fn multipart<'a>(content_type: &'a str, body: &'a [u8]) -> FingerprintInput<'a> {
    FingerprintInput { content_type: Some(content_type.as_bytes()), body, ..PAYMENT }
}

#[test]
fn a_multipart_body_has_the_fingerprint_that_records_hold() {
    let fields =
        vec!["Content-Disposition: form-data; name=\"a\"".to_owned(), "Content-Type: text/plain".to_owned()];
    let body = parts("abc", &[(fields, b"one".to_vec()), (Vec::new(), b"two".to_vec())]);
    let fingerprint =
        |body: &[u8]| multipart("multipart/form-data; boundary=abc", body).fingerprint().to_string();
    assert_eq!(fingerprint(&body), "v1:b5bfa2490b62ff09a17d9346456ba3294168cd7bf99a8a7ff90e2823aa5ea23c");
    // One line end may follow the last delimiter, and it counts.
    assert_eq!(
        fingerprint(body.strip_suffix(b"\r\n").expect("it ends a line")),
        "v1:b7052f060a08cb96f951a8b9b4b7a99161df312b88df0188a4d96a11942dd0a7"
    );
}

#[test]
fn a_tab_in_a_part_header_keeps_the_body_multipart() {
    let body =
        parts("abc", &[(vec!["Content-Disposition: form-data;\tname=\"a\"".to_owned()], b"x".to_vec())]);
    let input = multipart("multipart/form-data; boundary=abc", &body);
    assert!(matches!(input.canonical_body(), CanonicalBody::Multipart(_)));
}

#[test]
fn a_multipart_body_with_1024_parts_is_compared_part_by_part() {
    let body = parts("abc", &vec![(Vec::new(), b"x".to_vec()); 1024]);
    let input = multipart("multipart/form-data; boundary=abc", &body);
    assert!(matches!(input.canonical_body(), CanonicalBody::Multipart(_)));
}

#[test]
fn parts_are_compared_without_their_boundary_and_doubtful_ones_byte_by_byte() {
    let two = [
        (vec!["Content-Disposition: form-data; name=\"a\"".to_owned()], b"1".to_vec()),
        (vec!["Content-Type: image/png".to_owned()], b"\0\r\n--\xff".to_vec()),
    ];
    let one = parts("abc", &two);
    let of = |boundary: &str, body: &[u8]| {
        multipart(&format!("multipart/form-data; boundary={boundary}"), body).fingerprint()
    };
    let first = of("abc", &one);
    assert_eq!(first, of("\"x y?\"", &parts("x y?", &two)));
    assert_eq!(first, multipart("Multipart/Form-Data;boundary=\"abc\"", &one).fingerprint());
    assert_ne!(first, multipart("multipart/mixed; boundary=abc", &one).fingerprint());
    assert_ne!(first, multipart("multipart/form-data; boundary=abc; charset=utf-8", &one).fingerprint());

    let text = |body: &str| body.replace('\n', "\r\n").into_bytes();
    for doubtful in [
        text("preamble\n--abc\n\nx\n--abc--\n"),
        text("\n--abc\n\nx\n--abc--\n"),
        text("--abc\n\nx\n--abc--\nepilogue"),
        text("--abc\n\nx\n--abc--\n\n"),
        text("--abc\n\nx\n--abc\n"),
        text("--abc\n\nx\n--abc "),
        text("--abc \n\nx\n--abc--\n"),
        text("--abc\n\nx\n--abcd\n--abc--\n"),
        text("--abc\n\nx--abc\n--abc--\n"),
        b"--abc\r\n\r\nx\n--abc\r\n\r\ny\r\n--abc--\r\n".to_vec(),
        b"--abc\n\nx\n--abc--\n".to_vec(),
        text("--abc\nA: b\n--abc--\n"),
        text("--abc\nno field\n\nx\n--abc--\n"),
        text("--abc\nA: b\n folded\n\nx\n--abc--\n"),
        text("--abc\nA : b\n\nx\n--abc--\n"),
        text("--abc\nA: b\x01\n\nx\n--abc--\n"),
        b"--abc\r\nA: b\rC: d\r\n\r\nx\r\n--abc--\r\n".to_vec(),
        b"--abc\r\nA: b\nC: d\r\n\r\nx\r\n--abc--\r\n".to_vec(),
        text("--abc\nContent-Type: multipart/mixed; boundary=z\n\n--z\n\n--z--\n--abc--\n"),
        text("--abc\nContent-Type: message/rfc822\n\nx\n--abc--\n"),
        text("--abc\nContent-Type: a/b\nContent-Type: c/d\n\nx\n--abc--\n"),
        text("--abc\nContent-Type: ?\n\nx\n--abc--\n"),
        text("--abc--\n"),
        text("--abc\n--abc--\n"),
        Vec::new(),
        text(&format!("{}--abc--\n", "--abc\n\nx\n".repeat(1025))),
    ] {
        let input = multipart("multipart/form-data; boundary=abc", &doubtful);
        let raw = CanonicalBody::Raw(&doubtful, WhyRaw::NotOnlyParts);
        assert_eq!(input.canonical_body(), raw, "{}", doubtful.escape_ascii());
    }
    for content_type in ["multipart/form-data", "multipart/form-data; boundary=abc; boundary=abc"] {
        let input = multipart(content_type, &one);
        assert!(
            matches!(input.canonical_body(), CanonicalBody::Raw(_, WhyRaw::NotOnlyParts)),
            "{content_type}"
        );
    }
    let plain = text("--abc\n\nx\n--abc--\n");
    let encoded = FingerprintInput {
        content_encoding: Some(b"gzip"),
        ..multipart("multipart/mixed; boundary=abc", &plain)
    };
    assert!(matches!(encoded.canonical_body(), CanonicalBody::Raw(_, WhyRaw::Encoded)));
    assert!(matches!(
        multipart("multipart/mixed; boundary=abc", &plain).canonical_body(),
        CanonicalBody::Multipart(_)
    ));
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
    for malformed in [b"Application/JSON; charset".as_slice(), b"application/json; a=\"b", b"a/b+json;"] {
        assert_eq!(canonical(Some(malformed), None), CanonicalBody::Json(b"{}".to_vec()), "{malformed:?}");
    }
    for encoding in [b"gzip".as_slice(), b"identity, gzip", b"\xff"] {
        assert_eq!(canonical(json, Some(encoding)), CanonicalBody::Raw(b" {} ", WhyRaw::Encoded));
    }
    for content_type in
        [None, Some(b"text/plain".as_slice()), Some(b"application/x-ndjson"), Some(b"\xff+json")]
    {
        assert_eq!(canonical(content_type, None), CanonicalBody::Raw(b" {} ", WhyRaw::OtherType));
    }
}

#[test]
fn body_without_a_canonical_form_is_hashed_as_sent() {
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
fn an_excluded_json_member_does_not_change_the_fingerprint() {
    let exclude = [JsonPointer::parse("/clientTimestamp").expect("a valid pointer")];
    let of = |body| FingerprintInput { body, exclude: &exclude, ..PAYMENT }.fingerprint();
    let command = of(br#"{"amount":1,"clientTimestamp":"10:00"}"#);
    assert_eq!(command, of(br#"{"clientTimestamp":"10:01","amount":1}"#));
    assert_eq!(command, of(br#"{"amount":1}"#));
    assert_ne!(command, of(br#"{"amount":2,"clientTimestamp":"10:00"}"#));
    assert_ne!(command, of(br#"{"amount":1,"nested":{"clientTimestamp":"10:00"}}"#));
}

#[test]
fn a_fingerprint_round_trips_through_version_and_digest() {
    let fingerprint = PAYMENT.fingerprint();
    assert_eq!(Fingerprint::from_parts(fingerprint.version(), *fingerprint.digest()), fingerprint);
    assert_eq!(fingerprint.version(), FingerprintVersion::CURRENT);
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
    fn parts_are_one_command_under_any_boundary_and_another_under_any_other_change(
        list in prop::collection::vec((prop::collection::vec("[A-Z][a-z]{1,5}: [ -~]{0,8}", 0..3), prop::collection::vec(any::<u8>(), 0..20)), 1..4),
        one in "[a-zA-Z0-9'+_./:=?-]{12,70}", other in "[a-zA-Z0-9'+_./:=?-]{12,70}", place: prop::sample::Index, byte: u8
    ) {
        let (first, second) = (parts(&one, &list), parts(&other, &list));
        let typed = |boundary: &str| format!("multipart/form-data; boundary=\"{boundary}\"");
        let (of_one, of_other) = (typed(&one), typed(&other));
        let fingerprint = multipart(&of_one, &first).fingerprint();
        prop_assert_eq!(fingerprint, multipart(&of_other, &second).fingerprint());
        let mut changed = first.clone();
        let place = place.index(changed.len());
        prop_assume!(changed[place] != byte);
        changed[place] = byte;
        prop_assert_ne!(fingerprint, multipart(&of_one, &changed).fingerprint(), "{}", changed.escape_ascii());
        let shorter = &first[..place];
        prop_assert_ne!(fingerprint, multipart(&of_one, shorter).fingerprint());
    }

    #[test]
    fn fingerprints_of_arbitrary_multipart_and_form_bodies_never_panic(body in prop::collection::vec(prop::sample::select(b"-a\r\n:%2=&;".to_vec()), 0..60)) {
        let _ = multipart("multipart/mixed; boundary=a", &body).fingerprint();
        let _ = form(&body).fingerprint();
        let _ = FingerprintInput { content_type: Some(&body), ..PAYMENT }.fingerprint();
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
    fn any_content_type_and_body_has_a_repeatable_fingerprint(
        content_type in prop::option::of(prop::collection::vec(any::<u8>(), 0..24)),
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let input = FingerprintInput { content_type: content_type.as_deref(), body: &body, ..PAYMENT };
        prop_assert_eq!(input.fingerprint(), input.fingerprint());
    }
}
