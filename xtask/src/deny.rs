//! Licences, banned crates and sources of everything that is depended on, by `cargo-deny` as `deny.toml` says.
//!
//! Not advisories: these need a database from the network, which this does not reach for.

use std::path::PathBuf;
use std::process::Command;

use crate::databases::{Draft, run, target};
use crate::test::{is_there, step};

/// The version that is installed where there is none.
const VERSION: &str = "0.20.2";

const CHECK: [&str; 4] = ["check", "bans", "licenses", "sources"];

/// Checks, with the `cargo-deny` of this machine, or with one under `target`.
pub(crate) fn check() -> Result<(), String> {
    if is_there("deny") {
        return step("dependencies", &[&["deny"], &CHECK[..]].concat(), &[]);
    }
    let program = install().map_err(|why| {
        format!("dependencies: cargo-deny cannot be installed: {why}\nInstall it by hand: cargo install --locked cargo-deny")
    })?;
    println!("── dependencies: {} {}", program.display(), CHECK.join(" "));
    let mut deny = Command::new(program);
    run(deny.args(CHECK).current_dir(crate::root()).env("CARGO", env!("CARGO")))
        .map_err(|_| "dependencies failed: deny.toml says what may come in, and why".to_owned())?;
    println!("── dependencies: done");
    Ok(())
}

/// Builds it once. Without optimisation, which takes longer than the check ever does.
fn install() -> Result<PathBuf, String> {
    let folder = target()?.join("tools").join(format!("cargo-deny-{VERSION}"));
    let program = folder.join("bin").join("cargo-deny");
    if !program.is_file() {
        println!("── dependencies: installing cargo-deny {VERSION} under target/tools");
        let draft = Draft::new(&folder)?;
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["install", "--quiet", "--locked", "--debug", "--root"]).arg(draft.folder());
        cargo.arg(format!("cargo-deny@{VERSION}"));
        let build = target()?.join("tools").join("build");
        run(cargo.env("CARGO_TARGET_DIR", &build).env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
        let _ = std::fs::remove_dir_all(build);
        draft.publish(&folder)?;
    }
    Ok(program)
}
