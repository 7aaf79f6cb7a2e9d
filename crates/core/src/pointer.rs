//! JSON Pointers (RFC 6901): a configuration's names for members of a request body.

use std::fmt::{self, Write};

use thiserror::Error;

/// The path to one place in a JSON document, such as `/payment/reference`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPointer {
    /// Unescaped tokens, at least one.
    tokens: Vec<String>,
}

/// Reason why a text is not a usable JSON Pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PointerError {
    /// The pointer is empty: the whole document can be neither excluded nor a reference.
    #[error("an empty JSON Pointer means the whole document: name a member, such as `/reference`")]
    WholeDocument,
    /// The pointer does not start with a slash.
    #[error("a JSON Pointer starts with `/`")]
    NoLeadingSlash,
    /// The pointer has an unknown escape: only `~0` for a tilde and `~1` for a slash exist.
    #[error("in a JSON Pointer, `~` is followed by `0` or `1`")]
    UnknownEscape,
}

impl JsonPointer {
    /// Parses a pointer in its string form (RFC 6901, section 3).
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

    /// Returns the unescaped names and indices along the path; never empty.
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

/// Appends a member or index to a pointer's text.
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

/// Returns the index that a token spells (RFC 6901, section 4): digits without a leading zero.
pub(crate) fn array_index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
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
    fn malformed_pointers_are_refused() {
        assert_eq!(JsonPointer::parse(""), Err(PointerError::WholeDocument));
        assert_eq!(JsonPointer::parse("a/b"), Err(PointerError::NoLeadingSlash));
        for text in ["/~", "/~2", "/a~/b"] {
            assert_eq!(JsonPointer::parse(text), Err(PointerError::UnknownEscape), "{text}");
        }
    }

    #[test]
    fn an_array_index_is_plain_digits() {
        for (token, index) in [("0", Some(0)), ("10", Some(10)), ("usize", None), ("-", None), ("+1", None)] {
            assert_eq!(array_index(token), index, "{token}");
        }
        for token in ["", "00", "01", "99999999999999999999999999"] {
            assert_eq!(array_index(token), None, "{token}");
        }
    }
}
