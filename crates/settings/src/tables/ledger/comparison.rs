//! Comparison of two ledgers: its given settings, and the plan that is made of them.

use std::path::PathBuf;
use std::time::Duration;

use semel_core::ledger::{Condition, Format, LedgerColumns};

use crate::parts::service::{ServiceAddress, ServiceTls};

/// Settings of a comparison, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Our ledger: `store`, a file, or `-`.
    pub ours: String,
    /// Their ledger: a file, an address, or `-`.
    pub theirs: Option<String>,
    /// Format of both, if their names do not tell it.
    pub format: Option<Format>,
    /// The format of theirs, if it differs.
    pub their_format: Option<Format>,
    /// Operation of the compared records, with `store`.
    pub operation: Option<String>,
    /// The column or member that entries are found by.
    pub reference: Option<String>,
    /// The columns or members that must be equal.
    pub compare: Vec<String>,
    /// The column or member with the time of an entry.
    pub time: Option<String>,
    /// The name of the reference in theirs.
    pub their_reference: Option<String>,
    /// The names of the compared values in theirs.
    pub their_compare: Vec<String>,
    /// The name of the time in theirs.
    pub their_time: Option<String>,
    /// Conditions of the entries of ours that count.
    pub our_filter: Vec<Condition>,
    /// Conditions of the entries of theirs that count.
    pub their_filter: Vec<Condition>,
    /// Text before which their references end.
    pub strip_suffix: Option<String>,
    /// Age below which a missing entry is not reported.
    pub grace: Duration,
    /// Age above which a missing entry is not reported.
    pub max_age: Option<Duration>,
    /// Variable with the value of `Authorization`, if theirs is an address.
    pub authorization_env: Option<String>,
    /// Timeout of reading from an address.
    pub timeout: Duration,
    /// Largest size of a ledger from an address, in bytes.
    pub max_size: usize,
    /// TLS with an address.
    pub tls: ServiceTls,
}

impl Default for LedgerSettings {
    fn default() -> LedgerSettings {
        LedgerSettings {
            ours: STORE.to_owned(),
            theirs: None,
            format: None,
            their_format: None,
            operation: None,
            reference: None,
            compare: Vec::new(),
            time: None,
            their_reference: None,
            their_compare: Vec::new(),
            their_time: None,
            our_filter: Vec::new(),
            their_filter: Vec::new(),
            strip_suffix: None,
            grace: Duration::from_secs(15 * 60),
            max_age: None,
            authorization_env: None,
            timeout: Duration::from_secs(5 * 60),
            max_size: 256 << 20,
            tls: ServiceTls::default(),
        }
    }
}

/// The word for the records of the store.
pub(crate) const STORE: &str = "store";
/// The word for the standard input.
pub(crate) const INPUT: &str = "-";

/// A comparison of ledgers on a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerWatch {
    /// The comparison.
    pub comparison: LedgerComparison,
    /// Interval between two runs.
    pub interval: Duration,
    /// Delay from the start to the first run.
    pub first_after: Duration,
}

/// Two ledgers, and their compared parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerComparison {
    /// Our ledger.
    pub ours: LedgerSide,
    /// Their ledger.
    pub theirs: LedgerSide,
    /// Age below which a missing entry is not reported.
    pub grace: Duration,
    /// Age above which a missing entry is not reported.
    pub max_age: Option<Duration>,
}

/// One of two ledgers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSide {
    /// Place of the ledger.
    pub source: LedgerSource,
    /// Columns that are read.
    pub columns: LedgerColumns,
}

/// The place of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerSource {
    /// Store: the records that succeeded, of one operation or of all.
    Store {
        /// The operation.
        operation: Option<String>,
    },
    /// File.
    File(PathBuf, Format),
    /// Standard input.
    Input(Format),
    /// Address.
    Url(Box<LedgerUrl>),
}

/// An address that answers with a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerUrl {
    /// The address.
    pub address: ServiceAddress,
    /// Format of the ledger, if `Content-Type` does not tell it.
    pub format: Option<Format>,
    /// The variable that holds the value of `Authorization`.
    pub authorization_env: Option<String>,
    /// Timeout of reading.
    pub timeout: Duration,
    /// Largest size in bytes.
    pub max_size: usize,
    /// TLS with the address.
    pub tls: ServiceTls,
}
