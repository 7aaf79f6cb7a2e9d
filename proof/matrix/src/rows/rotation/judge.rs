//! Judge of key rotation: checks that every record stays readable, and that nothing else changes. Pure.

use std::collections::BTreeMap;

use crate::seen::Told;
use crate::site::Row;
use crate::violations::Violations;

/// All observations of a rotation.
#[derive(Clone, Debug)]
pub(crate) struct Rotated {
    /// Operation ids, by the names of their keys.
    pub(crate) names: BTreeMap<String, String>,
    /// Operation ids of records that cannot be opened.
    pub(crate) poisoned: Vec<String>,
    pub(crate) before: Vec<Row>,
    /// Evidence rows with a response in them, before and in the end.
    pub(crate) evidence: (Vec<Row>, Vec<Row>),
    /// Records at each look while the fault lasted.
    pub(crate) during: Vec<Vec<Row>>,
    /// Exit code of the tool under fault, if it ended by itself.
    pub(crate) ended: Option<i32>,
    /// Exit code of the tool after it, and the expected code.
    pub(crate) last: (i32, i32),
    pub(crate) after: Vec<Row>,
    /// Result of the first client of each command.
    pub(crate) first: BTreeMap<String, Told>,
    /// Results at a gateway with both keys while the fault lasted.
    pub(crate) meanwhile: Vec<(String, Told)>,
    /// Final results at a gateway with the new key.
    pub(crate) in_the_end: Vec<(String, Told)>,
    /// Results at a gateway with neither key.
    pub(crate) without_key: Vec<(String, Told)>,
    pub(crate) effects: usize,
}

impl Rotated {
    /// Describes the observations in one line.
    pub(crate) fn tell(&self) -> String {
        let list = |told: &[(String, Told)]| -> Vec<String> {
            told.iter().map(|(name, told)| format!("{name}: {told}")).collect()
        };
        format!(
            "ended with {:?} and {:?}; meanwhile {:?}; in the end {:?}; without the key {:?}; {} effects",
            self.ended,
            self.last,
            list(&self.meanwhile),
            list(&self.in_the_end),
            list(&self.without_key),
            self.effects
        )
    }
}

fn key(row: &Row) -> Option<&str> {
    row.get("encryption_key_id")
}

/// Returns the violations; none, if all rules hold.
pub(crate) fn judge(seen: &Rotated) -> Vec<String> {
    let mut violations = Violations::default();
    for rows in seen.during.iter().chain([&seen.after]) {
        violations.must(rows.len() == seen.before.len(), "a record came or went");
        for (before, now) in seen.before.iter().zip(rows) {
            violations.must(
                is_the_same(seen, before, now),
                format!("{} is not what it was", before.operation_id()),
            );
        }
    }
    let (evidence, evidence_after) = &seen.evidence;
    violations.must(evidence.len() == 1 && evidence_after.len() == 1, "an event came or went");
    for (before, now) in evidence.iter().zip(evidence_after) {
        let anew = before != now && key(now) == Some("new");
        violations
            .must(anew && is_the_same(seen, before, now), "an event is not what it was, or as it was sealed");
    }
    let is_poisoned = |row: &&Row| seen.poisoned.iter().any(|id| id == row.operation_id());
    let all_new = seen.after.iter().filter(|row| !is_poisoned(row)).all(|row| key(row) == Some("new"));
    violations.must(all_new, "something is left under the old key");
    violations.must(seen.last.0 == seen.last.1, format!("the next one ended with {}", seen.last.0));
    let well = seen.poisoned.is_empty() || seen.ended != Some(0);
    violations.must(well, "it said that all is well, and something cannot be opened");
    for (name, told) in &seen.meanwhile {
        let fine = is_replay(seen, name, told) || told.is_unavailable();
        violations.must(fine, format!("{name} was told {told} meanwhile"));
    }
    for (name, told) in &seen.in_the_end {
        violations.must(is_replay(seen, name, told), format!("{name} was told {told} in the end"));
    }
    for (name, told) in &seen.without_key {
        violations.must(is_unreadable(told), format!("{name} was told {told} by who has no key"));
    }
    violations.must(seen.effects == seen.names.len(), format!("{} effects", seen.effects));
    violations.list()
}

/// Returns true if nothing but the seal of the record changed.
fn is_the_same(seen: &Rotated, before: &Row, now: &Row) -> bool {
    let seals = ["encryption_key_id", "response", "resource", "revision"];
    if seen.poisoned.iter().any(|id| id == before.operation_id()) {
        return before == now;
    }
    let sealed_anew = key(now) == Some("new") && before.get("response") != now.get("response");
    before.without(&seals) == now.without(&seals) && (before == now || sealed_anew)
}

fn is_unreadable(told: &Told) -> bool {
    told.as_answer().is_some_and(|answer| {
        answer.status == 500 && answer.code.as_deref() == Some("IDEMPOTENCY_RESPONSE_UNREADABLE")
    })
}

/// Returns true for a byte-identical replay of the first response; for a record that cannot be opened, for the error
/// that says so.
fn is_replay(seen: &Rotated, name: &str, told: &Told) -> bool {
    if seen.names.get(name).is_some_and(|id| seen.poisoned.contains(id)) {
        return is_unreadable(told);
    }
    let first = seen.first.get(name).and_then(Told::as_answer);
    match (first, told.as_answer()) {
        (Some(first), Some(answer)) => {
            let same = (first.status, &first.body, &first.operation_id, &first.location)
                == (answer.status, &answer.body, &answer.operation_id, &answer.location);
            told.is_done() && answer.replayed && same
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violations::{Wrong, assert_judges};

    fn row(id: &str, key: &str, response: &str) -> Row {
        let columns = [
            ("operation_id", id),
            ("encryption_key_id", key),
            ("response", response),
            ("state", "succeeded"),
        ];
        Row(columns.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    fn unreadable() -> Told {
        Told::sample(500, Some("IDEMPOTENCY_RESPONSE_UNREADABLE"), false, "")
    }

    /// Observation of one record under the new key, and of one that cannot be opened.
    fn well() -> Rotated {
        let before = vec![row("a", "old", "1"), row("b", "lost", "2")];
        let after = vec![row("a", "new", "3"), row("b", "lost", "2")];
        let replay = || Told::sample(201, None, true, "one");
        Rotated {
            names: [("one".into(), "a".into()), ("two".into(), "b".into())].into(),
            poisoned: vec!["b".into()],
            evidence: (vec![row("e", "old", "4")], vec![row("e", "new", "5")]),
            during: vec![before.clone(), after.clone()],
            before,
            ended: Some(1),
            last: (1, 1),
            after,
            first: [("one".into(), Told::sample(201, None, false, "one"))].into(),
            meanwhile: vec![
                ("one".into(), replay()),
                ("one".into(), Told::sample(503, Some("IDEMPOTENCY_STORE_UNAVAILABLE"), false, "")),
            ],
            in_the_end: vec![("one".into(), replay()), ("two".into(), unreadable())],
            without_key: vec![("one".into(), unreadable())],
            effects: 2,
        }
    }

    #[test]
    fn every_wrong_observation_fails() {
        let wrong: &[Wrong<Rotated>] = &[
            ("something is left", |seen| seen.after[0] = seen.before[0].clone()),
            ("a key without its seal", |seen| seen.during[1][0] = row("a", "new", "1")),
            ("a state changes", |seen| {
                drop(seen.after[0].0.insert("state".into(), "unknown".into()));
            }),
            ("what cannot be opened is written", |seen| seen.after[1] = row("b", "new", "2")),
            ("an event is left", |seen| seen.evidence.1 = seen.evidence.0.clone()),
            ("an event goes", |seen| seen.evidence.1.clear()),
            ("an event changes", |seen| {
                drop(seen.evidence.1[0].0.insert("state".into(), "other".into()));
            }),
            ("a record goes", |seen| drop(seen.during[0].pop())),
            ("all is said to be well", |seen| seen.ended = Some(0)),
            ("the next one ends otherwise", |seen| seen.last.0 = 0),
            ("other bytes are replayed", |seen| seen.in_the_end[0].1 = Told::sample(201, None, true, "two")),
            ("it runs again", |seen| seen.meanwhile[0].1 = Told::sample(201, None, false, "one")),
            ("it cannot be read any more", |seen| seen.in_the_end[0].1 = unreadable()),
            ("it is read without a key", |seen| seen.without_key[0].1 = Told::sample(201, None, true, "one")),
            ("what cannot be opened is not said to be so", |seen| {
                seen.in_the_end[1].1 = Told::sample(201, None, false, "two");
            }),
            ("one effect too many", |seen| seen.effects = 3),
        ];
        assert_judges(judge, well, wrong);
    }
}
