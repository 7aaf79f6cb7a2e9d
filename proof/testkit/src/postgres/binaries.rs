//! The locations of the programs of PostgreSQL and PgBouncer.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;

/// Programs that `Binaries::find` expects in a folder.
const NEEDED: [&str; 3] = ["initdb", "postgres", "psql"];

/// The folder of one installation's programs.
#[derive(Clone, Debug)]
pub struct Binaries(PathBuf);

impl Binaries {
    /// Variable with the folder of `postgres`, `initdb` and `psql`.
    pub const VARIABLE: &str = "SEMEL_TEST_PG_BIN";
    /// Variable with the path of the program `pgbouncer`.
    pub const PGBOUNCER_VARIABLE: &str = "SEMEL_TEST_PGBOUNCER";

    /// Returns the programs in this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Result<Binaries, Error> {
        let folder = folder.into();
        match NEEDED.iter().find(|name| !folder.join(name).is_file()) {
            None => Ok(Binaries(folder)),
            Some(missing) => Err(Error::new(format!("{} has no program `{missing}`", folder.display()))),
        }
    }

    /// Returns the programs that `SEMEL_TEST_PG_BIN` names, else the newest of Debian's packages, else those
    /// of `pg_config` or the search path.
    pub fn find() -> Result<Binaries, Error> {
        if let Some(folder) = std::env::var_os(Binaries::VARIABLE) {
            return Binaries::at(folder)
                .map_err(|error| Error::new(format!("{}: {error}", Binaries::VARIABLE)));
        }
        let places = debian().into_iter().chain(pg_config()).chain(search_path());
        places.map(Binaries::at).find_map(Result::ok).ok_or_else(|| {
            Error::new(format!(
                "no PostgreSQL server was found on this machine. `cargo xtask databases` installs one and says where; else install it \
                 (`apt-get install postgresql`), or set {} to a folder with {}.",
                Binaries::VARIABLE,
                NEEDED.join(", "),
            ))
        })
    }

    /// Returns the program `pgbouncer`: the one that `SEMEL_TEST_PGBOUNCER` names, else that of the search
    /// path or `/usr/sbin`.
    pub fn pgbouncer() -> Result<PathBuf, Error> {
        if let Some(program) = std::env::var_os(Binaries::PGBOUNCER_VARIABLE).map(PathBuf::from) {
            let variable = Binaries::PGBOUNCER_VARIABLE;
            let missing = || Error::new(format!("{variable}: {} is not a file", program.display()));
            return program.is_file().then(|| program.clone()).ok_or_else(missing);
        }
        let places = search_path().into_iter().chain([PathBuf::from("/usr/sbin")]);
        places.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file()).ok_or_else(|| {
            Error::new(format!(
                "PgBouncer was not found on this machine. `cargo xtask databases` installs it; else install it \
                 (`apt-get install pgbouncer`), or set {} to the program.",
                Binaries::PGBOUNCER_VARIABLE,
            ))
        })
    }

    /// Returns the folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Returns the folders of Debian's packages, the newest version first.
fn debian() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, folder)| folder).collect()
}

fn pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(folder.trim()))
}

fn search_path() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}
