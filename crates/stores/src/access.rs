//! What a process may do with a store that it opens.

/// What a process may do with a store that it opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes. A store that is not there is made, and an older one is brought to this version's schema.
    #[default]
    Write,
    /// Reads only. Nothing is made, migrated or written: an older or empty store is refused.
    Read,
}
