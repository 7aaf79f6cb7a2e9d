//! The handle that the service's code gets: one attempt at a command, phase by phase.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use semel_core::{Epoch, Mark, OperationId, Reason};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::call::{Call, CallFailed, Deduplication};
use super::journal::{Ending, Journal, PhaseKind, PhaseState, Stopped};
use super::lease::PhaseLease;
use super::output;
use super::steps::{HeldCommand, LocalEnded, NotWritten, Steps};
use crate::reply::{FailedReply, Reply};

/// One attempt at a command with phases.
///
/// Phases run one after another, and a resumed attempt must request the same phases in the same order. So code between
/// them depends only on the input and on the outputs of phases, and has no effects of its own, since it runs again in
/// every attempt.
pub struct Run<D> {
    pub(crate) database: D,
    pub(super) steps: Arc<dyn Steps>,
    pub(super) held: HeldCommand,
    pub(super) lease: PhaseLease,
    pub(super) timeout: Duration,
    pub(super) journal: Arc<Mutex<Journal>>,
}

/// A local phase that is not done yet.
pub(crate) struct Local {
    pub(crate) held: HeldCommand,
    pub(crate) position: u32,
    pub(crate) name: String,
    pub(crate) timeout: Duration,
}

/// Result of a call.
enum Called<T> {
    Answered(T),
    Failed(CallFailed),
    /// The call ended without a result, for this reason.
    Silent(Reason, &'static str),
    /// The call was made against the rules: its key proves nothing.
    Mistaken(&'static str),
}

impl<D> Run<D> {
    /// Returns the command's id, which its clients see.
    pub fn operation_id(&self) -> OperationId {
        self.held.command
    }

    /// Returns the number of this attempt, from 1: the record's epoch.
    pub fn attempt(&self) -> Epoch {
        self.held.fence.epoch
    }

    /// Calls another service: at most once in each attempt, and in a further attempt only if the last call's outcome is
    /// not known and `deduplication` says that the called service deduplicates.
    ///
    /// The beginning of the call is committed first. `call` then runs within the operation's `timeout`. It gets one
    /// [`Call`], requests the key right before it sends, and returns the result; a panic is no result. The output is
    /// stored as JSON, of at most 64 KiB.
    ///
    /// # Errors
    /// If there is no output: return the error with `?`.
    pub async fn external<T, F, R>(
        &mut self,
        name: &str,
        deduplication: Deduplication,
        call: F,
    ) -> Result<T, Stopped>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(Call) -> R + Send + 'static,
        R: Future<Output = Result<T, CallFailed>> + Send + 'static,
    {
        let by_key = deduplication == Deduplication::ByKey;
        let asked = self.journal().ask(name, PhaseKind::External)?;
        let begun_here = match asked {
            PhaseState::Done(output) => return self.stored(name, &output),
            PhaseState::Begun { deduplicated } if deduplicated && by_key => false,
            PhaseState::Begun { .. } => {
                let why = "it was begun before, its outcome is unknown, and there is no deduplication";
                return Err(self.end(Ending::Unsure(Reason::BrokeOff), name, why));
            }
            PhaseState::New { position } => {
                let begun = Mark::Begun { position, name: name.to_owned(), deduplicated: by_key };
                self.write(name, begun).await?;
                self.journal().written();
                true
            }
        };
        let (reason, why) = match self.call(name, call).await {
            Called::Answered(value) => {
                let output = match output::encode(&value) {
                    Ok(output) => output,
                    Err(why) => return Err(self.end(Ending::Unsure(Reason::HandlerUnsure), name, &why)),
                };
                self.write(name, Mark::Answered { name: name.to_owned(), output: output.clone() }).await?;
                self.journal().leave();
                return self.stored(name, &output);
            }
            Called::Failed(CallFailed::Final(reply)) => {
                return Err(self.end(Ending::Reply(reply), name, "it was refused for good"));
            }
            Called::Failed(CallFailed::NotExecuted(why)) => {
                // A call that an earlier attempt began is not removed: this call says nothing about that one.
                if begun_here {
                    self.write(name, Mark::TakenBack { name: name.to_owned() }).await?;
                    self.journal().taken_back();
                }
                let later = Ending::Later { reason: Reason::NotExecuted, reply: None };
                return Err(self.end(later, name, &why));
            }
            Called::Failed(CallFailed::Unsure(why)) => (Reason::HandlerUnsure, why),
            Called::Silent(reason, why) => (reason, why.to_owned()),
            Called::Mistaken(why) => {
                return Err(self.end(Ending::Unsure(Reason::HandlerUnsure), name, why));
            }
        };
        let ending = if by_key { Ending::Later { reason, reply: None } } else { Ending::Unsure(reason) };
        Err(self.end(ending, name, &why))
    }

    /// Makes the call in a task of its own, so that a panic ends only this task.
    async fn call<T, F, R>(&self, name: &str, call: F) -> Called<T>
    where
        T: Send + 'static,
        F: FnOnce(Call) -> R + Send + 'static,
        R: Future<Output = Result<T, CallFailed>> + Send + 'static,
    {
        if !self.lease.is_held() {
            let why = "the lease ended before the call was made".to_owned();
            return Called::Failed(CallFailed::NotExecuted(why));
        }
        let (lent, permitted) = Call::new(self.held.command, name, self.lease.clone());
        let mut task = JoinSet::new();
        task.spawn(async move { call(lent).await });
        match tokio::time::timeout(self.timeout, task.join_next()).await {
            Ok(Some(Ok(Ok(_)))) if !permitted.is_given() => {
                Called::Mistaken("it says that it has called, and never asked for the key")
            }
            Ok(Some(Ok(Ok(value)))) => Called::Answered(value),
            Ok(Some(Ok(Err(failed)))) => Called::Failed(failed),
            Ok(Some(Err(_)) | None) => Called::Silent(Reason::Panicked, "it panicked"),
            Err(_) => Called::Silent(Reason::TimedOut, "it did not end in time"),
        }
    }

    /// Returns the output of a finished local phase, or the data to execute it.
    pub(crate) fn local_phase<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<Result<T, Local>, Stopped> {
        let asked = self.journal().ask(name, PhaseKind::Local)?;
        match asked {
            PhaseState::Done(output) => self.stored(name, &output).map(Ok),
            PhaseState::New { position } if self.lease.is_held() => {
                let (held, timeout) = (self.held, self.timeout);
                Ok(Err(Local { held, position, name: name.to_owned(), timeout }))
            }
            PhaseState::New { .. } | PhaseState::Begun { .. } => {
                Err(self.end(Ending::Left, name, "the lease ended before it was begun"))
            }
        }
    }

    /// Handles the result of a local phase. `None` if its task ended early, by a bug in this crate.
    pub(crate) fn local_done<T: DeserializeOwned>(
        &mut self,
        name: &str,
        done: Option<Result<Bytes, LocalEnded>>,
    ) -> Result<T, Stopped> {
        let later = |reason| Ending::Later { reason, reply: Some(Reply::rolled_back()) };
        let (ending, why) = match done {
            Some(Ok(output)) => {
                self.journal().written();
                self.journal().leave();
                return self.stored(name, &output);
            }
            Some(Err(LocalEnded::Failed(failure))) => match failure.logged(self.held.command) {
                FailedReply { reply, is_final: true } => {
                    (Ending::Reply(reply), "it failed for good".to_owned())
                }
                FailedReply { reply, is_final: false } => {
                    let later = Ending::Later { reason: Reason::NotExecuted, reply: Some(reply) };
                    (later, "it failed for now".to_owned())
                }
            },
            Some(Err(LocalEnded::Panicked)) => (later(Reason::Panicked), "it panicked".to_owned()),
            Some(Err(LocalEnded::TimedOut)) => (later(Reason::TimedOut), "it took too long".to_owned()),
            Some(Err(LocalEnded::NotCommitted(why))) => (later(Reason::NotExecuted), why),
            Some(Err(LocalEnded::Broken(why))) => (Ending::Unsure(Reason::HandlerUnsure), why),
            Some(Err(LocalEnded::Fenced)) => (Ending::Left, "another run has the command".to_owned()),
            Some(Err(LocalEnded::InDoubt(why))) => (Ending::Left, why),
            None => (Ending::Left, "its task ended early".to_owned()),
        };
        Err(self.end(ending, name, &why))
    }

    async fn write(&self, name: &str, mark: Mark) -> Result<(), Stopped> {
        let later = Ending::Later { reason: Reason::NotExecuted, reply: Some(Reply::rolled_back()) };
        let nothing_sent = matches!(mark, Mark::Begun { .. } | Mark::TakenBack { .. });
        let (ending, why) = match self.steps.write(&self.held, &mark).await {
            Ok(()) => return Ok(()),
            Err(NotWritten::Fenced) => (Ending::Left, "another run has the command".to_owned()),
            Err(NotWritten::NotCommitted(why)) if nothing_sent => (later, why),
            Err(NotWritten::NotCommitted(why) | NotWritten::InDoubt(why)) => (Ending::Left, why),
        };
        Err(self.end(ending, name, &why))
    }

    /// Returns the stored output of a finished phase.
    fn stored<T: DeserializeOwned>(&self, name: &str, output: &[u8]) -> Result<T, Stopped> {
        output::decode(output).map_err(|why| {
            // Another version of the service may be able to decode it.
            self.end(Ending::Later { reason: Reason::NotExecuted, reply: None }, name, &why)
        })
    }

    fn end(&self, ending: Ending, phase: &str, why: &str) -> Stopped {
        self.journal().end(ending, phase, why)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
