//! Checks licences, banned crates and sources of all dependencies, by `cargo-deny` and `deny.toml`.
//!
//! It does not check advisories: these need a database from the network.

use crate::tools::{Tool, shown};

const DENY: Tool = Tool { name: "deny", version: "0.20.2" };

/// Runs the checks with the `cargo-deny` of this machine, or with one under `target`.
pub(crate) fn check() -> Result<(), String> {
    let mut deny = DENY.command()?;
    match shown(deny.args(["check", "bans", "licenses", "sources"]))? {
        Some(0) => println!("── dependencies: done"),
        _ => return Err("dependencies failed: deny.toml says what may come in, and why".to_owned()),
    }
    Ok(())
}
