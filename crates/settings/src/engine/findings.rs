//! Findings from reading a configuration: faults, weak choices, and the origin of every value.

use std::collections::{HashMap, HashSet};

use crate::engine::addresses::AddressChecks;
use crate::engine::diagnostic::{Diagnostic, Errors};
use crate::engine::known::{Advice, KnownNames};
use crate::engine::nearest::nearest;
use crate::engine::setting::Setting;
use crate::engine::source::Origin;
use crate::engine::value::{NamedValue, SettingValue, ValueContent};

/// Findings from reading a configuration. Settings are known by their path, such as `defaults.ttl`.
pub(crate) struct Findings {
    known: KnownNames,
    checks: AddressChecks,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    origins: HashMap<String, Origin>,
    /// Settings whose value could not be read, and must not be compared.
    unreadable: HashSet<String>,
}

impl Findings {
    pub(crate) fn new(known: KnownNames, checks: AddressChecks) -> Findings {
        Findings {
            known,
            checks,
            errors: Vec::new(),
            warnings: Vec::new(),
            origins: HashMap::new(),
            unreadable: HashSet::new(),
        }
    }

    /// Returns the names that there are.
    pub(crate) fn known(&self) -> KnownNames {
        self.known
    }

    /// Returns the checks of addresses.
    pub(crate) fn checks(&self) -> AddressChecks {
        self.checks
    }

    pub(crate) fn add_errors(&mut self, errors: Vec<Diagnostic>) {
        self.errors.extend(errors);
    }

    /// Reports a fault of the setting at `path`.
    pub(crate) fn error(&mut self, origin: Origin, path: &str, message: impl Into<String>) {
        self.errors.push(Diagnostic::error(origin, Some(path.to_owned()), message));
    }

    /// Warns of a value at `path` that weakens a guarantee.
    pub(crate) fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(Diagnostic::warning(self.origin(path), Some(path.to_owned()), message));
    }

    /// Warns of a variable without effect.
    pub(crate) fn warn_of_variable(&mut self, name: &str, message: String) {
        self.warnings.push(Diagnostic::warning(Origin::Variable(name.to_owned()), None, message));
    }

    /// Reads a value into the holder of its setting.
    pub(crate) fn read<T>(&mut self, setting: &Setting<T>, target: &mut T, path: &str, value: &SettingValue) {
        match (setting.read)(target, value, &self.checks) {
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

    /// Returns the origin of the setting at `path`.
    pub(crate) fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }

    pub(crate) fn is_set(&self, path: &str) -> bool {
        self.origins.contains_key(path)
    }

    /// Returns true if all these settings could be read, so that they can be compared.
    pub(crate) fn are_readable(&self, paths: &[&str]) -> bool {
        !paths.iter().any(|path| self.unreadable.contains(*path))
    }

    /// Reports an unknown name, with the nearest one of `known`.
    pub(crate) fn unknown<'a>(
        &mut self,
        entry: &NamedValue,
        path: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        let what = if matches!(entry.value.content, ValueContent::Table(_)) { "table" } else { "setting" };
        let known: Vec<&str> = known.into_iter().collect();
        let near = |near: &str| format!("unknown {what}; did you mean `{near}`?");
        let message = match self.known.advice(&entry.name, known.iter().copied(), str::to_owned) {
            Advice::Reserved => "reserved: not built yet".to_owned(),
            Advice::Near(name) => near(&name),
            Advice::BelongsTo(table) if what == "setting" => {
                format!("belongs to {}", self.known.header(table))
            }
            // A table that has the name of a setting elsewhere is not that setting.
            Advice::BelongsTo(_) | Advice::None => nearest(&entry.name, known)
                .map_or_else(|| format!("unknown {what}; `semel config init` prints all there are"), near),
        };
        self.error(entry.origin.clone(), path, message);
    }

    /// Returns the findings; the errors in the order of the file, then variables, then flags.
    pub(crate) fn finish(mut self) -> (Result<(), Errors>, Vec<Diagnostic>) {
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
