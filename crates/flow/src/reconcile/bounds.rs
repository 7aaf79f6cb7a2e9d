//! Bounds of each evidence source: the commands that it may speak about. An unbound source, such as one that was
//! removed from the settings, may speak about none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use semel_core::reconcile::Statement;
use semel_core::{OperationName, Record};

/// Bounds of an evidence source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceBounds {
    /// Operations that the source may speak about.
    pub operations: Vec<OperationName>,
    /// Tenants that the source may speak about; `None`: all of them.
    pub tenants: Option<Vec<String>>,
    /// True if the provider behind the source executes a command once, however often it is called.
    pub deduplicates: bool,
}

impl SourceBounds {
    /// Returns bounds for these operations, of every tenant, at a provider that does not deduplicate.
    pub fn operations(operations: Vec<OperationName>) -> SourceBounds {
        SourceBounds { operations, tenants: None, deduplicates: false }
    }

    /// Returns true for a command that the source may speak about.
    pub fn contain(&self, record: &Record) -> bool {
        let tenant = record.principal.tenant();
        self.operations.contains(&record.operation)
            && self.tenants.as_ref().is_none_or(|tenants| tenants.iter().any(|name| name == tenant))
    }
}

/// Bounds of each source, by its name.
#[derive(Debug, Default)]
pub(super) struct BoundSources(Mutex<HashMap<String, SourceBounds>>);

impl Clone for BoundSources {
    fn clone(&self) -> BoundSources {
        BoundSources(Mutex::new(self.by_name().clone()))
    }
}

impl BoundSources {
    fn by_name(&self) -> MutexGuard<'_, HashMap<String, SourceBounds>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the bounds of a source.
    pub(super) fn bind(&self, source: &str, bounds: SourceBounds) {
        self.by_name().insert(source.to_owned(), bounds);
    }

    /// Returns true if this statement's source may speak about this command.
    pub(super) fn may_speak(&self, statement: &Statement, record: &Record) -> bool {
        self.by_name().get(&statement.source).is_some_and(|bounds| bounds.contain(record))
    }

    /// Returns true if this source may speak about anything.
    pub(super) fn is_bound(&self, source: &str) -> bool {
        self.by_name().contains_key(source)
    }

    /// Returns true if this source may speak about commands of every tenant.
    pub(super) fn speaks_for_all(&self, source: &str) -> bool {
        self.by_name().get(source).is_some_and(|bounds| bounds.tenants.is_none())
    }

    /// Returns true if the provider that this source speaks for deduplicates.
    pub(super) fn deduplicates(&self, source: &str) -> bool {
        self.by_name().get(source).is_some_and(|bounds| bounds.deduplicates)
    }
}
