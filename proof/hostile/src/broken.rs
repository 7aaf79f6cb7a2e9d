//! Relays with the mistakes that this suite must find. They stand before the gateway or behind it, so that a test can
//! see that each mistake is found.

mod before;
mod behind;

pub(crate) use before::before;
pub(crate) use behind::behind;

/// A mistake of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Relay that believes a length beside chunks, and ignores the chunks.
    PrefersLength,
    /// Relay that opens a tunnel to the upstream for a request that names a protocol to switch to.
    PassesUpgrades,
    /// Relay that compares rules with paths before these are decoded.
    DecodesLate,
    /// Relay that forwards reads with all identity fields of their client.
    PassesReads,
    /// Relay that turns trailers into fields of the head.
    MovesTrailers,
    /// Relay that takes an HTTP/2 message that was reset without an error for complete.
    BelievesResets,
    /// Relay that shares one connection to the upstream among all callers, and does not check it before reuse.
    SharesConnection,
    /// Relay that resends a request that got no response.
    Repeats,
}

/// Position of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Before,
    Behind,
}

impl Defect {
    /// All mistakes.
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

    /// Returns its name on the command line.
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
