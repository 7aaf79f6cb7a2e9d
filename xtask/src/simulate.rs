//! `cargo xtask simulate`: nodes over a simulated store, network and time, seed by seed.

use crate::step::step;

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let words = ["run", "--quiet", "--package", "semel-simulate", "--"];
    step("simulate", &[&words[..], arguments].concat(), &[])
}
