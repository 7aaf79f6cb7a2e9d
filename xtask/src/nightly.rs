//! `cargo xtask nightly`: the long forms of everything that searches, and what takes too long for every change.

use crate::{chaos, coverage, crash_matrix, fuzz, model, mutants, simulate};

pub(crate) fn run() -> Result<(), String> {
    model::run(&[])?;
    simulate::run(&["--seeds", "20000"])?;
    chaos::run(&["--minutes", "5"])?;
    crash_matrix::run(&[])?;
    fuzz::run(&["--seconds", "300"])?;
    mutants::run(&[])?;
    coverage::run()
}
