//! Splitter of JSON into entries, fed in pieces: one object on each line (NDJSON), or a list of objects. The receiver
//! of an entry checks its content.

use super::entries::MAX_ENTRY_BYTES;
use super::unreadable::UnreadableLedger;

/// Receives each entry: the line that it begins at, and its text.
pub(super) type TakeEntry<'a> = &'a mut dyn FnMut(u32, &[u8]) -> Result<(), UnreadableLedger>;

/// Splitter of NDJSON.
#[derive(Debug)]
pub(super) struct Lines {
    line: u32,
    text: Vec<u8>,
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { line: 1, text: Vec::new() }
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], take: TakeEntry<'_>) -> Result<(), UnreadableLedger> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            push(&mut self.text, line, self.line)?;
            self.finish(take)?;
            self.line = self.line.saturating_add(1);
            bytes = &rest[1..];
        }
        push(&mut self.text, bytes, self.line)
    }

    /// Passes on the last line, which may lack a line end.
    pub(super) fn finish(&mut self, take: TakeEntry<'_>) -> Result<(), UnreadableLedger> {
        let text = self.text.trim_ascii();
        if !text.is_empty() {
            take(self.line, text)?;
        }
        self.text.clear();
        Ok(())
    }
}

/// Splitter of a list of objects.
#[derive(Debug)]
pub(super) struct ListSplitter {
    state: ListState,
    line: u32,
    /// The current object, and the line at which it began.
    text: Vec<u8>,
    first_line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    /// Before the list.
    Before,
    /// After the opening bracket.
    First,
    /// After a comma.
    Next,
    /// Inside an object, at this depth of brackets.
    Inside { depth: u32 },
    /// Inside a string of the object.
    InString { depth: u32 },
    /// After a backslash in the string.
    Escaped { depth: u32 },
    /// After an object.
    After,
    /// After the list.
    Ended,
}

impl ListSplitter {
    pub(super) fn new() -> ListSplitter {
        ListSplitter { state: ListState::Before, line: 1, text: Vec::new(), first_line: 1 }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], take: TakeEntry<'_>) -> Result<(), UnreadableLedger> {
        for byte in bytes {
            self.byte(*byte, take)?;
            if *byte == b'\n' {
                self.line = self.line.saturating_add(1);
            }
        }
        Ok(())
    }

    fn byte(&mut self, byte: u8, take: TakeEntry<'_>) -> Result<(), UnreadableLedger> {
        self.state = match (self.state, byte) {
            (
                ListState::Before | ListState::First | ListState::Next | ListState::After | ListState::Ended,
                b' ' | b'\t' | b'\r' | b'\n',
            ) => self.state,
            (ListState::Before, b'[') => ListState::First,
            (ListState::First | ListState::Next, b'{') => {
                self.first_line = self.line;
                self.push(byte)?;
                ListState::Inside { depth: 1 }
            }
            (ListState::First | ListState::After, b']') => ListState::Ended,
            (ListState::After, b',') => ListState::Next,
            (ListState::Inside { depth }, _) => {
                self.push(byte)?;
                match (byte, depth) {
                    (b'"', _) => ListState::InString { depth },
                    (b'{' | b'[', _) => ListState::Inside { depth: depth.saturating_add(1) },
                    (b'}' | b']', 1) => {
                        take(self.first_line, &self.text)?;
                        self.text.clear();
                        ListState::After
                    }
                    (b'}' | b']', _) => ListState::Inside { depth: depth - 1 },
                    _ => ListState::Inside { depth },
                }
            }
            (ListState::InString { depth }, _) => {
                self.push(byte)?;
                match byte {
                    b'"' => ListState::Inside { depth },
                    b'\\' => ListState::Escaped { depth },
                    _ => ListState::InString { depth },
                }
            }
            (ListState::Escaped { depth }, _) => {
                self.push(byte)?;
                ListState::InString { depth }
            }
            (ListState::Before, _) => {
                return Err(self.wrong(
                    "expected a list of objects, which begins with `[`; one object on each line is `ndjson`",
                ));
            }
            (ListState::First | ListState::Next, _) => {
                return Err(self.wrong("expected an object, which begins with `{`"));
            }
            (ListState::After, _) => return Err(self.wrong("expected `,` or `]` after an object")),
            (ListState::Ended, _) => return Err(self.wrong("something follows the list")),
        };
        Ok(())
    }

    /// Ends the input, which must end the list, too.
    pub(super) fn finish(&self) -> Result<(), UnreadableLedger> {
        match self.state {
            ListState::Ended => Ok(()),
            ListState::Before => Err(self.wrong("there is no list")),
            _ => Err(self.wrong("the list does not end: something is cut off")),
        }
    }

    fn push(&mut self, byte: u8) -> Result<(), UnreadableLedger> {
        push(&mut self.text, &[byte], self.first_line)
    }

    fn wrong(&self, why: &str) -> UnreadableLedger {
        UnreadableLedger::at(self.line, why)
    }
}

fn push(text: &mut Vec<u8>, bytes: &[u8], line: u32) -> Result<(), UnreadableLedger> {
    if text.len() + bytes.len() > MAX_ENTRY_BYTES {
        return Err(UnreadableLedger::at(line, format!("an entry of more than {MAX_ENTRY_BYTES} bytes")));
    }
    text.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entries = Result<Vec<(u32, String)>, String>;

    /// Returns the parsed entries, and checks that they are the same for pieces of any size.
    fn whatever_the_pieces(text: &str, read: impl Fn(&str, usize) -> Entries) -> Entries {
        let whole = read(text, text.len().max(1));
        assert_eq!(read(text, 1), whole);
        whole
    }

    fn list(text: &str) -> Entries {
        whatever_the_pieces(text, |text, size| {
            let mut found = Vec::new();
            let mut take = |line, text: &[u8]| {
                found.push((line, String::from_utf8_lossy(text).into_owned()));
                Ok(())
            };
            let mut list = ListSplitter::new();
            let fed = text.as_bytes().chunks(size).try_for_each(|piece| list.feed(piece, &mut take));
            fed.and_then(|()| list.finish()).map_err(|error| error.to_string())?;
            Ok(found)
        })
    }

    fn lines(text: &str) -> Entries {
        whatever_the_pieces(text, |text, size| {
            let mut found = Vec::new();
            let mut take = |line, text: &[u8]| {
                found.push((line, String::from_utf8_lossy(text).into_owned()));
                Ok(())
            };
            let mut lines = Lines::new();
            let fed = text.as_bytes().chunks(size).try_for_each(|piece| lines.feed(piece, &mut take));
            fed.and_then(|()| lines.finish(&mut take)).map_err(|error| error.to_string())?;
            Ok(found)
        })
    }

    fn entry(line: u32, text: &str) -> (u32, String) {
        (line, text.to_owned())
    }

    #[test]
    fn a_list_is_taken_apart_at_its_objects() {
        let text = "\n[\n{\"a\": \"}\\\"]\", \"b\": [{}]} ,\n\n{}\n]\n";
        assert_eq!(list(text), Ok(vec![entry(3, "{\"a\": \"}\\\"]\", \"b\": [{}]}"), entry(5, "{}")]));
        assert_eq!(list("[]"), Ok(Vec::new()));
    }

    #[test]
    fn json_that_is_no_list_of_objects_is_refused_with_its_line() {
        for (text, why) in [
            ("", "line 1: there is no list"),
            (
                "{}",
                "line 1: expected a list of objects, which begins with `[`; one object on each line is `ndjson`",
            ),
            ("[\n1]", "line 2: expected an object, which begins with `{`"),
            ("[{},]", "line 1: expected an object, which begins with `{`"),
            ("[{}\n{}]", "line 2: expected `,` or `]` after an object"),
            ("[{}]\n\n[", "line 3: something follows the list"),
            ("[{},\n", "line 2: the list does not end: something is cut off"),
            ("[{\"a\": \"", "line 1: the list does not end: something is cut off"),
        ] {
            assert_eq!(list(text), Err(why.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn lines_are_entries_and_empty_ones_are_not() {
        assert_eq!(lines("{}\r\n\n  \n{\"a\":1}"), Ok(vec![entry(1, "{}"), entry(4, "{\"a\":1}")]));
        assert_eq!(lines(""), Ok(Vec::new()));
        let long = format!("{{}}\n{}", "x".repeat(MAX_ENTRY_BYTES + 1));
        assert_eq!(lines(&long), Err(format!("line 2: an entry of more than {MAX_ENTRY_BYTES} bytes")));
    }
}
