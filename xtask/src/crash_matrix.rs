//! `cargo xtask crash-matrix`: every step of a command under every fault, on real processes and real
//! databases, and the tables of docs/src/explanation/crash-matrix.md.

use std::process::Command;

use crate::step::{program, step};
use crate::{databases, root};

/// Page whose tables a complete run rewrites.
const PAGE: &str = "docs/src/explanation/crash-matrix.md";

/// Builds gateway and driver, and runs them. Only a complete run updates the page.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let installed = databases::install()?;
    let words = ["build", "--package", "semel-server", "--package", "semel-matrix", "--bins"];
    step("build", &words, &[])?;
    if arguments == ["--sample"] {
        return sample(&installed)?.iter_mut().try_for_each(drive);
    }
    let page = root().join(PAGE);
    let mut words: Vec<&str> = arguments.to_vec();
    let page = page.to_str().ok_or("the path of this project is not text")?;
    if arguments.is_empty() {
        words.extend(["--page", page]);
    }
    drive(&mut driver(&words, &installed)?)
}

/// Returns the commands that run the fixed sample, with programs that must have been built; and cells with a
/// setting that permits second effects, which must be noticed.
pub(crate) fn sample(installed: &databases::Installed) -> Result<Vec<Command>, String> {
    Ok(vec![driver(&["--sample"], installed)?, driver(&["--broken"], installed)?])
}

fn driver(arguments: &[&str], installed: &databases::Installed) -> Result<Command, String> {
    let mut command = program("semel-matrix", arguments)?;
    command.envs(installed.variables());
    Ok(command)
}

fn drive(driver: &mut Command) -> Result<(), String> {
    let words: Vec<_> = driver.get_args().map(|word| word.to_string_lossy()).collect();
    println!("── crash matrix: semel-matrix {}", words.join(" "));
    let status = driver.status().map_err(|error| format!("semel-matrix cannot be run: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("crash matrix: a cell failed, or could not be run; see above".into())
    }
}
