//! Follows the gateway's own responses, so that the guard knows when one ends and when one switches
//! protocols. It follows the framing, because a body that looks like a 101 must not open the connection.

use super::body::{Chunked, FramedBody};
use super::field;
use super::head::content_length;
use super::section::{SectionSearch, lines};

/// Outbound side of a connection.
#[derive(Debug)]
pub(super) struct Outbound {
    state: OutboundState,
    /// Bytes of an incomplete head or chunk line: already written, not yet understood.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum OutboundState {
    /// No request waits for an answer.
    Idle,
    /// A response head is next, possibly an interim one.
    Head {
        section: SectionSearch,
        to_head: bool,
    },
    Body(FramedBody),
    Switched,
}

/// Response that cannot be followed. hyper writes none; the guard would not know what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the framing of a response could not be followed")]
pub(super) struct Lost;

impl Outbound {
    pub(super) fn new() -> Outbound {
        Outbound { state: OutboundState::Idle, partial: Vec::new() }
    }

    /// Records that a request has passed: a response is due, without a body if the request was a `HEAD`.
    pub(super) fn expect_response(&mut self, to_head: bool) {
        self.state = OutboundState::Head { section: SectionSearch::trusted(), to_head };
    }

    /// Returns true if no response is due.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, OutboundState::Idle)
    }

    /// Returns true if a response is due and no byte of it has been written.
    pub(super) fn is_untouched(&self) -> bool {
        matches!(self.state, OutboundState::Head { .. }) && self.partial.is_empty()
    }

    /// Returns true if the due response answers a `HEAD`.
    pub(super) fn answers_head(&self) -> bool {
        matches!(self.state, OutboundState::Head { to_head: true, .. })
    }

    /// Returns true if the last response was a 101.
    pub(super) fn has_switched(&self) -> bool {
        matches!(self.state, OutboundState::Switched)
    }

    /// Follows written bytes.
    pub(super) fn wrote(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        if self.partial.is_empty() {
            let taken = self.follow(bytes)?;
            self.partial.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes);
        let taken = self.follow(&partial)?;
        partial.drain(..taken);
        self.partial = partial;
        Ok(())
    }

    /// Returns how many of these bytes are understood.
    fn follow(&mut self, bytes: &[u8]) -> Result<usize, Lost> {
        let mut taken = 0;
        while taken < bytes.len() {
            match self.step(&bytes[taken..])? {
                0 => break,
                length => taken += length,
            }
        }
        Ok(taken)
    }

    fn step(&mut self, bytes: &[u8]) -> Result<usize, Lost> {
        match &mut self.state {
            OutboundState::Idle => Err(Lost),
            OutboundState::Head { section, to_head } => {
                let Some(length) = section.find(bytes).map_err(|_| Lost)? else { return Ok(0) };
                self.state = after_head(&bytes[..length], *to_head)?;
                Ok(length)
            }
            OutboundState::Body(body) => {
                let taken = body.take(bytes).map_err(|_| Lost)?;
                if body.is_complete() {
                    self.state = OutboundState::Idle;
                }
                Ok(taken)
            }
            OutboundState::Switched => Ok(bytes.len()),
        }
    }
}

/// Returns the state after a response head (RFC 9112 6.3).
fn after_head(head: &[u8], to_head: bool) -> Result<OutboundState, Lost> {
    let mut lines = lines(head);
    let status = lines.next().and_then(|line| line.get(9..12)).ok_or(Lost)?;
    match status {
        b"101" => return Ok(OutboundState::Switched),
        [b'1', _, _] => return Ok(OutboundState::Head { section: SectionSearch::trusted(), to_head }),
        b"204" | b"304" => return Ok(OutboundState::Idle),
        _ if to_head => return Ok(OutboundState::Idle),
        _ => {}
    }
    let mut body = FramedBody::Endless;
    for line in lines {
        if value_of(b"transfer-encoding", line).is_some() {
            body = FramedBody::Chunked(Chunked::trusted());
            break;
        }
        if let Some(value) = value_of(b"content-length", line) {
            body = FramedBody::Fixed(content_length(value).map_err(|_| Lost)?);
        }
    }
    Ok(if body.is_complete() { OutboundState::Idle } else { OutboundState::Body(body) })
}

/// Returns the value of a field line of this name. The gateway has written it, so the value needs no check.
fn value_of<'a>(name: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    start.eq_ignore_ascii_case(name).then(|| field::trim(value))
}
