//! `cargo xtask bench`: runs all measurements side by side in one run, and writes bench/RESULTS.md.

use std::process::{Command, Stdio};

use crate::databases::{self, apt_install, is_root};
use crate::step::step;

/// Programs that the benchmark runs beside Semel: name, arguments that prove its presence, and Debian's
/// package.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("redis-server", "--version", "redis-server"),
    ("nginx", "-v", "nginx-light"),
    ("haproxy", "-v", "haproxy"),
    ("valgrind", "--version", "valgrind"),
    ("npm", "--version", "npm"),
    ("python3", "--version", "python3-venv"),
];

/// Installs missing programs, builds, and measures.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let installed = databases::install()?;
    if let ["capacity", arguments @ ..] = arguments {
        return capacity(&installed.variables(), arguments);
    }
    for (program, version, package) in PROGRAMS {
        let found = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_ok() {
            continue;
        }
        if !is_root() {
            return Err(format!("`{program}` is missing: install it, as with `apt-get install {package}`"));
        }
        apt_install(package)?;
    }
    let variables = installed.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let words = ["run", "--quiet", "--profile", "dist", "--package", "semel-bench", "--bin", "results", "--"];
    step("bench", &[&words[..], arguments].concat(), &variables)
}

/// Counts what records and commands cost. Counts are the same in every build, so it takes the one of tests.
fn capacity(variables: &[(&'static str, String)], arguments: &[&str]) -> Result<(), String> {
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let words = ["run", "--quiet", "--package", "semel-bench", "--bin", "capacity", "--"];
    step("capacity", &[&words[..], arguments].concat(), &variables)
}
