//! Caller at the admin listener, and the reasons for which one is unknown.

use semel_settings::Role;

/// Caller at the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Name in logs and notes.
    pub(crate) who: String,
    pub(crate) role: Role,
}

/// Reason for which the caller is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownCaller {
    /// The request has no credential.
    Missing,
    /// The request has a wrong token or another credential.
    Wrong,
    /// The headers of a trusted proxy do not name one user.
    Unnamed,
    /// A trusted proxy names a user who has no role.
    NoRole,
}

impl UnknownCaller {
    /// Returns the reason for the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            UnknownCaller::Missing => "missing",
            UnknownCaller::Wrong => "wrong",
            UnknownCaller::Unnamed => "name",
            UnknownCaller::NoRole => "role",
        }
    }
}
