//! The meaning of SQLite's errors for a caller: what was written, and what to do next.

use rusqlite::ErrorCode;
use semel_core::StoreError;

/// Returns the meaning of an error before COMMIT: nothing was written.
pub(super) fn store_error(error: &rusqlite::Error) -> StoreError {
    if is_unreadable(error) {
        return StoreError::Corrupt(error.to_string());
    }
    let Some(code) = error.sqlite_error_code() else { return unavailable(error.to_string()) };
    match code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Damaged(error.to_string()),
        ErrorCode::TooBig | ErrorCode::ConstraintViolation => StoreError::Rejected(error.to_string()),
        _ => unavailable(error.to_string()),
    }
}

/// Converts an error of SQLite to one of the store.
pub(super) fn stored<T>(result: rusqlite::Result<T>) -> Result<T, StoreError> {
    result.map_err(|error| store_error(&error))
}

/// Returns true if no version of Semel wrote the row that was read.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::InvalidColumnName(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

/// Returns the error after a failed second try: the result of the first stays unknown, unless it clearly
/// cannot have been written.
pub(super) fn still_ambiguous(first: &str, second: StoreError) -> StoreError {
    match second {
        StoreError::Rejected(_) => second,
        StoreError::Unavailable(_)
        | StoreError::Busy(_)
        | StoreError::Ambiguous(_)
        | StoreError::Corrupt(_)
        | StoreError::Damaged(_) => ambiguous(format!("{first}; then: {second}")),
    }
}

/// Returns a copy of the error for another change that it concerns.
pub(super) fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Damaged(why) => StoreError::Damaged(why.clone()),
        StoreError::Unavailable(why)
        | StoreError::Busy(why)
        | StoreError::Ambiguous(why)
        | StoreError::Rejected(why)
        | StoreError::Corrupt(why) => unavailable(why.clone()),
    }
}

pub(super) fn unavailable(why: impl Into<String>) -> StoreError {
    StoreError::Unavailable(why.into())
}

pub(super) fn ambiguous(why: impl Into<String>) -> StoreError {
    StoreError::Ambiguous(why.into())
}
