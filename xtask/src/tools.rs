//! Third-party cargo tools: used if present, else built once, in a pinned version, under `target`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::databases::{Draft, run, target};

/// A third-party subcommand of cargo.
pub(crate) struct Tool {
    /// Name after `cargo`.
    pub(crate) name: &'static str,
    /// Version that is installed if there is none.
    pub(crate) version: &'static str,
}

impl Tool {
    /// Returns the command `cargo NAME`, of this machine or of the one under `target`, at the root of the
    /// workspace.
    pub(crate) fn command(&self) -> Result<Command, String> {
        let mut command = if is_there(self.name) {
            Command::new(env!("CARGO"))
        } else {
            let why = |why| {
                let Tool { name, .. } = self;
                format!("{why}\nInstall it by hand: cargo install --locked cargo-{name}")
            };
            Command::new(self.install().map_err(why)?)
        };
        command.arg(self.name).current_dir(crate::root()).env("CARGO", env!("CARGO"));
        Ok(command)
    }

    fn install(&self) -> Result<PathBuf, String> {
        install(&format!("cargo-{}", self.name), self.version, &[])
    }
}

/// Builds a program of crates.io once, under `target/tools`. Without optimisation, which takes longer than it
/// ever saves.
pub(crate) fn install(program: &str, version: &str, arguments: &[&str]) -> Result<PathBuf, String> {
    let folder = target()?.join("tools").join(format!("{program}-{version}"));
    let built = folder.join("bin").join(program);
    if !built.is_file() {
        println!("── tools: installing {program} {version} under target/tools");
        let draft = Draft::new(&folder)?;
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["install", "--quiet", "--locked", "--debug"])
            .args(arguments)
            .arg("--root")
            .arg(draft.folder());
        cargo.arg(format!("{program}@{version}"));
        let build = target()?.join("tools").join("build");
        run(cargo.env("CARGO_TARGET_DIR", &build).env("CARGO_PROFILE_DEV_DEBUG", "0"))
            .map_err(|why| format!("{program} {version} cannot be installed: {why}"))?;
        let _ = std::fs::remove_dir_all(build);
        draft.publish(&folder)?;
    }
    Ok(built)
}

/// Runs a command whose output is for people. Returns its exit code.
pub(crate) fn shown(command: &mut Command) -> Result<Option<i32>, String> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    println!("── cargo {}", words.join(" "));
    let status = command.status().map_err(|error| format!("cargo {} cannot be run: {error}", words[0]))?;
    Ok(status.code())
}

/// Returns true if cargo has this subcommand.
pub(crate) fn is_there(subcommand: &str) -> bool {
    let version = Command::new(env!("CARGO"))
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}
