//! `[ledger]`: scheduled comparison of two ledgers.

mod comparison;
mod plan;

use std::time::Duration;

use semel_core::ledger::{Condition, Format};

use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, List, Maybe, OrOff, ValueKind, ValueRefusal, Words, quoted};
use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Period, Size, WaitTime};
use crate::parts::text::{FilePath, Text};
use comparison::INPUT;

pub use comparison::{LedgerComparison, LedgerSettings, LedgerSide, LedgerSource, LedgerUrl, LedgerWatch};
pub use plan::{LedgerFault, plan};

/// The `[ledger]` table, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct LedgerTable {
    pub(crate) settings: LedgerSettings,
    pub(crate) interval: Duration,
    pub(crate) first_after: Duration,
}

impl Default for LedgerTable {
    fn default() -> LedgerTable {
        LedgerTable {
            settings: LedgerSettings::default(),
            interval: Duration::from_secs(24 * 60 * 60),
            first_after: Duration::from_secs(60),
        }
    }
}

/// `[ledger]`.
pub(crate) const LEDGER: &[Setting<LedgerTable>] = &[
    setting!(
        "theirs",
        Maybe<Text>,
        settings.theirs,
        "Their ledger: a file, or an address that answers with one",
        "\"http://127.0.0.1:4000/charges.ndjson\""
    ),
    setting!("ours", Text, settings.ours, "Our ledger: store, or a file"),
    setting!("interval", Period, interval, "Interval between two comparisons"),
    setting!("first_after", WaitTime, first_after, "Delay from the start to the first comparison"),
    setting!(
        "reference",
        Maybe<Text>,
        settings.reference,
        "Column or member that identifies an entry in both ledgers",
        "\"reference\""
    ),
    setting!(
        "compare",
        List<Text>,
        settings.compare,
        "Columns or members that must be equal in both ledgers; only with a file as ours"
    ),
    setting!(
        "time",
        Maybe<Text>,
        settings.time,
        "Column or member with the time of an entry",
        "\"createdAt\""
    ),
    setting!(
        "their_reference",
        Maybe<Text>,
        settings.their_reference,
        "Name of the reference in theirs, if it differs",
        "\"idempotencyKey\""
    ),
    setting!(
        "their_compare",
        List<Text>,
        settings.their_compare,
        "Names of the compared values in theirs, if they differ"
    ),
    setting!(
        "their_time",
        Maybe<Text>,
        settings.their_time,
        "Name of the time in theirs, if it differs",
        "\"created\""
    ),
    setting!("our_filter", List<ConditionKind>, settings.our_filter, "Filter on our entries: NAME=VALUE"),
    setting!(
        "their_filter",
        List<ConditionKind>,
        settings.their_filter,
        "Filter on their entries: NAME=VALUE"
    ),
    setting!(
        "strip_suffix",
        Maybe<Text>,
        settings.strip_suffix,
        "Text at which their references are cut: it and everything after it is removed",
        "\":\""
    ),
    setting!(
        "operation",
        Maybe<Text>,
        settings.operation,
        "With ours from the store: only records of this operation",
        "\"payments.create\""
    ),
    setting!(
        "grace",
        WaitTime,
        settings.grace,
        "Age below which an entry does not count as missing: it may still be on its way"
    ),
    setting!(
        "max_age",
        OrOff<Period>,
        settings.max_age,
        "Age above which an entry does not count as missing: the other side may have deleted it"
    ),
    setting!(
        "format",
        Maybe<Choice<Format>>,
        settings.format,
        "Format of both ledgers, if their file names do not show it",
        "\"csv\""
    ),
    setting!(
        "their_format",
        Maybe<Choice<Format>>,
        settings.their_format,
        "Format of theirs, if it differs",
        "\"ndjson\""
    ),
    setting!(
        "authorization_env",
        Maybe<Text>,
        settings.authorization_env,
        "With an address: environment variable with the value of the Authorization header",
        "\"PROVIDER_AUTHORIZATION\""
    ),
    setting!("timeout", Period, settings.timeout, "Timeout for reading from an address"),
    setting!("max_size", Size<1024>, settings.max_size, "Largest ledger that is read from an address"),
    setting!(
        "ca",
        Maybe<FilePath>,
        settings.tls.ca,
        "With an https:// address: file with the certificate authorities to trust, instead of the system's",
        "\"/etc/semel/ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        settings.tls.certificate,
        "With an https:// address: file with the gateway's client certificate",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        settings.tls.key,
        "With an https:// address: file with the private key of the client certificate",
        "\"/etc/semel/gateway.key\""
    ),
];

/// Checks the table, and returns the comparison if its settings are consistent. Without `theirs`, nothing is
/// compared.
pub(crate) fn check(findings: &mut Findings, table: &LedgerTable) -> Option<LedgerWatch> {
    let path = |name: &str| format!("ledger.{name}");
    if LEDGER.iter().any(|setting| !findings.are_readable(&[&path(setting.name)])) {
        return None;
    }
    if !findings.is_set("ledger.theirs") {
        // Settings with a default may be in the file without effect.
        let alone = ["reference", "their_reference"].into_iter().find(|name| findings.is_set(&path(name)));
        let origin = findings.origin(&path(alone?));
        let message = "missing: a ledger to compare with, a file or an address";
        findings.error(origin, "ledger.theirs", message);
        return None;
    }
    let inputs = [("ours", Some(&table.settings.ours)), ("theirs", table.settings.theirs.as_ref())];
    if let Some((name, _)) = inputs.into_iter().find(|(_, place)| place.is_some_and(|place| place == INPUT)) {
        let message = "only `semel reconcile ledger` reads the standard input: expected a file or an \
                       address";
        findings.error(findings.origin(&path(name)), &path(name), message);
        return None;
    }
    match plan(&table.settings, findings.is_set("ledger.grace"), &findings.checks()) {
        Ok(comparison) => {
            let LedgerTable { interval, first_after, .. } = *table;
            Some(LedgerWatch { comparison, interval, first_after })
        }
        Err(LedgerFault { setting, message }) => {
            let path = path(&setting);
            // A missing setting is reported beside the one that needs it.
            let place = if findings.is_set(&path) { path.as_str() } else { "ledger.theirs" };
            findings.error(findings.origin(place), &path, message);
            None
        }
    }
}

/// Column, and its required value.
pub(crate) struct ConditionKind;

impl ValueKind for ConditionKind {
    type Value = Condition;

    fn expected() -> String {
        "a column or member and its value, such as \"status=captured\"".to_owned()
    }

    fn parse(text: &str) -> Result<Condition, ValueRefusal> {
        parse_condition(text).ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &Condition) -> Option<String> {
        Some(quoted(&format!("{}={}", value.name, value.value)))
    }
}

/// Reads `NAME=VALUE`; the value may be empty.
pub fn parse_condition(text: &str) -> Option<Condition> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
    Some(Condition { name: name.to_owned(), value: value.to_owned() })
}

impl Words for Format {
    const WORDS: &'static [(&'static str, Self)] =
        &[("csv", Format::Csv), ("ndjson", Format::Ndjson), ("json", Format::Json)];
}
