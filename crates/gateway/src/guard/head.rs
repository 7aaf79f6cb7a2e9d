//! Checks a complete request head. It refuses everything that RFC 9112 lets a recipient repair or guess,
//! because the next reader might guess differently.

use super::field;
use super::refusal::GuardRefusal;
use super::section::lines;
use super::target::{self, Authority};

/// Largest length of a method.
const MAX_METHOD: usize = 32;

/// Facts about an accepted head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AcceptedHead {
    /// Framing of the body.
    pub(super) length: Length,
    /// True if the method is `HEAD`, to which every response is without a body.
    pub(super) is_head: bool,
}

/// Framing of a request's body (RFC 9112 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// Body of this length, zero if none is given.
    Fixed(u64),
    /// Chunked body, which ends with its last chunk.
    Chunked,
}

/// Checks a head that [`SectionSearch`](super::section::SectionSearch) has delimited.
pub(super) fn parse(section: &[u8]) -> Result<AcceptedHead, GuardRefusal> {
    let mut lines = lines(section);
    let request = RequestLine::parse(lines.next().unwrap_or_default())?;
    let mut fields = FramingFields::default();
    for line in lines {
        fields.add(line)?;
    }
    request.check_host(fields.host)?;
    Ok(AcceptedHead { length: fields.length(request.version)?, is_head: request.method == b"HEAD" })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

struct RequestLine<'a> {
    method: &'a [u8],
    authority: Option<Authority<'a>>,
    version: Version,
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a [u8]) -> Result<RequestLine<'a>, GuardRefusal> {
        field::printable(line)?;
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(GuardRefusal::RequestLine);
        };
        if [method, target, version].iter().any(|part| part.is_empty()) {
            return Err(GuardRefusal::RequestLine);
        }
        if method.len() > MAX_METHOD || !field::is_token(method) {
            return Err(GuardRefusal::Method);
        }
        if method == b"CONNECT" {
            return Err(GuardRefusal::Connect);
        }
        let version = match version {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            _ => return Err(GuardRefusal::Version),
        };
        Ok(RequestLine { method, authority: target::parse(target, method)?, version })
    }

    /// Checks the host by RFC 9112 3.2 and 3.2.2, except that an absolute target does not overrule `Host`:
    /// they must agree.
    fn check_host(&self, host: Option<Authority<'_>>) -> Result<(), GuardRefusal> {
        match (host, self.authority) {
            (None, _) if self.version == Version::Http11 => Err(GuardRefusal::HostMissing),
            (Some(host), Some(authority)) if host != authority => Err(GuardRefusal::ForeignAuthority),
            _ => Ok(()),
        }
    }
}

/// Fields that frame and route a request, each allowed at most once.
#[derive(Default)]
struct FramingFields<'a> {
    host: Option<Authority<'a>>,
    content_length: Option<u64>,
    chunked: bool,
}

impl<'a> FramingFields<'a> {
    fn add(&mut self, line: &'a [u8]) -> Result<(), GuardRefusal> {
        let (name, value) = field::parse(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            self.add_host(value)
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.add_content_length(value)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.add_transfer_encoding(value)
        } else {
            Ok(())
        }
    }

    fn add_host(&mut self, value: &'a [u8]) -> Result<(), GuardRefusal> {
        if self.host.is_some() {
            return Err(GuardRefusal::HostRepeated);
        }
        self.host = Some(Authority::parse(value).ok_or(GuardRefusal::HostInvalid)?);
        Ok(())
    }

    /// Takes a `Content-Length`. RFC 9112 6.3 lets a list of equal lengths be read as one; a reader that does
    /// not would see another length, so the list is refused.
    fn add_content_length(&mut self, value: &[u8]) -> Result<(), GuardRefusal> {
        if self.content_length.is_some() || value.contains(&b',') {
            return Err(GuardRefusal::LengthRepeated);
        }
        self.content_length = Some(content_length(value)?);
        Ok(())
    }

    fn add_transfer_encoding(&mut self, value: &[u8]) -> Result<(), GuardRefusal> {
        if self.chunked {
            return Err(GuardRefusal::CodingRepeated);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(GuardRefusal::CodingUnsupported);
        }
        self.chunked = true;
        Ok(())
    }

    fn length(&self, version: Version) -> Result<Length, GuardRefusal> {
        match (self.chunked, self.content_length) {
            // RFC 9112 6.1: a recipient of HTTP/1.0 with a transfer coding must treat the framing as faulty.
            (true, _) if version == Version::Http10 => Err(GuardRefusal::CodingBeforeItsTime),
            (true, Some(_)) => Err(GuardRefusal::LengthWithCoding),
            (true, None) => Ok(Length::Chunked),
            (false, length) => Ok(Length::Fixed(length.unwrap_or(0))),
        }
    }
}

/// Reads a `Content-Length`. Lengths over 63 bits are refused: many readers keep them in a signed integer.
pub(super) fn content_length(value: &[u8]) -> Result<u64, GuardRefusal> {
    // Some readers take `05` for five, others for octal or for an error.
    let is_padded = value.len() > 1 && value.starts_with(b"0");
    if value.is_empty() || is_padded || !value.iter().all(u8::is_ascii_digit) {
        return Err(GuardRefusal::LengthInvalid);
    }
    let length = str::from_utf8(value).ok().and_then(|digits| digits.parse::<i64>().ok());
    length.and_then(|length| u64::try_from(length).ok()).ok_or(GuardRefusal::LengthTooLarge)
}
