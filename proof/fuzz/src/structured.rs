//! Second reader of structured fields (RFC 9651, section 4.2), for one String Item with parameters. It reads byte by
//! byte, and keeps nothing of the parameters.

/// Result of reading a field value.
pub(crate) enum Item {
    /// A string, unescaped.
    String(String),
    /// No String Item.
    Malformed,
    /// A Byte Sequence among the parameters has padding that a reader may accept or not.
    Unsure,
}

/// Reads a whole field value.
pub(crate) fn string_item(value: &[u8]) -> Item {
    let mut reader = Reader { rest: value, unsure: false };
    match reader.item() {
        Some(text) if !reader.unsure => Item::String(text),
        None if !reader.unsure => Item::Malformed,
        Some(_) | None => Item::Unsure,
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    unsure: bool,
}

impl Reader<'_> {
    fn item(&mut self) -> Option<String> {
        self.skip_spaces();
        let text = self.string()?;
        self.parameters()?;
        self.skip_spaces();
        self.rest.is_empty().then_some(text)
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        self.rest = &self.rest[usize::from(is_next)..];
        is_next
    }

    fn skip_spaces(&mut self) {
        while self.take(b' ') {}
    }

    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &[u8] {
        let length = self.rest.iter().position(|byte| !belongs(*byte)).unwrap_or(self.rest.len());
        let (run, rest) = self.rest.split_at(length);
        self.rest = rest;
        run
    }

    fn string(&mut self) -> Option<String> {
        self.take(b'"').then_some(())?;
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => match self.next()? {
                    escaped @ (b'"' | b'\\') => text.push(char::from(escaped)),
                    _ => return None,
                },
                plain @ 0x20..=0x7e => text.push(char::from(plain)),
                _ => return None,
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip_spaces();
            matches!(self.peek(), b'a'..=b'z' | b'*').then_some(())?;
            self.run(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<()> {
        match self.peek() {
            b'-' | b'0'..=b'9' => self.number().map(|_| ()),
            b'"' => self.string().map(|_| ()),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.run(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Some(())
            }
            b':' => self.bytes(),
            b'?' => {
                self.next();
                matches!(self.next()?, b'0' | b'1').then_some(())
            }
            b'@' => {
                self.next();
                let is_whole = self.number()?;
                is_whole.then_some(())
            }
            b'%' => self.display_string(),
            _ => None,
        }
    }

    /// Reads a number. Returns true for an Integer, false for a Decimal.
    fn number(&mut self) -> Option<bool> {
        self.take(b'-');
        let whole = self.run(|byte| byte.is_ascii_digit()).len();
        if whole == 0 {
            return None;
        }
        if !self.take(b'.') {
            return (whole <= 15).then_some(true);
        }
        let fraction = self.run(|byte| byte.is_ascii_digit()).len();
        (whole <= 12 && (1..=3).contains(&fraction)).then_some(false)
    }

    fn bytes(&mut self) -> Option<()> {
        self.next();
        let text = self.run(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        let digits = text.iter().take_while(|byte| **byte != b'=').count();
        let padding = text.len() - digits;
        let is_plain =
            digits % 4 != 1 && (padding == 0 || (digits + padding).is_multiple_of(4) && padding < 3);
        self.unsure |= !is_plain || text[digits..].iter().any(|byte| *byte != b'=');
        self.take(b':').then_some(())
    }

    fn display_string(&mut self) -> Option<()> {
        self.next();
        self.take(b'"').then_some(())?;
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                b'"' => return str::from_utf8(&bytes).is_ok().then_some(()),
                b'%' => {
                    let digits = [self.next()?, self.next()?];
                    let is_lower = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
                    let digits = str::from_utf8(&digits).ok().filter(|_| is_lower)?;
                    bytes.push(u8::from_str_radix(digits, 16).ok()?);
                }
                plain @ 0x20..=0x7e => bytes.push(plain),
                _ => return None,
            }
        }
    }
}
