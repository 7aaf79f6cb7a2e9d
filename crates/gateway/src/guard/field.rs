//! Field lines (RFC 9112 5), for heads and for trailer sections.

use http::header::HeaderName;
use memchr::memchr;
use semel_core::fields::{Section, Treatment, treatment};

use super::refusal::GuardRefusal;
use super::section::lines;

/// Splits a field line into its name and its value, without the white space around the value.
pub(super) fn parse(line: &[u8]) -> Result<(&[u8], &[u8]), GuardRefusal> {
    printable(line)?;
    if line.first().is_some_and(is_space) {
        return Err(GuardRefusal::ObsoleteFold);
    }
    let colon = memchr(b':', line).ok_or(GuardRefusal::ColonMissing)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.last().is_some_and(is_space) {
        return Err(GuardRefusal::SpaceBeforeColon);
    }
    if !is_token(name) {
        return Err(GuardRefusal::FieldName);
    }
    Ok((name, trim(value)))
}

/// Refuses the trailer fields that RFC 9110 6.5.1 forbids and that another reader might act on.
pub(super) fn check_trailers(section: &[u8]) -> Result<(), GuardRefusal> {
    for line in lines(section) {
        let (name, _) = parse(line)?;
        let name = HeaderName::from_bytes(name).map_err(|_| GuardRefusal::FieldName)?;
        if treatment(&name, Section::RequestTrailer) != Treatment::Pass {
            return Err(GuardRefusal::TrailerForbidden);
        }
    }
    Ok(())
}

/// Refuses control bytes other than HTAB (RFC 9110 5.5). Bytes above ASCII are obs-text, which is opaque.
pub(super) fn printable(line: &[u8]) -> Result<(), GuardRefusal> {
    let forbidden = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    // Without an early exit this compiles to a few vector instructions, and almost no line has such a byte.
    if !line.iter().fold(false, |found, byte| found | forbidden(*byte)) {
        return Ok(());
    }
    match line.iter().find(|byte| forbidden(**byte)) {
        Some(b'\r') => Err(GuardRefusal::BareCarriageReturn),
        _ => Err(GuardRefusal::ControlByte),
    }
}

/// Returns true if these bytes are a token (RFC 9110 5.6.2).
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| TOKEN[usize::from(*byte)])
}

/// Returns the bytes without the optional white space around them (RFC 9110 5.6.3).
pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte: u8 = 0;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};
