//! Follows a message body to its end. For requests it also checks the chunks; for responses it only finds the
//! end.

use memchr::memchr;

use super::field;
use super::refusal::GuardRefusal;
use super::section::SectionSearch;

/// Largest number of digits in a chunk size: as many as fill 64 bits.
const MAX_SIZE_DIGITS: usize = 16;
/// Largest length of one chunk's extensions, including the white space before them.
const MAX_EXTENSIONS: usize = 256;
/// Largest length of the line before a chunk's data, with its CRLF.
const MAX_SIZE_LINE: usize = MAX_SIZE_DIGITS + MAX_EXTENSIONS + 2;

/// Body with its remaining length.
#[derive(Debug)]
pub(super) enum FramedBody {
    /// Remaining bytes of a body with a length.
    Fixed(u64),
    /// Chunked body.
    Chunked(Chunked),
    /// Body that ends with the connection.
    Endless,
}

impl FramedBody {
    /// Returns how many of these next bytes of the body are understood. Zero means that a line is still
    /// incomplete: the caller passes them again with more bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize, GuardRefusal> {
        match self {
            FramedBody::Fixed(remaining) => Ok(take_data(remaining, bytes)),
            FramedBody::Chunked(chunked) => chunked.take(bytes),
            FramedBody::Endless => Ok(bytes.len()),
        }
    }

    /// Returns the number of bytes ahead that are data and need no check.
    pub(super) fn data_ahead(&self) -> u64 {
        match self {
            FramedBody::Fixed(remaining)
            | FramedBody::Chunked(Chunked { part: ChunkedPart::Data(remaining), .. }) => *remaining,
            FramedBody::Chunked(_) => 0,
            FramedBody::Endless => u64::MAX,
        }
    }

    /// Returns true if the body has ended.
    pub(super) fn is_complete(&self) -> bool {
        matches!(
            self,
            FramedBody::Fixed(0) | FramedBody::Chunked(Chunked { part: ChunkedPart::Complete, .. })
        )
    }
}

/// Chunked body (RFC 9112 7.1).
#[derive(Debug)]
pub(super) struct Chunked {
    part: ChunkedPart,
    /// Limit on the trailer section, whose fields are checked; none for the gateway's own responses.
    max_trailers: Option<usize>,
}

#[derive(Debug)]
enum ChunkedPart {
    Size,
    Data(u64),
    DataEnd,
    Trailers(SectionSearch),
    Complete,
}

impl Chunked {
    /// Makes the body of a client, whose trailer section may have this many bytes.
    pub(super) fn strict(max_trailers: usize) -> Chunked {
        Chunked { part: ChunkedPart::Size, max_trailers: Some(max_trailers) }
    }

    /// Makes the body of the gateway's own response.
    pub(super) fn trusted() -> Chunked {
        Chunked { part: ChunkedPart::Size, max_trailers: None }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, GuardRefusal> {
        match &mut self.part {
            ChunkedPart::Size => {
                let Some((size, length)) = size_line(bytes)? else { return Ok(0) };
                self.part =
                    if size > 0 { ChunkedPart::Data(size) } else { ChunkedPart::Trailers(self.trailers()) };
                Ok(length)
            }
            ChunkedPart::Data(remaining) => {
                let taken = take_data(remaining, bytes);
                if *remaining == 0 {
                    self.part = ChunkedPart::DataEnd;
                }
                Ok(taken)
            }
            ChunkedPart::DataEnd => match bytes {
                [] | [b'\r'] => Ok(0),
                [b'\r', b'\n', ..] => {
                    self.part = ChunkedPart::Size;
                    Ok(2)
                }
                _ => Err(GuardRefusal::ChunkEnd),
            },
            ChunkedPart::Trailers(section) => {
                let Some(length) = section.find(bytes)? else { return Ok(0) };
                if self.max_trailers.is_some() {
                    field::check_trailers(&bytes[..length])?;
                }
                self.part = ChunkedPart::Complete;
                Ok(length)
            }
            ChunkedPart::Complete => Ok(0),
        }
    }

    fn trailers(&self) -> SectionSearch {
        self.max_trailers.map_or_else(SectionSearch::trusted, SectionSearch::trailers)
    }
}

fn take_data(remaining: &mut u64, bytes: &[u8]) -> usize {
    let taken = usize::try_from(*remaining).map_or(bytes.len(), |remaining| remaining.min(bytes.len()));
    *remaining -= taken as u64;
    taken
}

/// Returns a chunk's announced size and the length of its size line; `None` while the line is incomplete.
fn size_line(bytes: &[u8]) -> Result<Option<(u64, usize)>, GuardRefusal> {
    let window = &bytes[..bytes.len().min(MAX_SIZE_LINE)];
    let Some(end) = memchr(b'\n', window) else {
        return if window.len() == MAX_SIZE_LINE {
            Err(GuardRefusal::ChunkExtensionTooLong)
        } else {
            Ok(None)
        };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(GuardRefusal::BareLineFeed)?;
    field::printable(line)?;
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, extensions) = line.split_at(digits);
    if digits.is_empty() || !is_extensions(extensions) {
        return Err(GuardRefusal::ChunkSize);
    }
    if extensions.len() > MAX_EXTENSIONS {
        return Err(GuardRefusal::ChunkExtensionTooLong);
    }
    Ok(Some((chunk_size(digits)?, end + 1)))
}

/// Returns true for chunk extensions. RFC 9112 7.1.1 allows white space before a semicolon, but not in place
/// of one.
fn is_extensions(bytes: &[u8]) -> bool {
    bytes.is_empty() || field::trim(bytes).starts_with(b";")
}

/// Reads a chunk size. Sizes over 63 bits are refused for the same reason as in `Content-Length`.
fn chunk_size(digits: &[u8]) -> Result<u64, GuardRefusal> {
    let fits = digits.len() <= MAX_SIZE_DIGITS;
    let size =
        str::from_utf8(digits).ok().filter(|_| fits).and_then(|digits| i64::from_str_radix(digits, 16).ok());
    size.and_then(|size| u64::try_from(size).ok()).ok_or(GuardRefusal::ChunkSizeTooLarge)
}
