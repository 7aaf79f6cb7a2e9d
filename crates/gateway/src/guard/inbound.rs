//! Follows the requests on one connection: finds the ends of heads and bodies, and refuses invalid ones.
//! Pure: [`Guarded`](super::Guarded) passes the bytes, and holds those that are not yet checked.

use super::body::{Chunked, FramedBody};
use super::head::{self, AcceptedHead, Length};
use super::refusal::GuardRefusal;
use super::section::SectionSearch;

/// First bytes of a client with prior knowledge of HTTP/2 (RFC 9113 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Inbound side of a connection.
#[derive(Debug)]
pub(super) struct Inbound {
    max_head: usize,
    state: InboundState,
}

#[derive(Debug)]
enum InboundState {
    /// Before the first request: the HTTP/2 preface may come instead.
    Opening,
    Head(SectionSearch),
    Body(FramedBody),
    /// HTTP/2, which hyper checks itself, or the protocol after a 101.
    Opaque,
}

/// Decision on the inspected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboundDecision {
    /// No decision yet: the caller passes them again with more bytes.
    Hold,
    /// The first `length` bytes are a whole head and may pass.
    Head { length: usize, head: AcceptedHead },
    /// This many bytes continue a request or an upgraded connection, and may pass.
    Pass(usize),
}

impl Inbound {
    /// Makes the state of a new connection, whose heads and trailer sections may have this many bytes each.
    pub(super) fn new(max_head: usize) -> Inbound {
        Inbound { max_head, state: InboundState::Opening }
    }

    /// Checks the bytes after those already passed. No call may follow a refusal.
    pub(super) fn inspect(&mut self, bytes: &[u8]) -> Result<InboundDecision, GuardRefusal> {
        if bytes.is_empty() {
            return Ok(InboundDecision::Hold);
        }
        match &mut self.state {
            InboundState::Opening if bytes.starts_with(HTTP2_PREFACE) => {
                self.state = InboundState::Opaque;
                Ok(InboundDecision::Pass(bytes.len()))
            }
            InboundState::Opening if HTTP2_PREFACE.starts_with(bytes) => Ok(InboundDecision::Hold),
            InboundState::Opening => {
                self.state = self.next_head();
                self.inspect(bytes)
            }
            InboundState::Head(section) => {
                let Some(length) = section.find(bytes)? else { return Ok(InboundDecision::Hold) };
                let head = head::parse(&bytes[..length])?;
                self.enter(match head.length {
                    Length::Fixed(length) => FramedBody::Fixed(length),
                    Length::Chunked => FramedBody::Chunked(Chunked::strict(self.max_head)),
                });
                Ok(InboundDecision::Head { length, head })
            }
            InboundState::Body(body) => {
                let taken = body.take(bytes)?;
                if body.is_complete() {
                    self.state = self.next_head();
                }
                Ok(if taken == 0 { InboundDecision::Hold } else { InboundDecision::Pass(taken) })
            }
            InboundState::Opaque => Ok(InboundDecision::Pass(bytes.len())),
        }
    }

    /// Returns true if the next byte starts or continues a head.
    pub(super) fn expects_head(&self) -> bool {
        matches!(self.state, InboundState::Opening | InboundState::Head(_))
    }

    /// Returns true if everything passes unchecked.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.state, InboundState::Opaque)
    }

    /// Lets everything pass from here on, after the protocol was switched.
    pub(super) fn become_opaque(&mut self) {
        self.state = InboundState::Opaque;
    }

    /// Returns the number of bytes ahead that pass unchecked.
    pub(super) fn data_ahead(&self) -> u64 {
        match &self.state {
            InboundState::Opening | InboundState::Head(_) => 0,
            InboundState::Body(body) => body.data_ahead(),
            InboundState::Opaque => u64::MAX,
        }
    }

    fn enter(&mut self, body: FramedBody) {
        self.state = if body.is_complete() { self.next_head() } else { InboundState::Body(body) };
    }

    fn next_head(&self) -> InboundState {
        InboundState::Head(SectionSearch::request_head(self.max_head))
    }
}
