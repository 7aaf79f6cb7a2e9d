//! The origin of a value: a place in the text of a file, a variable, a flag, or the built-in default.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// File that was read, with its displayed name.
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Shows only the name: the text may hold a password.
impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Span of a file.
#[derive(Clone, Debug)]
pub struct Location {
    source: Arc<SourceFile>,
    /// Byte range within the text, on character boundaries.
    span: Range<usize>,
}

/// Line of a file, with the marked part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceLine<'a> {
    pub(crate) before: &'a str,
    pub(crate) marked: &'a str,
    pub(crate) after: &'a str,
}

impl Location {
    /// Makes a location. A span outside the text is moved to the nearest place inside.
    pub(crate) fn new(source: &Arc<SourceFile>, span: Range<usize>) -> Location {
        let start = source.text.floor_char_boundary(span.start);
        let end = source.text.floor_char_boundary(span.end).max(start);
        Location { source: source.clone(), span: start..end }
    }

    /// Makes a location in a file without a known text.
    pub(crate) fn nowhere_in(name: &str) -> Location {
        Location::new(&Arc::new(SourceFile { name: name.to_owned(), text: String::new() }), 0..0)
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.source.name
    }

    /// Returns the line, counted from 1.
    pub fn line(&self) -> usize {
        1 + self.source.text[..self.span.start].matches('\n').count()
    }

    /// Returns the offset in the file, for putting findings in order.
    pub(crate) fn offset(&self) -> usize {
        self.span.start
    }

    /// Returns the column in characters, counted from 1.
    pub fn column(&self) -> usize {
        1 + self.excerpt().before.chars().count()
    }

    /// Returns the line on which the span starts; a span of several lines is cut at the end of the first.
    pub(crate) fn excerpt(&self) -> SourceLine<'_> {
        let text = &self.source.text;
        let (start, end) = (self.span.start, self.span.end);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |length| start + length);
        let marked_end = end.min(line_end);
        SourceLine {
            before: &text[line_start..start],
            marked: &text[start..marked_end],
            after: text[marked_end..line_end].trim_end_matches('\r'),
        }
    }
}

/// The origin of a value.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Built in.
    Default,
    /// A place in the configuration file.
    File(Location),
    /// An environment variable, by its name.
    Variable(String),
    /// A flag of the command line, with its dashes.
    Flag(String),
}

/// Written like in `config show`: `default`, `semel.toml:12`, `SEMEL_TTL`, `--ttl`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(location) => write!(f, "{}:{}", location.file(), location.line()),
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str, span: Range<usize>) -> Location {
        Location::new(&Arc::new(SourceFile { name: "semel.toml".into(), text: text.into() }), span)
    }

    #[test]
    fn lines_and_columns_are_counted_from_one_in_characters() {
        let place = location("a = 1\n# é\nü = 'x'\n", 16..19);
        assert_eq!((place.line(), place.column()), (3, 5));
        assert_eq!(place.excerpt(), SourceLine { before: "ü = ", marked: "'x'", after: "" });
        assert_eq!(Origin::File(place).to_string(), "semel.toml:3");
    }

    #[test]
    fn a_long_span_is_cut_at_the_end_of_its_first_line() {
        let place = location("a = [\r\n1]\r\nb = 2", 4..9);
        assert_eq!(place.excerpt(), SourceLine { before: "a = ", marked: "[\r", after: "" });
        assert_eq!(location("a", 1..1).excerpt(), SourceLine { before: "a", marked: "", after: "" });
    }

    #[test]
    fn a_span_outside_the_text_is_moved_into_it() {
        let outside = location("é", 1..9);
        assert_eq!(outside.excerpt(), SourceLine { before: "", marked: "é", after: "" });
        assert_eq!(location("", 7..9).line(), 1);
    }
}
