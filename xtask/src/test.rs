//! `cargo xtask test`: one step after the other, the first failure ends it.

use std::process::{Command, Stdio};

use crate::step::step;
use crate::tools::is_there;
use crate::{browser, chaos, crash_matrix, databases, deny, diagram, simulate, third_party, threats};

/// How many seeds are simulated for every change.
const SEEDS: &str = "2000";

pub(crate) fn run() -> Result<(), String> {
    vectors()?;
    openssl()?;
    let installed = databases::install()?;
    let (browser, place) = browser::install()?.variable();
    let (third_party, folder) = third_party::install()?.variable();
    step("format", &["fmt", "--all", "--check"], &[])?;
    step("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    diagram::check()?;
    let nextest = is_there("nextest");
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test", "--all-targets"] };
    {
        // Ends with this block, also if a test fails; and with this process, whatever ends it.
        let shared = installed.start()?;
        let variables =
            [&shared.variables()[..], &[(browser, place.as_str()), (third_party, folder.as_str())]].concat();
        step("tests", &[runner, &["--workspace"]].concat(), &variables)?;
        let on_postgres = [runner, &["-p", "semel-server", "--test", "it", "gateway::"]].concat();
        let variables = [&variables[..], &[("SEMEL_TEST_STORE", "postgres")]].concat();
        step("the gateway's tests on PostgreSQL", &on_postgres, &variables)?;
        step("documentation tests", &["test", "--workspace", "--doc"], &shared.variables())?;
    }
    threats::check(threats::Build::Everything)?;
    simulate::run(&["--seeds", SEEDS])?;
    crash_matrix::run(&["--sample"])?;
    chaos::short(&installed)?;
    step("documentation", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    deny::check()?;
    println!("── all green");
    Ok(())
}

/// A named folder of vectors that is not there is a mistake; no named folder is a choice, and said aloud.
fn vectors() -> Result<(), String> {
    match std::env::var_os("SEMEL_VECTORS") {
        None => println!("── SEMEL_VECTORS is not set: the conformance vectors do not run, our own cases do"),
        Some(folder) if std::path::Path::new(&folder).join("jcs").is_dir() => {}
        Some(folder) => return Err(format!("SEMEL_VECTORS: no vectors in {}", folder.display())),
    }
    Ok(())
}

/// Certificates and keys of tests are made by this program.
fn openssl() -> Result<(), String> {
    let version = Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err("the program `openssl` is missing, by which tests make certificates: install it, as with `apt-get install openssl`".into())
}
