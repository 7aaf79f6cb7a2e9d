//! Canonical JSON: one spelling per value, and none shared by two values.

mod decimal;
pub(crate) mod model;

use proptest::prelude::*;
use semel_core::json::{MAX_DEPTH, NotCanonical, Numbers, canonicalize, differences, same_number};
use semel_core::pointer::JsonPointer;

use self::decimal::{Decimal, decimal};
use self::model::{Choices, json, text};

fn exact(text: impl AsRef<[u8]>) -> Result<String, NotCanonical> {
    excluding(text, &[])
}

fn excluding(text: impl AsRef<[u8]>, pointers: &[&str]) -> Result<String, NotCanonical> {
    let exclude: Vec<_> =
        pointers.iter().map(|pointer| JsonPointer::parse(pointer).expect("a valid pointer")).collect();
    canonicalize(text.as_ref(), Numbers::Exact, &exclude)
        .map(|bytes| String::from_utf8(bytes).expect("the canonical form is UTF-8"))
}

#[test]
fn spelling_does_not_matter() {
    let spelled = " {\"b\" : [ 1.0 , -0, 2e0, 100e-2 ],\r\n\t\"a\":\"\\u0041\\/\" } ";
    assert_eq!(exact(spelled).as_deref(), Ok(r#"{"a":"A/","b":[1,0,2,1]}"#));
}

#[test]
fn every_refusal_has_its_reason() {
    let deep = "[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1);
    for (text, reason) in [
        (b"".as_slice(), NotCanonical::Syntax { offset: 0 }),
        (b"\xef\xbb\xbf{}", NotCanonical::Syntax { offset: 0 }),
        (b"{} {}", NotCanonical::Syntax { offset: 3 }),
        (b"\"\xff\"", NotCanonical::InvalidUtf8),
        (b"\"\\ud800\"", NotCanonical::LoneSurrogate),
        (b"{\"a\":{\"b\":1,\"b\":1}}", NotCanonical::DuplicateMember),
        (deep.as_bytes(), NotCanonical::TooDeep),
    ] {
        assert_eq!(exact(text), Err(reason), "{}", text.escape_ascii());
    }
    assert_eq!(canonicalize(b"[1e400]", Numbers::Rfc8785, &[]), Err(NotCanonical::NumberOutOfRange));
}

#[test]
fn numbers_beyond_a_double_keep_their_value_in_one_text() {
    for text in
        ["[9007199254740993.0,1e400]", "[900719925474099300e-2,0.1e+401]", "[9007199254740993e0,100E398]"]
    {
        assert_eq!(exact(text).as_deref(), Ok("[9007199254740993,1e+400]"), "{text}");
    }
    for text in ["[1e999999999999999999999]", "[0.1e1000000000000000000000]"] {
        assert_eq!(exact(text).as_deref(), Ok("[1e+999999999999999999999]"), "{text}");
    }
    assert_eq!(
        canonicalize(b"9007199254740993", Numbers::Rfc8785, &[]).as_deref(),
        Ok(b"9007199254740992".as_slice())
    );
}

#[test]
fn an_excluded_member_is_left_out() {
    let text = r#"{"a":{"b":1,"c":[{"d":2},{"d":3}]},"x/y":4,"~":5,"":6,"0":7}"#;
    for (pointers, expected) in [
        (&["/a"][..], r#"{"":6,"0":7,"x/y":4,"~":5}"#),
        (&["/a/b", "/x~1y", "/~0", "/", "/0"], r#"{"a":{"c":[{"d":2},{"d":3}]}}"#),
        (&["/a/c/1/d", "/x~1y", "/~0", "/", "/0"], r#"{"a":{"b":1,"c":[{"d":2},{}]}}"#),
        (&["/a/b", "/a", "/a/c", "/a"], r#"{"":6,"0":7,"x/y":4,"~":5}"#),
    ] {
        assert_eq!(excluding(text, pointers).as_deref(), Ok(expected), "{pointers:?}");
    }
}

#[test]
fn a_pointer_to_anything_but_a_member_excludes_nothing() {
    let text = r#"{"a":[{"b":1},2]}"#;
    for pointer in
        ["/a/0", "/a/1", "/a/-", "/a/00/b", "/a/9/b", "/a/0/b/c", "/b", "/a/99999999999999999999/b"]
    {
        assert_eq!(excluding(text, &[pointer]).as_deref(), Ok(text), "{pointer}");
    }
    assert_eq!(excluding("1", &["/a"]).as_deref(), Ok("1"));
}

#[test]
fn exclusion_does_not_hide_a_duplicate() {
    assert_eq!(excluding(r#"{"a":1,"a":2}"#, &["/a"]), Err(NotCanonical::DuplicateMember));
}

proptest! {
    #[test]
    fn every_spelling_of_a_value_has_one_canonical_form(value in json(), one: u64, other: u64) {
        let one = value.spell(&mut Choices::new(one));
        let other = value.spell(&mut Choices::new(other));
        let canonical = exact(&one);
        prop_assert!(canonical.is_ok(), "{:?}: {}", canonical, one);
        prop_assert_eq!(&canonical, &exact(&other), "{} and {}", one, other);
        prop_assert_eq!(canonical.clone().and_then(exact), canonical, "a canonical form is its own");
    }

    #[test]
    fn two_values_never_share_a_canonical_form(value in json(), seed: u64) {
        let mut choices = Choices::new(seed);
        let mutated = value.mutate(&mut choices);
        prop_assert_ne!(&value, &mutated);
        let (text, mutated) = (value.spell(&mut choices), mutated.spell(&mut choices));
        prop_assert_ne!(exact(&text), exact(&mutated), "{} and {}", text, mutated);
    }

    #[test]
    fn documents_differ_exactly_where_their_canonical_forms_do(value in json(), other in json(), seed: u64) {
        let mut choices = Choices::new(seed);
        let mutated = value.mutate(&mut choices);
        let text = value.spell(&mut choices);
        for other in [&value, &mutated, &other] {
            let other = other.spell(&mut choices);
            let there = differences(text.as_bytes(), other.as_bytes(), 10).expect("both are JSON");
            prop_assert_eq!(there.total == 0, exact(&text) == exact(&other), "{} and {}", text, other);
            let back = differences(other.as_bytes(), text.as_bytes(), 10).expect("both are JSON");
            prop_assert_eq!(there.total, back.total);
            for (there, back) in there.first.iter().zip(&back.first) {
                prop_assert_eq!((&there.pointer, &there.old, &there.new), (&back.pointer, &back.new, &back.old));
                prop_assert_ne!(&there.old, &there.new);
            }
        }
    }

    #[test]
    fn a_second_implementation_of_rfc_8785_agrees(value in json(), seed: u64) {
        let text = value.spell(&mut Choices::new(seed));
        let theirs = serde_json_canonicalizer::to_string(&value.to_serde()).expect("a JSON value");
        let ours = canonicalize(text.as_bytes(), Numbers::Rfc8785, &[]);
        prop_assert_eq!(ours.as_deref(), Ok(theirs.as_bytes()));
        prop_assert_eq!(exact(&text), Ok(theirs), "15 digits survive a double");
    }

    #[test]
    fn a_second_implementation_agrees_on_every_double(double in any::<f64>()) {
        prop_assume!(double.is_finite());
        let theirs = serde_json_canonicalizer::to_string(&double).expect("a finite number");
        for text in [format!("{double:e}"), format!("{double}"), format!("{double:.17e}")] {
            let ours = canonicalize(text.as_bytes(), Numbers::Rfc8785, &[]);
            prop_assert_eq!(ours.as_deref(), Ok(theirs.as_bytes()), "{}", text);
        }
    }

    #[test]
    fn integers_of_any_size_stay_apart(one: u128, other: u128) {
        prop_assume!(one != other);
        prop_assert_ne!(exact(one.to_string()), exact(other.to_string()));
        prop_assert_ne!(exact(one.to_string()), exact(one.wrapping_add(1).to_string()));
    }

    #[test]
    fn one_decimal_value_has_one_text_and_no_text_has_two(one in decimal(), other in decimal(), seed: u64) {
        let mut choices = Choices::new(seed);
        let neighbours = one.neighbours(&mut choices);
        for other in neighbours.iter().chain([&one, &other]) {
            let (left, right) = (one.spell(&mut choices), other.spell(&mut choices));
            let (one_text, other_text) = (exact(&left), exact(&right));
            prop_assert_eq!(one_text == other_text, one.equals(other), "{} and {}", left, right);
            prop_assert_eq!(same_number(&left, &right), one.equals(other), "{} and {}", left, right);
            let one_text = one_text.expect("it is JSON");
            prop_assert!(Decimal::read(&one_text).equals(&one), "{} became {}", left, one_text);
            prop_assert!(one_text.len() <= left.len() + 21, "{} became {}", left, one_text);
            prop_assert_eq!(exact(&one_text), Ok(one_text.clone()), "a normal text is its own");
        }
    }

    #[test]
    fn any_bytes_are_canonical_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(canonical) = exact(&bytes) {
            prop_assert_eq!(exact(&canonical), Ok(canonical));
        }
    }

    #[test]
    fn near_json_is_canonical_or_refused(text in r#"[\[\]{}",:\\u0-9a-f.eE+ -]{0,40}"#) {
        match exact(&text) {
            Ok(canonical) => prop_assert_eq!(exact(&canonical), Ok(canonical)),
            // Another strict reader also refuses every text that we refuse for its syntax.
            Err(NotCanonical::Syntax { .. }) => {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_err(), "{}", text);
            }
            Err(_) => {}
        }
    }

    #[test]
    fn a_pointer_finds_the_member_it_names(name in text(), value in text()) {
        let escaped = name.replace('~', "~0").replace('/', "~1");
        let pointer = JsonPointer::parse(&format!("/a/1/{escaped}")).expect("an escaped name");
        prop_assert_eq!(pointer.to_string(), format!("/a/1/{escaped}"));
        let body = serde_json::json!({ "a": [0, { name: value.clone() }] }).to_string();
        prop_assert_eq!(pointer.scalar(body.as_bytes()), Ok(Some(value)));
        prop_assert_eq!(excluding(&body, &[&pointer.to_string()]), Ok(r#"{"a":[0,{}]}"#.to_owned()));
    }
}
