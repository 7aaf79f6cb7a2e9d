//! Frames of HTTP/2 (RFC 9113), for senders that break its rules.

use crate::case::RawFrame;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

/// Identifier of SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Maximum payload of a frame under default settings.
const MAX_FRAME: usize = 16 * 1024;

/// Encodes a field section (RFC 7541, section 6.2.2): literals without indexing, with literal names.
pub(crate) fn block(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// Writes an integer with a prefix of seven bits (RFC 7541, section 5.1).
fn push_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        block.push(length as u8);
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}

/// Makes a frame on a stream of the case.
pub(crate) fn on(stream: i32, kind: u8, flags: u8, payload: &[u8]) -> RawFrame {
    RawFrame { kind, flags, stream: Some(stream), payload: payload.to_vec() }
}

/// Makes a frame of the connection.
pub(crate) fn of_connection(kind: u8, flags: u8, payload: &[u8]) -> RawFrame {
    RawFrame { kind, flags, stream: None, payload: payload.to_vec() }
}

/// Makes a head or trailers, in one frame.
pub(crate) fn head(stream: i32, fields: &[(Vec<u8>, Vec<u8>)], ends: bool) -> RawFrame {
    let block = block(fields);
    assert!(block.len() <= MAX_FRAME, "cases have small heads");
    on(stream, HEADERS, END_HEADERS | if ends { END_STREAM } else { 0 }, &block)
}

/// Makes a DATA frame.
pub(crate) fn data(stream: i32, bytes: &[u8], ends: bool) -> RawFrame {
    on(stream, DATA, if ends { END_STREAM } else { 0 }, bytes)
}

/// Makes a reset of a stream with this code.
pub(crate) fn reset(stream: i32, code: u32) -> RawFrame {
    on(stream, RST_STREAM, 0, &code.to_be_bytes())
}

/// Makes SETTINGS with another initial window.
pub(crate) fn initial_window(bytes: u32) -> RawFrame {
    let payload = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &bytes.to_be_bytes()].concat();
    of_connection(SETTINGS, 0, &payload)
}

/// Makes a WINDOW_UPDATE for a stream, or for the connection.
pub(crate) fn window_update(stream: Option<i32>, bytes: u32) -> RawFrame {
    RawFrame { kind: WINDOW_UPDATE, flags: 0, stream, payload: bytes.to_be_bytes().to_vec() }
}
