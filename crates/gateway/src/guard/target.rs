//! Request targets (RFC 9112 3.2), and the authorities in them and in `Host`.

use std::net::Ipv6Addr;

use memchr::memchr;

use super::refusal::GuardRefusal;

/// Port of an `http` authority that names none.
const DEFAULT_PORT: u16 = 80;

/// Checks a target. Returns the authority of an absolute-form target, which must agree with `Host`.
pub(super) fn parse<'a>(target: &'a [u8], method: &[u8]) -> Result<Option<Authority<'a>>, GuardRefusal> {
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(GuardRefusal::TargetByte);
    }
    if target.contains(&b'#') {
        return Err(GuardRefusal::TargetFragment);
    }
    match target {
        [b'/', ..] => Ok(None),
        b"*" if method == b"OPTIONS" => Ok(None),
        b"*" => Err(GuardRefusal::TargetAsterisk),
        _ => absolute(target).map(Some),
    }
}

fn absolute(target: &[u8]) -> Result<Authority<'_>, GuardRefusal> {
    let separator = target.windows(3).position(|bytes| bytes == b"://").ok_or(GuardRefusal::TargetForm)?;
    let (scheme, rest) = (&target[..separator], &target[separator + 3..]);
    if !scheme.iter().all(u8::is_ascii_alphanumeric) {
        return Err(GuardRefusal::TargetForm);
    }
    if !scheme.eq_ignore_ascii_case(b"http") {
        return Err(GuardRefusal::TargetScheme);
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = &rest[..end];
    if authority.contains(&b'@') {
        return Err(GuardRefusal::TargetUserinfo);
    }
    Authority::parse(authority).ok_or(GuardRefusal::TargetAuthority)
}

/// Returns true if these bytes are a host with an optional port, like `Host` and `:authority`.
pub fn is_authority(bytes: &[u8]) -> bool {
    Authority::parse(bytes).is_some()
}

/// Host and port. Two are equal if they name the same server under `http`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Authority<'a> {
    host: TargetHost<'a>,
    port: u16,
}

#[derive(Debug, Clone, Copy)]
enum TargetHost<'a> {
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
                (TargetHost::V6(str::from_utf8(&rest[..end]).ok()?.parse().ok()?), &rest[end + 1..])
            }
            _ => {
                let (name, rest) = bytes.split_at(memchr(b':', bytes).unwrap_or(bytes.len()));
                (TargetHost::name(name)?, rest)
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

impl<'a> TargetHost<'a> {
    fn name(bytes: &'a [u8]) -> Option<TargetHost<'a>> {
        let named = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        (!bytes.is_empty() && bytes.iter().all(named)).then_some(TargetHost::Name(bytes))
    }
}

impl PartialEq for Authority<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.port == other.port
            && match (self.host, other.host) {
                (TargetHost::Name(one), TargetHost::Name(other)) => one.eq_ignore_ascii_case(other),
                (TargetHost::V6(one), TargetHost::V6(other)) => one == other,
                (TargetHost::Name(_), TargetHost::V6(_)) | (TargetHost::V6(_), TargetHost::Name(_)) => false,
            }
    }
}
