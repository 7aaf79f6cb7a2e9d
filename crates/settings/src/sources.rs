//! Sources of a configuration: a file, variables and flags.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::diagnostic::{Diagnostic, Errors};
use crate::engine::setting::VARIABLE_PREFIX;
use crate::engine::source::{Location, Origin, SourceFile};

/// File that is read if none is named.
pub const DEFAULT_FILE: &str = "semel.toml";

/// Variable that names the file, like `--config`.
pub(crate) const FILE_VARIABLE: &str = "SEMEL_CONFIG";

/// Largest file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The sources of a configuration. Later wins: file, variables, flags.
#[derive(Default)]
pub struct Sources {
    pub(crate) file: Option<Arc<SourceFile>>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) flags: Vec<(String, String)>,
}

/// Shows no values, which may hold a password.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Sources {
    /// Makes the sources of the built-in defaults.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Adds the text of a file; messages call it `name`.
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Sources {
        self.file = Some(Arc::new(SourceFile { name: name.into(), text: text.into() }));
        self
    }

    /// Adds a variable. Variables without the prefix `SEMEL_` have no effect.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Sources {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Adds a flag, with or without its dashes in front.
    pub fn flag(mut self, name: &str, value: impl Into<String>) -> Sources {
        self.flags.push((name.trim_start_matches('-').to_owned(), value.into()));
        self
    }

    /// Reads the environment and the file: the one that `config` (`--config`) names, else the one that
    /// `SEMEL_CONFIG` names, else [`DEFAULT_FILE`] in `directory` if there is one.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or one of Semel's variables is not UTF-8.
    pub fn gather(
        config: Option<&Path>,
        directory: &Path,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Sources, Errors> {
        let mut sources = Sources::new();
        let mut errors = Vec::new();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(VARIABLE_PREFIX)) else { continue };
            match value.into_string() {
                Ok(value) => sources.variables.push((name.to_owned(), value)),
                Err(_) => {
                    let origin = Origin::Variable(name.to_owned());
                    errors.push(Diagnostic::error(origin, None, "the value is not UTF-8"));
                }
            }
        }
        // A process's environment has no order, but messages need one.
        sources.variables.sort();
        match sources.find_file(config, directory) {
            Ok(file) => sources.file = file.map(Arc::new),
            Err(error) => errors.push(error),
        }
        if errors.is_empty() { Ok(sources) } else { Err(Errors(errors)) }
    }

    fn find_file(&self, config: Option<&Path>, directory: &Path) -> Result<Option<SourceFile>, Diagnostic> {
        let variable = self.variables.iter().find(|(name, value)| name == FILE_VARIABLE && !value.is_empty());
        let (origin, path) = match (config, variable) {
            (Some(path), _) => (Origin::Flag("--config".to_owned()), path.to_owned()),
            (None, Some((name, path))) => (Origin::Variable(name.clone()), PathBuf::from(path)),
            (None, None) => {
                let origin = Origin::File(Location::nowhere_in(DEFAULT_FILE));
                return match read_file(DEFAULT_FILE, &directory.join(DEFAULT_FILE), origin) {
                    Err(UnreadableFile { kind: io::ErrorKind::NotFound, .. }) => Ok(None),
                    read => read.map(Some).map_err(|unreadable| unreadable.diagnostic),
                };
            }
        };
        let name = path.display().to_string();
        read_file(&name, &path, origin).map(Some).map_err(|unreadable| unreadable.diagnostic)
    }
}

/// File that cannot be used, with the fault.
struct UnreadableFile {
    kind: io::ErrorKind,
    diagnostic: Diagnostic,
}

fn read_file(name: &str, path: &Path, origin: Origin) -> Result<SourceFile, UnreadableFile> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        let diagnostic = Diagnostic::error(origin, None, format!("cannot read {name}: {error}"));
        return Err(UnreadableFile { kind: error.kind(), diagnostic });
    }
    let unusable = |origin, message: String| UnreadableFile {
        kind: io::ErrorKind::InvalidData,
        diagnostic: Diagnostic::error(origin, None, message),
    };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(unusable(origin, format!("{name} is larger than 1MiB")));
    }
    String::from_utf8(bytes).map(|text| SourceFile { name: name.to_owned(), text }).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let readable = String::from_utf8_lossy(&error.as_bytes()[..end]).into_owned();
        let source = Arc::new(SourceFile { name: name.to_owned(), text: readable });
        unusable(
            Origin::File(Location::new(&source, end..end)),
            "the file is not UTF-8 from here on".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn gather(
        config: Option<&Path>,
        directory: &Path,
        file: Option<&Path>,
    ) -> Result<Option<String>, String> {
        let variables = file.map(|path| (FILE_VARIABLE.into(), path.into()));
        let sources = Sources::gather(config, directory, variables).map_err(|errors| errors.to_string())?;
        Ok(sources.file.map(|file| format!("{}: {}", file.name, file.text)))
    }

    #[test]
    fn the_flag_names_the_file_then_the_variable_then_the_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let [flag, variable, default] =
            ["flag.toml", "variable.toml", "semel.toml"].map(|name| directory.path().join(name));
        assert_eq!(gather(None, directory.path(), None), Ok(None), "no file is fine");
        for path in [&flag, &variable, &default] {
            fs::write(path, "# x").expect("it can be written");
        }
        let shown = |path: &Path| Ok(Some(format!("{}: # x", path.display())));
        assert_eq!(gather(Some(&flag), directory.path(), Some(&variable)), shown(&flag));
        assert_eq!(gather(None, directory.path(), Some(&variable)), shown(&variable));
        assert_eq!(gather(None, directory.path(), None), Ok(Some("semel.toml: # x".to_owned())));
    }

    #[test]
    fn a_named_file_must_be_there() {
        let nowhere = Path::new("/nowhere/x.toml");
        let missing = "cannot read /nowhere/x.toml: No such file or directory (os error 2)";
        assert_eq!(gather(Some(nowhere), nowhere, None), Err(format!("--config: error: {missing}")));
        assert_eq!(gather(None, nowhere, Some(nowhere)), Err(format!("SEMEL_CONFIG: error: {missing}")));
    }

    #[test]
    fn a_file_that_is_no_text_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(DEFAULT_FILE);
        fs::write(&path, b"a = 1\nb = \"\xff\"\n").expect("it can be written");
        assert_eq!(
            gather(None, directory.path(), None),
            Err("semel.toml:2:6: error: the file is not UTF-8 from here on\n 2 | b = \"\n   |      ^"
                .to_owned())
        );
        fs::write(&path, vec![b'#'; (1 << 20) + 1]).expect("it can be written");
        assert_eq!(
            gather(None, directory.path(), None),
            Err("semel.toml:1:1: error: semel.toml is larger than 1MiB".to_owned())
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_of_ours_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = OsString::from_vec(vec![0xff]);
        let variables = [("SEMEL_TTL".into(), bytes.clone()), ("OTHER".into(), bytes)];
        let errors = Sources::gather(None, Path::new("/nowhere"), variables).expect_err("it is refused");
        assert_eq!(errors.to_string(), "SEMEL_TTL: error: the value is not UTF-8");
    }
}
