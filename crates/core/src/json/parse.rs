//! A strict parser of RFC 8259. It refuses repeated names and lone surrogates, which the canonical form could
//! not distinguish. Recursion is bounded by [`MAX_DEPTH`].

use std::borrow::Cow;

use super::{JsonValue, MAX_DEPTH, Member, NotCanonical, plain_length, utf16_order};

/// Parses a whole text as one value.
pub(super) fn document(text: &[u8]) -> Result<JsonValue<'_>, NotCanonical> {
    let text = str::from_utf8(text).map_err(|_| NotCanonical::InvalidUtf8)?;
    let mut parser = Parser { length: text.len(), rest: text, depth: 0 };
    parser.skip_whitespace();
    let value = parser.value()?;
    parser.skip_whitespace();
    if parser.rest.is_empty() { Ok(value) } else { Err(parser.unexpected()) }
}

struct Parser<'a> {
    length: usize,
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self) -> Result<JsonValue<'a>, NotCanonical> {
        match self.rest.bytes().next() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(JsonValue::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.expect("true").map(|()| JsonValue::Bool(true)),
            Some(b'f') => self.expect("false").map(|()| JsonValue::Bool(false)),
            Some(b'n') => self.expect("null").map(|()| JsonValue::Null),
            Some(_) | None => Err(self.unexpected()),
        }
    }

    fn object(&mut self) -> Result<JsonValue<'a>, NotCanonical> {
        let mut members = Vec::new();
        self.sequence("{", "}", |parser| {
            let name = parser.string()?;
            parser.skip_whitespace();
            parser.expect(":")?;
            parser.skip_whitespace();
            let value = parser.value()?;
            members.push(Member { name, value });
            Ok(())
        })?;
        members.sort_unstable_by(|a, b| utf16_order(&a.name, &b.name));
        // Once sorted, equal names are neighbours: no pairwise search, however many members there are.
        if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(NotCanonical::DuplicateMember);
        }
        Ok(JsonValue::Object(members))
    }

    fn array(&mut self) -> Result<JsonValue<'a>, NotCanonical> {
        let mut elements = Vec::new();
        self.sequence("[", "]", |parser| {
            elements.push(parser.value()?);
            Ok(())
        })?;
        Ok(JsonValue::Array(elements))
    }

    /// Parses the comma-separated items between two brackets.
    fn sequence(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<(), NotCanonical>,
    ) -> Result<(), NotCanonical> {
        if self.depth >= MAX_DEPTH {
            return Err(NotCanonical::TooDeep);
        }
        self.depth += 1;
        self.expect(open)?;
        self.skip_whitespace();
        if !self.take(close) {
            item(self)?;
            self.skip_whitespace();
            while !self.take(close) {
                self.expect(",")?;
                self.skip_whitespace();
                item(self)?;
                self.skip_whitespace();
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn number(&mut self) -> Result<JsonValue<'a>, NotCanonical> {
        let text = self.rest;
        self.take("-");
        if !self.take("0") {
            self.digits()?;
        }
        if self.take(".") {
            self.digits()?;
        }
        if self.take("e") || self.take("E") {
            let _sign = self.take("+") || self.take("-");
            self.digits()?;
        }
        Ok(JsonValue::Number(&text[..text.len() - self.rest.len()]))
    }

    fn digits(&mut self) -> Result<(), NotCanonical> {
        match self.skip(|byte| byte.is_ascii_digit()) {
            0 => Err(self.unexpected()),
            _ => Ok(()),
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, NotCanonical> {
        self.expect("\"")?;
        let unescaped = self.unescaped();
        if self.take("\"") {
            return Ok(Cow::Borrowed(unescaped));
        }
        let mut text = unescaped.to_owned();
        while !self.take("\"") {
            // Neither a control character nor the end of the text is a backslash.
            self.expect("\\")?;
            text.push(self.escape()?);
            text.push_str(self.unescaped());
        }
        Ok(Cow::Owned(text))
    }

    fn unescaped(&mut self) -> &'a str {
        let (run, rest) = self.rest.split_at(plain_length(self.rest));
        self.rest = rest;
        run
    }

    /// Parses an escape whose backslash is already consumed.
    fn escape(&mut self) -> Result<char, NotCanonical> {
        if self.take("u") {
            return self.unicode_escape();
        }
        let mut chars = self.rest.chars();
        let c = match chars.next() {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(_) | None => return Err(self.unexpected()),
        };
        self.rest = chars.as_str();
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char, NotCanonical> {
        let first = self.code_unit()?;
        if let Some(c) = char::from_u32(u32::from(first)) {
            return Ok(c);
        }
        if !self.take("\\u") {
            return Err(NotCanonical::LoneSurrogate);
        }
        let second = self.code_unit()?;
        char::decode_utf16([first, second]).next().and_then(Result::ok).ok_or(NotCanonical::LoneSurrogate)
    }

    fn code_unit(&mut self) -> Result<u16, NotCanonical> {
        let (digits, rest) = self.rest.split_at_checked(4).ok_or_else(|| self.unexpected())?;
        // Checked first, since `from_str_radix` would take a sign as well.
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.unexpected());
        }
        self.rest = rest;
        Ok(u16::from_str_radix(digits, 16).expect("four hex digits fit sixteen bits"))
    }

    fn skip_whitespace(&mut self) {
        self.skip(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    /// Skips ASCII characters. Returns their number.
    fn skip(&mut self, is_one: impl Fn(u8) -> bool) -> usize {
        let count = self.rest.bytes().take_while(|byte| is_one(*byte)).count();
        self.rest = &self.rest[count..];
        count
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), NotCanonical> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> NotCanonical {
        NotCanonical::Syntax { offset: self.length - self.rest.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<NotCanonical> {
        document(text.as_bytes()).err()
    }

    #[test]
    fn a_syntax_error_is_located() {
        for (text, offset) in [
            ("", 0),
            ("\u{feff}{}", 0),
            (" nul", 1),
            ("[1,]", 3),
            ("[1 2]", 3),
            ("{\"a\"}", 4),
            ("{a:1}", 1),
            ("{\"a\":1,}", 7),
            ("01", 1),
            ("-", 1),
            ("1.", 2),
            ("1e+", 3),
            ("+1", 0),
            ("\"a\nb\"", 2),
            ("\"\\x\"", 2),
            ("\"\\u12g4\"", 3),
            ("\"\\u+123\"", 3),
            ("\"\\u00é\"", 3),
            ("\"open", 5),
            ("1 1", 2),
            ("\u{a0}1", 0),
        ] {
            assert_eq!(refusal(text), Some(NotCanonical::Syntax { offset }), "{text:?}");
        }
    }

    #[test]
    fn names_are_compared_after_unescaping() {
        assert_eq!(refusal(r#"{"a":1,"b":2,"\u0061":1}"#), Some(NotCanonical::DuplicateMember));
        assert_eq!(refusal(r#"{"a":{"b":1},"b":{"a":1}}"#), None);
    }

    #[test]
    fn half_a_surrogate_pair_is_refused() {
        for text in [r#""\ud800""#, r#""\udc00""#, r#""\ud800\u0041""#, r#""\udc00\ud800""#, r#""\ud800\n""#]
        {
            assert_eq!(refusal(text), Some(NotCanonical::LoneSurrogate), "{text}");
        }
        assert_eq!(refusal(r#""\ud800\udc00""#), None);
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(refusal(&nested(MAX_DEPTH)), None);
        assert_eq!(refusal(&nested(MAX_DEPTH + 1)), Some(NotCanonical::TooDeep));
        assert_eq!(refusal(&"{\"a\":".repeat(1_000_000)), Some(NotCanonical::TooDeep));
        assert_eq!(refusal(&format!("[{0},{0}]", nested(MAX_DEPTH - 1))), None);
        let second = format!("[{},{}]", nested(MAX_DEPTH - 1), nested(MAX_DEPTH));
        assert_eq!(refusal(&second), Some(NotCanonical::TooDeep));
    }
}
