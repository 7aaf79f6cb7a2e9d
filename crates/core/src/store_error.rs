//! The error of a store call: what the caller must do.

/// Why a store did not answer. The kinds say what the caller must do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written. Try later; run nothing now.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another transaction holds this one record, and nothing was written. Try later; other records are not affected.
    #[error("another transaction holds the record: {0}")]
    Busy(String),
    /// It may or may not have been written, and the store could not find out. Send the same again.
    #[error("the store cannot tell whether it wrote: {0}")]
    Ambiguous(String),
    /// This one record cannot be written, however often it is tried.
    #[error("the store cannot take this record: {0}")]
    Rejected(String),
    /// This one record is not what was ever written. The others are as good as before.
    #[error("a record is damaged: {0}")]
    Corrupt(String),
    /// The store as a whole cannot be trusted. Nothing was written; run nothing, and call an operator.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}
