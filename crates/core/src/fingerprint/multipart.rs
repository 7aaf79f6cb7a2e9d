//! Multipart bodies by their parts (RFC 2046, section 5.1): only the boundary may differ.
//!
//! Invariant: a body that two readers may divide differently has no canonical form. It is read once, from
//! front to back.

use memchr::memmem;
use sha2::{Digest, Sha256};

use super::append;
use super::content_type::{ContentType, is_token};

/// Maximum number of parts; a body with more is compared byte by byte.
const MAX_PARTS: usize = 1024;

/// Returns each part with all its field lines as sent and a digest of its content. `None` in any doubt.
pub(super) fn canonical(body: &[u8], boundary: &str) -> Option<Vec<u8>> {
    let delimiter = [b"--", boundary.as_bytes()].concat();
    let mut places = memmem::find_iter(body, &delimiter);
    // Nothing comes before the first delimiter.
    if places.next()? != 0 {
        return None;
    }
    let mut text = Vec::new();
    let mut begin = delimiter.len();
    for count in 1.. {
        // A part begins on the line after its delimiter, and ends with the line end before the next one.
        let rest = body.get(begin..)?.strip_prefix(b"\r\n")?;
        let end = places.next()?.checked_sub(begin + 2)?;
        let part = rest.get(..end)?.strip_suffix(b"\r\n")?;
        if count > MAX_PARTS {
            return None;
        }
        append_part(&mut text, part)?;
        begin += 2 + end + delimiter.len();
        if let Some(after) = body.get(begin..)?.strip_prefix(b"--") {
            // One line end may follow the last delimiter, and it counts.
            let ended = matches!(after, b"" | b"\r\n") && places.next().is_none();
            text.push(u8::from(!after.is_empty()));
            return ended.then_some(text);
        }
    }
    None
}

fn append_part(text: &mut Vec<u8>, part: &[u8]) -> Option<()> {
    let (fields, content) = match part.strip_prefix(b"\r\n") {
        Some(content) => (&b""[..], content),
        None => {
            let end = memmem::find(part, b"\r\n\r\n")?;
            (&part[..end], &part[end + 4..])
        }
    };
    let lines = split_lines(fields);
    if !lines.iter().all(|line| is_field(line)) || is_doubtful(&lines) {
        return None;
    }
    append(text, &(lines.len() as u64).to_be_bytes());
    lines.iter().for_each(|line| append(text, line));
    append(text, &Sha256::digest(content));
    Some(())
}

/// Returns the lines of a section. A line end that is not CRLF stays in its line, which is no field then.
fn split_lines(section: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = section;
    while !rest.is_empty() {
        let end = memmem::find(rest, b"\r\n").unwrap_or(rest.len());
        lines.push(&rest[..end]);
        rest = rest.get(end + 2..).unwrap_or_default();
    }
    lines
}

/// Returns true for a name, a colon, and a value without control characters.
fn is_field(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let (name, value) = line.split_at(colon);
    str::from_utf8(name).is_ok_and(is_token)
        && value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control())
}

/// Returns true if a part may have parts of its own, or has several content types.
fn is_doubtful(lines: &[&[u8]]) -> bool {
    let value = |line: &&[u8]| -> Option<Vec<u8>> {
        let colon = memchr::memchr(b':', line)?;
        line[..colon].eq_ignore_ascii_case(b"content-type").then(|| line[colon + 1..].trim_ascii().to_vec())
    };
    let types: Vec<Vec<u8>> = lines.iter().filter_map(value).collect();
    let nests = |value: &Vec<u8>| match ContentType::parse(value) {
        Some(read) => read.is_multipart() || read.is_message(),
        None => true,
    };
    types.len() > 1 || types.iter().any(nests)
}
