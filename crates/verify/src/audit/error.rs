//! The reasons why an audit has no report.

use std::io;

/// The reason why an audit has no report.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// An address stands where a file belongs.
    #[error(
        "the audit reads a file, not an address: pipe the document in, as with `curl -s URL | semel audit -`"
    )]
    Address,
    /// The file cannot be opened.
    #[error("cannot open {file}")]
    Open {
        /// The file.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// The file.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is larger than any document may be.
    #[error("{file} is larger than {limit_mib} MiB")]
    TooLarge {
        /// The file.
        file: String,
        /// The limit.
        limit_mib: u64,
    },
    /// The file is not text.
    #[error("{file}: line {line}: it is not UTF-8")]
    NotUtf8 {
        /// The file.
        file: String,
        /// The first line that is none.
        line: usize,
    },
    /// The text is not YAML.
    #[error("line {line}, column {column}: {why}")]
    Syntax {
        /// The line of the mistake.
        line: usize,
        /// The column of the mistake.
        column: usize,
        /// The parser's reason.
        why: String,
    },
    /// The document is broken, or too much, at one line.
    #[error("line {line}: {why}")]
    Line {
        /// The line.
        line: usize,
        /// The reason.
        why: String,
    },
    /// The document as a whole cannot be audited.
    #[error("{0}")]
    Document(String),
    /// The text after `--ignore` is no endpoint.
    #[error("--ignore {0:?}: expected a method and a path, such as 'POST /login'")]
    NoEndpoint(String),
    /// The text after `--exclude` is no pattern.
    #[error("--exclude {0:?}: expected a path, such as '*/search'")]
    NoPattern(String),
    /// The document has no endpoint that this flag could leave out.
    #[error("{flag} '{text}': the audit lists no such endpoint")]
    Unlisted {
        /// The flag.
        flag: &'static str,
        /// Its value.
        text: String,
    },
}

impl AuditError {
    /// Makes an error about one line.
    pub(super) fn at(line: usize, why: impl Into<String>) -> AuditError {
        AuditError::Line { line, why: why.into() }
    }

    /// Refuses the document at this line unless `holds`.
    pub(super) fn unless(holds: bool, line: usize, why: impl FnOnce() -> String) -> Result<(), AuditError> {
        if holds { Ok(()) } else { Err(AuditError::at(line, why())) }
    }

    /// Makes an error about the whole document.
    pub(super) fn document(why: impl Into<String>) -> AuditError {
        AuditError::Document(why.into())
    }
}
