//! The results of reading an answer after its timeout, as metrics name them.

/// The result of reading an answer after its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The answer settled the record.
    Settled,
    /// The answer was fenced: the record is settled by now.
    Fenced,
    /// The answer leaves the outcome unknown.
    StillUnknown,
    /// The answer could not be stored yet.
    NotStored,
    /// There was no answer.
    Silent,
}

impl Late {
    /// Every result.
    pub(super) const ALL: [Late; 5] =
        [Late::Settled, Late::Fenced, Late::StillUnknown, Late::NotStored, Late::Silent];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Late::Settled => "settled",
            Late::Fenced => "fenced",
            Late::StillUnknown => "unknown",
            Late::NotStored => "store_error",
            Late::Silent => "none",
        }
    }
}
