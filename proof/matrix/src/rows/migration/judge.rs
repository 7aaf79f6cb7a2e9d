//! Says whether a store came from one version to the next as it must: at once, with everything in it. Pure.

use std::collections::BTreeMap;

use crate::seen::Told;
use crate::site::Row;
use crate::violations::Violations;

/// Columns that a newer version adds with a value of their own.
const ADDED: [&str; 1] = ["next"];

/// All that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Migrated {
    /// What the tables were made of, and what those of this version are made of.
    pub(crate) old: Vec<String>,
    pub(crate) new: Vec<String>,
    /// What they were made of while the fault stood, each time that somebody looked; and in the end.
    pub(crate) during: Vec<Vec<String>>,
    pub(crate) after: Vec<String>,
    /// The records, before and in the end.
    pub(crate) before: Vec<Row>,
    pub(crate) rows: Vec<Row>,
    /// How those ended that were struck and ended by themselves.
    pub(crate) ended: Vec<i32>,
    /// Those that must not do anything.
    pub(crate) refused: Vec<Refused>,
    /// What the first client of each command was told.
    pub(crate) first: BTreeMap<String, Told>,
    /// What others were told while the fault stood.
    pub(crate) meanwhile: Vec<(String, Told)>,
    /// What every gateway says in the end.
    pub(crate) told: Vec<(String, Told)>,
    /// What every gateway says to another request under a key that is taken.
    pub(crate) mismatched: Vec<Told>,
    /// Whether one more command was sent, by a client that left.
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
    /// In one line, for people.
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

/// What is violated; nothing, if all is well.
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

/// What was said before the migration, as a retry gets it.
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
    fn what_is_as_it_must_be_passes() {
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
