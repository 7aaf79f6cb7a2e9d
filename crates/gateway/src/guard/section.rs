//! Finds the end of a head or a trailer section, across any number of reads. It checks only line ends, line
//! counts and the length; the content of the lines is checked once the section is complete.

use memchr::{memchr, memchr_iter};

use super::refusal::GuardRefusal;

/// Largest number of field lines in one section.
pub(super) const MAX_FIELDS: usize = 128;

/// Section whose end is searched for. The bytes given to [`find`](SectionSearch::find) start at its first byte.
#[derive(Debug)]
pub(super) struct SectionSearch {
    max_length: usize,
    max_lines: usize,
    leading_line: LeadingLine,
    line_start: usize,
    scanned: usize,
    lines: usize,
}

/// Meaning of an empty line before everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeadingLine {
    Tolerated,
    Seen,
    Ends,
}

impl SectionSearch {
    /// Makes the section for a request's head. RFC 9112 2.2 allows one empty line before it.
    pub(super) fn request_head(max_length: usize) -> SectionSearch {
        SectionSearch::new(max_length, MAX_FIELDS + 1, LeadingLine::Tolerated)
    }

    /// Makes the section for the fields after the last chunk, possibly none.
    pub(super) fn trailers(max_length: usize) -> SectionSearch {
        SectionSearch::new(max_length, MAX_FIELDS, LeadingLine::Ends)
    }

    /// Makes the section of the gateway's own response, which has no limits.
    pub(super) fn trusted() -> SectionSearch {
        SectionSearch::new(usize::MAX, usize::MAX, LeadingLine::Ends)
    }

    fn new(max_length: usize, max_lines: usize, leading_line: LeadingLine) -> SectionSearch {
        SectionSearch { max_length, max_lines, leading_line, line_start: 0, scanned: 0, lines: 0 }
    }

    /// Returns the length of the section with its closing empty line; `None` while that line is missing.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, GuardRefusal> {
        // Bytes beyond the limit are not read, so that the outcome does not depend on how the bytes arrive.
        let window = &bytes[..bytes.len().min(self.max_length)];
        while let Some(offset) = memchr(b'\n', window.get(self.scanned..).unwrap_or_default()) {
            let line = &window[self.line_start..self.scanned + offset];
            self.scanned += offset + 1;
            self.line_start = self.scanned;
            let Some(line) = line.strip_suffix(b"\r") else { return Err(GuardRefusal::BareLineFeed) };
            if self.ends_at(line)? {
                return Ok(Some(self.scanned));
            }
        }
        self.scanned = window.len();
        if window.len() == self.max_length { Err(GuardRefusal::HeadTooLarge) } else { Ok(None) }
    }

    fn ends_at(&mut self, line: &[u8]) -> Result<bool, GuardRefusal> {
        if !line.is_empty() {
            self.lines += 1;
            return if self.lines > self.max_lines { Err(GuardRefusal::TooManyFields) } else { Ok(false) };
        }
        match self.leading_line {
            LeadingLine::Tolerated if self.lines == 0 => {
                self.leading_line = LeadingLine::Seen;
                Ok(false)
            }
            LeadingLine::Seen if self.lines == 0 => Err(GuardRefusal::LeadingLines),
            LeadingLine::Tolerated | LeadingLine::Seen | LeadingLine::Ends => Ok(true),
        }
    }
}

/// Returns the lines of a section that [`SectionSearch::find`] has delimited, without the empty ones.
pub(super) fn lines(section: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr_iter(b'\n', section);
    let lines = ends.scan(0, |start, end| Some(&section[std::mem::replace(start, end + 1)..end]));
    lines.filter_map(|line| line.strip_suffix(b"\r")).filter(|line| !line.is_empty())
}
