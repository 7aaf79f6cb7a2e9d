//! Programs of the cluster: PostgreSQL, Patroni, etcd and libfaketime, from this machine or unpacked packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use semel_testkit::postgres::{Binaries, user_for_servers};

/// Variable with the folder of the unpacked packages; `cargo xtask cluster` sets it.
pub(crate) const VARIABLE: &str = "SEMEL_CLUSTER_PROGRAMS";
/// File with the ids of servers that had a clock of their own.
pub(crate) const SHIFTED: &str = "shifted";
/// Library that shifts the clock of a process, below `/usr/lib`.
const FAKETIME: [&str; 2] =
    ["x86_64-linux-gnu/faketime/libfaketime.so.1", "aarch64-linux-gnu/faketime/libfaketime.so.1"];

/// Locations of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) postgres: Binaries,
    /// Folder that stands for `/`.
    root: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> Result<Programs, String> {
        let postgres = Binaries::find().map_err(|error| error.to_string())?;
        let root = std::env::var_os(VARIABLE).map_or_else(|| PathBuf::from("/"), PathBuf::from);
        Ok(Programs { postgres, root })
    }

    /// Checks that Patroni, etcd and `ip` are there, and libfaketime if a clock is shifted.
    pub(crate) fn check(&self, shifts_clock: bool) -> Result<(), String> {
        let needed = [self.etcd(), self.root.join("usr/bin/patroni")];
        let advice = format!(
            "`cargo xtask cluster` unpacks it; else install Debian's packages patroni, etcd-server, \
             python3-etcd, python3-psycopg2 and libfaketime, or name their folder in {VARIABLE}"
        );
        if let Some(missing) = needed.iter().find(|program| !program.is_file()) {
            return Err(format!("{} is missing: {advice}", missing.display()));
        }
        if shifts_clock && self.faketime().is_none() {
            return Err(format!("libfaketime is missing: {advice}"));
        }
        match Command::new("ip").arg("-Version").output() {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(format!("the program `ip` cannot be run: {error}; install Debian's package iproute2"))
            }
        }
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.root.join("usr/bin/etcd")
    }

    /// Returns the library that shifts a clock.
    pub(crate) fn faketime(&self) -> Option<PathBuf> {
        let places = FAKETIME.iter().map(|name| self.root.join("usr/lib").join(name));
        places.into_iter().find(|file| file.is_file())
    }

    /// Returns the words that run Patroni with this configuration.
    pub(crate) fn patroni(&self, configuration: &Path) -> Vec<String> {
        let modules = self.root.join("usr/lib/python3/dist-packages");
        let words = [
            "env".to_owned(),
            format!("PYTHONPATH={}", modules.display()),
            // Debian's modules are for Debian's Python, whatever else the search path has.
            "/usr/bin/python3".to_owned(),
            self.root.join("usr/bin/patroni").display().to_string(),
            configuration.display().to_string(),
        ];
        words.to_vec()
    }
}

/// Returns the words that run a program as the user of servers.
pub(crate) fn as_server() -> Result<Vec<String>, String> {
    let user = user_for_servers().map_err(|error| error.to_string())?;
    Ok(user.map_or_else(Vec::new, |(user, group)| {
        [
            "setpriv".to_owned(),
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--clear-groups".to_owned(),
            "--".to_owned(),
        ]
        .to_vec()
    }))
}

/// Makes a folder that belongs to the user of servers.
pub(crate) fn make_folder(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::{PermissionsExt, chown};
    let why = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(why)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).map_err(why)?;
    match user_for_servers().map_err(|error| error.to_string())? {
        Some((user, group)) => chown(folder, Some(user), Some(group)).map_err(why),
        None => Ok(()),
    }
}

/// Writes a file that the user of servers may read and nobody else.
pub(crate) fn write_for_server(file: &Path, text: &str) -> Result<(), String> {
    use std::os::unix::fs::{OpenOptionsExt, chown};
    let why = |error: std::io::Error| format!("{}: {error}", file.display());
    let mut options = std::fs::OpenOptions::new();
    // Written in place: a process may have it open.
    let mut opened = options.create(true).write(true).truncate(true).mode(0o600).open(file).map_err(why)?;
    std::io::Write::write_all(&mut opened, text.as_bytes()).map_err(why)?;
    let user = user_for_servers().map_err(|error| error.to_string())?;
    user.map_or(Ok(()), |(user, group)| chown(file, Some(user), Some(group)).map_err(why))
}

/// Returns a command of these words in this folder.
pub(crate) fn command(words: &[String], folder: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).env("LC_ALL", "C");
    for (name, _) in std::env::vars_os() {
        // A developer's own settings are for other servers.
        if name.to_str().is_some_and(|name| {
            name.starts_with("PG") || name.starts_with("PATRONI_") || name.starts_with("ETCD_")
        }) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns an unguessable password of letters and digits.
pub(crate) fn password() -> String {
    semel_core::ids::secret()[..12].iter().map(|byte| format!("{byte:02x}")).collect()
}
