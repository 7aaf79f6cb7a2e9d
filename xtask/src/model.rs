//! `cargo xtask model`: the exhaustive model, optimised, since it walks through millions of states.

use crate::test;

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let words = ["run", "--quiet", "--release", "--package", "semel-model", "--"];
    test::step("model", &[&words[..], arguments].concat(), &[])
}
