//! JSON in one canonical spelling, with nothing lost on the way.
//!
//! The fingerprint hashes the output of [`canonicalize`]. Invariant: two documents have the same canonical
//! bytes only if they say the same thing. That needs our own parser: general ones drop repeated members and
//! round numbers.

mod compare;
mod find;
mod number;
mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use thiserror::Error;

use crate::pointer::{JsonPointer, array_index};

pub use compare::{Differences, JsonDifference, differences};
pub use find::{FoundValue, Pointed, find};

/// Maximum nesting depth of arrays and objects, so that neither reading nor writing can exhaust the stack.
pub const MAX_DEPTH: usize = 128;

/// Spelling of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// The spelling of RFC 8785: every number becomes the nearest double, even if that changes its value.
    Rfc8785,
    /// The spelling of RFC 8785 if that keeps the exact decimal value; otherwise all digits in the layout of
    /// RFC 8785. One value has one text, and no two values share one.
    Exact,
}

/// Reason why a text has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotCanonical {
    /// The text does not follow the grammar of RFC 8259.
    #[error("not JSON: unexpected input at byte {offset}")]
    Syntax {
        /// Offset of the first byte that does not fit.
        offset: usize,
    },
    /// The text is not UTF-8.
    #[error("not UTF-8")]
    InvalidUtf8,
    /// A string escapes one half of a surrogate pair, which stands for no character.
    #[error("a string holds a lone surrogate")]
    LoneSurrogate,
    /// An object has two members of one name, and readers differ in which one counts.
    #[error("an object has two members of the same name")]
    DuplicateMember,
    /// Arrays and objects nest deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A number is too large for a double, so RFC 8785 has no spelling for it. Never with [`Numbers::Exact`].
    #[error("a number is beyond the range of a double")]
    NumberOutOfRange,
}

/// Writes a JSON text in canonical form: members in order, no whitespace, the fewest escapes, one spelling per
/// number. Members that `exclude` points at are left out.
///
/// # Errors
/// [`NotCanonical`] says why a text has no such form. Excluded members are judged like all others.
pub fn canonicalize(text: &[u8], numbers: Numbers, exclude: &[JsonPointer]) -> Result<Vec<u8>, NotCanonical> {
    let mut document = parse::document(text)?;
    for pointer in exclude {
        document.remove(pointer);
    }
    let mut out = String::with_capacity(text.len());
    document.write(numbers, &mut out)?;
    Ok(out.into_bytes())
}

/// Returns true if both texts are JSON numbers with exactly the same decimal value, however each is spelled.
pub fn same_number(left: &str, right: &str) -> bool {
    let is_number =
        |text: &str| matches!(parse::document(text.as_bytes()), Ok(JsonValue::Number(all)) if all == text);
    is_number(left) && is_number(right) && number::same_value(left, right)
}

/// A parsed document. It borrows text that needs no unescaping.
#[derive(Debug)]
enum JsonValue<'a> {
    Null,
    Bool(bool),
    /// The number as written.
    Number(&'a str),
    /// Borrowed if, and only if, the text has no escape.
    String(Cow<'a, str>),
    Array(Vec<JsonValue<'a>>),
    /// Sorted by UTF-16 code units (RFC 8785, section 3.2.3), each name once.
    Object(Vec<Member<'a>>),
}

#[derive(Debug)]
struct Member<'a> {
    name: Cow<'a, str>,
    value: JsonValue<'a>,
}

impl<'a> JsonValue<'a> {
    fn descend(&mut self, tokens: &[String]) -> Option<&mut JsonValue<'a>> {
        tokens.iter().try_fold(self, |value, token| match value {
            JsonValue::Object(members) => {
                members.iter_mut().find(|member| member.name == *token).map(|member| &mut member.value)
            }
            JsonValue::Array(elements) => elements.get_mut(array_index(token)?),
            JsonValue::Null | JsonValue::Bool(_) | JsonValue::Number(_) | JsonValue::String(_) => None,
        })
    }

    /// Removes an object's member. An array keeps its elements: the neighbours of a removed one would move up,
    /// and two different arrays could end as one.
    fn remove(&mut self, pointer: &JsonPointer) {
        if let Some((name, path)) = pointer.tokens().split_last()
            && let Some(JsonValue::Object(members)) = self.descend(path)
        {
            members.retain(|member| member.name != *name);
        }
    }

    fn write(&self, numbers: Numbers, out: &mut String) -> Result<(), NotCanonical> {
        match self {
            JsonValue::Null => out.push_str("null"),
            JsonValue::Bool(true) => out.push_str("true"),
            JsonValue::Bool(false) => out.push_str("false"),
            JsonValue::Number(text) => number::write(text, numbers, out)?,
            JsonValue::String(text) => write_string(text, out),
            JsonValue::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.write(numbers, out)?;
                }
                out.push(']');
            }
            JsonValue::Object(members) => {
                out.push('{');
                for (index, Member { name, value }) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(name, out);
                    out.push(':');
                    value.write(numbers, out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }
}

/// Writes a string with the fewest escapes: only those that JSON requires (RFC 8785, section 3.2.2.2).
#[allow(clippy::ptr_arg, reason = "borrowed means that it needs no escape")]
fn write_string(text: &Cow<'_, str>, out: &mut String) {
    out.push('"');
    match text {
        // It was written without an escape, so it needs none now.
        Cow::Borrowed(plain) => out.push_str(plain),
        Cow::Owned(text) => write_escaping(text, out),
    }
    out.push('"');
}

fn write_escaping(text: &str, out: &mut String) {
    let (mut plain, mut rest) = text.split_at(plain_length(text));
    while let Some(special) = rest.chars().next() {
        out.push_str(plain);
        write_escaped(special, out);
        rest = &rest[special.len_utf8()..];
        (plain, rest) = rest.split_at(plain_length(rest));
    }
    out.push_str(plain);
}

/// Returns the number of bytes before the first quote, backslash or control character: eight at a time, since
/// texts are long.
fn plain_length(text: &str) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    /// Returns the high bit of each byte that is below `limit`, which is at most 128. Exact up to the first
    /// such byte; borrows can only disturb later ones.
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(ONES * limit as u64) & !word & (ONES << 7)
    }
    let (words, end) = text.as_bytes().as_chunks();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let special = below(word, b' ') | equal(b'"') | equal(b'\\');
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    text.len() - end.len() + end.iter().position(special).unwrap_or(end.len())
}

/// Compares two texts by their UTF-16 code units. The order equals that of their bytes, except for characters
/// of two units: those begin with a surrogate, and so come before U+E000 to U+FFFF.
fn utf16_order(left: &str, right: &str) -> Ordering {
    match left.bytes().zip(right.bytes()).find(|(left, right)| left != right) {
        Some((0xf0.., 0xee | 0xef)) => Ordering::Less,
        Some((0xee | 0xef, 0xf0..)) => Ordering::Greater,
        Some((left, right)) => left.cmp(&right),
        None => left.len().cmp(&right.len()),
    }
}

fn write_escaped(c: char, out: &mut String) {
    match c {
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{c}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        control => out.push_str(&format!("\\u{:04x}", u32::from(control))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_json_numbers_are_the_same_and_other_text_is_not_a_number() {
        for (left, right) in
            [("1200", "1200.00"), ("1.2e3", "1200"), ("9007199254740993", "9007199254740993.0")]
        {
            assert!(same_number(left, right), "{left} {right}");
        }
        for (left, right) in
            [("007", "7"), ("+7", "7"), ("7 ", "7"), ("", ""), ("a", "a"), ("7.", "7"), ("7", "8")]
        {
            assert!(!same_number(left, right), "{left} {right}");
        }
    }

    fn exact(text: &str) -> Result<String, NotCanonical> {
        canonicalize(text.as_bytes(), Numbers::Exact, &[])
            .map(|bytes| String::from_utf8(bytes).expect("the canonical form is UTF-8"))
    }

    #[test]
    fn members_are_sorted_by_utf16_code_units() {
        // U+10000 is the surrogates D800 DC00, which stand before U+FFFF, though its code point stands after.
        let text = "{\"\u{ffff}\": 1, \"\u{10000}\": 2, \"b\": 3, \"\": 4}";
        assert_eq!(exact(text), Ok("{\"\":4,\"b\":3,\"\u{10000}\":2,\"\u{ffff}\":1}".to_owned()));
    }

    #[test]
    fn the_order_of_texts_is_that_of_their_code_units() {
        let characters = [
            "",
            "a",
            "b",
            "\u{7f}",
            "\u{80}",
            "é",
            "\u{7ff}",
            "\u{800}",
            "\u{d7ff}",
            "\u{e000}",
            "\u{efff}",
            "\u{f000}",
            "\u{ffff}",
            "\u{10000}",
            "😀",
            "\u{10ffff}",
        ];
        let texts: Vec<String> = characters
            .iter()
            .flat_map(|first| characters.iter().map(move |second| format!("{first}{second}")))
            .collect();
        for left in &texts {
            for right in &texts {
                let expected = left.encode_utf16().cmp(right.encode_utf16());
                assert_eq!(utf16_order(left, right), expected, "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn plain_length_ends_at_the_first_character_that_needs_an_escape() {
        let characters = (0..=0xff_u8).map(char::from).chain(['\u{7ff}', '\u{8888}', '😀']);
        for special in characters {
            for place in 0..20 {
                let text = "é".repeat(place / 2) + &"x".repeat(place % 2);
                for text in [format!("{text}{special}"), format!("{text}{special}\"\n\u{0}{text}")] {
                    let is_special = |c: char| matches!(c, '"' | '\\' | '\0'..='\u{1f}');
                    assert_eq!(plain_length(&text), text.find(is_special).unwrap_or(text.len()), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn canonical_json_escapes_only_required_characters() {
        let text = r#""\u0000\b\t\n\f\r\u001f\"\\\/\u007f\u00e9\ud83d\ude00""#;
        assert_eq!(exact(text), Ok("\"\\u0000\\b\\t\\n\\f\\r\\u001f\\\"\\\\/\u{7f}é😀\"".to_owned()));
    }
}
