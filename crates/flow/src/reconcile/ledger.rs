//! Comparison of two ledgers: ours, with the service's view, and theirs, with the provider's.
//!
//! A [`LedgerReader`] parses the bytes of a ledger, in pieces of any size, into a [`Ledger`]; callers that have entries
//! [`add`](Ledger::add) them. [`compare`] finds missing, duplicate and different entries. Nothing here opens a file or
//! reads the clock. A ledger takes about 25 bytes per entry, plus its reference and its compared values.

mod compare;
mod csv;
mod entries;
mod json;
mod reading;
#[cfg(test)]
mod tests;
mod unreadable;

pub use compare::{
    EntryCounts, FindingKind, LedgerDifference, LedgerFinding, LedgerFindings, LedgerReport, MAX_LISTED,
    compare,
};
pub use entries::{Age, Ages, Ledger, MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_VALUE_BYTES};
pub use reading::{Condition, Format, LedgerColumns, LedgerReader};
pub use unreadable::UnreadableLedger;
