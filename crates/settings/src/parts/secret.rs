//! The source of a secret: a file, a variable or a program. Never the secret itself.

use std::path::{Path, PathBuf};

use crate::engine::findings::Findings;
use crate::engine::source::Origin;
use crate::engine::value::Table;
use crate::parts::text::VariableName;

/// The source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// File that holds only the secret.
    File(PathBuf),
    /// An environment variable.
    Variable(VariableName),
    /// The output of a program, with its arguments.
    Command(Vec<String>),
}

impl SecretSource {
    /// Returns the name of the setting that names it.
    pub fn setting(&self) -> &'static str {
        match self {
            SecretSource::File(_) => "file",
            SecretSource::Variable(_) => "env",
            SecretSource::Command(_) => "command",
        }
    }

    /// Returns true for a file that others on this machine can read.
    pub(crate) fn is_readable_by_others(&self) -> bool {
        match self {
            SecretSource::File(path) => is_readable_by_others(path),
            SecretSource::Variable(_) | SecretSource::Command(_) => false,
        }
    }
}

/// Returns true if others on this machine can read this file.
pub(crate) fn is_readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o077 != 0)
}

/// The three settings of a source, of which one must be set, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretTable {
    pub(crate) file: Option<PathBuf>,
    pub(crate) env: Option<VariableName>,
    pub(crate) command: Option<Vec<String>>,
}

impl SecretTable {
    pub(crate) fn source(&self) -> Option<SecretSource> {
        match (&self.file, &self.env, &self.command) {
            (Some(file), None, None) => Some(SecretSource::File(file.clone())),
            (None, Some(name), None) => Some(SecretSource::Variable(name.clone())),
            (None, None, Some(command)) => Some(SecretSource::Command(command.clone())),
            _ => None,
        }
    }

    /// Returns true if the secret comes from this variable, which is no setting then.
    pub(crate) fn takes(&self, variable: &str) -> bool {
        self.env.as_ref().is_some_and(|name| name.as_str() == variable)
    }
}

/// Reports a table under `prefix` that does not name exactly one source of `what`.
pub(crate) fn one_source(
    findings: &mut Findings,
    prefix: &str,
    what: &str,
    entries: &Table,
    origin: &Origin,
) {
    let sources = ["file", "env", "command"];
    if entries.iter().filter(|entry| sources.contains(&entry.name.as_str())).count() != 1 {
        let message = format!("expected exactly one of `file`, `env` and `command`, the source of {what}");
        findings.error(origin.clone(), prefix, message);
    }
}
