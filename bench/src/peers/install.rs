//! Installs a peer's packages with Cargo, npm or pip, always from its lock file, into `target/peers/PACKAGE`.
//!
//! Invariant: a peer that cannot be installed is an error with the failed tool's last output; it is never silently left
//! out.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{Error, Install, Peer, folder};

/// Timeout of an installation. A build in profile `dist` on a busy machine takes most of it.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// Number of lines shown of a failed tool's output.
const LAST_WORDS: usize = 8;
/// Files that are not copied from a peer's folder.
const NOT_COPIED: [&str; 5] = ["node_modules", "target", "venv", "__pycache__", "peer.toml"];

/// Build profile of Rust peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Profile `dist`, optimised as a whole: for measurements.
    Dist,
    /// Profile `dev`, built faster: for the check of responses.
    Debug,
}

/// A peer that is ready to start.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The installed peer.
    pub peer: Peer,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<PathBuf>,
    pub(super) folder: PathBuf,
}

/// Installs a peer. The error says why it cannot be installed.
pub async fn install(peer: &Peer, build: Build) -> Result<Installed, Error> {
    let place = folder()?.join(&peer.package);
    match peer.install {
        Install::Workspace => workspace(peer, build).await,
        Install::Cargo => cargo(peer, build).await,
        Install::Npm => {
            copy(peer, &place)?;
            let ci = async || {
                run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&place)).await
            };
            unless_done(&place, "package-lock.json", ci).await?;
            Ok(installed(peer, "node".into(), vec![place.join(&peer.program)], place))
        }
        Install::Python => {
            copy(peer, &place)?;
            let environment = place.join("venv");
            let python = environment.join("bin/python");
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
            let get = async || {
                run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment)).await?;
                run(Command::new(&python).args(pip).arg(place.join("requirements.txt"))).await
            };
            unless_done(&place, "requirements.txt", get).await?;
            Ok(installed(peer, python, vec![place.join(&peer.program)], place))
        }
        Install::Missing => {
            copy(peer, &place)?;
            run(Command::new("npm").args(["install", "--no-audit", "--no-fund"]).current_dir(&place)).await?;
            Err("its packages can be had by now, but nobody has written a server around them".into())
        }
    }
}

/// Builds the program `semel`, whose command `verify` tries peers.
pub async fn program_with_verify(build: Build) -> Result<PathBuf, Error> {
    ours("semel-server", "semel", build).await
}

fn installed(peer: &Peer, program: PathBuf, arguments: Vec<PathBuf>, folder: PathBuf) -> Installed {
    Installed { peer: peer.clone(), program, arguments, folder }
}

/// Builds a peer of this workspace; its program is beside this one.
async fn workspace(peer: &Peer, build: Build) -> Result<Installed, Error> {
    let program = ours("semel-peers", &peer.program, build).await?;
    Ok(installed(peer, program, Vec::new(), peer.folder.clone()))
}

/// Builds a program of this workspace, in Cargo's usual target folder.
async fn ours(package: &str, program: &str, build: Build) -> Result<PathBuf, Error> {
    let peers = folder()?;
    let target = peers.parent().ok_or("the target folder has a name")?;
    let mut command = Command::new(cargo_program());
    command.args(["build", "--package", package, "--bin", program]);
    command.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    let profile = profile(&mut command, build);
    run(&mut command).await?;
    Ok(target.join(profile).join(program))
}

/// Builds a peer with a Cargo workspace of its own. These share a target folder, since most of their dependencies are
/// the same.
async fn cargo(peer: &Peer, build: Build) -> Result<Installed, Error> {
    let target = folder()?.join("rust");
    let mut command = Command::new(cargo_program());
    // The lock file fixes the versions; the build decides if this Rust is new enough for them.
    command.args(["build", "--locked", "--ignore-rust-version"]);
    command.arg("--target-dir").arg(&target).current_dir(&peer.folder);
    let profile = profile(&mut command, build);
    run(&mut command).await?;
    Ok(installed(peer, target.join(profile).join(&peer.program), Vec::new(), peer.folder.clone()))
}

fn cargo_program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn profile(command: &mut Command, build: Build) -> &'static str {
    // A Cargo parent sets this variable; here `--target-dir` decides.
    command.env_remove("CARGO_TARGET_DIR");
    match build {
        Build::Dist => {
            command.args(["--profile", "dist"]);
            "dist"
        }
        Build::Debug => "debug",
    }
}

/// Copies the peer's sources, and the sources it shares with others, to its installation folder.
fn copy(peer: &Peer, place: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(place)?;
    for entry in std::fs::read_dir(&peer.folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() && !NOT_COPIED.iter().any(|other| name == *other) {
            std::fs::copy(entry.path(), place.join(name))?;
        }
    }
    for shared in &peer.shared {
        let source = peer.folder.join(shared);
        let name = source.file_name().ok_or("`shared` names files")?;
        std::fs::copy(&source, place.join(name)).map_err(|error| format!("{}: {error}", source.display()))?;
    }
    Ok(())
}

/// Installs packages, unless exactly those of this lock file are installed.
async fn unless_done(
    place: &Path,
    lock: &str,
    get: impl AsyncFnOnce() -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let (lock, done) = (std::fs::read(place.join(lock))?, place.join("installed.lock"));
    if std::fs::read(&done).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    get().await?;
    Ok(std::fs::write(done, lock)?)
}

/// Runs a tool to its end.
async fn run(command: &mut Command) -> Result<Vec<u8>, Error> {
    let shown = format!("{:?}", command.as_std().get_program()).replace('"', "");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output())
        .await
        .map_err(|_| format!("{shown} took longer than {} s", PATIENCE.as_secs()))?
        .map_err(|error| format!("{shown} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = words.lines().filter(|line| !line.trim().is_empty()).collect();
    // npm prints the reason between a URL and the path of a log that exists only on this machine.
    let told = lines.iter().filter(|line| line.contains("npm error") && !line.contains("://"));
    let told = told.filter(|line| line.contains(" code ") || line.contains("requested resource"));
    let mut told: Vec<&str> = told.copied().collect();
    if told.is_empty() {
        told = lines[lines.len().saturating_sub(LAST_WORDS)..].to_vec();
    }
    Err(format!("{shown}: {}\n{}", output.status, told.join("\n")).into())
}
