//! Judge of sweep and reap: checks the fate of every record. Pure: it gets rows and responses.

use std::collections::BTreeMap;

use crate::seen::Told;
use crate::site::Row;
use crate::violations::Violations;

/// Expected fate of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Record that stays unchanged: it is not due, of a state that cannot be due, or unreadable.
    Untouched,
    /// Record with an expired lease: it becomes unknown, once.
    Ended,
    /// Expired record: it is removed.
    Expired,
    /// Record with an expired lease, which its executor settles while the tool is suspended: that outcome counts.
    Late,
    /// Expired record, whose key is used again while the tool is suspended: the new record stays.
    UsedAnew,
}

/// All observations of a sweep or reap.
#[derive(Clone, Debug)]
pub(crate) struct Tended {
    /// Name of the key and kind of each command, by operation id.
    pub(crate) kinds: BTreeMap<String, (String, Kind)>,
    pub(crate) before: Vec<Row>,
    /// Records at each look while the fault lasted.
    pub(crate) during: Vec<Vec<Row>>,
    /// Records after a run of the tool whose clock had nothing due yet.
    pub(crate) not_yet: Option<Vec<Row>>,
    /// Exit code of the tool under fault, if it ended by itself; and the records then.
    pub(crate) first: Option<i32>,
    pub(crate) when_first_ended: Option<Vec<Row>>,
    /// Exit code of the tool after it, and the records then.
    pub(crate) last: i32,
    pub(crate) after: Vec<Row>,
    /// First result of the command whose record is kept.
    pub(crate) kept: Told,
    /// Result of a client while the tool was suspended.
    pub(crate) meanwhile: Option<Told>,
    /// Final results of clients, by the names of their keys.
    pub(crate) told: Vec<(String, Told)>,
    pub(crate) effects_before: usize,
    pub(crate) effects: usize,
}

impl Tended {
    /// Describes the observations in one line.
    pub(crate) fn tell(&self) -> String {
        let told: Vec<String> = self.told.iter().map(|(name, told)| format!("{name}: {told}")).collect();
        let states: Vec<String> = self
            .kinds
            .iter()
            .map(|(id, (name, _))| format!("{name}: {}", find(&self.after, id).map_or("gone", Row::state)))
            .collect();
        let (first, last, effects) = (self.first, self.last, (self.effects_before, self.effects));
        format!("ended with {first:?} and {last}; {states:?}; told {told:?}; effects {effects:?}")
    }
}

fn find<'a>(rows: &'a [Row], id: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.operation_id() == id)
}

/// Returns the violations; none, if all rules hold.
pub(crate) fn judge(seen: &Tended) -> Vec<String> {
    let mut violations = Violations::default();
    let moments = seen.during.iter().chain(&seen.when_first_ended).chain([&seen.after]);
    for rows in moments {
        for (id, (name, kind)) in &seen.kinds {
            let (before, now) = (find(&seen.before, id), find(rows, id));
            let fine = match kind {
                Kind::Untouched => now == before,
                Kind::Ended => now == before || is_swept(before, now),
                Kind::Expired => now == before || now.is_none(),
                Kind::Late | Kind::UsedAnew => true,
            };
            violations.must(fine, format!("{name} is {:?}, and may not be", now.map(Row::state)));
        }
        let anew = usize::from(seen.kinds.values().any(|(_, kind)| *kind == Kind::UsedAnew));
        let strangers = rows.iter().filter(|row| !seen.kinds.contains_key(row.operation_id())).count();
        violations.must(strangers <= anew, "there is a record of nobody's command");
    }
    for pair in seen.during.windows(2) {
        let back = seen.kinds.keys().any(|id| {
            let [then, now] = [&pair[0], &pair[1]].map(|rows| find(rows, id).map(Row::state));
            then == Some("unknown") && now != then || then.is_none() && now.is_some()
        });
        violations.must(!back, "what was done is undone");
    }
    violations
        .must(seen.not_yet.as_ref().is_none_or(|rows| *rows == seen.before), "something was done early");
    if let (Some(0), Some(rows)) = (seen.first, &seen.when_first_ended) {
        violations.must(nothing_is_due(seen, rows), "it said that it was done, and it was not");
    }
    violations.must(seen.last == 0, format!("the next one ended with {}", seen.last));
    violations.must(nothing_is_due(seen, &seen.after), "something is still due");
    for (name, told) in &seen.told {
        let kind = seen.kinds.values().find(|(known, _)| known == name).map(|(_, kind)| *kind);
        violations.must(is_told(seen, name, kind, told), format!("{name} was told {told}"));
    }
    violations.must(seen.effects == seen.effects_before + may_run(seen), "something ran, or did not");
    violations.list()
}

/// Returns true if the record became unknown in one step, with no other change.
fn is_swept(before: Option<&Row>, now: Option<&Row>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return false };
    let changes = [
        "state",
        "reason",
        "due_at",
        "state_since",
        "reconcile_after",
        "attempts",
        "quarantine_until",
        "updated_at",
        "history",
        "revision",
        "expires_at",
    ];
    let steps = |row: &Row| row.get("history").unwrap_or_default().lines().count();
    // A repeated step has more than four words.
    let last = now.get("history").unwrap_or_default().lines().last().unwrap_or_default();
    now.state() == "unknown"
        && now.get("due_at").is_none()
        && steps(now) == steps(before) + 1
        && last.split_whitespace().count() == 4
        && now.without(&changes) == before.without(&changes)
}

fn nothing_is_due(seen: &Tended, rows: &[Row]) -> bool {
    seen.kinds.iter().all(|(id, (_, kind))| match kind {
        Kind::Untouched => true,
        Kind::Ended => find(rows, id).is_some_and(|row| row.state() == "unknown"),
        Kind::Expired => find(rows, id).is_none(),
        Kind::Late => find(rows, id).is_some_and(|row| row.state() == "succeeded"),
        // The new command has an id of its own.
        Kind::UsedAnew => {
            let anew = rows.iter().find(|row| !seen.kinds.contains_key(row.operation_id()));
            find(rows, id).is_none() && anew.is_some_and(|row| row.state() == "succeeded")
        }
    })
}

fn is_told(seen: &Tended, name: &str, kind: Option<Kind>, told: &Told) -> bool {
    let is_replay_of = |first: &Told| {
        let (Some(first), Some(answer)) = (first.as_answer(), told.as_answer()) else { return false };
        told.is_done() && answer.replayed && answer.body == first.body
    };
    match (name, kind) {
        ("kept", _) => is_replay_of(&seen.kept),
        (_, Some(Kind::Late | Kind::UsedAnew)) => seen.meanwhile.as_ref().is_some_and(is_replay_of),
        ("unknown", _) | (_, Some(Kind::Ended)) => told.is_unknown(),
        (_, Some(Kind::Expired)) => told.is_done() && told.as_answer().is_some_and(|answer| !answer.replayed),
        _ => told.is_in_progress(),
    }
}

/// Returns the number of commands that may run after the fault: expired and late ones.
fn may_run(seen: &Tended) -> usize {
    let ran = |kind: &Kind| matches!(kind, Kind::Expired | Kind::Late | Kind::UsedAnew);
    seen.kinds.values().filter(|(_, kind)| ran(kind)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violations::{Wrong, assert_judges};

    fn row(id: &str, columns: &[(&str, &str)]) -> Row {
        let own = [("operation_id", id), ("token", "t"), ("history", "one")];
        Row(own.iter().chain(columns).map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    /// Correct observation of a swept, a live, an expired and a kept record.
    fn well() -> Tended {
        let before = vec![
            row("a", &[("state", "processing"), ("due_at", "1")]),
            row("b", &[("state", "processing"), ("due_at", "9")]),
            row("c", &[("state", "succeeded"), ("expires_at", "1")]),
            row("d", &[("state", "succeeded"), ("expires_at", "9")]),
        ];
        let mut after = before.clone();
        after.remove(2);
        after[0] = row("a", &[("state", "unknown"), ("history", "one\n2 1 unknown lease_expired")]);
        let kinds =
            [("a", "ended-1", Kind::Ended), ("b", "live", Kind::Untouched), ("c", "gone", Kind::Expired)];
        let kinds = kinds.into_iter().chain([("d", "kept", Kind::Untouched)]);
        Tended {
            kinds: kinds.map(|(id, name, kind)| (id.into(), (name.into(), kind))).collect(),
            during: vec![before.clone(), after.clone()],
            not_yet: Some(before.clone()),
            before,
            first: Some(0),
            when_first_ended: Some(after.clone()),
            last: 0,
            after,
            kept: Told::sample(201, None, false, "{}"),
            meanwhile: None,
            told: vec![
                ("ended-1".into(), Told::sample(409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), false, "{}")),
                ("live".into(), Told::sample(409, Some("IDEMPOTENCY_REQUEST_IN_PROGRESS"), false, "{}")),
                ("gone".into(), Told::sample(201, None, false, "{}")),
                ("kept".into(), Told::sample(201, None, true, "{}")),
            ],
            effects_before: 2,
            effects: 3,
        }
    }

    #[test]
    fn every_wrong_observation_fails() {
        let wrong: &[Wrong<Tended>] = &[
            ("a live lease is swept", |seen| {
                drop(seen.after[1].0.insert("state".into(), "unknown".into()));
            }),
            ("a record is reaped early", |seen| drop(seen.after.pop())),
            ("a record that runs is reaped for a moment", |seen| drop(seen.during[1].remove(1))),
            ("a lease that ended stays", |seen| seen.after[0] = seen.before[0].clone()),
            ("a record that expired stays", |seen| seen.after.push(seen.before[2].clone())),
            ("a lease ends twice", |seen| {
                drop(seen.after[0].0.insert("history".into(), "one\n2 1 unknown lease_expired 1 3".into()));
            }),
            ("a token changes", |seen| drop(seen.after[0].0.insert("token".into(), "u".into()))),
            ("it is early", |seen| seen.not_yet = Some(seen.after.clone())),
            ("a state goes back", |seen| seen.during.push(seen.before.clone())),
            ("it says done and is not", |seen| seen.when_first_ended = Some(seen.before.clone())),
            ("the next one fails", |seen| seen.last = 2),
            ("what is unknown runs again", |seen| seen.told[0].1 = Told::sample(201, None, false, "{}")),
            ("what lives runs again", |seen| seen.told[1].1 = Told::sample(201, None, false, "{}")),
            ("what is kept runs again", |seen| seen.told[3].1 = Told::sample(201, None, false, "{}")),
            ("one effect too many", |seen| seen.effects = 4),
            ("a record from nowhere", |seen| seen.after.push(row("z", &[("state", "succeeded")]))),
        ];
        assert_judges(judge, well, wrong);
    }

    #[test]
    fn suspended_tool_keeps_later_writes_of_others() {
        let mut seen = well();
        seen.kinds.insert("c".into(), ("gone".into(), Kind::UsedAnew));
        seen.meanwhile = Some(Told::sample(201, None, false, "{}"));
        seen.told[2].1 = Told::sample(201, None, true, "{}");
        let anew = row("e", &[("state", "succeeded")]);
        seen.after.push(anew.clone());
        seen.when_first_ended.as_mut().expect("it has ended").push(anew);
        assert_eq!(judge(&seen), Vec::<String>::new());
        seen.after.pop();
        assert_ne!(judge(&seen), Vec::<String>::new(), "what is new was deleted");
        let mut seen = well();
        seen.kinds.insert("a".into(), ("ended-1".into(), Kind::Late));
        assert_ne!(judge(&seen), Vec::<String>::new(), "the executor's word is lost");
    }
}
