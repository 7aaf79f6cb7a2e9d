//! `store`: the place of records.

use std::path::PathBuf;

use semel_stores::postgres::{Address, AddressError};

use crate::engine::kind::{Kind, Refusal, quoted};
use crate::engine::nearest::nearest;
use crate::engine::redact::redact;

/// The place of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// In this process, and gone with it (`memory:`).
    Memory,
    /// In a SQLite file (`sqlite:PATH`).
    Sqlite(PathBuf),
    /// In PostgreSQL (`postgres://…`).
    Postgres(PostgresUrl),
}

/// The address of a PostgreSQL database. It is never shown with its password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Returns the address, ready to be used.
    ///
    /// # Errors
    /// If it is no address of a database.
    pub fn address(&self) -> Result<Address, AddressError> {
        self.0.parse()
    }
}

impl std::fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl std::fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Written as in the configuration, with any password hidden.
impl std::fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreLocation::Memory => f.write_str("memory:"),
            StoreLocation::Sqlite(path) => f.write_str(&redact(&format!("sqlite:{}", path.display()))),
            StoreLocation::Postgres(url) => url.fmt(f),
        }
    }
}

const RESERVED_SCHEME: &str = "mysql:";

impl Kind for StoreLocation {
    type Value = StoreLocation;

    fn expected() -> String {
        "\"memory:\", \"sqlite:PATH\" or \"postgres://…\"".to_owned()
    }

    fn parse(text: &str) -> Result<StoreLocation, Refusal> {
        if text == "memory:" {
            return Ok(StoreLocation::Memory);
        }
        if text.starts_with(RESERVED_SCHEME) {
            return Err(Refusal::Reserved);
        }
        if ["postgres:", "postgresql:"].iter().any(|scheme| text.starts_with(scheme)) {
            let url = PostgresUrl(text.to_owned());
            return match url.address() {
                Ok(_) => Ok(StoreLocation::Postgres(url)),
                Err(error) => Err(Refusal::Because(error.to_string())),
            };
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            let (scheme, path) = text.split_once(':').unwrap_or((text, ""));
            let meant = |near: &str| match near {
                "sqlite" if path.is_empty() => "sqlite:semel.db".to_owned(),
                // What follows the scheme may hold a password.
                "postgres" => "postgres://…".to_owned(),
                scheme => format!("{scheme}:{path}"),
            };
            let near = nearest(scheme, ["memory", "sqlite", "postgres"]);
            return Err(near.map_or(Refusal::Unexpected, |near| Refusal::DidYouMean(meant(near))));
        };
        match path {
            "" => Err(Refusal::Because("the path is missing".to_owned())),
            ":memory:" => Err(Refusal::DidYouMean("memory:".to_owned())),
            path if path.contains('\0') => Err(Refusal::Because("no path holds a NUL".to_owned())),
            // `sqlite://semel.db` means a file beside us to some and one below the root to others.
            path if path.starts_with("//") => {
                Err(Refusal::Because("a path follows the colon, without `//`".to_owned()))
            }
            path => Ok(StoreLocation::Sqlite(PathBuf::from(path))),
        }
    }

    fn show(value: &StoreLocation) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}
