//! What others say was done, against what we believe was done.

pub mod ledger;
