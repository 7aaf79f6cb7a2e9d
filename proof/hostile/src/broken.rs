//! Relays that make the mistakes which this suite is about. They stand before the gateway or behind it, so that a test can see
//! that each mistake is found.

mod before;
mod behind;

pub(crate) use before::before;
pub(crate) use behind::behind;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A length beside chunks is believed, and the chunks are not.
    PrefersLength,
    /// A request that names a protocol to switch to gets a tunnel to the upstream.
    PassesUpgrades,
    /// Rules are compared with paths before these are decoded.
    DecodesLate,
    /// Requests that change nothing go to the upstream with all that their client says about itself.
    PassesReads,
    /// Trailers become fields of the head.
    MovesTrailers,
    /// A message over HTTP/2 that was reset without an error counts as whole.
    BelievesResets,
    /// One connection to the upstream serves all callers, and is not looked at before it is used again.
    SharesConnection,
    /// A request that got no answer is sent again.
    Repeats,
}

/// Where a relay stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Before,
    Behind,
}

impl Defect {
    /// All of them.
    pub const ALL: [Defect; 8] = [
        Defect::PrefersLength,
        Defect::PassesUpgrades,
        Defect::DecodesLate,
        Defect::PassesReads,
        Defect::MovesTrailers,
        Defect::BelievesResets,
        Defect::SharesConnection,
        Defect::Repeats,
    ];

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Defect::PrefersLength => "prefers-length",
            Defect::PassesUpgrades => "passes-upgrades",
            Defect::DecodesLate => "decodes-late",
            Defect::PassesReads => "passes-reads",
            Defect::MovesTrailers => "moves-trailers",
            Defect::BelievesResets => "believes-resets",
            Defect::SharesConnection => "shares-connection",
            Defect::Repeats => "repeats",
        }
    }

    pub(crate) fn place(self) -> Place {
        match self {
            Defect::SharesConnection | Defect::Repeats => Place::Behind,
            _ => Place::Before,
        }
    }
}
