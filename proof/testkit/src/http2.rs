//! HTTP/2 frame by frame (RFC 9113), for peers that break off where a test says so.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Every error code that RFC 9113 names, from NO_ERROR to HTTP_1_1_REQUIRED.
pub const CODES: std::ops::Range<u32> = 0..14;
/// NO_ERROR.
pub const NO_ERROR: u32 = 0;
/// REFUSED_STREAM: the sender did nothing with the stream.
pub const REFUSED_STREAM: u32 = 7;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// Largest frame that a peer sends: these peers leave the setting alone.
const MAX_FRAME: usize = 16 * 1024;

/// A received frame.
#[derive(Clone, Debug)]
pub struct Frame {
    kind: u8,
    flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// Returns true if it ends the message of its stream.
    pub fn ends_message(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Returns true for a head, or trailers.
    pub fn is_headers(&self) -> bool {
        self.kind == HEADERS
    }

    /// Returns the bytes of a body that it carries.
    pub fn data(&self) -> &[u8] {
        if self.kind == DATA { &self.payload } else { &[] }
    }

    /// Returns the code with which it resets its stream.
    pub fn reset_code(&self) -> Option<u32> {
        let code = (self.kind == RST_STREAM).then(|| self.payload.first_chunk::<4>()).flatten()?;
        Some(u32::from_be_bytes(*code))
    }

    /// Returns true if its sender accepts no more streams on this connection.
    pub fn is_go_away(&self) -> bool {
        self.kind == GOAWAY
    }

    /// Returns true for the answer to a ping.
    pub fn is_pong(&self) -> bool {
        self.kind == PING && self.flags & ACK != 0
    }
}

/// Returns a frame of any kind, valid or not.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= MAX_FRAME, "tests send small frames");
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a head or trailers. `ends` sets END_STREAM.
pub fn headers(stream: u32, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // RFC 7541, section 6.2.2: a literal that is not indexed, with its name beside it.
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
    frame(HEADERS, flags, stream, &block)
}

/// Appends an integer with a prefix of seven bits (RFC 7541, section 5.1).
fn push_length(block: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ ..127) => block.push(short),
        _ => {
            let mut rest = length - 127;
            block.push(127);
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
}

/// Returns bytes of a body. `ends` sets END_STREAM.
pub fn data(stream: u32, bytes: &[u8], ends: bool) -> Vec<u8> {
    frame(DATA, if ends { END_STREAM } else { 0 }, stream, bytes)
}

/// Returns a reset of one stream.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// Returns the end of a connection, on which streams up to `last` were handled.
pub fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// Returns settings that allow the other side at most `bytes` of each body.
pub fn small_window(bytes: u32) -> Vec<u8> {
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let payload = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &bytes.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &payload)
}

/// One end of a connection.
pub struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// Returns a client of the server at this address.
    pub async fn connect(address: SocketAddr) -> Peer {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        // Frames leave as they are sent, and do not wait for more.
        stream.set_nodelay(true).expect("it is connected");
        let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&opening).await.expect("it is sent");
        Peer { stream }
    }

    /// Returns the server of an accepted connection; `None` if the input is not HTTP/2.
    pub async fn accept(mut stream: TcpStream) -> Option<Peer> {
        stream.set_nodelay(true).ok()?;
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await.ok().filter(|_| preface == PREFACE)?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.ok()?;
        Some(Peer { stream })
    }

    /// Sends frames in one piece. Arrival is not checked.
    pub async fn send(&mut self, frames: &[u8]) {
        let _ = self.stream.write_all(frames).await;
    }

    /// Returns the next frame; `None` at the end of the connection. Settings and pings are answered on the
    /// way.
    pub async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        assert!(length <= MAX_FRAME, "a frame of {length} bytes");
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.ok()?;
        match (kind, flags & ACK) {
            (SETTINGS, 0) => self.send(&frame(SETTINGS, ACK, 0, &[])).await,
            (PING, 0) => self.send(&frame(PING, ACK, 0, &payload)).await,
            _ => {}
        }
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff, payload })
    }

    /// Ends the sending direction; the other one can still be read.
    pub async fn half_close(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Ends the connection in good order: everything sent arrives, which a reset of the socket could undo.
    pub async fn finish(mut self) {
        let _ = self.stream.shutdown().await;
        while self.next().await.is_some() {}
    }

    /// Waits until the other side has read everything sent to it, or has ended the connection.
    pub async fn settle(&mut self) {
        self.send(&frame(PING, 0, 0, &[7; 8])).await;
        while let Some(frame) = self.next().await {
            if frame.is_pong() {
                return;
            }
        }
    }

    /// Reads to the end of a stream. Returns true if its message was ended, and not reset.
    pub async fn ends(&mut self, stream: u32) -> bool {
        while let Some(frame) = self.next().await {
            if frame.stream == stream && frame.ends_message() {
                return true;
            }
            if frame.stream == stream && frame.reset_code().is_some() {
                return false;
            }
        }
        false
    }
}
