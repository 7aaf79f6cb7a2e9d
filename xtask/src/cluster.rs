//! `cargo xtask cluster`: gateways on a PostgreSQL with Patroni that fails over under load; a checker judges the history
//! from outside.
//!
//! Patroni and etcd come from Debian's packages, which are unpacked under `target` and never installed: no service starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::databases::{Draft, Installed, install, is_root, output, run as run_program, target};
use crate::parts::Beside;
use crate::step::{program, step};

/// Debian's packages; those that they need and this machine lacks are unpacked, too.
const PACKAGES: [&str; 6] =
    ["patroni", "etcd-server", "etcd-client", "python3-etcd", "python3-psycopg2", "libfaketime"];
/// Variable with the folder of the unpacked packages, which stands for `/`.
const VARIABLE: &str = "SEMEL_CLUSTER_PROGRAMS";
/// Program that makes network namespaces, and Debian's package with it.
const IP: (&str, &str) = ("ip", "iproute2");
/// Rate of commands in the short form, in a second.
const SHORT_RATE: &str = "50";

/// Builds gateway and driver, and runs them.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let loopback = arguments.contains(&"--loopback");
    if !loopback && !is_root() {
        return Err(
            "cluster: only root may make network namespaces: run it as root, or with --loopback, which has \
                    one failover of plain replication"
                .into(),
        );
    }
    let installed = install()?;
    let mut variables = installed.variables();
    if !loopback {
        namespaces()?;
        variables.extend(programs()?.map(|folder| (VARIABLE, folder.display().to_string())));
    }
    step("build", &["build", "--package", "semel-server", "--package", "semel-cluster", "--bins"], &[])?;
    println!("── cluster: semel-cluster {}", arguments.join(" "));
    let begun = Instant::now();
    let status = driver(arguments, &variables)?.status();
    let status = status.map_err(|error| format!("semel-cluster cannot be run: {error}"))?;
    if !status.success() {
        return Err("cluster: something is violated, or could not be run; see above".into());
    }
    println!("── cluster: done in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs a sample of faults and the control with asynchronous replication, or without root their short form.
pub(crate) fn tonight() -> Result<(), String> {
    if !is_root() {
        println!(
            "── cluster: only root may make network namespaces: its short form runs on the loopback address"
        );
        run(&["--loopback"])?;
        return run(&["--loopback", "--asynchronous"]);
    }
    run(&["--faults", "sample"])?;
    run(&["--asynchronous"])
}

/// Returns the short form, with programs that must have been built: one failover on the loopback address, and one that
/// loses writes, which must be noticed.
pub(crate) fn short(installed: &Installed) -> Result<[Beside; 2], String> {
    let variables = installed.variables();
    let good = driver(&["--loopback", "--rate", SHORT_RATE], &variables)?;
    let lossy = driver(&["--loopback", "--rate", SHORT_RATE, "--asynchronous"], &variables)?;
    Ok([
        Beside { name: "failover", commands: vec![good] },
        Beside { name: "failover that loses writes", commands: vec![lossy] },
    ])
}

fn driver(arguments: &[&str], variables: &[(&str, String)]) -> Result<Command, String> {
    let mut command = program("semel-cluster", arguments)?;
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    Ok(command)
}

/// Checks that the program for namespaces is there, or installs it.
fn namespaces() -> Result<(), String> {
    let (name, package) = IP;
    if Command::new(name).arg("-Version").stdout(Stdio::null()).status().is_ok() {
        return Ok(());
    }
    crate::databases::apt_install(package)
}

/// Returns the folder of the unpacked programs, which are unpacked if they are missing; `None` if this machine has them.
fn programs() -> Result<Option<PathBuf>, String> {
    // A named folder is the caller's choice, and is checked by the driver.
    if std::env::var_os(VARIABLE).is_some() || is_complete(Path::new("/")) {
        return Ok(None);
    }
    let folder = target()?.join("databases").join("patroni");
    if !is_complete(&folder) {
        unpack(&folder).map_err(|why| {
            format!(
                "Patroni and etcd are missing, and Debian's packages cannot be unpacked: {why}\n\
                 Install {} as with `apt-get install`, or name a folder with them in {VARIABLE}.",
                PACKAGES.join(", ")
            )
        })?;
    }
    Ok(Some(folder))
}

fn is_complete(root: &Path) -> bool {
    let library = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .map(|machine| root.join("usr/lib").join(machine).join("faketime/libfaketime.so.1"));
    let programs = ["usr/bin/patroni", "usr/bin/etcd"].map(|name| root.join(name));
    programs.iter().all(|program| program.is_file()) && library.iter().any(|library| library.is_file())
}

/// Unpacks the packages, and those that they need, into this folder.
fn unpack(to: &Path) -> Result<(), String> {
    eprintln!("── cluster: unpacking Debian's packages {} into {}", PACKAGES.join(", "), to.display());
    let draft = Draft::new(to)?;
    let plan = || {
        let words = ["install", "--simulate", "--no-install-recommends"];
        output(Command::new("apt-get").args(words).args(PACKAGES).env("LC_ALL", "C"))
    };
    let plan =
        plan().or_else(|_| run_program(Command::new("apt-get").arg("update")).and_then(|()| plan()))?;
    let needed = needed(&plan);
    let download = || {
        // As root, apt would download as another user, who cannot write here.
        let words = ["-o", "APT::Sandbox::User=root", "download"];
        let mut download = Command::new("apt-get");
        download.args(words).args(&needed).stdout(Stdio::null()).current_dir(draft.folder());
        run_program(&mut download)
    };
    download().or_else(|_| run_program(Command::new("apt-get").arg("update")).and_then(|()| download()))?;
    let why = |error: std::io::Error| format!("{}: {error}", draft.folder().display());
    for entry in std::fs::read_dir(draft.folder()).map_err(why)? {
        let package = entry.map_err(why)?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run_program(Command::new("dpkg-deb").arg("-x").arg(&package).arg(draft.folder()))?;
            std::fs::remove_file(&package).map_err(why)?;
        }
    }
    draft.publish(to)?;
    is_complete(to).then_some(()).ok_or_else(|| format!("{} lacks a program", to.display()))
}

/// Returns the packages that apt would install by this plan, and those of ours that are installed in any case.
fn needed(plan: &str) -> Vec<&str> {
    let mut needed: Vec<&str> = plan
        .lines()
        .filter_map(|line| line.strip_prefix("Inst "))
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    needed.extend(PACKAGES);
    needed.sort_unstable();
    needed.dedup();
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_a_plan_are_unpacked_with_our_own() {
        let plan = "Reading package lists...\nInst python3-click (8.1.3-2 Debian:12 [all])\nInst patroni (3.0.2-1)\n\
                    Conf patroni (3.0.2-1)\n";
        let needed = needed(plan);
        assert!(needed.contains(&"python3-click") && needed.contains(&"etcd-server"));
        assert_eq!(needed.iter().filter(|name| **name == "patroni").count(), 1);
    }
}
