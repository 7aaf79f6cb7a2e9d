//! `cargo xtask portable`: every statement that Semel sends to PostgreSQL, against the portable subset. Part of `nightly`.

use crate::databases;
use crate::step::step;

/// Test of each crate with SQL for PostgreSQL.
const TEST: &str = "every_statement_keeps_to_the_portable_subset";

/// Runs the test of both crates, which run a part of their own tests against a server that logs.
pub(crate) fn run() -> Result<(), String> {
    let variables = databases::install()?.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for package in ["semel-stores", "semel-flow"] {
        let test = ["test", "-p", package, "--test", "it", TEST, "--", "--ignored"];
        step(&format!("statements of {package}"), &test, &variables)?;
    }
    Ok(())
}
