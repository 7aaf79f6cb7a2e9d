//! The operations that have phases: the code and the terms of each.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::Store;

use super::run::Run;
use super::steps::Steps;
use crate::gate::Gate;
use crate::outbox::RetryTerms;
use crate::reply::{Failure, IntoReply, Reply};

/// How long, and how often, a command with phases is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTerms {
    /// How long after its claim it may still be resumed. After that, its outcome is unknown.
    pub resume_for: Duration,
    /// How many attempts there are, and how long each waits after one that failed. After the last, the outcome is
    /// unknown. Attempts are counted by the record's epoch, which also rises if a client sends a command again that had
    /// been taken back as a whole.
    pub retry: RetryTerms,
}

impl Default for PhaseTerms {
    /// A day, and as often as a message is tried.
    fn default() -> PhaseTerms {
        PhaseTerms { resume_for: Duration::from_secs(24 * 3600), retry: RetryTerms::default() }
    }
}

type Running = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// One operation: its code, and its terms.
pub(super) struct Operation<D> {
    pub(super) code: Arc<dyn Fn(Run<D>, Bytes) -> Running + Send + Sync>,
    pub(super) terms: PhaseTerms,
}

impl<D> Clone for Operation<D> {
    fn clone(&self) -> Operation<D> {
        Operation { code: self.code.clone(), terms: self.terms }
    }
}

/// Carries out commands in phases, on one database, which has Semel's tables beside the service's own.
pub struct Phases<D> {
    pub(super) database: D,
    pub(super) steps: Arc<dyn Steps>,
    pub(super) store: Arc<dyn Store>,
    pub(super) operations: Arc<HashMap<String, Operation<D>>>,
    pub(super) gate: Gate,
}

impl<D: Clone> Clone for Phases<D> {
    fn clone(&self) -> Phases<D> {
        Phases {
            database: self.database.clone(),
            steps: self.steps.clone(),
            store: self.store.clone(),
            operations: self.operations.clone(),
            gate: self.gate.clone(),
        }
    }
}

impl<D: Clone + Send + Sync + 'static> Phases<D> {
    pub(crate) fn on(database: D, steps: Arc<dyn Steps>, store: Arc<dyn Store>) -> Phases<D> {
        Phases { database, steps, store, operations: Arc::default(), gate: Gate::default() }
    }

    /// With one more operation, under the name that its route is declared with.
    ///
    /// `code` runs once in each attempt, from the top, with the same input; see [`Run`]. If it fails for now before any
    /// phase is done, and the client is there to be told, nothing is kept and the client gets its reply; otherwise it
    /// is run again later. If it fails for good, the command ends with that reply, and what its phases have done
    /// stays: what must be undone is undone by further phases.
    pub fn operation<F, R, T>(self, name: &str, code: F) -> Phases<D>
    where
        F: Fn(Run<D>, Bytes) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoReply,
    {
        self.operation_with(name, PhaseTerms::default(), code)
    }

    /// Adds an operation as [`operation`](Phases::operation) does, with terms of its own.
    pub fn operation_with<F, R, T>(mut self, name: &str, terms: PhaseTerms, code: F) -> Phases<D>
    where
        F: Fn(Run<D>, Bytes) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoReply,
    {
        let code = Arc::new(move |run, input| {
            let running = code(run, input);
            Box::pin(async move { running.await?.into_reply() }) as Running
        });
        Arc::make_mut(&mut self.operations).insert(name.to_owned(), Operation { code, terms });
        self
    }
}
