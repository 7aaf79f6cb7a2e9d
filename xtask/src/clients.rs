//! `cargo xtask clients`: the packages of the clients in Rust, TypeScript and Python, and each of them through a proxy that
//! breaks HTTP, before a real gateway.
//!
//! `cargo xtask test` and `nightly` call it as well. Whatever is missing is an error, never a client that is left out.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::browser::node;
use crate::databases::{apt_install, is_root, output, target};
use crate::parts::{Beside, Parts};
use crate::root;
use crate::step::{program, step};

const USAGE: &str =
    "usage: cargo xtask clients [--commands NUMBER] [--seed NUMBER] [--only rust|typescript|python]";

/// Number of commands of each client, for every change and every night.
pub(crate) const COMMANDS: &str = "2000";
pub(crate) const MANY_COMMANDS: &str = "20000";

/// Oldest supported version of Python.
const PYTHON: &str = "(3, 10)";

/// Languages with a client.
const LANGUAGES: [&str; 3] = ["rust", "typescript", "python"];

/// Builds everything, and runs the checks of all clients and their runs through faults, or those of one language.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (mut commands, mut seed, mut languages) = (COMMANDS, None, &LANGUAGES[..]);
    for pair in arguments.chunks(2) {
        match pair {
            ["--commands", value] => commands = number(value)?,
            ["--seed", value] => seed = Some(number(value)?),
            ["--only", value] => {
                let place = LANGUAGES.iter().position(|language| language == value);
                let place = place.ok_or_else(|| format!("{value:?} has no client; {USAGE}"))?;
                languages = &LANGUAGES[place..=place];
            }
            _ => return Err(format!("`{}` is unknown, or has no value; {USAGE}", pair.join(" "))),
        }
    }
    install()?;
    let build = ["build", "--package", "semel-server", "--package", "semel-clients", "--bins"];
    step("build", &build, &[])?;
    if languages.contains(&"rust") {
        let build = ["build", "--package", "semel-client", "--example", "fault_driver"];
        step("build of the Rust driver", &build, &[])?;
    }
    let mut parts = Parts::default();
    let checks = checks()?.into_iter().filter(|(language, _)| languages.contains(language));
    parts.side_by_side(checks.map(|(_, check)| check).collect())?;
    let runs = drivers(commands, seed)?.into_iter().filter(|(language, _)| languages.contains(language));
    parts.side_by_side(runs.map(|(_, run)| run).chain([broken()?]).collect())
}

/// Runs the checks and the short form, with programs that must have been built.
pub(crate) fn short(parts: &mut Parts) -> Result<(), String> {
    parts.side_by_side(checks()?.into_iter().map(|(_, check)| check).collect())?;
    let runs = drivers(COMMANDS, None)?.into_iter().map(|(_, run)| run);
    parts.side_by_side(runs.chain([broken()?]).collect())
}

/// Finds or installs Node with npm, and Python with its environments.
pub(crate) fn install() -> Result<(), String> {
    node()?;
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script = format!("import sys, venv, ensurepip; sys.exit(sys.version_info < {PYTHON})");
    let check = || output(Command::new(&python).args(["-c", &script])).map(drop);
    let Err(missing) = check() else { return Ok(()) };
    let advice = format!(
        "{missing}\nThe Python client needs Python 3.10 or newer with `venv`: `apt-get install python3-venv`, or PYTHON \
         names another interpreter."
    );
    if !is_root() || std::env::var_os("PYTHON").is_some() {
        return Err(advice);
    }
    let installed = apt_install("python3-venv").and_then(|()| check());
    installed.map_err(|why| format!("{advice}\nInstalling it was tried:\n  {why}"))
}

/// Returns the checks of the packages, each of which builds its package, and tests what is installed from it.
fn checks() -> Result<[(&'static str, Beside); 2], String> {
    let check = |folder: &str, variable: &str| {
        let mut bash = Command::new("bash");
        bash.arg(format!("sdk/{folder}/check.sh")).current_dir(root()).env(variable, target()?.join(folder));
        bash.stdin(Stdio::null());
        Ok::<_, String>(vec![bash])
    };
    let typescript = check("typescript", "SEMEL_TYPESCRIPT_TARGET")?;
    let python = check("python", "SEMEL_PYTHON_TARGET")?;
    Ok([
        ("typescript", Beside { name: "TypeScript client", commands: typescript }),
        ("python", Beside { name: "Python client", commands: python }),
    ])
}

/// Returns the run of each client through faults, with the drivers that the build and the checks leave.
fn drivers(commands: &str, seed: Option<&str>) -> Result<[(&'static str, Beside); 4], String> {
    let target = target()?;
    let own = |name: &str| Ok::<_, String>(PathBuf::from(program(name, &[])?.get_program()));
    let rust = own("examples")?.join("fault_driver");
    let node = target.join("typescript/tests/built/fault-driver.js");
    let python = target.join("python/venv/bin/python");
    let (rust, node, python) =
        (rust.display().to_string(), node.display().to_string(), python.display().to_string());
    let run = |language, name: &'static str, driver: &[&str]| {
        let seed = seed.iter().flat_map(|seed| ["--seed", seed]);
        let words = ["--commands", commands].into_iter().chain(seed).chain([name, "--"]);
        let words: Vec<&str> = words.chain(driver.iter().copied()).collect();
        Ok::<_, String>((language, Beside { name, commands: vec![program("semel-clients", &words)?] }))
    };
    let script = "sdk/python/tests/fault_driver.py";
    Ok([
        run("rust", "Rust client through faults", &[&rust])?,
        run("typescript", "TypeScript client through faults", &["node", &node])?,
        run("python", "Python client through faults (threads)", &[&python, script, "{}", "sync"])?,
        run("python", "Python client through faults (asyncio)", &[&python, script, "{}", "async"])?,
    ])
}

/// Returns the run of drivers with one mistake each, which must be found.
fn broken() -> Result<Beside, String> {
    let command = program("semel-clients", &["--broken"])?;
    Ok(Beside { name: "broken clients through faults", commands: vec![command] })
}

fn number(text: &str) -> Result<&str, String> {
    text.parse::<u64>().map(|_| text).map_err(|_| format!("{text:?} is no number; {USAGE}"))
}
