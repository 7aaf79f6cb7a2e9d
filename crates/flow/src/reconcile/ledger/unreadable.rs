//! The error that ends the reading of a ledger.

use std::fmt;

/// Reason why a ledger cannot be read, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableLedger {
    line: Option<u32>,
    why: String,
}

impl UnreadableLedger {
    pub(super) fn at(line: u32, why: impl Into<String>) -> UnreadableLedger {
        UnreadableLedger { line: Some(line), why: why.into() }
    }

    pub(super) fn everywhere(why: String) -> UnreadableLedger {
        UnreadableLedger { line: None, why }
    }
}

impl fmt::Display for UnreadableLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for UnreadableLedger {}
