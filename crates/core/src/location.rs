//! The location of a store: `memory:`, `sqlite:PATH` or `postgres://…`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::redact::redact;

/// Location of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// Memory of this process, lost with it (`memory:`).
    Memory,
    /// A SQLite file (`sqlite:PATH`).
    Sqlite(PathBuf),
    /// PostgreSQL (`postgres://…`).
    Postgres(PostgresUrl),
}

/// The address of a PostgreSQL database. Its password is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Returns the address as the type that a store takes, password included.
    ///
    /// # Errors
    /// If the text is no address of a database.
    pub fn address<A: FromStr>(&self) -> Result<A, A::Err> {
        self.0.parse()
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows the location with any password hidden.
impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLocation::Memory => f.write_str("memory:"),
            StoreLocation::Sqlite(path) => f.write_str(&redact(&format!("sqlite:{}", path.display()))),
            StoreLocation::Postgres(url) => url.fmt(f),
        }
    }
}

/// Reason why a text is no location of a store. No message shows a possible password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLocation {
    /// The text begins with no known scheme.
    #[error("expected \"memory:\", \"sqlite:PATH\" or \"postgres://…\"")]
    UnknownScheme,
    /// The text names a database without a store yet.
    #[error("{0} is reserved: not built yet")]
    Reserved(&'static str),
    /// The text asks SQLite for a store in memory.
    #[error("a store in memory is written \"memory:\"")]
    SqliteInMemory,
    /// The text after the scheme is wrong.
    #[error("{0}")]
    Malformed(String),
}

const RESERVED_SCHEME: &str = "mysql:";

impl FromStr for StoreLocation {
    type Err = InvalidLocation;

    fn from_str(text: &str) -> Result<StoreLocation, InvalidLocation> {
        let malformed = |why: &str| Err(InvalidLocation::Malformed(why.to_owned()));
        if text == "memory:" {
            return Ok(StoreLocation::Memory);
        }
        if text.starts_with(RESERVED_SCHEME) {
            return Err(InvalidLocation::Reserved(RESERVED_SCHEME));
        }
        if ["postgres:", "postgresql:"].iter().any(|scheme| text.starts_with(scheme)) {
            return Ok(StoreLocation::Postgres(PostgresUrl(text.to_owned())));
        }
        match text.strip_prefix("sqlite:") {
            None => Err(InvalidLocation::UnknownScheme),
            Some("") => malformed("the path is missing"),
            Some(":memory:") => Err(InvalidLocation::SqliteInMemory),
            Some(path) if path.contains('\0') => malformed("no path holds a NUL"),
            // `sqlite://semel.db` means a file beside us to some and one below the root to others.
            Some(path) if path.starts_with("//") => malformed("a path follows the colon, without `//`"),
            Some(path) => Ok(StoreLocation::Sqlite(PathBuf::from(path))),
        }
    }
}
