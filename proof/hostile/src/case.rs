//! A case: its requests, the bytes that carry them, and the expectation of each request.

use std::fmt;

use crate::script::Script;

/// Group of cases: one part of the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// The end of a request: lengths, chunks, folds, pipelines, halves, `Expect`.
    Framing,
    /// Requests to switch protocols, and upstreams that switch.
    Upgrade,
    /// Spellings of a path.
    Path,
    /// Field names and values in a head.
    HeaderName,
    /// Fields after a body.
    Trailer,
    /// Frames.
    Http2,
    /// An upstream that sends more, less or something else than its response.
    Surplus,
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 7] = [
        Group::Framing,
        Group::Upgrade,
        Group::Path,
        Group::HeaderName,
        Group::Trailer,
        Group::Http2,
        Group::Surplus,
    ];

    /// Returns its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Group::Framing => "framing",
            Group::Upgrade => "upgrade",
            Group::Path => "path",
            Group::HeaderName => "header-name",
            Group::Trailer => "trailer",
            Group::Http2 => "http2",
            Group::Surplus => "surplus",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// A caller of the tenant `acme`.
    Alice,
    /// Another caller of the same tenant.
    Bob,
    /// A caller of another tenant, with the name of the first.
    OtherAlice,
    /// A client without credentials.
    Guest,
}

impl Client {
    pub(crate) const ALL: [Client; 4] = [Client::Alice, Client::Bob, Client::OtherAlice, Client::Guest];

    /// Returns tenant and caller; none without credentials.
    pub(crate) fn names(self) -> Option<(&'static str, &'static str)> {
        match self {
            Client::Alice => Some(("acme", "alice")),
            Client::Bob => Some(("acme", "bob")),
            Client::OtherAlice => Some(("globex", "alice")),
            Client::Guest => None,
        }
    }
}

/// Expected fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The upstream answers it.
    Accepted,
    /// The upstream never sees it complete.
    Refused,
    /// Accepted or refused; its response must agree with the upstream's view.
    Either,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Unique name, in its query and in `X-Mark`. A retry has that of its command.
    pub(crate) mark: String,
    /// Client whose credentials it carries.
    pub(crate) client: Client,
    pub(crate) method: String,
    /// Path and query that the upstream must see.
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
    pub(crate) key: Option<String>,
    /// True if it needs a caller and a key.
    pub(crate) is_command: bool,
    /// True if the upstream may see `Upgrade: websocket` in it.
    pub(crate) may_upgrade: bool,
    pub(crate) expectation: Expectation,
    /// Behaviour of the upstream.
    pub(crate) script: Script,
}

/// Condition for sending a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Sent at once.
    Nothing,
    /// Sent after a response, also an interim one; never if that one is final and not 101.
    Response,
}

/// Behaviour of a client after it has sent everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Reads a response for each request, and keeps the connection.
    Keep,
    /// Closes its sending side, and reads to the end.
    HalfClose,
    /// Disconnects.
    Leave,
}

/// A frame. Its stream is relative to the first of its case; `None` is the connection.
#[derive(Clone, Debug)]
pub(crate) struct RawFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: Option<i32>,
    pub(crate) payload: Vec<u8>,
}

/// The bytes of a case.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    /// Bytes, in pieces that are sent one by one.
    Http1 { pieces: Vec<(After, Vec<u8>)>, ending: Ending },
    /// Frames, in steps that are sent one by one. The request of number `n` is on the stream of number `n`.
    Http2 {
        steps: Vec<Vec<RawFrame>>,
        /// Streams without a client that waits.
        abandoned: Vec<usize>,
        ending: Ending,
    },
}

/// One case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Group; `None` for a plain request between the cases.
    pub(crate) group: Option<Group>,
    /// Production of the grammar that it came from.
    pub(crate) what: &'static str,
    /// Requests, in the order of their responses.
    pub(crate) asks: Vec<Ask>,
    /// Requests hidden inside of others, which must never be executed.
    pub(crate) hidden: Vec<Ask>,
    pub(crate) wire: Wire,
}

impl Case {
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.wire, Wire::Http2 { .. })
    }
}
