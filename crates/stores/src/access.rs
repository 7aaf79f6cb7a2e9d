//! Access of a process to a store that it opens.

/// Access of a process to a store that it opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Read and write. A missing store is created, and an older one is migrated to this version's schema.
    #[default]
    Write,
    /// Read only. Nothing is created, migrated or written: an older or empty store is refused.
    Read,
}
