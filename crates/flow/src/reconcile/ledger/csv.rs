//! Strict parser of CSV (RFC 4180), fed in pieces. It refuses ambiguous input: a quote inside a plain field, text after
//! a closing quote, or a quote that is never closed and would swallow the rest of the file.

use super::entries::MAX_ENTRY_BYTES;
use super::unreadable::UnreadableLedger;

/// Receives each record: the line that it begins at, and its fields.
pub(super) type TakeRecord<'a> = &'a mut dyn FnMut(u32, &[&str]) -> Result<(), UnreadableLedger>;

/// Parser of records.
#[derive(Debug)]
pub(super) struct Csv {
    state: CsvState,
    /// The current record: the bytes of its fields, and the end of each.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// True if a field of the record was quoted: then it is not an empty line.
    is_quoted: bool,
    line: u32,
    /// Line at which the record began.
    first_line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CsvState {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside a quoted field: its end, or the first of two.
    Quote,
    /// After a carriage return, which ends a line only together with a line feed.
    Return,
}

impl Csv {
    pub(super) fn new() -> Csv {
        Csv {
            state: CsvState::FieldStart,
            bytes: Vec::new(),
            ends: Vec::new(),
            is_quoted: false,
            line: 1,
            first_line: 1,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], take: TakeRecord<'_>) -> Result<(), UnreadableLedger> {
        bytes.iter().try_for_each(|byte| self.byte(*byte, take))
    }

    fn byte(&mut self, byte: u8, take: TakeRecord<'_>) -> Result<(), UnreadableLedger> {
        match (self.state, byte) {
            (CsvState::FieldStart, b'"') => {
                self.is_quoted = true;
                self.state = CsvState::Quoted;
            }
            (CsvState::Quoted, b'"') => self.state = CsvState::Quote,
            (CsvState::Quote, b'"') => {
                self.state = CsvState::Quoted;
                self.push(b'"')?;
            }
            (CsvState::Quoted, _) => {
                self.push(byte)?;
                self.line = self.line.saturating_add(u32::from(byte == b'\n'));
            }
            (CsvState::Return, b'\n') | (CsvState::FieldStart | CsvState::Plain | CsvState::Quote, b'\n') => {
                self.end_record(take)?;
                self.line = self.line.saturating_add(1);
                self.first_line = self.line;
            }
            (CsvState::Return, _) => return Err(self.wrong("a carriage return that ends no line")),
            (CsvState::FieldStart | CsvState::Plain | CsvState::Quote, b'\r') => {
                self.state = CsvState::Return;
            }
            (CsvState::FieldStart | CsvState::Plain | CsvState::Quote, b',') => self.end_field(),
            (CsvState::Quote, _) => {
                return Err(self.wrong(
                    "something follows a closing quote: a quote inside a quoted field is written twice",
                ));
            }
            (CsvState::Plain, b'"') => {
                return Err(self
                    .wrong("a quote inside a field that does not begin with one: put the field in quotes"));
            }
            (CsvState::FieldStart | CsvState::Plain, _) => {
                self.state = CsvState::Plain;
                self.push(byte)?;
            }
        }
        Ok(())
    }

    /// Ends the input.
    pub(super) fn finish(&mut self, take: TakeRecord<'_>) -> Result<(), UnreadableLedger> {
        match self.state {
            CsvState::Quoted => Err(UnreadableLedger::at(self.first_line, "a quote is never closed")),
            CsvState::Return => Err(self.wrong("a carriage return that ends no line")),
            CsvState::FieldStart | CsvState::Plain | CsvState::Quote => self.end_record(take),
        }
    }

    fn push(&mut self, byte: u8) -> Result<(), UnreadableLedger> {
        if self.bytes.len() == MAX_ENTRY_BYTES {
            let why = format!("an entry of more than {MAX_ENTRY_BYTES} bytes: is a quote never closed?");
            return Err(UnreadableLedger::at(self.first_line, why));
        }
        self.bytes.push(byte);
        Ok(())
    }

    fn end_field(&mut self) {
        self.ends.push(self.bytes.len());
        self.state = CsvState::FieldStart;
    }

    fn end_record(&mut self, take: TakeRecord<'_>) -> Result<(), UnreadableLedger> {
        self.end_field();
        let is_empty = self.bytes.is_empty() && self.ends.len() == 1 && !self.is_quoted;
        if !is_empty {
            let text = str::from_utf8(&self.bytes).map_err(|_| self.wrong("not UTF-8"))?;
            let starts = std::iter::once(&0).chain(&self.ends);
            let fields: Option<Vec<&str>> =
                starts.zip(&self.ends).map(|(start, end)| text.get(*start..*end)).collect();
            take(self.first_line, &fields.ok_or_else(|| self.wrong("not UTF-8"))?)?;
        }
        self.bytes.clear();
        self.ends.clear();
        self.is_quoted = false;
        Ok(())
    }

    fn wrong(&self, why: &str) -> UnreadableLedger {
        UnreadableLedger::at(self.line, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parsed records, for pieces of any size.
    fn read(text: &[u8]) -> Result<Vec<(u32, Vec<String>)>, String> {
        let in_pieces = |size: usize| {
            let mut records = Vec::new();
            let mut take = |line, fields: &[&str]| {
                records.push((line, fields.iter().map(ToString::to_string).collect()));
                Ok(())
            };
            let mut csv = Csv::new();
            let fed = text.chunks(size).try_for_each(|piece| csv.feed(piece, &mut take));
            fed.and_then(|()| csv.finish(&mut take)).map_err(|error| error.to_string())?;
            Ok(records)
        };
        let whole = in_pieces(text.len().max(1));
        assert_eq!(in_pieces(1), whole);
        whole
    }

    #[test]
    fn fields_are_read_as_rfc_4180_writes_them() {
        let text = b"a,b\r\n\"x,\"\"y\"\"\",\"1\r\n2\"\n\n,\n\"\"\nlast,\xc3\xa9";
        let records = read(text).expect("it is CSV");
        let expected: [(u32, &[&str]); 5] =
            [(1, &["a", "b"]), (2, &["x,\"y\"", "1\r\n2"]), (5, &["", ""]), (6, &[""]), (7, &["last", "é"])];
        assert_eq!(records.len(), expected.len());
        for ((line, fields), (expected_line, expected_fields)) in records.iter().zip(expected) {
            assert_eq!((*line, &fields[..]), (expected_line, &expected_fields.map_to_strings()[..]));
        }
        assert_eq!(read(b""), Ok(Vec::new()));
    }

    trait Strings {
        fn map_to_strings(&self) -> Vec<String>;
    }

    impl Strings for &[&str] {
        fn map_to_strings(&self) -> Vec<String> {
            self.iter().map(ToString::to_string).collect()
        }
    }

    #[test]
    fn ambiguous_csv_is_refused_with_its_line() {
        for (text, why) in [
            (
                &b"a\nb\"c\n"[..],
                "line 2: a quote inside a field that does not begin with one: put the field in quotes",
            ),
            (
                b"a\n\"b\"c\n",
                "line 2: something follows a closing quote: a quote inside a quoted field is written twice",
            ),
            (b"a\nb\n\"c\nd\ne\n", "line 3: a quote is never closed"),
            (b"a\rb\n", "line 1: a carriage return that ends no line"),
            (b"a\r", "line 1: a carriage return that ends no line"),
            (b"a\n\xff\n", "line 2: not UTF-8"),
            (b"\xc3,\xa9\n", "line 1: not UTF-8"),
        ] {
            assert_eq!(read(text), Err(why.to_owned()));
        }
        let endless = [b"a\n\"", &vec![b'x'; MAX_ENTRY_BYTES + 1][..]].concat();
        assert!(read(&endless).expect_err("it is bounded").starts_with("line 2: an entry of more than"));
    }
}
