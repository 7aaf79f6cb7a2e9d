//! The reconciler's notes in the audit log.

use semel_core::Note;
use semel_core::text::steers;

/// Author of the reconciler's notes.
pub const RECONCILER: &str = "reconciler";

/// Maximum length of stored text from outside, in characters.
const MAX_TEXT: usize = 500;

/// Returns the note that the audit log keeps beside a verdict.
pub(super) fn resolved_by(seen: &str) -> Note {
    Note { who: RECONCILER.to_owned(), action: "resolve".to_owned(), why: seen.to_owned() }
}

/// Returns the beginning of a text from outside, without characters that would corrupt a log or a database.
pub(super) fn bounded(text: &str) -> String {
    text.chars().map(|c| if steers(c) { ' ' } else { c }).take(MAX_TEXT).collect()
}
