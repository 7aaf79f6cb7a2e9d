//! Links of the nodes, and their cuts.

/// Other end of a node's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Clients,
    Store,
    Provider,
}

impl Peer {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Peer::Clients => "clients",
            Peer::Store => "store",
            Peer::Provider => "provider",
        }
    }
}

/// Cut of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Affected node; `None` for all.
    pub(crate) node: Option<usize>,
    pub(crate) peer: Peer,
    /// True if messages from the node are cut; `inward`: messages to it.
    pub(crate) outward: bool,
    pub(crate) inward: bool,
    /// True if the node gets "connection refused" when it sends.
    pub(crate) refuses: bool,
    pub(crate) until: u64,
}
