//! Judge of provider events: checks that each is accepted once and settles its command. Pure: it gets rows and
//! responses.

use bytes::Bytes;
use serde_json::Value;

use crate::seen::Told;
use crate::site::Row;
use crate::violations::Violations;

/// An event about a command, with the results of both.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) event_id: String,
    pub(crate) operation_id: String,
    /// Results of each delivery of the event.
    pub(crate) deliveries: Vec<Told>,
    /// Verdict of an operator meanwhile.
    pub(crate) operator: Option<Bytes>,
    /// Results of the provider, and then of a client, before the store lost the writes.
    pub(crate) lost: Vec<Told>,
    /// Result of a client after that loss.
    pub(crate) unknown_again: Option<Told>,
    /// Final results of clients at every gateway.
    pub(crate) told: Vec<Told>,
}

impl Case {
    pub(crate) fn new(number: usize, operation_id: String) -> Case {
        Case {
            event_id: format!("event-{number}"),
            operation_id,
            deliveries: Vec::new(),
            operator: None,
            lost: Vec::new(),
            unknown_again: None,
            told: Vec::new(),
        }
    }
}

/// All observations of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) cases: Vec<Case>,
    pub(crate) records: Vec<Row>,
    pub(crate) evidence: Vec<Row>,
    pub(crate) audit: Vec<Row>,
    /// Invalid events: expected status and result.
    pub(crate) poison: Vec<(u16, Told)>,
    pub(crate) effects: usize,
}

impl Heard {
    /// Describes the observations in one line.
    pub(crate) fn tell(&self) -> String {
        let list = |told: &[Told]| told.iter().map(Told::to_string).collect::<Vec<_>>().join(", ");
        let case = |case: &Case| {
            let (sent, lost, told) = (list(&case.deliveries), list(&case.lost), list(&case.told));
            let record = self.record(case).map(|row| row.get("history").unwrap_or_default());
            let evidence: Vec<Option<&str>> = self.evidence(case).map(|row| row.get("outcome")).collect();
            format!(
                "{}: sent [{sent}], lost [{lost}], told [{told}], {record:?}, {evidence:?}",
                case.event_id
            )
        };
        let cases: Vec<String> = self.cases.iter().map(case).collect();
        let poison: Vec<String> =
            self.poison.iter().map(|(status, told)| format!("{status}: {told}")).collect();
        format!("{}; poison {poison:?}; {} effects", cases.join("\n    "), self.effects)
    }

    fn record(&self, case: &Case) -> Option<&Row> {
        self.records.iter().find(|row| row.operation_id() == case.operation_id)
    }

    fn evidence(&self, case: &Case) -> impl Iterator<Item = &Row> {
        self.evidence.iter().filter(|row| row.get("event_id") == Some(case.event_id.as_str()))
    }
}

/// Returns true if an event was accepted, now or before.
pub(crate) fn is_taken(told: &Told) -> bool {
    told.as_answer().is_some_and(|answer| {
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        answer.status == 200 && (said["taken"] == true || said["seen"] == true)
    })
}

/// Returns the violations; none, if all rules hold.
pub(crate) fn judge(seen: &Heard) -> Vec<String> {
    let mut violations = Violations::default();
    for case in &seen.cases {
        let name = &case.event_id;
        violations.must(case.deliveries.iter().any(is_taken), format!("{name} was never taken"));
        let known = |told: &Told| is_taken(told) || told.is_unavailable() || told.as_answer().is_none();
        violations.must(
            case.deliveries.iter().all(known),
            format!("the provider of {name} was told something else"),
        );
        let news = case.deliveries.iter().filter(|told| is_new(told)).count();
        violations.must(news <= 1, format!("{name} was news more than once"));
        let kept: Vec<&Row> = seen.evidence(case).collect();
        violations.must(kept.len() == 1, format!("{name} is kept {} times", kept.len()));
        let outcome = kept.first().and_then(|row| row.get("outcome"));
        let ends: &[&str] =
            if case.operator.is_some() { &["confirmed", "contradicted"] } else { &["used", "confirmed"] };
        violations.must(
            outcome.is_some_and(|outcome| ends.contains(&outcome)),
            format!("{name} ended as {outcome:?}"),
        );
        violations.must(settled_once(seen, case), format!("the command of {name} was not settled once"));
        for told in &case.told {
            violations.must(is_what_was_decided(case, told), format!("a client of {name} was told {told}"));
        }
        if let [taken, settled] = &case.lost[..] {
            violations.must(
                is_taken(taken) && settled.is_done(),
                format!("{name} was not used before it was lost"),
            );
            let unknown = case.unknown_again.as_ref().is_some_and(Told::is_unknown);
            violations.must(unknown, format!("what was lost about {name} is not unknown"));
        }
    }
    for (status, told) in &seen.poison {
        let as_expected = told.as_answer().is_some_and(|answer| answer.status == *status);
        violations.must(as_expected && !is_taken(told), format!("an event that is none was told {told}"));
    }
    let ours = |row: &&Row| {
        let event_id = row.get("event_id").unwrap_or_default();
        event_id.starts_with("damaged-") || seen.cases.iter().any(|case| case.event_id == event_id)
    };
    violations.must(seen.evidence.iter().all(|row| ours(&row)), "something is kept that is no event");
    violations.must(seen.records.len() == seen.cases.len(), "a record came or went");
    violations.must(seen.effects == seen.cases.len(), format!("{} effects", seen.effects));
    violations.list()
}

fn is_new(told: &Told) -> bool {
    let said = told.as_answer().and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    is_taken(told) && said.is_some_and(|said| said["taken"] == true)
}

/// Returns true if one step settled the record by one verdict, with one audit entry.
fn settled_once(seen: &Heard, case: &Case) -> bool {
    let Some(record) = seen.record(case) else { return false };
    let steps = record.get("history").unwrap_or_default().lines();
    // A repeated step has more than four words.
    let verdicts: Vec<usize> = steps
        .filter(|step| step.contains("verdict_executed"))
        .map(|step| step.split_whitespace().count())
        .collect();
    let notes = seen.audit.iter().filter(|row| row.operation_id() == case.operation_id).count();
    record.state() == "succeeded" && verdicts == [4] && notes == 1
}

/// Returns true for a replay of the provider's object, or of an earlier verdict of an operator.
fn is_what_was_decided(case: &Case, told: &Told) -> bool {
    let Some(answer) = told.as_answer() else { return false };
    let decided = match &case.operator {
        Some(operator) => answer.body == operator,
        None => {
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            body["reference"] == case.operation_id.as_str() && body["by"] == "event"
        }
    };
    told.is_done() && answer.replayed && decided
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violations::{Wrong, assert_judges};

    fn row(columns: &[(&str, &str)]) -> Row {
        Row(columns.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    fn replay() -> Told {
        Told::sample(201, None, true, r#"{"by":"event","reference":"a"}"#)
    }

    fn well() -> Heard {
        let taken = Told::sample(200, None, false, r#"{"taken":true}"#);
        let seen = Told::sample(200, None, false, r#"{"seen":true}"#);
        let away = Told::sample(503, Some("IDEMPOTENCY_STORE_UNAVAILABLE"), false, "");
        let unknown = Told::sample(409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), false, "");
        let case = Case {
            deliveries: vec![away, Told::Dropped("it was killed".into()), taken.clone(), seen],
            lost: vec![taken, replay()],
            unknown_again: Some(unknown),
            told: vec![replay(), replay()],
            ..Case::new(0, "a".into())
        };
        let history = "1 1 processing claimed\n2 1 unknown lease_expired\n3 1 succeeded verdict_executed";
        Heard {
            cases: vec![case],
            records: vec![row(&[("operation_id", "a"), ("state", "succeeded"), ("history", history)])],
            evidence: vec![row(&[("event_id", "event-0"), ("outcome", "used")])],
            audit: vec![row(&[("operation_id", "a")])],
            poison: vec![(401, Told::sample(401, Some("UNAUTHENTICATED"), false, ""))],
            effects: 1,
        }
    }

    #[test]
    fn every_wrong_observation_fails() {
        let wrong: &[Wrong<Heard>] = &[
            ("it is never taken", |seen| seen.cases[0].deliveries.truncate(2)),
            ("it is news twice", |seen| {
                let taken = seen.cases[0].deliveries[2].clone();
                seen.cases[0].deliveries.push(taken);
            }),
            ("the provider is told nonsense", |seen| {
                seen.cases[0].deliveries.push(Told::sample(500, None, false, ""));
            }),
            ("it is kept twice", |seen| {
                let kept = seen.evidence[0].clone();
                seen.evidence.push(kept);
            }),
            ("it is acknowledged and lost", |seen| seen.evidence.clear()),
            ("it is never used", |seen| seen.evidence[0] = row(&[("event_id", "event-0")])),
            ("it settles twice", |seen| {
                let twice = "2 1 unknown lease_expired\n3 1 succeeded verdict_executed 1 4";
                drop(seen.records[0].0.insert("history".into(), twice.into()));
            }),
            ("two notes of one verdict", |seen| {
                let note = seen.audit[0].clone();
                seen.audit.push(note);
            }),
            ("it stays unknown", |seen| drop(seen.records[0].0.insert("state".into(), "unknown".into()))),
            ("clients get something else", |seen| {
                seen.cases[0].told[1] = Told::sample(201, None, true, "{}");
            }),
            ("it runs for a client", |seen| {
                seen.cases[0].told[0] = Told::sample(201, None, false, r#"{"by":"event","reference":"a"}"#);
            }),
            ("who stood still has its way", |seen| seen.cases[0].operator = Some(Bytes::from_static(b"{}"))),
            ("what was lost runs again", |seen| seen.cases[0].unknown_again = Some(replay())),
            ("an event that is none is taken", |seen| {
                seen.poison[0].1 = Told::sample(200, None, false, r#"{"taken":true}"#);
            }),
            ("an event that is none is kept", |seen| seen.evidence.push(row(&[("event_id", "p1")]))),
            ("one effect too many", |seen| seen.effects = 2),
        ];
        assert_judges(judge, well, wrong);
    }

    #[test]
    fn verdict_of_an_operator_outlives_the_event() {
        let mut seen = well();
        seen.cases[0].operator = Some(Bytes::from_static(b"{}"));
        seen.cases[0].told = vec![Told::sample(201, None, true, "{}")];
        seen.evidence[0] = row(&[("event_id", "event-0"), ("outcome", "confirmed")]);
        assert_eq!(judge(&seen), Vec::<String>::new());
        seen.cases[0].told = vec![replay()];
        assert_ne!(judge(&seen), Vec::<String>::new());
    }
}
