//! JSON Pointers (RFC 6901): how a configuration names a member of a request body.

use std::fmt::{self, Write};

use thiserror::Error;

use crate::json::{self, NotCanonical, Pointed};

/// The path to one place in a JSON document, such as `/payment/reference`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPointer {
    /// Unescaped, at least one.
    tokens: Vec<String>,
}

/// Why a text is not a usable JSON Pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PointerError {
    /// The empty pointer is the whole document, which can be neither excluded nor a reference.
    #[error("an empty JSON Pointer means the whole document: name a member, such as `/reference`")]
    WholeDocument,
    /// A pointer starts with a slash.
    #[error("a JSON Pointer starts with `/`")]
    NoLeadingSlash,
    /// A tilde is written `~0`, a slash inside a name `~1`; no other escape exists.
    #[error("in a JSON Pointer, `~` is followed by `0` or `1`")]
    UnknownEscape,
}

impl JsonPointer {
    /// Reads a pointer in its string form (RFC 6901, section 3).
    ///
    /// # Errors
    /// If the text is empty or breaks the grammar.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Err(PointerError::WholeDocument);
        }
        let path = text.strip_prefix('/').ok_or(PointerError::NoLeadingSlash)?;
        let tokens = path.split('/').map(unescape).collect::<Result<_, _>>()?;
        Ok(Self { tokens })
    }

    /// The text of the string or number this pointer leads to in a JSON body; numbers of the same value have
    /// the same text. `None` if there is no such member, or if it is of another type.
    ///
    /// # Errors
    /// [`NotCanonical`] says why the body is not JSON without ambiguity: another reader may find something else.
    pub fn scalar(&self, body: &[u8]) -> Result<Option<String>, NotCanonical> {
        json::scalar(body, self)
    }

    /// What this pointer leads to in a JSON body, whatever it is, in canonical form and with every number exact.
    ///
    /// # Errors
    /// As for [`scalar`](Self::scalar).
    pub fn point(&self, body: &[u8]) -> Result<Pointed, NotCanonical> {
        json::point(body, self)
    }

    /// The unescaped names and indices along the path; never empty.
    pub(crate) fn tokens(&self) -> &[String] {
        &self.tokens
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens.iter().try_for_each(|token| write_token(f, token))
    }
}

fn write_token(out: &mut impl Write, token: &str) -> fmt::Result {
    out.write_char('/')?;
    token.chars().try_for_each(|c| match c {
        '~' => out.write_str("~0"),
        '/' => out.write_str("~1"),
        plain => out.write_char(plain),
    })
}

/// Makes a pointer's text lead one step further, to this member or index.
pub(crate) fn push_token(pointer: &mut String, token: &str) {
    write_token(pointer, token).expect("a string takes whatever is written");
}

fn unescape(token: &str) -> Result<String, PointerError> {
    let mut name = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        name.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                Some(_) | None => return Err(PointerError::UnknownEscape),
            },
            plain => plain,
        });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(text: &str) -> JsonPointer {
        JsonPointer::parse(text).expect("a valid pointer")
    }

    #[test]
    fn a_pointer_is_displayed_as_it_was_written() {
        for text in ["/", "/a", "/a/b", "/a//b", "/~0/~1", "/~01", "/é", "/0/-"] {
            assert_eq!(pointer(text).to_string(), text);
        }
    }

    #[test]
    fn escapes_are_undone_once() {
        assert_eq!(pointer("/~01/a~1b").tokens(), ["~1", "a/b"]);
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        assert_eq!(JsonPointer::parse(""), Err(PointerError::WholeDocument));
        assert_eq!(JsonPointer::parse("a/b"), Err(PointerError::NoLeadingSlash));
        for text in ["/~", "/~2", "/a~/b"] {
            assert_eq!(JsonPointer::parse(text), Err(PointerError::UnknownEscape), "{text}");
        }
    }

    #[test]
    fn a_scalar_is_found_by_its_pointer() {
        let body = br#"{"a": [{"b/c": "x\u0079"}, 1.50], "0": 7, "t": true}"#;
        for (text, found) in [
            ("/a/0/b~1c", Some("xy")),
            ("/a/1", Some("1.5")),
            ("/0", Some("7")),
            ("/t", None),
            ("/a", None),
            ("/a/2", None),
            ("/a/01", None),
            ("/0/0", None),
        ] {
            assert_eq!(pointer(text).scalar(body), Ok(found.map(str::to_owned)), "{text}");
        }
        assert_eq!(pointer("/a").scalar(br#"{"a":"1","a":"2"}"#), Err(NotCanonical::DuplicateMember));
    }

    #[test]
    fn what_is_missing_is_told_from_a_document_of_another_shape() {
        let body = br#"{"data": [{"b": 1.10, "a": 12345678901234567890}], "none": null, "n": 1}"#;
        let value = |text: &str| Pointed::Value(text.to_owned());
        for (text, found) in [
            ("/data/0", value(r#"{"a":12345678901234567890,"b":1.1}"#)),
            ("/none", value("null")),
            ("/data/1", Pointed::Missing),
            ("/other", Pointed::Missing),
            ("/data/x", Pointed::NoPlace),
            ("/other/0", Pointed::NoPlace),
            ("/n/0", Pointed::NoPlace),
            ("/none/0", Pointed::NoPlace),
        ] {
            assert_eq!(pointer(text).point(body), Ok(found), "{text}");
        }
        assert_eq!(pointer("/0").point(b"[]"), Ok(Pointed::Missing));
        assert_eq!(pointer("/0").point(br#"{"error": 1}"#), Ok(Pointed::NoPlace), "there is no list");
        assert!(pointer("/0").point(b"<html>").is_err());
    }
}
