//! `cargo xtask simulate`: nodes over a simulated store, network and time, seed by seed.

use std::process::Command;

use crate::step::{program, step};

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let words = ["run", "--quiet", "--package", "semel-simulate", "--"];
    step("simulate", &[&words[..], arguments].concat(), &[])
}

/// Returns the program, which must have been built.
pub(crate) fn built(arguments: &[&str]) -> Result<Command, String> {
    program("semel-simulate", arguments)
}
