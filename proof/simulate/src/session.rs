//! Sessions of the clients, and their open requests.

/// One client with one command.
pub(crate) struct Session {
    pub(crate) asked: usize,
    pub(crate) payload: u32,
    pub(crate) tries: u32,
    /// Remaining repeats of the request after its final answer.
    pub(crate) returns: u32,
    /// True if the client retries until it has its answer.
    pub(crate) persists: bool,
    pub(crate) ended: bool,
}

/// Request without an answer so far.
pub(crate) struct Open {
    pub(crate) session: usize,
    pub(crate) node: usize,
    /// Time of arrival at the node.
    pub(crate) arrived: Option<u64>,
    /// True if the node answered in the moment of arrival, before it could ask the store.
    pub(crate) at_once: bool,
}
