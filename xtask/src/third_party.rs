//! Third-party services and clients for the gateway's tests, from npm and PyPI, in the versions that
//! `crates/server/tests/third_party` names.
//!
//! They stay under `target`, in a folder named after the lists of packages, so that other versions are
//! another folder. The programs beside those lists are copied there each time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::browser::{node, version};
use crate::databases::{Draft, apt_install, is_root, output, run, target};
use crate::root;
use crate::step::step;

/// Variable with the folder of the packages and programs.
const VARIABLE: &str = "SEMEL_TEST_THIRD_PARTY";
/// Variable with the number of paths that are tried behind each router.
const CASES: &str = "SEMEL_TEST_ROUTER_CASES";

/// Lists of packages.
const LISTS: [&str; 3] = ["package.json", "package-lock.json", "requirements.txt"];

/// The folder with the packages and programs.
pub(crate) struct Installed(PathBuf);

/// Finds or installs the packages, and Node and pip if need be.
pub(crate) fn install() -> Result<Installed, String> {
    // A wrong folder in the variable is a mistake to fix, not a reason to install something.
    if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let is_there = folder.join("node_modules").is_dir() && folder.join("python").is_dir();
        let missing =
            || format!("{VARIABLE}: {} has no folders `node_modules` and `python`", folder.display());
        return if is_there { Ok(Installed(folder)) } else { Err(missing()) };
    }
    node()?;
    pip()?;
    let packages = root().join("crates/server/tests/third_party");
    let folder = target()?.join("third_party").join(version(&packages, &LISTS)?);
    if !folder.is_dir() {
        unpack(&packages, &folder).map_err(|why| {
            format!(
                "the services and clients for tests cannot be installed: {why}\n\
                 npm and pip must be able to reach package registries."
            )
        })?;
    }
    copy_programs(&packages, &folder)?;
    Ok(Installed(folder))
}

impl Installed {
    /// Prints the folder for a shell: `eval "$(cargo xtask third-party)"`.
    pub(crate) fn describe(&self) {
        println!("export {VARIABLE}={}", self.0.display());
    }

    /// Returns the variable by which tests find them.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.0.display().to_string())
    }
}

/// Tries many more paths behind the routers of frameworks than the test command does.
pub(crate) fn routers() -> Result<(), String> {
    let (name, place) = install()?.variable();
    let variables = [(name, place.as_str()), (CASES, "20000")];
    step("routers", &["test", "-p", "semel-server", "--test", "it", "routers::"], &variables)
}

/// Makes sure that Python's installer runs.
fn pip() -> Result<(), String> {
    let check = || output(Command::new("python3").args(["-m", "pip", "--version"])).map(drop);
    let Err(missing) = check() else { return Ok(()) };
    let advice =
        format!("{missing}\nTests need Python 3.9 or newer with pip: `apt-get install python3-pip`.");
    if !is_root() {
        return Err(advice);
    }
    let installed = apt_install("python3-pip").and_then(|()| check());
    installed.map_err(|why| format!("{advice}\nInstalling it was tried:\n  {why}"))
}

fn unpack(packages: &Path, to: &Path) -> Result<(), String> {
    eprintln!("── third party: installing services and clients of others into {}", to.display());
    let draft = Draft::new(to)?;
    for name in LISTS {
        copy(&packages.join(name), draft.folder())?;
    }
    let quietly = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    run(Command::new("npm").args(quietly).stdin(Stdio::null()).current_dir(draft.folder()))?;
    let pinned = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ];
    let mut pip = Command::new("python3");
    pip.args(pinned).args(["--target", "python", "-r", "requirements.txt"]).stdin(Stdio::null());
    run(pip.current_dir(draft.folder()))?;
    draft.publish(to)
}

/// Copies the programs, which find their packages only beside them.
fn copy_programs(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", from.display());
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !LISTS.iter().any(|list| entry.file_name() == *list) {
            copy(&entry.path(), to)?;
        }
    }
    Ok(())
}

fn copy(file: &Path, to: &Path) -> Result<(), String> {
    let name = file.file_name().ok_or_else(|| format!("{} is no file", file.display()))?;
    std::fs::copy(file, to.join(name)).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(())
}
