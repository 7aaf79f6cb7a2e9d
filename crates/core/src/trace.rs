//! Distributed traces: the position of a request in a trace, in the form of W3C Trace Context, and the tracer that takes
//! finished spans. A record keeps the position of the request that claimed it first, so that later spans can link to it.
//!
//! Invariant: only well-formed values exist; an unreadable header is no trace.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::time::Timestamp;

/// A span of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    sampled: bool,
}

impl TraceContext {
    /// Returns this span; `None` if an id is zero, which no span has.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) -> Option<TraceContext> {
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(TraceContext { trace_id, span_id, sampled })
    }

    /// Parses a `traceparent` header; `None` if it is not one. A later version than `00` may have more after the flags.
    pub fn parse(text: &str) -> Option<TraceContext> {
        let mut parts = text.split('-');
        let [version, trace_id, span_id, flags] =
            [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let [version] = hex::<1>(version)?;
        let has_more = parts.next().is_some();
        if version == 0xff || (version == 0 && has_more) {
            return None;
        }
        let [flags] = hex::<1>(flags)?;
        TraceContext::new(hex(trace_id)?, hex(span_id)?, flags & 1 == 1)
    }

    /// Returns the id of the trace.
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// Returns the id of the span.
    pub const fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// Returns true if the trace is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Returns the id of the trace in hexadecimal digits, for logs and people.
    pub fn trace_id_text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace_id))
    }
}

impl fmt::Display for TraceContext {
    /// Writes the `traceparent` header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(self.sampled))
    }
}

/// Makes spans and takes finished ones. Without a tracer, nothing is traced.
///
/// Both methods are called on the path of requests: they must not block.
pub trait Tracer: Send + Sync + 'static {
    /// Returns the position of a new span: in the trace of its parent, with the parent's sampling decision, or in a new trace.
    fn begin(&self, parent: Option<TraceContext>) -> TraceContext;

    /// Takes a finished span, and drops it if it is not sampled, or if too many wait.
    fn end(&self, span: Span);
}

/// Role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanRole {
    /// Answers a request.
    Server,
    /// Waits for the answer of another service.
    Client,
    /// Works without a request, such as a look-up of evidence.
    Internal,
}

/// Value of an attribute of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// Text.
    Text(Cow<'static, str>),
    /// Number.
    Int(i64),
}

/// A finished span. It has no key, no body and no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the span.
    pub context: TraceContext,
    /// Position of its parent, if it has one.
    pub parent: Option<TraceContext>,
    /// Name of the span: the operation, or the work.
    pub name: Cow<'static, str>,
    /// Role of the span.
    pub role: SpanRole,
    /// Beginning of the span.
    pub begun_at: Timestamp,
    /// Time after `begun_at` at which the span began, for a child that began within the same millisecond.
    pub offset: Duration,
    /// Length of the span.
    pub length: Duration,
    /// Attributes of the span.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Spans that this one refers to, such as the first attempt of a replayed command.
    pub links: Vec<TraceContext>,
    /// Problem code, if the span ended with an error.
    pub error: Option<&'static str>,
}

/// Returns the bytes of lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_parent_is_read_and_written() {
        let read = TraceContext::parse(PARENT).expect("it is one");
        assert_eq!(read.to_string(), PARENT);
        assert!(read.is_sampled());
        assert_eq!(read.trace_id_text(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(read.span_id(), [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 2, 0xb7]);
        let unsampled = TraceContext::parse(&PARENT.replace("-01", "-02")).expect("it is one");
        assert!(!unsampled.is_sampled(), "only the lowest bit counts");
        let later = format!("{}-more", PARENT.replacen("00", "cc", 1));
        assert_eq!(TraceContext::parse(&later), Some(read), "a later version may say more");
    }

    #[test]
    fn a_malformed_trace_parent_is_no_trace() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text:?}");
        }
    }
}
