//! What is learnt while a configuration is read: what is wrong, what is unwise, what came from where.

use std::collections::{HashMap, HashSet};

use super::advice::{Advice, advice, header};
use super::diagnostic::{Diagnostic, Errors};
use super::nearest::nearest;
use super::setting::Setting;
use super::source::Origin;
use super::value::{Content, Entry, Value};

/// What is learnt while a configuration is read. Settings are known by their path, such as `defaults.ttl`.
#[derive(Default)]
pub(super) struct Findings {
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    origins: HashMap<String, Origin>,
    /// Settings whose value could not be read: what they hold means nothing.
    unreadable: HashSet<String>,
}

impl Findings {
    pub(super) fn add_errors(&mut self, errors: Vec<Diagnostic>) {
        self.errors.extend(errors);
    }

    /// Something is wrong with the setting at `path`.
    pub(super) fn error(&mut self, origin: Origin, path: &str, message: impl Into<String>) {
        self.errors.push(Diagnostic::error(origin, Some(path.to_owned()), message));
    }

    /// The value of the setting at `path` weakens the promise.
    pub(super) fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(Diagnostic::warning(self.origin(path), Some(path.to_owned()), message));
    }

    /// A variable that means nothing.
    pub(super) fn warn_of_variable(&mut self, name: &str, message: String) {
        self.warnings.push(Diagnostic::warning(Origin::Variable(name.to_owned()), None, message));
    }

    /// Reads a value into what holds its setting.
    pub(super) fn read<T>(&mut self, setting: &Setting<T>, target: &mut T, path: &str, value: &Value) {
        match (setting.read)(target, value) {
            Ok(()) => {
                self.unreadable.remove(path);
            }
            Err(wrong) => {
                self.unreadable.insert(path.to_owned());
                self.error(wrong.origin, path, wrong.message);
            }
        }
        self.origins.insert(path.to_owned(), value.origin.clone());
    }

    /// Where the setting at `path` got its value.
    pub(super) fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }

    pub(super) fn is_set(&self, path: &str) -> bool {
        self.origins.contains_key(path)
    }

    /// Whether all these settings could be read, so that it makes sense to compare them.
    pub(super) fn are_readable(&self, paths: &[&str]) -> bool {
        !paths.iter().any(|path| self.unreadable.contains(*path))
    }

    /// Nobody knows this name: says what it may have been meant to be, out of `known`.
    pub(super) fn unknown<'a>(
        &mut self,
        entry: &Entry,
        path: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        let what = if matches!(entry.value.content, Content::Table(_)) { "table" } else { "setting" };
        let known: Vec<&str> = known.into_iter().collect();
        let near = |near: &str| format!("unknown {what}; did you mean `{near}`?");
        let message = match advice(&entry.name, known.iter().copied(), str::to_owned) {
            Advice::Reserved => "reserved: not built yet".to_owned(),
            Advice::Near(name) => near(&name),
            Advice::BelongsTo(table) if what == "setting" => format!("belongs to {}", header(table)),
            // A table that has the name of a setting elsewhere is not that setting.
            Advice::BelongsTo(_) | Advice::None => nearest(&entry.name, known)
                .map_or_else(|| format!("unknown {what}; `semel config init` prints all there are"), near),
        };
        self.error(entry.origin.clone(), path, message);
    }

    /// Everything that was learnt; the errors in the order of the file, then variables, then flags.
    pub(super) fn finish(mut self) -> (Result<(), Errors>, Vec<Diagnostic>) {
        self.errors.sort_by_key(place_in_order);
        self.warnings.sort_by_key(place_in_order);
        let errors = if self.errors.is_empty() { Ok(()) } else { Err(Errors(self.errors)) };
        (errors, self.warnings)
    }
}

fn place_in_order(diagnostic: &Diagnostic) -> (u8, usize) {
    match &diagnostic.origin {
        Origin::File(place) => (0, place.offset()),
        Origin::Variable(_) => (1, 0),
        Origin::Flag(_) => (2, 0),
        Origin::Default => (3, 0),
    }
}
