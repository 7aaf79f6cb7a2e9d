//! Findings of `semel doctor`, for people and for programs.

use semel_stores::doctor::{Check, Health};
use serde_json::{Value, json};

use crate::cli::printable;
use crate::terminal::colours;

const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const RED: &str = "\u{1b}[1;31m";
const RESET: &str = "\u{1b}[0m";

/// Returns true if any check failed.
pub(super) fn failed(checks: &[Check]) -> bool {
    checks.iter().any(|check| matches!(check.health, Health::Fail(_)))
}

/// Returns the result as a word, with the advice.
fn words(health: &Health) -> (&'static str, Option<&str>) {
    match health {
        Health::Ok => ("ok", None),
        Health::Warn(advice) => ("warn", Some(advice)),
        Health::Fail(advice) => ("fail", Some(advice)),
    }
}

/// Returns the checks as JSON. The names are stable.
pub(super) fn to_json(checks: &[Check]) -> Value {
    checks
        .iter()
        .map(|check| {
            let (result, advice) = words(&check.health);
            json!({ "check": check.name, "result": result, "found": check.found, "advice": advice })
        })
        .collect()
}

pub(super) fn to_text(checks: &[Check]) -> String {
    let colour = colours(&std::io::stdout());
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for check in checks {
        let (result, advice) = words(&check.health);
        let padded = format!("{result:4}");
        let shown = match check.health {
            _ if !colour => padded,
            Health::Ok => format!("{GREEN}{padded}{RESET}"),
            Health::Warn(_) => format!("{YELLOW}{padded}{RESET}"),
            Health::Fail(_) => format!("{RED}{padded}{RESET}"),
        };
        lines.push(format!("{shown}  {:width$}  {}", check.name, printable(&check.found)));
        lines.extend(advice.map(|advice| format!("      {:width$}  -> {}", "", printable(advice))));
    }
    let count = |result| checks.iter().filter(|check| words(&check.health).0 == result).count();
    lines.push(format!("\n{} ok, {} to look at, {} failed", count("ok"), count("warn"), count("fail")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_and_doubtful_checks_have_advice() {
        let checks = [
            Check::ok("store", "fine"),
            Check::warn("disk", "nearly\u{1b}[2J full", "make room"),
            Check::fail("upstream", "away", "start it"),
        ];
        let text = to_text(&checks);
        let expected = [
            "ok    store     fine",
            "warn  disk      nearly\u{fffd}[2J full",
            "                -> make room",
            "fail  upstream  away",
            "                -> start it",
            "",
            "1 ok, 1 to look at, 1 failed",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(
            to_json(&checks)[0],
            json!({ "check": "store", "result": "ok", "found": "fine", "advice": null })
        );
        assert_eq!(to_json(&checks)[2]["advice"], "start it");
        assert!(failed(&checks) && !failed(&checks[..2]));
    }
}
