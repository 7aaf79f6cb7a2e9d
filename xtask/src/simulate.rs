//! `cargo xtask simulate`: nodes over a simulated store, network and time, seed by seed.

use crate::test;

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let words = ["run", "--quiet", "--package", "semel-simulate", "--"];
    test::step("simulate", &[&words[..], arguments].concat(), &[])
}
