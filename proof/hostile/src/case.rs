//! A case: the requests in it, the bytes that carry them, and what must become of each request.

use std::fmt;

use crate::script::Script;

/// A part of the grammar.
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
    /// An upstream that says more, less or something else than its response.
    Surplus,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 7] = [
        Group::Framing,
        Group::Upgrade,
        Group::Path,
        Group::HeaderName,
        Group::Trailer,
        Group::Http2,
        Group::Surplus,
    ];

    /// Its name on the command line.
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

    /// Tenant and caller; none without credentials.
    pub(crate) fn names(self) -> Option<(&'static str, &'static str)> {
        match self {
            Client::Alice => Some(("acme", "alice")),
            Client::Bob => Some(("acme", "bob")),
            Client::OtherAlice => Some(("globex", "alice")),
            Client::Guest => None,
        }
    }
}

/// What must become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The upstream answers it.
    Accepted,
    /// The upstream never sees it whole.
    Refused,
    /// Either; what it is answered must agree with what the upstream saw.
    Either,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Its unique name, in its query and in `X-Mark`. A retry has that of its command.
    pub(crate) mark: String,
    /// The client whose credentials it carries.
    pub(crate) client: Client,
    pub(crate) method: String,
    /// The path and query that the upstream must see.
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
    pub(crate) key: Option<String>,
    /// Whether it needs a caller and a key.
    pub(crate) is_command: bool,
    /// Whether the upstream may see `Upgrade: websocket` in it.
    pub(crate) may_upgrade: bool,
    pub(crate) expectation: Expectation,
    /// How the upstream answers it.
    pub(crate) script: Script,
}

/// When a piece is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// At once.
    Nothing,
    /// After a response, interim ones included; not at all if that one is final and no 101.
    Response,
}

/// What a client does once it has sent everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It reads an answer for each request, and keeps the connection.
    Keep,
    /// It says that nothing more comes, and reads to the end.
    HalfClose,
    /// It leaves.
    Leave,
}

/// A frame, whose stream is counted from the first of its case; none is the connection.
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
        /// Streams that the client does not wait for.
        abandoned: Vec<usize>,
        ending: Ending,
    },
}

/// One case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// None for a plain request between the cases.
    pub(crate) group: Option<Group>,
    /// The production of the grammar that it came from.
    pub(crate) what: &'static str,
    /// Requests, in the order of their answers.
    pub(crate) asks: Vec<Ask>,
    /// Requests inside of others, which are none.
    pub(crate) hidden: Vec<Ask>,
    pub(crate) wire: Wire,
}

impl Case {
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.wire, Wire::Http2 { .. })
    }
}
