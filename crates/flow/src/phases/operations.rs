//! Registry of operations with phases: the code and the terms of each.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::Upkeep;

use super::run::Run;
use super::steps::Steps;
use crate::gate::CommandGate;
use crate::outbox::RetryTerms;
use crate::reply::{Failure, IntoReply, Reply};

/// Time limit and number of attempts for resuming a command with phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTerms {
    /// Time after the claim during which the command may be resumed. After that, its outcome is unknown.
    pub resume_for: Duration,
    /// Number of attempts, and backoff between them. After the last, the outcome is unknown. The record's epoch counts
    /// the attempts; it also rises if a client retries a command that had been rolled back as a whole.
    pub retry: RetryTerms,
}

impl Default for PhaseTerms {
    /// Returns one day, and the retries of a message.
    fn default() -> PhaseTerms {
        PhaseTerms { resume_for: Duration::from_secs(24 * 3600), retry: RetryTerms::default() }
    }
}

type RunFuture = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// Code and terms of one operation.
pub(super) struct PhasedOperation<D> {
    pub(super) code: Arc<dyn Fn(Run<D>, Bytes) -> RunFuture + Send + Sync>,
    pub(super) terms: PhaseTerms,
}

impl<D> Clone for PhasedOperation<D> {
    fn clone(&self) -> PhasedOperation<D> {
        PhasedOperation { code: self.code.clone(), terms: self.terms }
    }
}

/// Executes commands in phases, on one database, which holds Semel's tables beside the service's own.
pub struct Phases<D> {
    pub(super) database: D,
    pub(super) steps: Arc<dyn Steps>,
    pub(super) store: Arc<dyn Upkeep>,
    pub(super) operations: Arc<HashMap<String, PhasedOperation<D>>>,
    pub(super) gate: CommandGate,
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
    pub(crate) fn on(database: D, steps: Arc<dyn Steps>, store: Arc<dyn Upkeep>) -> Phases<D> {
        Phases { database, steps, store, operations: Arc::default(), gate: CommandGate::default() }
    }

    /// Adds an operation, under the name that its route is declared with.
    ///
    /// `code` runs once in each attempt, from the top, with the same input; see [`Run`]. If it fails temporarily before
    /// any phase is done, and the client waits for the answer, nothing is stored and the client gets the reply;
    /// otherwise it is retried later. If it fails permanently, the command ends with that reply, and finished phases
    /// stay committed: further phases must undo them if needed.
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
            Box::pin(async move { running.await?.into_reply() }) as RunFuture
        });
        Arc::make_mut(&mut self.operations).insert(name.to_owned(), PhasedOperation { code, terms });
        self
    }
}
