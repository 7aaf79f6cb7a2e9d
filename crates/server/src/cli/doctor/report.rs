//! Findings of `semel doctor`, for people and for programs.

use semel_stores::doctor::{Check, Health};
use serde_json::{Value, json};

use crate::cli::printable;
use crate::terminal::colours;

const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const RED: &str = "\u{1b}[1;31m";
const RESET: &str = "\u{1b}[0m";

/// Line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DoctorLine {
    /// Check with its finding.
    Checked(Check),
    /// Check that could not be made.
    NotChecked {
        /// Subject of the check.
        name: &'static str,
        /// Reason.
        why: String,
        /// Way to check it nevertheless.
        advice: String,
    },
}

impl From<Check> for DoctorLine {
    fn from(check: Check) -> DoctorLine {
        DoctorLine::Checked(check)
    }
}

impl DoctorLine {
    /// Returns the line of a check that could not be made, with the way to check it nevertheless.
    pub(super) fn not_checked(
        name: &'static str,
        why: impl Into<String>,
        advice: impl Into<String>,
    ) -> DoctorLine {
        DoctorLine::NotChecked { name, why: why.into(), advice: advice.into() }
    }

    fn name(&self) -> &'static str {
        match self {
            DoctorLine::Checked(check) => check.name,
            DoctorLine::NotChecked { name, .. } => name,
        }
    }

    fn found(&self) -> String {
        match self {
            DoctorLine::Checked(check) => check.found.clone(),
            DoctorLine::NotChecked { why, .. } => format!("not checked: {why}"),
        }
    }

    /// Returns the result as a word, with the advice.
    fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            DoctorLine::Checked(Check { health: Health::Ok, .. }) => ("ok", None),
            DoctorLine::Checked(Check { health: Health::Warn(advice), .. }) => ("warn", Some(advice)),
            DoctorLine::Checked(Check { health: Health::Fail(advice), .. }) => ("fail", Some(advice)),
            DoctorLine::NotChecked { advice, .. } => ("skip", Some(advice)),
        }
    }
}

/// Returns true if any check failed.
pub(super) fn failed(lines: &[DoctorLine]) -> bool {
    lines.iter().any(|line| line.words().0 == "fail")
}

/// Returns the checks as JSON. The names are stable.
pub(super) fn to_json(lines: &[DoctorLine]) -> Value {
    lines
        .iter()
        .map(|line| {
            let (result, advice) = line.words();
            json!({ "check": line.name(), "result": result, "found": line.found(), "advice": advice })
        })
        .collect()
}

/// Returns the checks for people.
pub(super) fn to_text(checks: &[DoctorLine]) -> String {
    let colour = colours(&std::io::stdout());
    let width = checks.iter().map(|check| check.name().len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for check in checks {
        let (result, advice) = check.words();
        let padded = format!("{result:4}");
        let shown = match result {
            _ if !colour => padded,
            "ok" => format!("{GREEN}{padded}{RESET}"),
            "fail" => format!("{RED}{padded}{RESET}"),
            _ => format!("{YELLOW}{padded}{RESET}"),
        };
        lines.push(format!("{shown}  {:width$}  {}", check.name(), printable(&check.found())));
        lines.extend(advice.map(|advice| format!("      {:width$}  -> {}", "", printable(advice))));
    }
    let count = |result| checks.iter().filter(|check| check.words().0 == result).count();
    let (ok, warned, failed, skipped) = (count("ok"), count("warn"), count("fail"), count("skip"));
    lines.push(format!("\n{ok} ok, {warned} to look at, {failed} failed, {skipped} not checked"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_and_doubtful_checks_have_advice() {
        let checks = [
            Check::ok("store", "fine").into(),
            Check::warn("disk", "nearly\u{1b}[2J full", "make room").into(),
            Check::fail("upstream", "away", "start it").into(),
            DoctorLine::not_checked("rules", "no gateway answers", "start one"),
        ];
        let text = to_text(&checks);
        let expected = [
            "ok    store     fine",
            "warn  disk      nearly\u{fffd}[2J full",
            "                -> make room",
            "fail  upstream  away",
            "                -> start it",
            "skip  rules     not checked: no gateway answers",
            "                -> start one",
            "",
            "1 ok, 1 to look at, 1 failed, 1 not checked",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(
            to_json(&checks)[0],
            json!({ "check": "store", "result": "ok", "found": "fine", "advice": null })
        );
        assert_eq!(to_json(&checks)[2]["advice"], "start it");
        assert_eq!(to_json(&checks)[3]["result"], "skip");
        assert!(
            failed(&checks) && !failed(&checks[..2]) && !failed(&checks[3..]),
            "not checked is no failure"
        );
    }
}
