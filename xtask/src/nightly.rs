//! `cargo xtask nightly`: the long forms of all searches, and the checks that take too long for every change.

use crate::{
    browser, chaos, clients, cluster, coverage, crash_matrix, fuzz, hostile, model, mutants, portable,
    simulate, third_party,
};

/// Runs all of them, even after a failure: their findings are the purpose of the night.
pub(crate) fn run() -> Result<(), String> {
    type Search = fn() -> Result<(), String>;
    let searches: [(&str, Search); 15] = [
        ("model", || model::run(&[])),
        ("simulate", || simulate::run(&["--seeds", "20000"])),
        ("chaos", || chaos::run(&["--minutes", "5"])),
        ("upgrades", || chaos::run(&["--minutes", "3", "--versions", "mixed"])),
        ("store-chaos", || chaos::run_store(&["--minutes", "5"])),
        ("cluster", cluster::tonight),
        ("crash-matrix", || crash_matrix::run(&[])),
        ("clients", || clients::run(&["--commands", clients::MANY_COMMANDS])),
        ("portable", portable::run),
        ("routers", third_party::routers),
        ("console", browser::many_records),
        ("hostile", || hostile::run(&["--cases", "50000"])),
        ("fuzz", || fuzz::run(&["--seconds", "300"])),
        ("mutants", mutants::tonight),
        ("coverage", coverage::run),
    ];
    let mut failed = Vec::new();
    for (name, search) in searches {
        if let Err(why) = search() {
            println!("── {name} has failed: {why}");
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}; see above", failed.join(", "))) }
}
