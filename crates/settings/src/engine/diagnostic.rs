//! Faults and weak choices of a configuration, each with its place: collected, then rendered as plain text.
//!
//! A message quotes values through `ValueContent`, which hides passwords; the lines of a file are redacted here.

use std::fmt::{self, Write};

use semel_core::redact::redact;

use crate::engine::address_query::hide_queries;
use crate::engine::source::{Location, Origin};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but weakens a guarantee.
    Warning,
}

/// One finding.
///
/// Displayed as `place: severity: setting: message`, with the line and a caret where there is one.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The severity of a finding.
    pub severity: Severity,
    /// The origin of the value.
    pub origin: Origin,
    /// Setting that is concerned, if any, as `config show` names it.
    pub setting: Option<String>,
    /// Fault, and its correction.
    pub message: String,
}

impl Diagnostic {
    pub(crate) fn error(origin: Origin, setting: Option<String>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, origin, setting, message: message.into() }
    }

    pub(crate) fn warning(origin: Origin, setting: Option<String>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, origin, setting, message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File(place) => write!(f, "{}:{}:{}", place.file(), place.line(), place.column())?,
            origin @ (Origin::Default | Origin::Variable(_) | Origin::Flag(_)) => write!(f, "{origin}")?,
        }
        f.write_str(match self.severity {
            Severity::Error => ": error: ",
            Severity::Warning => ": warning: ",
        })?;
        if let Some(setting) = &self.setting {
            write!(f, "`{}`: ", printable(setting))?;
        }
        f.write_str(&printable(&self.message))?;
        match &self.origin {
            Origin::File(place) => write_excerpt(f, place),
            Origin::Default | Origin::Variable(_) | Origin::Flag(_) => Ok(()),
        }
    }
}

/// Longest excerpt of a line in bytes: a longer one is no help, and a file may be one line.
const MAX_EXCERPT_BYTES: usize = 200;

fn write_excerpt(f: &mut fmt::Formatter<'_>, place: &Location) -> fmt::Result {
    let line = place.excerpt();
    let whole = format!("{}{}{}", line.before, line.marked, line.after);
    if whole.trim().is_empty() || whole.len() > MAX_EXCERPT_BYTES {
        return Ok(());
    }
    let shown = hide_queries(&redact(&whole));
    let number = place.line().to_string();
    write!(f, "\n {number} | {}", printable(&shown))?;
    // A secret that is hidden outside of the marked part would shift the carets: then there are none.
    let Some(marked) = shown.strip_prefix(line.before).and_then(|rest| rest.strip_suffix(line.after)) else {
        return Ok(());
    };
    let gutter = " ".repeat(number.len());
    // A tab stays a tab, so that the caret stands under the marked part.
    let indent: String = line.before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let carets = "^".repeat(marked.trim_end().chars().count().max(1));
    write!(f, "\n {gutter} | {indent}{carets}")
}

/// Returns the text without control characters, which must not reach a terminal.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

/// Every fault of a configuration that cannot be used; never empty.
#[derive(Debug)]
pub struct Errors(pub(crate) Vec<Diagnostic>);

impl Errors {
    /// Returns the errors in the order of the file, then of variables and flags.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }
}

/// Largest number of errors that are shown: one mistake can spoil every line of a generated file.
const MAX_SHOWN: usize = 50;

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().take(MAX_SHOWN).enumerate() {
            if index > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{error}")?;
        }
        match self.0.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for Errors {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::source::SourceFile;

    fn at(text: &str, marked: &str) -> Origin {
        let start = text.find(marked).expect("the mark is in the text");
        let source = Arc::new(SourceFile { name: "semel.toml".into(), text: text.into() });
        Origin::File(Location::new(&source, start..start + marked.len()))
    }

    #[test]
    fn an_error_shows_its_line_with_a_caret() {
        let error = Diagnostic::error(at("a = 1\n\tb = \"x\" # y\n", "\"x\""), Some("b".into()), "no");
        assert_eq!(error.to_string(), "semel.toml:2:6: error: `b`: no\n 2 | \tb = \"x\" # y\n   | \t    ^^^");
    }

    #[test]
    fn a_variable_or_flag_is_named_instead_of_a_line() {
        let error =
            Diagnostic::error(Origin::Variable("SEMEL_TTL".into()), Some("defaults.ttl".into()), "no");
        assert_eq!(error.to_string(), "SEMEL_TTL: error: `defaults.ttl`: no");
        let warning = Diagnostic::warning(Origin::Flag("--ttl".into()), None, "short");
        assert_eq!(warning.to_string(), "--ttl: warning: short");
    }

    #[test]
    fn a_password_in_the_line_is_hidden() {
        let text = "store = 'postgres://u:hunter2@h/d' # x";
        let error = Diagnostic::error(at(text, "'postgres://u:hunter2@h/d'"), None, "no");
        let line = "semel.toml:1:9: error: no\n 1 | store = 'postgres://u:***@h/d' # x";
        assert_eq!(error.to_string(), format!("{line}\n   |         ^^^^^^^^^^^^^^^^^^^^^^"));
        let elsewhere = Diagnostic::error(at(text, "# x"), None, "no");
        assert_eq!(elsewhere.to_string(), line.replace("1:9", "1:36"));
        assert!(!format!("{error:?}").contains("store ="));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let error = Diagnostic::error(at("a = \u{1b}[2J", "a"), None, "\u{1b}[2J");
        assert!(!error.to_string().contains('\u{1b}'));
    }

    #[test]
    fn endless_errors_are_cut_and_counted() {
        let one = Diagnostic::error(Origin::Default, None, "no");
        let shown = Errors(vec![one; 60]).to_string();
        assert_eq!(shown.lines().count(), 51);
        assert!(shown.ends_with("… and 10 more"));
    }
}
