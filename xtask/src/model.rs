//! `cargo xtask model`: the exhaustive model, optimised, since it walks through millions of states.

use crate::step::step;

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let words = ["run", "--quiet", "--profile", "dist", "--package", "semel-model", "--"];
    step("model", &[&words[..], arguments].concat(), &[])
}
