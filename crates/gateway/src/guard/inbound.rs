//! Follows the requests on one connection: finds the ends of heads and bodies, and refuses invalid ones.
//! Pure: [`Guarded`](super::Guarded) passes the bytes, and holds those that are not yet checked.

use super::body::{Body, Chunked};
use super::head::{self, Head, Length};
use super::refusal::Refusal;
use super::section::Section;

/// First bytes of a client with prior knowledge of HTTP/2 (RFC 9113 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Inbound side of a connection.
#[derive(Debug)]
pub(super) struct Inbound {
    max_head: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before the first request: the HTTP/2 preface may come instead.
    Opening,
    Head(Section),
    Body(Body),
    /// HTTP/2, which hyper checks itself, or the protocol after a 101.
    Opaque,
}

/// Decision on the inspected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No decision yet: the caller passes them again with more bytes.
    Hold,
    /// The first `length` bytes are a whole head and may pass.
    Head { length: usize, head: Head },
    /// This many bytes continue a request or an upgraded connection, and may pass.
    Pass(usize),
}

impl Inbound {
    /// Makes the state of a new connection, whose heads and trailer sections may have this many bytes each.
    pub(super) fn new(max_head: usize) -> Inbound {
        Inbound { max_head, state: State::Opening }
    }

    /// Checks the bytes after those already passed. No call may follow a refusal.
    pub(super) fn inspect(&mut self, bytes: &[u8]) -> Result<Verdict, Refusal> {
        if bytes.is_empty() {
            return Ok(Verdict::Hold);
        }
        match &mut self.state {
            State::Opening if bytes.starts_with(HTTP2_PREFACE) => {
                self.state = State::Opaque;
                Ok(Verdict::Pass(bytes.len()))
            }
            State::Opening if HTTP2_PREFACE.starts_with(bytes) => Ok(Verdict::Hold),
            State::Opening => {
                self.state = self.next_head();
                self.inspect(bytes)
            }
            State::Head(section) => {
                let Some(length) = section.find(bytes)? else { return Ok(Verdict::Hold) };
                let head = head::parse(&bytes[..length])?;
                self.enter(match head.length {
                    Length::Fixed(length) => Body::Fixed(length),
                    Length::Chunked => Body::Chunked(Chunked::strict(self.max_head)),
                });
                Ok(Verdict::Head { length, head })
            }
            State::Body(body) => {
                let taken = body.take(bytes)?;
                if body.is_complete() {
                    self.state = self.next_head();
                }
                Ok(if taken == 0 { Verdict::Hold } else { Verdict::Pass(taken) })
            }
            State::Opaque => Ok(Verdict::Pass(bytes.len())),
        }
    }

    /// Returns true if the next byte starts or continues a head.
    pub(super) fn expects_head(&self) -> bool {
        matches!(self.state, State::Opening | State::Head(_))
    }

    /// Returns true if everything passes unchecked.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.state, State::Opaque)
    }

    /// Lets everything pass from here on, after the protocol was switched.
    pub(super) fn become_opaque(&mut self) {
        self.state = State::Opaque;
    }

    /// Returns the number of bytes ahead that pass unchecked.
    pub(super) fn data_ahead(&self) -> u64 {
        match &self.state {
            State::Opening | State::Head(_) => 0,
            State::Body(body) => body.data_ahead(),
            State::Opaque => u64::MAX,
        }
    }

    fn enter(&mut self, body: Body) {
        self.state = if body.is_complete() { self.next_head() } else { State::Body(body) };
    }

    fn next_head(&self) -> State {
        State::Head(Section::request_head(self.max_head))
    }
}
