//! Variants of a command: an equal document in another spelling, and a document with another value.
//!
//! Scalars are copied as text, so that no number is rounded.

/// Returns the JSON document with the members of every object in reverse order and other whitespace; `None` if the
/// body is not JSON.
pub(super) fn respelled(body: &[u8]) -> Option<Vec<u8>> {
    let text = document(body)?;
    let mut out = String::with_capacity(2 * text.len());
    Cursor { text, at: 0 }.respell(&mut out)?;
    Some(out.into_bytes())
}

/// Returns the command with one value changed, and a description of the change; `None` if there is no value to change.
///
/// In a JSON document the value is a number, since most endpoints accept any number there, else a string, else a
/// boolean; in other text, it is the last digit or letter.
pub(super) fn changed(body: &[u8]) -> Option<(Vec<u8>, String)> {
    let span = match document(body) {
        Some(text) => {
            let scalars = Cursor { text, at: 0 }.scalars();
            let of = |wanted: fn(u8) -> bool| {
                scalars
                    .iter()
                    .copied()
                    .find(|(start, _)| text.as_bytes().get(*start).copied().is_some_and(wanted))
            };
            of(|byte| byte == b'-' || byte.is_ascii_digit())
                .or_else(|| of(|byte| byte == b'"'))
                .or_else(|| of(|byte| matches!(byte, b't' | b'f')))?
        }
        None => (0, body.len()),
    };
    let old = body.get(span.0..span.1)?;
    let new = altered(old)?;
    let what = format!("{} became {}", excerpt(old), excerpt(&new));
    Some(([body.get(..span.0)?, &new, body.get(span.1..)?].concat(), what))
}

fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if text.chars().count() > 40 {
        format!("{}…", text.chars().take(40).collect::<String>())
    } else {
        text.into_owned()
    }
}

/// Returns the body as text, if it is JSON. `serde_json` bounds its depth, and so the recursion of [`Cursor::respell`].
fn document(body: &[u8]) -> Option<&str> {
    serde_json::from_slice::<serde_json::Value>(body).ok()?;
    str::from_utf8(body).ok()
}

/// Returns another value of the same kind.
fn altered(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        b"true" => return Some(b"false".to_vec()),
        b"false" => return Some(b"true".to_vec()),
        b"\"\"" => return Some(b"\"a\"".to_vec()),
        _ => {}
    }
    // An exponent would change the number tenfold, and an escape could break.
    let number = text.first().is_some_and(|byte| *byte == b'-' || byte.is_ascii_digit());
    let end = if number { text.iter().position(|byte| matches!(byte, b'e' | b'E')) } else { None };
    let end = end.unwrap_or(text.len());
    let candidate = |(index, byte): (usize, &u8)| {
        let escaped = text.get(index.saturating_sub(5)..index).is_some_and(|before| before.contains(&b'\\'));
        byte.is_ascii_alphanumeric() && !escaped
    };
    let index = text.get(..end)?.iter().enumerate().rev().find(|found| candidate(*found))?.0;
    let mut new = text.to_vec();
    let byte = new.get_mut(index)?;
    *byte = match *byte {
        b'9' => b'8',
        b'a' => b'b',
        b'A' => b'B',
        digit @ b'0'..=b'8' => digit + 1,
        b'B'..=b'Z' => b'A',
        _ => b'a',
    };
    Some(new)
}

/// A position in a text that is known to be JSON.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Skips whitespace and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..)?;
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes a string, number or word as it is written.
    fn scalar(&mut self) -> Option<&'a str> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let length = if rest.first() == Some(&b'"') {
            let mut escaped = false;
            let closing = rest.iter().skip(1).position(|byte| {
                let closes = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                closes
            });
            closing? + 2
        } else {
            let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':' | b' ' | b'\t' | b'\r' | b'\n');
            rest.iter().position(ends).unwrap_or(rest.len())
        };
        let scalar = self.text.get(self.at..self.at + length)?;
        self.at += length;
        Some(scalar)
    }

    /// Writes the next value in another spelling.
    fn respell(&mut self, out: &mut String) -> Option<()> {
        let open = self.peek()?;
        if !matches!(open, b'{' | b'[') {
            out.push_str(self.scalar()?);
            return Some(());
        }
        self.at += 1;
        let mut parts = Vec::new();
        while !matches!(self.peek()?, b'}' | b']') {
            let mut part = String::new();
            if open == b'{' {
                part.push_str(self.scalar()?);
                self.peek()?;
                self.at += 1;
                part.push_str(" : ");
            }
            self.respell(&mut part)?;
            parts.push(part);
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        if open == b'{' {
            parts.reverse();
        }
        let (begin, end) = if open == b'{' { ("{\n  ", "\n}") } else { ("[ ", " ]") };
        out.push_str(begin);
        out.push_str(&parts.join(" ,\n  "));
        out.push_str(end);
        Some(())
    }

    /// Returns the start and end of every scalar value, without the names of members.
    fn scalars(mut self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        while let Some(byte) = self.peek() {
            let start = self.at;
            if matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':') {
                self.at += 1;
            } else if self.scalar().is_none() {
                break;
            } else {
                let end = self.at;
                if self.peek() != Some(b':') {
                    found.push((start, end));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: Option<Vec<u8>>) -> String {
        String::from_utf8(bytes.expect("it has one")).expect("it is text")
    }

    #[test]
    fn members_change_places_and_numbers_keep_their_spelling() {
        let body = br#"{"a":333333333.33333329,"b":{"c":[1,2,{}],"d":"x\"y,"},"e":[]}"#;
        let new = text(respelled(body));
        assert!(new.find("\"e\"") < new.find("\"a\"") && new.contains("333333333.33333329"), "{new}");
        let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).expect("it is JSON");
        assert_eq!(read(new.as_bytes()), read(body));
        assert_ne!(new.as_bytes(), body);
        assert_eq!(respelled(b"amount=5"), None);
    }

    #[test]
    fn one_value_is_changed_and_stays_of_its_kind() {
        for (body, new) in [
            (r#"{"currency":"EUR","amount":5}"#, r#"{"currency":"EUR","amount":6}"#),
            (r#"{"amount":1.9e5}"#, r#"{"amount":1.8e5}"#),
            (r#"{"note":"tea"}"#, r#"{"note":"teb"}"#),
            (r#"{"note":""}"#, r#"{"note":"a"}"#),
            (r#"[true]"#, "[false]"),
            ("amount=5&currency=eur", "amount=5&currency=eua"),
        ] {
            assert_eq!(text(changed(body.as_bytes()).map(|(new, _)| new)), new);
        }
        for body in ["{}", "[null]", "", "\u{1}"] {
            assert_eq!(changed(body.as_bytes()), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn respelling_never_panics_and_a_changed_body_differs(body in any::<Vec<u8>>()) {
            respelled(&body);
            if let Some((new, _)) = changed(&body) {
                prop_assert_ne!(new, body);
            }
        }

        #[test]
        fn json_like_text_never_panics(body in r#"[\[\]{}:,"\\a1 \-eu]{0,24}"#) {
            respelled(body.as_bytes());
            changed(body.as_bytes());
        }
    }
}
