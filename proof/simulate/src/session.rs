//! The clients' sessions, and their requests under way.

/// One client with one command.
pub(crate) struct Session {
    pub(crate) asked: usize,
    pub(crate) payload: u32,
    pub(crate) tries: u32,
    /// How often it comes back once it has its answer.
    pub(crate) returns: u32,
    /// Whether it goes on until it has its answer.
    pub(crate) persists: bool,
    pub(crate) ended: bool,
}

/// A request that is under way.
pub(crate) struct Open {
    pub(crate) session: usize,
    pub(crate) node: usize,
    /// When it reached its node.
    pub(crate) arrived: Option<u64>,
    /// Whether it was answered in that moment, before the store could be asked.
    pub(crate) at_once: bool,
}
