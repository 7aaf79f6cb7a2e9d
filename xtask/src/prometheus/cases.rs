//! Alerts and their cases, as far as `cargo xtask prometheus` reads them: line by line, since promtool reads the rest.
//!
//! Every alert has a severity, a summary, a description, a section of the runbook, a case that fires, and one that does not.

use std::collections::{BTreeMap, BTreeSet};

const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];
/// Members that every alert has.
const MEMBERS: [&str; 4] = ["severity", "summary", "description", "runbook_url"];
/// Beginning of each runbook address in the file, which users replace by that of their book.
const BOOK: &str = "docs/";

/// Alerts in the order of the file, each with its members.
struct Alert<'a> {
    name: &'a str,
    members: BTreeMap<&'a str, &'a str>,
}

/// Names of alerts with a case that fires, and with one that does not.
#[derive(Default)]
struct Covered<'a> {
    fires: BTreeSet<&'a str>,
    silent: BTreeSet<&'a str>,
    cases: usize,
}

/// Returns everything that is wrong with the alerts and their cases. `anchors` returns those of a page of the book, by its
/// path without its extension; `None` if there is no such page.
pub(super) fn faults(
    alerts: &str,
    cases: &[String],
    anchors: impl Fn(&str) -> Option<Vec<String>>,
) -> Vec<String> {
    let (alerts, covered) = (read_alerts(alerts), read_cases(cases));
    let mut faults = Vec::new();
    if alerts.is_empty() {
        faults.push("there is no alert".to_owned());
    }
    let mut names = BTreeSet::new();
    for Alert { name, members } in &alerts {
        if !names.insert(*name) {
            faults.push(format!("{name} is there twice"));
        }
        let missing =
            MEMBERS.into_iter().filter(|member| members.get(member).is_none_or(|value| value.is_empty()));
        faults.extend(missing.map(|member| format!("{name} has no {member}")));
        if members.get("severity").is_some_and(|severity| !SEVERITIES.contains(severity)) {
            faults.push(format!("{name}: its severity is none of {}", SEVERITIES.join(", ")));
        }
        if let Some(Err(why)) = members.get("runbook_url").map(|url| follow(url, &anchors)) {
            faults.push(format!("{name}: {why}"));
        }
        for (what, covered) in [("that fires", &covered.fires), ("that does not fire", &covered.silent)] {
            if !covered.contains(name) {
                faults.push(format!("{name} has no case {what}"));
            }
        }
    }
    let unknown = covered.fires.union(&covered.silent).filter(|name| !names.contains(*name));
    faults.extend(unknown.map(|name| format!("a case names {name}, and there is no such alert")));
    faults
}

/// Returns the number of alerts and cases in words.
pub(super) fn count(alerts: &str, cases: &[String]) -> String {
    format!("{} alerts, {} cases", read_alerts(alerts).len(), read_cases(cases).cases)
}

/// Returns the names of the alerts.
pub(super) fn names(alerts: &str) -> Vec<&str> {
    read_alerts(alerts).into_iter().map(|alert| alert.name).collect()
}

/// Checks that an address such as `docs/how-to/runbook.html#holds` names a heading of the book.
fn follow(url: &str, anchors: impl Fn(&str) -> Option<Vec<String>>) -> Result<(), String> {
    let target = url.strip_prefix(BOOK).and_then(|rest| rest.split_once(".html#"));
    let Some((page, anchor)) = target else {
        return Err(format!("{url} is not {BOOK}PAGE.html#ANCHOR"));
    };
    match anchors(page) {
        None => Err(format!("{url} leads to no page")),
        Some(anchors) if anchors.iter().any(|own| own == anchor) => Ok(()),
        Some(_) => Err(format!("{url} leads to no heading")),
    }
}

fn read_alerts(text: &str) -> Vec<Alert<'_>> {
    let mut alerts: Vec<Alert<'_>> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.push(Alert { name, members: BTreeMap::new() });
        } else if let (Some(alert), Some((member, value))) = (alerts.last_mut(), line.split_once(':'))
            && MEMBERS.contains(&member)
        {
            alert.members.insert(member, value.trim());
        }
    }
    alerts
}

fn read_cases(texts: &[String]) -> Covered<'_> {
    let mut covered = Covered::default();
    for text in texts {
        let mut alert = None;
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("alertname: ") {
                (alert, covered.cases) = (Some(name), covered.cases + 1);
            } else if let Some((expected, name)) = line.strip_prefix("exp_alerts:").zip(alert) {
                let names = if expected.trim() == "[]" { &mut covered.silent } else { &mut covered.fires };
                names.insert(name);
                alert = None;
            }
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALERT: &str = "\
- alert: A
  expr: |
    a > 0
  labels:
    severity: warning
  annotations:
    summary: It is
    description: \"{{ $value }}\"
    runbook_url: docs/how-to/runbook.html#a
";
    const CASE: &str = "\
- eval_time: 1m
  alertname: A
  exp_alerts: []
- eval_time: 5m
  alertname: A
  exp_alerts:
    - exp_labels:
        severity: warning
";

    fn anchors(page: &str) -> Option<Vec<String>> {
        (page == "how-to/runbook").then(|| vec!["a".to_owned()])
    }

    fn faults_of(alerts: &str, case: &str) -> Vec<String> {
        faults(alerts, &[case.to_owned()], anchors)
    }

    #[test]
    fn an_alert_with_both_cases_and_a_section_has_no_fault() {
        assert_eq!(faults_of(ALERT, CASE), Vec::<String>::new());
        assert_eq!(count(ALERT, &[CASE.to_owned()]), "1 alerts, 2 cases");
    }

    #[test]
    fn each_missing_part_of_an_alert_is_a_fault() {
        for (change, into, fault) in [
            ("    summary: It is\n", "", "A has no summary"),
            ("    severity: warning\n", "", "A has no severity"),
            ("warning", "page", "A: its severity is none of critical, warning, info"),
            ("#a", "#b", "A: docs/how-to/runbook.html#b leads to no heading"),
            ("runbook.html", "other.html", "A: docs/how-to/other.html#a leads to no page"),
            (
                "docs/",
                "https://example.com/",
                "A: https://example.com/how-to/runbook.html#a is not docs/PAGE.html#ANCHOR",
            ),
        ] {
            assert_eq!(faults_of(&ALERT.replacen(change, into, 1), CASE), [fault]);
        }
        assert_eq!(faults_of(&format!("{ALERT}{ALERT}"), CASE), ["A is there twice"]);
        assert_eq!(faults_of("", ""), ["there is no alert"]);
    }

    #[test]
    fn each_missing_case_is_a_fault() {
        let (silent, fires) = CASE.split_once("- eval_time: 5m").expect("there are two");
        assert_eq!(faults_of(ALERT, silent), ["A has no case that fires"]);
        assert_eq!(faults_of(ALERT, fires), ["A has no case that does not fire"]);
        // Without `exp_alerts`, promtool expects nothing, and nobody reads that.
        assert_eq!(
            faults_of(ALERT, &CASE.replace("  exp_alerts: []\n", "")),
            ["A has no case that does not fire"]
        );
    }

    #[test]
    fn a_case_of_no_alert_is_a_fault() {
        let other = CASE.replace("alertname: A", "alertname: B");
        let found = faults_of(ALERT, &format!("{CASE}{other}"));
        assert_eq!(found, ["a case names B, and there is no such alert"]);
    }
}
