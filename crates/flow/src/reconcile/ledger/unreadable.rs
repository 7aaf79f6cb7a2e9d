//! The error that ends the reading of a ledger.

use std::fmt;

/// Reason why a ledger cannot be read, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    line: Option<u32>,
    why: String,
}

impl Unreadable {
    pub(super) fn at(line: u32, why: impl Into<String>) -> Unreadable {
        Unreadable { line: Some(line), why: why.into() }
    }

    pub(super) fn everywhere(why: String) -> Unreadable {
        Unreadable { line: None, why }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for Unreadable {}
