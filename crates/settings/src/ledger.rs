//! `[ledger]`: two ledgers that are compared on a schedule.

mod plan;

use std::time::Duration;

use semel_flow::reconcile::ledger::Condition;

use super::findings::Findings;
use super::kind::{Kind, Refusal, quoted};
use super::redact::redact;
use super::settings::LEDGER;
use plan::INPUT;
pub use plan::{
    LedgerComparison, LedgerFault, LedgerSettings, LedgerSide, LedgerSource, LedgerUrl, LedgerWatch, plan,
};

/// The `[ledger]` table as it was written.
#[derive(Clone, Debug)]
pub(super) struct LedgerTable {
    pub(super) settings: LedgerSettings,
    pub(super) interval: Duration,
    pub(super) first_after: Duration,
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

/// Puts the table together, if its settings go together. Without `theirs`, nothing is compared.
pub(super) fn check(findings: &mut Findings, table: &LedgerTable) -> Option<LedgerWatch> {
    let path = |name: &str| format!("ledger.{name}");
    if LEDGER.iter().any(|setting| !findings.are_readable(&[&path(setting.name)])) {
        return None;
    }
    if !findings.is_set("ledger.theirs") {
        // Those that have a default may stand in the file and mean nothing.
        let alone = ["reference", "their_reference"].into_iter().find(|name| findings.is_set(&path(name)));
        let origin = findings.origin(&path(alone?));
        let message = "missing: a ledger to compare with, a file or an address";
        findings.error(origin, "ledger.theirs", message);
        return None;
    }
    let inputs = [("ours", Some(&table.settings.ours)), ("theirs", table.settings.theirs.as_ref())];
    if let Some((name, _)) = inputs.into_iter().find(|(_, place)| place.is_some_and(|place| place == INPUT)) {
        let message = "the standard input is for `semel reconcile ledger`: expected a file or an address";
        findings.error(findings.origin(&path(name)), &path(name), message);
        return None;
    }
    match plan(&table.settings, findings.is_set("ledger.grace")) {
        Ok(comparison) => {
            let LedgerTable { interval, first_after, .. } = *table;
            Some(LedgerWatch { comparison, interval, first_after })
        }
        Err(LedgerFault { setting, message }) => {
            let path = path(&setting);
            // What is missing is missing beside what needs it.
            let place = if findings.is_set(&path) { path.as_str() } else { "ledger.theirs" };
            findings.error(findings.origin(place), &path, message);
            None
        }
    }
}

/// A text that says something.
pub(super) struct Text;

impl Kind for Text {
    type Value = String;

    fn expected() -> String {
        "a text that is not empty".to_owned()
    }

    fn parse(text: &str) -> Result<String, Refusal> {
        match text {
            "" => Err(Refusal::Unexpected),
            text if text.contains(char::is_control) => {
                Err(Refusal::Because("it holds a control character".to_owned()))
            }
            text => Ok(text.to_owned()),
        }
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(&redact(value)))
    }
}

/// A column, and the value that it must have.
pub(super) struct ConditionKind;

impl Kind for ConditionKind {
    type Value = Condition;

    fn expected() -> String {
        "a column or member and its value, such as \"status=captured\"".to_owned()
    }

    fn parse(text: &str) -> Result<Condition, Refusal> {
        parse_condition(text).ok_or(Refusal::Unexpected)
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
