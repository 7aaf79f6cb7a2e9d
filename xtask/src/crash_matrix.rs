//! `cargo xtask crash-matrix`: every step of a command under every fault, on real processes and real databases, and the
//! table of it in docs/crash-matrix.md.

use std::process::Command;

use crate::step::step;
use crate::{databases, root};

/// The table that people read.
const PAGE: &str = "docs/crash-matrix.md";

/// Builds gateway and driver, and runs them. Only a run of everything is written down.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let installed = databases::install()?;
    let words = ["build", "--package", "semel-server", "--package", "semel-matrix", "--bins"];
    step("build", &words, &[])?;
    if arguments == ["--sample"] {
        return sample(&installed);
    }
    let page = root().join(PAGE);
    let mut words: Vec<&str> = arguments.to_vec();
    let page = page.to_str().ok_or("the path of this project is not text")?;
    if arguments.is_empty() {
        words.extend(["--page", page]);
    }
    drive(&words, &installed)
}

/// The fixed sample, with programs that were built before; and cells with a setting that permits second effects, which must
/// be noticed.
pub(crate) fn sample(installed: &databases::Installed) -> Result<(), String> {
    drive(&["--sample"], installed)?;
    drive(&["--broken"], installed)
}

/// Runs the driver, which is beside this program.
fn drive(arguments: &[&str], installed: &databases::Installed) -> Result<(), String> {
    println!("── crash matrix: semel-matrix {}", arguments.join(" "));
    let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("semel-matrix");
    let status = Command::new(&program)
        .args(arguments)
        .envs(installed.variables().iter().map(|(name, value)| (*name, value)))
        .status()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    if status.success() {
        Ok(())
    } else {
        Err("crash matrix: a cell failed, or could not be run; see above".into())
    }
}
