//! The meaning of PostgreSQL's errors for a caller: what was written, and what to do next.

use semel_core::StoreError;

/// Reason why a statement has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DbError {
    /// The database refused, and has written nothing. A retry may succeed: another transaction came first.
    #[error("{0}")]
    Conflict(String),
    /// Another transaction held a lock for longer than this statement waits. Nothing was written.
    #[error("{0}")]
    Busy(String),
    /// The database refused, and has written nothing.
    #[error("{message} (SQLSTATE {code})")]
    Refused {
        /// SQLSTATE, five characters.
        code: String,
        /// The server's message.
        message: String,
    },
    /// The effect is unknown: the connection ended, or no answer came.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The connection could not be made, so nothing was sent.
    #[error("{0}")]
    Unconnected(String),
    /// The connection could not be made because of TLS, so nothing was sent. The text names the parameter
    /// that would change that.
    #[error("{0}")]
    Tls(String),
    /// No version of Semel wrote this row.
    #[error("semel_records.{column}: {what}")]
    Unreadable {
        /// The column.
        column: &'static str,
        /// Description of the fault.
        what: String,
    },
}

impl DbError {
    /// Returns the error for a SQLSTATE of the server.
    pub fn from_sqlstate(code: &str, message: String) -> DbError {
        match code {
            "40001" | "40P01" => DbError::Conflict(message),
            // Another command took a business reference just before this one took it back: the retry sees
            // that.
            "23505" if message.contains("semel_references_held") => DbError::Conflict(message),
            "55P03" => DbError::Busy(message),
            // The server does not know, or shut down in the middle.
            "40003" | "57P01" | "57P02" | "57P05" => DbError::Lost(message),
            code if code.starts_with("08") => DbError::Lost(message),
            code => DbError::Refused { code: code.to_owned(), message },
        }
    }

    pub(super) fn unreadable(column: &'static str, what: impl std::fmt::Display) -> DbError {
        DbError::Unreadable { column, what: what.to_string() }
    }

    /// Returns this error for a case where certainly nothing was committed.
    pub fn not_committed(self) -> DbError {
        match self {
            DbError::Lost(why) => DbError::Unconnected(why),
            other => other,
        }
    }

    /// Returns true if the server has no such function, or this user may not call it.
    pub(super) fn is_not_offered(&self) -> bool {
        matches!(self, DbError::Refused { code, .. } if matches!(code.as_str(), "42883" | "42501" | "0A000"))
    }

    /// Returns true if a write may have been made.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, DbError::Lost(_))
    }

    /// Returns true if one of several records may be the cause, so that the others should be tried without
    /// it.
    pub(super) fn blames_a_record(&self) -> bool {
        match self {
            // A statement ran into the server's `statement_timeout`, perhaps because of a lock.
            DbError::Refused { code, .. } if code == "57014" => true,
            error => matches!(error.store_error(), StoreError::Rejected(_) | StoreError::Busy(_)),
        }
    }

    /// Returns the error for a caller whose write was not made.
    pub fn store_error(&self) -> StoreError {
        let why = self.to_string();
        match self {
            DbError::Conflict(_) | DbError::Unconnected(_) | DbError::Tls(_) => StoreError::Unavailable(why),
            DbError::Busy(_) => StoreError::Busy(why),
            DbError::Lost(_) => StoreError::Ambiguous(why),
            DbError::Unreadable { .. } => StoreError::Corrupt(why),
            DbError::Refused { code, .. } => match &code[..2.min(code.len())] {
                // Its values, constraints or size.
                "22" | "23" | "54" => StoreError::Rejected(why),
                "XX" if code == "XX001" || code == "XX002" => StoreError::Damaged(why),
                _ => StoreError::Unavailable(why),
            },
        }
    }
}
