//! Judge of migrations: checks that a store moves to the next version atomically, with all its records. Pure.

use std::collections::BTreeMap;

use crate::seen::Told;
use crate::site::Row;
use crate::violations::Violations;

/// Columns that a newer version adds with a default value.
const ADDED: [&str; 1] = ["next"];

/// All observations of a migration.
#[derive(Clone, Debug)]
pub(crate) struct Migrated {
    /// Parts of the tables before, and parts of the next version.
    pub(crate) old: Vec<String>,
    pub(crate) new: Vec<String>,
    /// Parts at each look while the fault lasted, and in the end.
    pub(crate) during: Vec<Vec<String>>,
    pub(crate) after: Vec<String>,
    /// Records, before and in the end.
    pub(crate) before: Vec<Row>,
    pub(crate) rows: Vec<Row>,
    /// Exit codes of tools that ended by themselves after the fault.
    pub(crate) ended: Vec<i32>,
    /// Programs that must refuse to work on the store.
    pub(crate) refused: Vec<Refused>,
    /// Result of the first client of each command.
    pub(crate) first: BTreeMap<String, Told>,
    /// Results while the fault lasted, by key.
    pub(crate) meanwhile: Vec<(String, Told)>,
    /// Final results at every gateway, by key.
    pub(crate) told: Vec<(String, Told)>,
    /// Results at every gateway of another request under a used key.
    pub(crate) mismatched: Vec<Told>,
    /// True if one more command was sent, by a client that left.
    pub(crate) gone: bool,
    pub(crate) effects: usize,
}

/// A program that must refuse to work on a store, and change nothing.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) code: i32,
    pub(crate) before: Vec<String>,
    pub(crate) after: Vec<String>,
}

impl Migrated {
    /// Describes the observations in one line.
    pub(crate) fn tell(&self) -> String {
        let list = |told: &[(String, Told)]| -> Vec<String> {
            told.iter().map(|(name, told)| format!("{name}: {told}")).collect()
        };
        let refused: Vec<i32> = self.refused.iter().map(|refused| refused.code).collect();
        let between: Vec<String> =
            self.during.iter().flatten().filter(|part| !self.new.contains(part)).cloned().collect();
        format!(
            "ended with {:?}, refused with {refused:?}; not in the new {between:?}; meanwhile {:?}; in the end {:?}, {:?}; {} \
             effects",
            self.ended,
            list(&self.meanwhile),
            list(&self.told),
            self.mismatched.iter().map(Told::to_string).collect::<Vec<_>>(),
            self.effects
        )
    }
}

/// Returns the violations; none, if all rules hold.
pub(crate) fn judge(seen: &Migrated) -> Vec<String> {
    let mut violations = Violations::default();
    for parts in &seen.during {
        violations.must(*parts == seen.old || *parts == seen.new, "the tables are neither old nor new");
    }
    violations.must(seen.old != seen.new, "there is nothing to do");
    violations.must(seen.after == seen.new, "the tables are not those of this version");
    for refused in &seen.refused {
        violations
            .must(refused.code == 2, format!("it ended with {}, and should have refused", refused.code));
        violations.must(refused.after == refused.before, "it refused, and changed something");
    }
    violations
        .must(seen.ended.iter().all(|code| [0, 2].contains(code)), format!("it ended with {:?}", seen.ended));
    let said_done = seen.ended.contains(&0);
    let is_new = seen.during.contains(&seen.new);
    violations.must(!said_done || is_new, "it said that it was done, and it was not");
    for before in &seen.before {
        let is_same = |row: &Row| row.without(&ADDED) == *before;
        violations
            .must(seen.rows.iter().any(is_same), format!("{} is not what it was", before.operation_id()));
    }
    let more = usize::from(seen.gone);
    violations.must(seen.rows.len() == seen.before.len() + more, "a record came or went");
    for (name, told) in &seen.meanwhile {
        let fine = is_same(seen, name, told) || told.is_unavailable();
        violations.must(fine, format!("{name} was told {told} meanwhile"));
    }
    for (name, told) in &seen.told {
        violations.must(is_same(seen, name, told), format!("{name} was told {told}"));
        let others = seen.told.iter().filter(|(other, _)| other == name);
        let same = others.map(|(_, other)| other).all(|other| body(other) == body(told));
        violations.must(same || told.is_unknown(), format!("gateways say different things about {name}"));
    }
    let mismatch = |told: &Told| told.as_answer().is_some_and(|answer| answer.status == 422);
    violations.must(seen.mismatched.iter().all(mismatch), "another request was not told from the first");
    violations.must(seen.effects == seen.first.len() + more, format!("{} effects", seen.effects));
    violations.list()
}

fn body(told: &Told) -> Option<&bytes::Bytes> {
    told.as_answer().map(|answer| &answer.body)
}

/// Returns true if a retry gets the same result as before the migration.
fn is_same(seen: &Migrated, name: &str, told: &Told) -> bool {
    let replayed = told.as_answer().is_some_and(|answer| answer.replayed) && told.is_done();
    match seen.first.get(name) {
        Some(first) if first.is_done() => replayed && body(first) == body(told),
        Some(_) => told.is_unknown(),
        None => seen.gone && replayed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violations::{Wrong, assert_judges};

    fn row(id: &str) -> Row {
        Row([("operation_id".to_owned(), id.to_owned())].into())
    }

    fn well() -> Migrated {
        let (old, new) = (vec!["version 1".to_owned()], vec!["version 2".to_owned()]);
        let replay = || ("one".to_owned(), Told::sample(201, None, true, "1"));
        let unknown =
            || ("two".to_owned(), Told::sample(409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), false, ""));
        Migrated {
            during: vec![old.clone(), new.clone()],
            after: new.clone(),
            refused: vec![Refused { code: 2, before: old.clone(), after: old.clone() }],
            old,
            new,
            before: vec![row("a"), row("b")],
            rows: vec![row("a"), row("b")],
            ended: vec![2, 0],
            first: [
                ("one".to_owned(), Told::sample(201, None, false, "1")),
                ("two".to_owned(), Told::sample(502, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), false, "")),
            ]
            .into(),
            meanwhile: vec![
                replay(),
                ("one".to_owned(), Told::sample(503, Some("IDEMPOTENCY_STORE_UNAVAILABLE"), false, "")),
            ],
            told: vec![replay(), unknown(), replay(), unknown()],
            mismatched: vec![Told::sample(422, Some("IDEMPOTENCY_KEY_REUSED"), false, ""); 2],
            gone: false,
            effects: 2,
        }
    }

    #[test]
    fn correct_migration_passes() {
        assert_eq!(judge(&well()), Vec::<String>::new());
        let mut seen = well();
        seen.gone = true;
        seen.effects = 3;
        seen.rows.push(row("c"));
        seen.told.extend(vec![("gone".to_owned(), Told::sample(201, None, true, "3")); 2]);
        assert_eq!(judge(&seen), Vec::<String>::new());
    }

    #[test]
    fn every_wrong_observation_fails() {
        let wrong: &[Wrong<Migrated>] = &[
            ("half a schema", |seen| seen.during.push(vec!["version 1".into(), "version 2".into()])),
            ("it stays old", |seen| seen.after = seen.old.clone()),
            ("nothing to do", |seen| seen.old = seen.new.clone()),
            ("a newer store is used", |seen| seen.refused[0].code = 0),
            ("a newer store is changed", |seen| seen.refused[0].after = seen.new.clone()),
            ("it said done, and was not", |seen| drop(seen.during.pop())),
            ("a crash", |seen| seen.ended.push(101)),
            ("a record goes", |seen| drop(seen.rows.pop())),
            ("a record changes", |seen| seen.rows[0] = row("z")),
            ("a record comes", |seen| seen.rows.push(row("z"))),
            ("what was settled runs again", |seen| seen.told[0].1 = Told::sample(201, None, false, "1")),
            ("what is unknown runs again", |seen| seen.told[1].1 = Told::sample(201, None, false, "2")),
            ("one gateway says something else", |seen| seen.told[2].1 = Told::sample(201, None, true, "2")),
            ("another request is let through", |seen| {
                seen.mismatched[1] = Told::sample(201, None, true, "1");
            }),
            ("it runs again meanwhile", |seen| seen.meanwhile[0].1 = Told::sample(201, None, false, "9")),
            ("one effect too many", |seen| seen.effects = 3),
        ];
        assert_judges(judge, well, wrong);
    }
}
