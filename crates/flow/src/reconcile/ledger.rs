//! Two ledgers, compared: ours, which says what we believe was done, and theirs, which says what the provider did.
//!
//! A [`Reading`] is fed the bytes of a ledger, in pieces of any size, and makes a [`Ledger`] of them; whoever has the
//! entries already [`add`](Ledger::add)s them. [`compare`] finds what either side lacks, what either side holds twice,
//! and what differs. Nothing here opens a file or asks for the time.
//!
//! A ledger takes about 25 bytes for each entry, and those of its reference and of the values that are compared.

mod compare;
mod csv;
mod entries;
mod json;
mod reading;
#[cfg(test)]
mod tests;
mod unreadable;

pub use compare::{Counted, Difference, Finding, FindingKind, Findings, MAX_LISTED, Report, compare};
pub use entries::{Age, Ages, Ledger, MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_VALUE_BYTES};
pub use reading::{Columns, Condition, Format, Reading};
pub use unreadable::Unreadable;
