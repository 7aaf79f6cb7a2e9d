//! `cargo xtask coverage`: measures the lines of `crates/core` that its own tests reach.

use std::process::Command;

use crate::databases::output;
use crate::tools::{Tool, shown};

const LLVM_COV: Tool = Tool { name: "llvm-cov", version: "0.9.1" };

pub(crate) fn run() -> Result<(), String> {
    let mut rustup = Command::new("rustup");
    output(rustup.args(["component", "add", "llvm-tools"])).map_err(|why| {
        format!("coverage: the compiler's component `llvm-tools` is missing, and cannot be installed: {why}")
    })?;
    let mut report = LLVM_COV.command()?;
    match shown(report.args(["--package", "semel-core", "--all-targets", "--summary-only", "--quiet"]))? {
        Some(0) => Ok(()),
        _ => Err("coverage: cargo-llvm-cov has failed; see above".to_owned()),
    }
}
