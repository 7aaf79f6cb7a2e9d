//! Fuzz target of the fingerprint: the same for all spellings of a document, another for each other document, and
//! canonical JSON as a second implementation of RFC 8785 writes it.
//!
//! The input is the body of a request.

use semel_core::fingerprint::{CanonicalBody, WhyRaw};
use semel_core::json::{MAX_DEPTH, NotCanonical, Numbers, canonicalize};
use semel_core::{Fingerprint, FingerprintInput};

use crate::choices::Choices;
use crate::json::{self, Json};

/// Checks that two bodies have one fingerprint exactly if they are the same document.
pub fn check(input: &[u8]) {
    let choices = &mut Choices::of(input);
    let body = as_json(input).canonical_body();
    let Some(document) = json::read(input) else { return check_not_json(input, &body) };
    check_raw(input);
    if document.repeats() || document.depth() > MAX_DEPTH {
        assert!(matches!(body, CanonicalBody::Raw(_, WhyRaw::NoCanonicalForm(_))), "{body:?}");
        assert!(canonicalize(input, Numbers::Rfc8785, &[]).is_err());
        return;
    }
    let CanonicalBody::Json(canonical) = &body else { panic!("{body:?} has a canonical form") };
    check_canonical(&document, canonical);
    check_rfc_8785(input, &document, canonical);
    check_spellings(input, &document, choices);
    check_others(input, &document, choices);
    check_repeated(&document);
}

fn as_json(body: &[u8]) -> FingerprintInput<'_> {
    FingerprintInput {
        method: "POST",
        path: "/payments",
        query: None,
        content_type: Some(b"application/json"),
        content_encoding: None,
        body,
        exclude: &[],
    }
}

fn fingerprint(body: &[u8]) -> Fingerprint {
    as_json(body).fingerprint()
}

/// Checks that bytes which a second reader refuses as well enter the fingerprint unchanged.
fn check_not_json(input: &[u8], body: &CanonicalBody<'_>) {
    let CanonicalBody::Raw(raw, WhyRaw::NoCanonicalForm(why)) = body else { panic!("{body:?} is no JSON") };
    assert_eq!(*raw, input);
    if let NotCanonical::Syntax { offset } = why {
        assert!(*offset <= input.len());
    }
    check_raw(input);
}

/// Checks that a raw body has another fingerprint for each change of a byte, and never that of a JSON document.
fn check_raw(input: &[u8]) {
    let raw = FingerprintInput { content_type: Some(b"text/plain"), ..as_json(input) };
    let longer = [input, b" "].concat();
    assert_ne!(raw.fingerprint(), FingerprintInput { body: &longer, ..raw }.fingerprint());
    assert_ne!(raw.fingerprint(), fingerprint(input));
    let encoded = FingerprintInput { content_encoding: Some(b"gzip"), ..as_json(input) };
    assert_ne!(encoded.fingerprint(), fingerprint(input));
    assert_ne!(encoded.fingerprint(), FingerprintInput { body: &longer, ..encoded }.fingerprint());
}

/// Checks that the canonical form is the same document, sorted, and canonical itself.
fn check_canonical(document: &Json, canonical: &[u8]) {
    let read = json::read(canonical).expect("a canonical form is JSON");
    assert!(is_same(document, &read), "{document:?} became {read:?}");
    assert_eq!(canonicalize(canonical, Numbers::Exact, &[]).as_deref(), Ok(canonical));
}

/// Checks that another implementation writes the same, with numbers as it rounds them; and that the fingerprint uses
/// that form where no number is rounded.
fn check_rfc_8785(input: &[u8], document: &Json, canonical: &[u8]) {
    let ours = canonicalize(input, Numbers::Rfc8785, &[]);
    let theirs = serde(document).map(|value| serde_json_canonicalizer::to_vec(&value).expect("it is JSON"));
    match (ours, theirs) {
        (Ok(ours), Some(theirs)) => {
            assert_eq!(ours, theirs, "{} and {}", ours.escape_ascii(), theirs.escape_ascii());
            if document.all_numbers(json::is_modest) {
                assert_eq!(canonical, ours);
            }
        }
        (ours, theirs) => assert_eq!((ours, theirs), (Err(NotCanonical::NumberOutOfRange), None)),
    }
}

/// Checks that order, blanks, escapes and the spelling of numbers do not change the fingerprint.
fn check_spellings(input: &[u8], document: &Json, choices: &mut Choices) {
    for _ in 0..2 {
        let spelled = document.respell(choices);
        assert_eq!(fingerprint(spelled.as_bytes()), fingerprint(input), "{spelled}");
    }
}

/// Checks that any other change does, in every spelling.
fn check_others(input: &[u8], document: &Json, choices: &mut Choices) {
    let mut other = document.clone();
    other.alter(choices);
    let spelled = other.respell(choices);
    assert_ne!(fingerprint(spelled.as_bytes()), fingerprint(input), "{spelled}");
}

/// Checks that a document with a repeated member has a fingerprint of its own, even if both members are equal.
fn check_repeated(document: &Json) {
    let Json::Object(members) = document else { return };
    let Some(first) = members.first().cloned() else { return };
    let twice = Json::Object(members.iter().cloned().chain([first]).collect());
    let text = twice.respell(&mut Choices::of(b""));
    let body = as_json(text.as_bytes()).canonical_body();
    let refused = CanonicalBody::Raw(text.as_bytes(), WhyRaw::NoCanonicalForm(NotCanonical::DuplicateMember));
    assert_eq!(body, refused);
    assert_ne!(fingerprint(text.as_bytes()), fingerprint(document.respell(&mut Choices::of(b"")).as_bytes()));
}

/// Returns true if two documents are equal: members in any order, numbers by value.
fn is_same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => json::value(one) == json::value(other),
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            let sorted = |members: &[(String, Json)]| {
                let mut members = members.to_vec();
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                members
            };
            let (one, other) = (sorted(one), sorted(other));
            one.len() == other.len()
                && one.iter().zip(&other).all(|(one, other)| one.0 == other.0 && is_same(&one.1, &other.1))
        }
        _ => one == other,
    }
}

/// Converts the document for the other implementation, each number to the nearest double. `None` if a number has none.
fn serde(document: &Json) -> Option<serde_json::Value> {
    Some(match document {
        Json::Null => serde_json::Value::Null,
        Json::Bool(value) => (*value).into(),
        Json::Number(text) => text.parse::<f64>().ok().filter(|double| double.is_finite())?.into(),
        Json::String(text) => text.as_str().into(),
        Json::Array(elements) => elements.iter().map(serde).collect::<Option<Vec<_>>>()?.into(),
        Json::Object(members) => {
            let members = members.iter().map(|(name, value)| Some((name.clone(), serde(value)?)));
            serde_json::Value::Object(members.collect::<Option<_>>()?)
        }
    })
}
