//! Second reader of HTTP/1 (RFC 9112), which refuses every ambiguous message.

use std::fmt;

/// A message as it was received.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Three parts of its first line.
    pub start: [Vec<u8>; 3],
    /// Field lines: the name in lower case, the value without surrounding blanks.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Body, without its chunks.
    pub body: Vec<u8>,
    /// Field lines after a chunked body, in the form of `fields`.
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Length of the message in bytes.
    pub length: usize,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.start.join(&b' ').escape_ascii())?;
        for (name, value) in &self.fields {
            write!(f, " | {}: {}", name.escape_ascii(), value.escape_ascii())?;
        }
        write!(f, " | {:?}", self.body.escape_ascii().to_string())
    }
}

/// Result of reading the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// A complete message.
    Whole(Message),
    /// The beginning of a message.
    Part,
    /// No message, or an ambiguous one.
    Not,
}

/// Kind of a message, which delimits its body.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A request: without a length, it has no body.
    Request,
    /// A response, which has no body if it answers `HEAD`.
    Response {
        /// True if it answers `HEAD`.
        to_head: bool,
    },
}

impl Message {
    /// Returns the values of all field lines of this name.
    pub fn values(&self, name: &str) -> Vec<&[u8]> {
        let of_name = |field: &&(Vec<u8>, Vec<u8>)| field.0 == name.as_bytes();
        self.fields.iter().filter(of_name).map(|(_, value)| value.as_slice()).collect()
    }

    /// Returns the status of a response.
    pub fn status(&self) -> u16 {
        str::from_utf8(&self.start[1]).ok().and_then(|status| status.parse().ok()).unwrap_or(0)
    }
}

/// Reads the first message.
pub fn read(bytes: &[u8], kind: Kind) -> Read {
    // RFC 9112, section 2.2: an empty line before a request is overlooked.
    let skipped = match (kind, bytes) {
        (Kind::Request, [b'\r', b'\n', ..]) => 2,
        _ => 0,
    };
    let Some(end) = find(&bytes[skipped..], b"\r\n\r\n") else {
        return if is_beginning(&bytes[skipped..]) { Read::Part } else { Read::Not };
    };
    let head = &bytes[skipped..skipped + end + 2];
    let Some((start, fields)) = read_head(head) else { return Read::Not };
    let body_at = skipped + end + 4;
    let mut message = Message { start, fields, body: Vec::new(), trailers: Vec::new(), length: body_at };
    let rest = &bytes[body_at..];
    match framing(&message, kind) {
        None => Read::Not,
        Some(Framing::Length(length)) => match rest.get(..length) {
            None => Read::Part,
            Some(body) => {
                message.body = body.to_vec();
                message.length += length;
                Read::Whole(message)
            }
        },
        Some(Framing::Chunks) => match chunks(rest) {
            Chunks::Whole { body, trailers, length } => {
                message.body = body;
                message.trailers = trailers;
                message.length += length;
                Read::Whole(message)
            }
            Chunks::Part => Read::Part,
            Chunks::Not => Read::Not,
        },
    }
}

enum Framing {
    Length(usize),
    Chunks,
}

fn framing(message: &Message, kind: Kind) -> Option<Framing> {
    let without_body = match kind {
        Kind::Request => false,
        Kind::Response { to_head } => to_head || matches!(message.status(), 100..=199 | 204 | 304),
    };
    if without_body {
        return Some(Framing::Length(0));
    }
    let (lengths, codings) = (message.values("content-length"), message.values("transfer-encoding"));
    match (&lengths[..], &codings[..]) {
        ([], []) => match kind {
            Kind::Request => Some(Framing::Length(0)),
            // Its body would extend to the end of the connection, whose truncation cannot be seen.
            Kind::Response { .. } => None,
        },
        ([length], []) if length.len() < 10 && length.iter().all(u8::is_ascii_digit) => {
            str::from_utf8(length).ok()?.parse().ok().map(Framing::Length)
        }
        // Longer than any input: the message is incomplete.
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            Some(Framing::Length(usize::MAX >> 1))
        }
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") && message.start[2] != b"HTTP/1.0" => {
            Some(Framing::Chunks)
        }
        _ => None,
    }
}

enum Chunks {
    Whole { body: Vec<u8>, trailers: Vec<(Vec<u8>, Vec<u8>)>, length: usize },
    Part,
    Not,
}

fn chunks(bytes: &[u8]) -> Chunks {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(end) = find(&bytes[at..], b"\r\n") else { return Chunks::Part };
        let line = &bytes[at..at + end];
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let extension = trim(&line[digits..]);
        let is_line =
            !line.iter().any(|byte| is_control(*byte)) && (extension.is_empty() || extension[0] == b';');
        let size = str::from_utf8(&line[..digits]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let (Some(size), true) = (size, is_line) else { return Chunks::Not };
        at += end + 2;
        if size == 0 {
            break;
        }
        let Some(data) = at.checked_add(size).and_then(|end| bytes.get(at..end)) else { return Chunks::Part };
        body.extend_from_slice(data);
        at += size;
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(_) => return Chunks::Not,
            None => return Chunks::Part,
        }
    }
    let mut trailers = Vec::new();
    loop {
        let Some(end) = find(&bytes[at..], b"\r\n") else { return Chunks::Part };
        let line = &bytes[at..at + end];
        at += end + 2;
        if line.is_empty() {
            return Chunks::Whole { body, trailers, length: at };
        }
        match field(line) {
            Some(field) if !matches!(&field.0[..], b"content-length" | b"transfer-encoding" | b"host") => {
                trailers.push(field);
            }
            Some(_) | None => return Chunks::Not,
        }
    }
}

type Head = ([Vec<u8>; 3], Vec<(Vec<u8>, Vec<u8>)>);

fn read_head(head: &[u8]) -> Option<Head> {
    let mut lines = Vec::new();
    let mut rest = head;
    while let Some(end) = find(rest, b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    let (first, lines) = lines.split_first()?;
    if first.iter().any(|byte| is_control(*byte)) {
        return None;
    }
    let parts: Vec<&[u8]> = first.splitn(3, |byte| *byte == b' ').collect();
    let start: [Vec<u8>; 3] = match parts[..] {
        [one, two, three] if !one.is_empty() && !two.is_empty() => [one.into(), two.into(), three.into()],
        _ => return None,
    };
    let fields = lines.iter().map(|line| field(line)).collect::<Option<Vec<_>>>()?;
    Some((start, fields))
}

fn field(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_field =
        !name.is_empty() && name.iter().all(is_token) && !value.iter().any(|byte| is_control(*byte));
    is_field.then(|| (name.to_ascii_lowercase(), trim(value).to_vec()))
}

/// Returns true if the bytes can begin a message: those with a bare line feed or a control character cannot.
fn is_beginning(bytes: &[u8]) -> bool {
    let alone = |at: usize| bytes[at] == b'\n' && (at == 0 || bytes[at - 1] != b'\r');
    !(0..bytes.len()).any(alone)
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| b" \t".contains(byte);
    let start = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
