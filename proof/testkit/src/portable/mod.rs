//! The portable SQL subset: rules for the statements that Semel sends to PostgreSQL, so that its distributed relatives
//! could run them. Tests of `stores` and `flow` record every statement at a server of their own and judge it here; each
//! statement outside of the subset needs an [`Exception`] with its reason. A statement in the source that no test sends
//! is found by [`unsent`], so that none can hide.

mod log;
mod rules;
mod source;
mod tokens;

use std::collections::BTreeSet;

pub use log::{SETTINGS, statements_of};
pub use rules::{Names, outside};
pub use source::{SqlLiteral, literals, sent_by, unsent};

/// A statement that may depart from the subset.
pub struct Exception {
    /// Text that the statement contains, in the form of [`normalized`].
    pub statement: &'static str,
    /// Permitted departures, as [`outside`] names them; [`ANYTHING`] permits all.
    pub departures: &'static [&'static str],
    /// Reason for the departures.
    pub reason: &'static str,
}

/// SQL of `flow`, and of `stores`, that the tests of `flow` send, by the beginning of its place; those of `stores` send
/// the rest.
pub const SENT_BY_FLOW: [&str; 15] = [
    "evidence.rs CONTRADICT",
    "first.rs",
    "joined.rs",
    "outbox.rs",
    "phases.rs",
    "postgres.rs",
    "queries.rs HAS_MESSAGE",
    "queries.rs HAS_REQUEST",
    "queries.rs IS_CLAIMED_BY",
    "queries.rs PUSH",
    "reseal.rs RESEAL_MESSAGES",
    "reseal.rs RESEAL_PHASES",
    "session.rs",
    "steps.rs",
    "transaction.rs",
];

/// Departures of a statement that is never part of a request: it may use all of PostgreSQL.
pub const ANYTHING: &[&str] = &["*"];

/// Result of judging statements against the subset and its exceptions.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Departures without an exception, each with its statement.
    pub refused: Vec<String>,
    /// Exceptions that no statement needs.
    pub unused: Vec<String>,
}

/// Judges statements. A part of an exception that no statement needs any more is reported too.
pub fn judge(statements: &BTreeSet<String>, names: &Names, exceptions: &[Exception]) -> Verdict {
    let permitted = |exception: &'static str, departure: &str| exception == "*" || exception == departure;
    let mut needed = BTreeSet::new();
    let mut verdict = Verdict::default();
    for statement in statements {
        for departure in outside(statement, names) {
            let mut is_excepted = false;
            for (number, exception) in exceptions.iter().enumerate() {
                let own = exception.departures.iter().find(|own| permitted(own, &departure));
                if let Some(own) = own.filter(|_| statement.contains(exception.statement)) {
                    is_excepted = true;
                    needed.insert((number, *own));
                }
            }
            if !is_excepted {
                verdict.refused.push(format!("{departure}: {statement}"));
            }
        }
    }
    for (number, exception) in exceptions.iter().enumerate() {
        let unused = exception.departures.iter().filter(|own| !needed.contains(&(number, **own)));
        verdict.unused.extend(unused.map(|own| format!("{own}: {}", exception.statement)));
    }
    verdict
}

/// Returns a statement without comments, and with single spaces.
pub fn normalized(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split_once("--").map_or(line, |(before, _)| before));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCEPTION: Exception =
        Exception { statement: "INTO semel_records", departures: &["function unnest"], reason: "a group" };

    fn verdict_on(statement: &str) -> Verdict {
        let names = Names::of([("semel_records", "id"), ("semel_outbox", "state")]);
        judge(&BTreeSet::from([statement.to_owned()]), &names, &[EXCEPTION])
    }

    #[test]
    fn a_departure_needs_an_exception_for_its_own_statement() {
        let excepted = verdict_on("INSERT INTO semel_records (id) SELECT i FROM unnest($1) AS i");
        assert!(excepted.refused.is_empty() && excepted.unused.is_empty(), "{excepted:?}");
        let other = verdict_on("SELECT state FROM semel_outbox, unnest($1) AS i");
        assert_eq!(other.refused.len(), 1, "{other:?}");
    }

    #[test]
    fn an_exception_that_nothing_needs_is_reported() {
        assert_eq!(
            verdict_on("SELECT id FROM semel_records").unused,
            ["function unnest: INTO semel_records"]
        );
    }
}
