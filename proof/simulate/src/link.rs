//! The links of the nodes, and those that are cut.

/// The other end of a node's links.
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

/// A link that is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Of this node, or of all.
    pub(crate) node: Option<usize>,
    pub(crate) peer: Peer,
    /// Away from the node, and towards it.
    pub(crate) outward: bool,
    pub(crate) inward: bool,
    /// Whether a node is told so when it tries.
    pub(crate) refuses: bool,
    pub(crate) until: u64,
}
