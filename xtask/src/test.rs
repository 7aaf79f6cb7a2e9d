//! `cargo xtask test` and `cargo xtask check`: one part after the other, the first failure ends it, and the
//! slowest parts are listed at the end of both.
//!
//! Everything is built once, for the whole workspace with its tests, and parts of it are selected afterwards.
//! `-p`, or programs without tests, would mean other features of dependencies, and most crates would be built
//! again.

use std::process::{Command, Stdio};

use crate::parts::{Beside, Parts};
use crate::step::step;
use crate::tools::is_there;
use crate::{
    browser, chaos, clients, cluster, crash_matrix, databases, deny, diagram, docs, imports, names,
    prometheus, simulate, third_party, threats,
};

/// Number of simulated seeds for every change, and for every commit.
const SEEDS: &str = "2000";
const FEW_SEEDS: &str = "100";
/// Number of concurrent tests per processor: most of them wait, for a disk or for another process.
const TESTS_EACH: usize = 2;
/// Maximum number of concurrent tests, unless there are more processors: the database server has 200
/// connections for all.
const MOST_TESTS: usize = 16;

/// Runs everything that must pass.
pub(crate) fn run() -> Result<(), String> {
    timed(everything)
}

/// Runs the two-minute check before each commit: nothing that needs a database, a browser or a socket.
pub(crate) fn check() -> Result<(), String> {
    timed(the_least)
}

fn timed(parts_of: impl FnOnce(&mut Parts) -> Result<(), String>) -> Result<(), String> {
    let mut parts = Parts::default();
    let done = parts_of(&mut parts);
    parts.print_slowest();
    if done.is_ok() {
        println!("── all green");
    }
    done
}

fn everything(parts: &mut Parts) -> Result<(), String> {
    vectors()?;
    openssl()?;
    let installed = parts.run("databases", databases::install)?;
    let (browser, place) = parts.run("browser", browser::install)?.variable();
    let (third_party, folder) = parts.run("services and clients of others", third_party::install)?.variable();
    parts.run("Node and Python", clients::install)?;
    let promtool = parts.run("promtool", prometheus::install)?;
    let (prometheus, program) = promtool.variable();
    format_and_lints(parts)?;
    parts.run("build", || step("build", &["build", "--workspace", "--all-targets"], &[]))?;
    let at_once = at_once();
    {
        // Ends with this block, even if a test fails, and with this process.
        let shared = installed.start()?;
        let variables = [
            &shared.variables()[..],
            &[(browser, place.as_str()), (third_party, folder.as_str()), (prometheus, program.as_str())],
        ]
        .concat();
        let on_postgres = [&variables[..], &[("SEMEL_TEST_STORE", "postgres")]].concat();
        if is_there("nextest") {
            let run = ["nextest", "run", "--workspace", "--test-threads", &at_once];
            let done = parts.run("tests", || step("tests", &run, &variables));
            parts.note_tests("");
            done?;
            let gateway = [&run[..], &["-E", "binary_id(semel-server::it) & test(gateway::)"]].concat();
            let name = "the gateway's tests on PostgreSQL";
            let done = parts.run(name, || step(name, &gateway, &on_postgres));
            parts.note_tests(" (on PostgreSQL)");
            done?;
        } else {
            let run = ["test", "--workspace", "--all-targets"];
            parts.run("tests", || step("tests", &run, &variables))?;
            let gateway = ["test", "-p", "semel-server", "--test", "it", "gateway::"];
            let name = "the gateway's tests on PostgreSQL";
            parts.run(name, || step(name, &gateway, &on_postgres))?;
        }
        let documented = ["test", "--workspace", "--doc"];
        let name = "documentation tests";
        parts.run(name, || step(name, &documented, &shared.variables()))?;
    }
    parts.run("threats", || threats::check(threats::Build::Everything))?;
    let mut beside =
        vec![Beside { name: "simulation", commands: vec![simulate::built(&["--seeds", SEEDS])?] }];
    beside.push(Beside { name: "crash matrix", commands: crash_matrix::sample(&installed)? });
    beside.extend(chaos::short(&installed)?);
    beside.extend(cluster::short(&installed)?);
    parts.side_by_side(beside)?;
    clients::short(parts)?;
    let documentation = ["doc", "--workspace", "--no-deps"];
    parts
        .run("documentation", || step("documentation", &documentation, &[("RUSTDOCFLAGS", "-D warnings")]))?;
    parts.run("book", docs::build)?;
    parts.run("alerts and dashboard", || promtool.check())?;
    parts.run("dependencies", deny::check)
}

fn the_least(parts: &mut Parts) -> Result<(), String> {
    format_and_lints(parts)?;
    // The unit tests of libraries and programs: they need no database, no browser and no other process.
    let within = ["--workspace", "--lib", "--bins"];
    if is_there("nextest") {
        let at_once = at_once();
        let run = [&["nextest", "run"], &within[..], &["--test-threads", &at_once]].concat();
        let done = parts.run("unit tests", || step("unit tests", &run, &[]));
        parts.note_tests("");
        done?;
    } else {
        parts.run("unit tests", || step("unit tests", &[&["test"], &within[..]].concat(), &[]))?;
    }
    // One small test beside it, so that it shares the build of the unit tests.
    let build = ["build", "--workspace", "--bin", "semel-simulate", "--test", "absent"];
    parts.run("build of the simulation", || step("build of the simulation", &build, &[]))?;
    let simulation = Beside { name: "simulation", commands: vec![simulate::built(&["--seeds", FEW_SEEDS])?] };
    parts.side_by_side(vec![simulation])
}

fn format_and_lints(parts: &mut Parts) -> Result<(), String> {
    parts.run("format", || step("format", &["fmt", "--all", "--check"], &[]))?;
    let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    parts.run("lints", || step("lints", &lints, &[]))?;
    parts.run("imports", imports::check)?;
    parts.run("names", names::check)?;
    parts.run("diagram", diagram::check)?;
    parts.run("links and pages", docs::check)?;
    parts.run("alerts", prometheus::check_names)
}

/// Returns the number of concurrent tests.
fn at_once() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors * TESTS_EACH).min(MOST_TESTS).max(processors).to_string()
}

/// Checks the folder of vectors: a named but missing one is a mistake; no name is a choice, and is reported.
fn vectors() -> Result<(), String> {
    match std::env::var_os("SEMEL_VECTORS") {
        None => println!("── SEMEL_VECTORS is not set: the conformance vectors do not run, our own cases do"),
        Some(folder) if std::path::Path::new(&folder).join("jcs").is_dir() => {}
        Some(folder) => return Err(format!("SEMEL_VECTORS: no vectors in {}", folder.display())),
    }
    Ok(())
}

/// Checks that `openssl` runs: it makes certificates and keys for tests.
fn openssl() -> Result<(), String> {
    let version = Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err("the program `openssl` is missing, by which tests make certificates: install it, as with `apt-get install openssl`".into())
}
