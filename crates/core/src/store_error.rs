//! The error of a store call.

/// Reason why a store call failed. Each kind tells the caller what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written. Retry later; run nothing now.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another transaction holds this record, and nothing was written. Retry later; other records are not
    /// affected.
    #[error("another transaction holds the record: {0}")]
    Busy(String),
    /// The write may or may not have been made, and the store could not find out. Send the same call again.
    #[error("the store cannot tell whether it wrote: {0}")]
    Ambiguous(String),
    /// This record cannot be written. A retry does not help.
    #[error("the store cannot take this record: {0}")]
    Rejected(String),
    /// This record's stored data is corrupt. Other records are not affected.
    #[error("a record is damaged: {0}")]
    Corrupt(String),
    /// The store as a whole cannot be trusted. Nothing was written; run nothing, and call an operator.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

impl StoreError {
    /// Returns the name of the error's kind in logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            StoreError::Unavailable(_) => "unavailable",
            StoreError::Busy(_) => "busy",
            StoreError::Ambiguous(_) => "ambiguous",
            StoreError::Rejected(_) => "rejected",
            StoreError::Corrupt(_) => "corrupt",
            StoreError::Damaged(_) => "damaged",
        }
    }
}
