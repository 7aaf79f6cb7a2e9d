//! Request targets (RFC 9112 3.2), and the authorities in them and in `Host`.

use std::net::Ipv6Addr;

use memchr::memchr;

use super::refusal::Refusal;

/// Port of an `http` authority that names none.
const DEFAULT_PORT: u16 = 80;

/// Checks a target. Returns the authority of an absolute-form target, which must agree with `Host`.
pub(super) fn parse<'a>(target: &'a [u8], method: &[u8]) -> Result<Option<Authority<'a>>, Refusal> {
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::TargetByte);
    }
    if target.contains(&b'#') {
        return Err(Refusal::TargetFragment);
    }
    match target {
        [b'/', ..] => Ok(None),
        b"*" if method == b"OPTIONS" => Ok(None),
        b"*" => Err(Refusal::TargetAsterisk),
        _ => absolute(target).map(Some),
    }
}

fn absolute(target: &[u8]) -> Result<Authority<'_>, Refusal> {
    let separator = target.windows(3).position(|bytes| bytes == b"://").ok_or(Refusal::TargetForm)?;
    let (scheme, rest) = (&target[..separator], &target[separator + 3..]);
    if !scheme.iter().all(u8::is_ascii_alphanumeric) {
        return Err(Refusal::TargetForm);
    }
    if !scheme.eq_ignore_ascii_case(b"http") {
        return Err(Refusal::TargetScheme);
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = &rest[..end];
    if authority.contains(&b'@') {
        return Err(Refusal::TargetUserinfo);
    }
    Authority::parse(authority).ok_or(Refusal::TargetAuthority)
}

/// Returns true if these bytes are a host with an optional port, like `Host` and `:authority`.
pub fn is_authority(bytes: &[u8]) -> bool {
    Authority::parse(bytes).is_some()
}

/// Host and port. Two are equal if they name the same server under `http`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Authority<'a> {
    host: Host<'a>,
    port: u16,
}

#[derive(Debug, Clone, Copy)]
enum Host<'a> {
    Name(&'a [u8]),
    V6(Ipv6Addr),
}

impl<'a> Authority<'a> {
    /// Reads an authority. It accepts less than RFC 3986 3.2.2: percent-encoded bytes and sub-delimiters
    /// (including the comma) name no existing host, and give a second spelling to one that exists.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Authority<'a>> {
        let (host, rest) = match bytes {
            [b'[', rest @ ..] => {
                let end = memchr(b']', rest)?;
                (Host::V6(str::from_utf8(&rest[..end]).ok()?.parse().ok()?), &rest[end + 1..])
            }
            _ => {
                let (name, rest) = bytes.split_at(memchr(b':', bytes).unwrap_or(bytes.len()));
                (Host::name(name)?, rest)
            }
        };
        let port = match rest {
            [] | [b':'] => DEFAULT_PORT,
            [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
                str::from_utf8(digits).ok()?.parse().ok()?
            }
            _ => return None,
        };
        Some(Authority { host, port })
    }
}

impl<'a> Host<'a> {
    fn name(bytes: &'a [u8]) -> Option<Host<'a>> {
        let named = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        (!bytes.is_empty() && bytes.iter().all(named)).then_some(Host::Name(bytes))
    }
}

impl PartialEq for Authority<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.port == other.port
            && match (self.host, other.host) {
                (Host::Name(one), Host::Name(other)) => one.eq_ignore_ascii_case(other),
                (Host::V6(one), Host::V6(other)) => one == other,
                (Host::Name(_), Host::V6(_)) | (Host::V6(_), Host::Name(_)) => false,
            }
    }
}
