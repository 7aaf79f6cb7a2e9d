//! A comparison of two ledgers: its settings as they were given, and the plan that is made of them.

use std::path::PathBuf;
use std::time::Duration;

use semel_flow::reconcile::ledger::{Columns, Condition, Format};
use semel_outgoing::Address;

use crate::parts::service::ServiceTls;

/// The settings of a comparison, as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Our ledger: `store`, a file, or `-`.
    pub ours: String,
    /// Their ledger: a file, an address, or `-`.
    pub theirs: Option<String>,
    /// The format of both, if their names do not say it.
    pub format: Option<Format>,
    /// The format of theirs, if it differs.
    pub their_format: Option<Format>,
    /// With `store`: only records of this operation.
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
    /// Their references end where this first stands in them.
    pub strip_suffix: Option<String>,
    /// The age below which an entry is not missed.
    pub grace: Duration,
    /// The age above which an entry is not missed.
    pub max_age: Option<Duration>,
    /// The variable that holds the value of `Authorization`, where theirs is an address.
    pub authorization_env: Option<String>,
    /// The longest that reading from an address may take.
    pub timeout: Duration,
    /// The most that is read from an address, in bytes.
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
    /// The time from one run to the next.
    pub interval: Duration,
    /// The time from the start to the first run.
    pub first_after: Duration,
}

/// Two ledgers, and the parts of them that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerComparison {
    /// Our ledger.
    pub ours: LedgerSide,
    /// Their ledger.
    pub theirs: LedgerSide,
    /// The age below which an entry is not missed.
    pub grace: Duration,
    /// The age above which an entry is not missed.
    pub max_age: Option<Duration>,
}

/// One of two ledgers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSide {
    /// The place of the ledger.
    pub source: LedgerSource,
    /// The columns that are read.
    pub columns: Columns,
}

/// The place of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerSource {
    /// In the store: the records that succeeded, of one operation or of all.
    Store {
        /// The operation.
        operation: Option<String>,
    },
    /// In a file.
    File(PathBuf, Format),
    /// On the standard input.
    Input(Format),
    /// At an address.
    Url(LedgerUrl),
}

/// An address that answers with a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerUrl {
    /// The address.
    pub address: Address,
    /// The format of the ledger, if `Content-Type` does not say it.
    pub format: Option<Format>,
    /// The variable that holds the value of `Authorization`.
    pub authorization_env: Option<String>,
    /// The longest that it may take.
    pub timeout: Duration,
    /// The most that is read, in bytes.
    pub max_size: usize,
    /// TLS with the address.
    pub tls: ServiceTls,
}
