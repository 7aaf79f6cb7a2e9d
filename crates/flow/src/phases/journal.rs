//! State of a run: the phases recorded before it, the phases it has requested, and its end. Pure except for the clock.
//!
//! Invariant: the recorded phases are a prefix of the phases that a run requests, in the same order. A run that
//! requests other phases has changed, and stops.

use std::time::{Duration, Instant};

use bytes::Bytes;
use semel_core::{OperationId, Progress, Reason, StepKind};

use crate::outbox::EventId;
use crate::reply::{FailedReply, Failure, Reply};

/// Maximum number of phases of a command.
const MAX_PHASES: usize = 100;

/// Error that ends a run in this attempt; the command's fate is already decided. Return it with `?`: the run's return
/// value is then ignored.
#[derive(Debug)]
#[must_use = "a run that is stopped does nothing more: return this"]
pub struct Stopped(());

/// The message does not matter: the end of the run is already decided.
impl From<Stopped> for Failure {
    fn from(_: Stopped) -> Failure {
        Failure::Retryable(Reply::rolled_back())
    }
}

/// End of an attempt.
#[derive(Debug)]
pub(super) enum Ending {
    /// The command ends with this reply.
    Reply(Reply),
    /// Nothing happened beyond the recorded phases: a later attempt continues. The reply is for the caller, if nothing
    /// at all happened.
    Later { reason: Reason, reply: Option<Reply> },
    /// The outcome is not known.
    Unsure(Reason),
    /// Another executor has the command, or will have it when the lease expires: the record shows the outcome.
    Left,
}

/// Kind of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhaseKind {
    Local,
    External,
}

/// State of a phase that a run requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PhaseState {
    /// The phase is done, with this output.
    Done(Bytes),
    /// The phase was begun by an attempt that died before it stored a result.
    Begun { deduplicated: bool },
    /// The phase was not begun.
    New { position: u32 },
}

#[derive(Debug)]
enum At {
    /// Between two phases, since this time.
    Between(Instant),
    /// Inside a phase.
    Inside,
    /// The run has ended.
    Ended(Ending),
    /// The journal is closed: no further requests are accepted.
    Closed,
}

#[derive(Debug)]
pub(super) struct Journal {
    command: OperationId,
    recorded: Vec<Progress>,
    asked: Vec<String>,
    rows: usize,
    at: At,
}

impl Journal {
    pub(super) fn new(command: OperationId, recorded: Vec<Progress>) -> Journal {
        let rows = recorded.len();
        Journal { command, recorded, asked: Vec::new(), rows, at: At::Between(Instant::now()) }
    }

    /// Requests a phase. If it is not done, the run is inside it from now on.
    pub(super) fn ask(&mut self, name: &str, kind: PhaseKind) -> Result<PhaseState, Stopped> {
        match self.at {
            At::Between(_) => {}
            At::Ended(_) | At::Closed => return Err(Stopped(())),
            At::Inside => {
                let why = "the last phase was dropped before it ended: the run that resumes the command does the rest";
                return Err(self.end(Ending::Left, name, why));
            }
        }
        if let Err(error) = EventId::new(self.command, name) {
            return Err(self.mistake(name, &format!("a phase's name is made like a message's kind: {error}")));
        }
        if self.asked.iter().any(|asked| asked == name) {
            return Err(self.mistake(name, "a run has two phases of this name"));
        }
        if self.asked.len() >= MAX_PHASES {
            return Err(self.mistake(name, "a run has too many phases"));
        }
        let place = self.asked.len();
        self.asked.push(name.to_owned());
        let asked = match self.recorded.get(place) {
            None => PhaseState::New { position: u32::try_from(place).unwrap_or(u32::MAX) },
            Some(recorded) if recorded.name != name => {
                let why = format!("its place is that of the recorded phase {}", recorded.name);
                return Err(self.mistake(name, &why));
            }
            Some(recorded) => match (&recorded.what, kind) {
                (StepKind::Local { output }, PhaseKind::Local)
                | (StepKind::External { output: Some(output), .. }, PhaseKind::External) => {
                    PhaseState::Done(output.clone())
                }
                (StepKind::External { deduplicated, output: None }, PhaseKind::External) => {
                    PhaseState::Begun { deduplicated: *deduplicated }
                }
                (StepKind::Local { .. } | StepKind::External { .. } | StepKind::Item { .. }, _) => {
                    return Err(self.mistake(name, "it is recorded as another kind of step"));
                }
            },
        };
        self.at = match asked {
            PhaseState::Done(_) => At::Between(Instant::now()),
            PhaseState::Begun { .. } | PhaseState::New { .. } => At::Inside,
        };
        Ok(asked)
    }

    /// Notes that a phase has been stored, or may have been.
    pub(super) fn written(&mut self) {
        self.rows += 1;
    }

    /// Notes that a begun phase was removed again.
    pub(super) fn taken_back(&mut self) {
        self.rows = self.rows.saturating_sub(1);
    }

    /// Leaves the current phase, which is done.
    pub(super) fn leave(&mut self) {
        if let At::Inside = self.at {
            self.at = At::Between(Instant::now());
        }
    }

    /// Ends the run. The first ending counts.
    pub(super) fn end(&mut self, ending: Ending, phase: &str, why: &str) -> Stopped {
        if let At::Between(_) | At::Inside = self.at {
            let operation_id = self.command;
            match ending {
                Ending::Reply(_) => tracing::info!(%operation_id, phase, why, "a run ends early"),
                Ending::Later { .. } | Ending::Left => {
                    tracing::warn!(%operation_id, phase, why, "a run stops, to be resumed");
                }
                Ending::Unsure(_) => {
                    tracing::error!(%operation_id, phase, why, "a run stops: its outcome is unknown");
                }
            }
            self.at = At::Ended(ending);
        }
        Stopped(())
    }

    /// Ends a run whose code is wrong: its outcome is unknown.
    fn mistake(&mut self, phase: &str, why: &str) -> Stopped {
        self.end(Ending::Unsure(Reason::HandlerUnsure), phase, why)
    }

    /// Returns true, and ends the run, if it has requested no phase for longer than `after`.
    pub(super) fn is_overdue(&mut self, after: Duration) -> bool {
        match self.at {
            At::Between(since) if since.elapsed() > after => {
                let later = Ending::Later { reason: Reason::TimedOut, reply: Some(Reply::rolled_back()) };
                let _ = self.end(later, "", "it did not ask for a phase in time");
                true
            }
            At::Between(_) | At::Inside | At::Ended(_) | At::Closed => false,
        }
    }

    /// Returns the end of a run with this return value (`None`: it panicked), and true if any phase is recorded.
    pub(super) fn close(&mut self, returned: Option<Result<Reply, Failure>>) -> (Ending, bool) {
        let returned = returned.map(|done| done.map_err(|failure| failure.logged(self.command)));
        let ending = match std::mem::replace(&mut self.at, At::Closed) {
            At::Ended(ending) => ending,
            At::Inside | At::Closed => Ending::Left,
            At::Between(_) => match returned {
                Some(Ok(_) | Err(FailedReply { is_final: true, .. }))
                    if self.asked.len() < self.recorded.len() =>
                {
                    let (asked, recorded) = (self.asked.len(), self.recorded.len());
                    let command = self.command;
                    tracing::error!(operation_id = %command, asked, recorded, "a run ended before its recorded phases");
                    Ending::Unsure(Reason::HandlerUnsure)
                }
                Some(Ok(reply) | Err(FailedReply { reply, is_final: true })) => Ending::Reply(reply),
                Some(Err(FailedReply { reply, is_final: false })) => {
                    Ending::Later { reason: Reason::NotExecuted, reply: Some(reply) }
                }
                None => Ending::Later { reason: Reason::Panicked, reply: Some(Reply::rolled_back()) },
            },
        };
        (ending, self.rows > 0)
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use semel_core::Timestamp;

    use super::*;

    fn recorded(name: &str, position: u32, what: StepKind) -> Progress {
        let at = Timestamp::from_millis(1);
        Progress { position, name: name.to_owned(), what, began_at: at, done_at: Some(at) }
    }

    fn journal() -> Journal {
        let local = StepKind::Local { output: Bytes::from_static(b"1") };
        let begun = StepKind::External { deduplicated: true, output: None };
        let recorded = vec![recorded("ride", 0, local), recorded("charge", 1, begun)];
        Journal::new(OperationId::from_bytes([7; 16]), recorded)
    }

    fn reply() -> Result<Reply, Failure> {
        Ok(Reply::new(StatusCode::CREATED))
    }

    fn is_unsure(journal: &mut Journal) -> bool {
        matches!(journal.close(Some(reply())).0, Ending::Unsure(Reason::HandlerUnsure))
    }

    #[test]
    fn a_resumed_journal_returns_the_recorded_state_of_each_phase() {
        let mut journal = journal();
        assert_eq!(
            journal.ask("ride", PhaseKind::Local).ok(),
            Some(PhaseState::Done(Bytes::from_static(b"1")))
        );
        let begun = PhaseState::Begun { deduplicated: true };
        assert_eq!(journal.ask("charge", PhaseKind::External).ok(), Some(begun));
        journal.leave();
        assert_eq!(journal.ask("receipt", PhaseKind::Local).ok(), Some(PhaseState::New { position: 2 }));
        journal.leave();
        assert!(matches!(journal.close(Some(reply())), (Ending::Reply(_), true)));
        assert!(journal.ask("more", PhaseKind::Local).is_err(), "nobody goes on after the end");
    }

    #[test]
    fn run_that_differs_from_its_recorded_phases_is_unsure() {
        let ways: [fn(&mut Journal); 5] = [
            |journal| drop(journal.ask("ride", PhaseKind::External)),
            |journal| drop(journal.ask("charge", PhaseKind::External)),
            |journal| drop((journal.ask("ride", PhaseKind::Local), journal.ask("ride", PhaseKind::Local))),
            |journal| drop(journal.ask("no name", PhaseKind::Local)),
            |journal| drop(journal.ask("ride", PhaseKind::Local)),
        ];
        for (number, way) in ways.into_iter().enumerate() {
            let mut journal = journal();
            way(&mut journal);
            assert!(is_unsure(&mut journal), "way {number}");
        }
    }

    #[test]
    fn dropped_phase_is_left_to_the_next_executor() {
        let mut dropped = Journal::new(OperationId::from_bytes([7; 16]), Vec::new());
        assert!(dropped.ask("ride", PhaseKind::Local).is_ok());
        assert!(dropped.ask("charge", PhaseKind::External).is_err());
        assert!(matches!(dropped.close(Some(reply())).0, Ending::Left));
        let mut leaked = Journal::new(OperationId::from_bytes([7; 16]), Vec::new());
        assert!(leaked.ask("ride", PhaseKind::Local).is_ok());
        assert!(matches!(leaked.close(Some(reply())).0, Ending::Left));
    }

    #[test]
    fn the_first_recorded_ending_of_a_run_decides() {
        let mut journal = Journal::new(OperationId::from_bytes([7; 16]), Vec::new());
        let _ = journal.end(Ending::Left, "ride", "first");
        let _ = journal.end(Ending::Unsure(Reason::TimedOut), "ride", "second");
        assert!(matches!(journal.close(Some(reply())), (Ending::Left, false)));
        let mut panicked = Journal::new(OperationId::from_bytes([7; 16]), Vec::new());
        assert!(matches!(panicked.close(None).0, Ending::Later { reason: Reason::Panicked, .. }));
    }

    #[test]
    fn a_run_idle_between_phases_beyond_its_limit_is_overdue() {
        let mut journal = Journal::new(OperationId::from_bytes([7; 16]), Vec::new());
        assert!(!journal.is_overdue(Duration::from_secs(3600)));
        assert!(journal.ask("ride", PhaseKind::Local).is_ok());
        assert!(!journal.is_overdue(Duration::ZERO), "a phase has a bound of its own");
        journal.leave();
        std::thread::sleep(Duration::from_millis(2));
        assert!(journal.is_overdue(Duration::ZERO));
        assert!(journal.ask("charge", PhaseKind::External).is_err());
    }
}
