//! One look-up of one command: postpone the command, use received evidence, ask the provider, store the result.

use std::time::Duration;

use semel_core::reconcile::{Bearing, LookedNext, Statement, after_look, bearing};
use semel_core::transition::{Proof, Refusal, Verdict};
use semel_core::{
    About, Change, Decision, LookUpAnswer, Note, OperationId, OperationName, Record, State, StateName,
    StoreAnswer, StoreError, Timestamp,
};

use super::look_up::Finding;
use super::looker::Looker;
use super::metrics;
use super::notes::{bounded, resolved_by};
use super::span::LookUpSpan;
use super::statements::UsedStatements;
use crate::unknown;

/// Reason why a look-up that finds nothing releases no key.
const UNREAD: &str =
    "not executed as far as the look-up can see, and evidence that came by itself cannot be read";

/// Reason why commands in phases are not looked up: a look-up tells about the whole command, and not about one call.
const IN_PHASES: &str =
    "the command runs in phases: an operator, or the service, resolves its open call by the phase's name";

/// Result of a look-up of one command.
#[derive(Clone, Debug)]
pub struct LookUpResult {
    /// Operation id of the command.
    pub operation_id: OperationId,
    /// Operation of the command.
    pub operation: OperationName,
    /// Outcome of the look-up.
    pub outcome: LookUpOutcome,
}

/// Outcome of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUpOutcome {
    /// The command is settled.
    Resolved(Verdict),
    /// The command is still unknown, and is looked up again.
    Again {
        /// Time of the next look-up.
        at: Timestamp,
        /// Reason why there is no verdict.
        why: String,
    },
    /// The command is still unknown, and is left to an operator.
    GivenUp {
        /// Reason why there is no verdict.
        why: String,
    },
    /// Another reconciler is looking the command up.
    Overtaken,
    /// The command is not unknown, or no longer.
    NotUnknown(StateName),
    /// The store was not available. The command is looked up again.
    Failed {
        /// The store's error.
        why: String,
    },
}

impl LookUpOutcome {
    /// Returns the name of the outcome in traces.
    const fn as_str(&self) -> &'static str {
        match self {
            LookUpOutcome::Resolved(_) => "resolved",
            LookUpOutcome::Again { .. } => "again",
            LookUpOutcome::GivenUp { .. } => "given_up",
            LookUpOutcome::Overtaken => "overtaken",
            LookUpOutcome::NotUnknown(_) => "not_unknown",
            LookUpOutcome::Failed { .. } => "failed",
        }
    }

    /// Returns true if the command is still unknown, as far as this look-up can tell.
    pub fn is_unknown(&self) -> bool {
        match self {
            LookUpOutcome::Resolved(_) | LookUpOutcome::NotUnknown(_) => false,
            LookUpOutcome::Again { .. }
            | LookUpOutcome::GivenUp { .. }
            | LookUpOutcome::Overtaken
            | LookUpOutcome::Failed { .. } => true,
        }
    }
}

/// Source of a contradiction that a look-up found.
const LOOK_UP: &str = "look-up";

/// A command that is postponed for longer than this look-up can last.
struct PostponedCommand {
    record: Record,
    /// Number of postponements, including this one.
    attempts: u32,
    /// Store's time of the postponement: the look-up began after it.
    begun: Timestamp,
    wait: Duration,
    until: Timestamp,
    chance: u32,
}

impl Looker {
    /// Looks a command up. The note names the operator who asked for it, if any.
    pub(super) async fn look(&self, record: &Record, note: Option<Note>) -> LookUpResult {
        let span = self.tracer.as_ref().map(LookUpSpan::begin);
        let outcome = match self.hold(record, note).await {
            Ok(Ok(held)) => self.look_while_held(&held).await,
            Ok(Err(outcome)) => outcome,
            Err(error) => self.failed(record, &error),
        };
        if let Some(span) = span {
            span.end(record, outcome.as_str());
        }
        LookUpResult { operation_id: record.operation_id, operation: record.operation.clone(), outcome }
    }

    /// Postpones a command, so that no other reconciler looks it up meanwhile.
    async fn hold(
        &self,
        record: &Record,
        note: Option<Note>,
    ) -> Result<Result<PostponedCommand, LookUpOutcome>, StoreError> {
        let State::Unknown { attempts, .. } = record.head.state else {
            return Ok(Err(LookUpOutcome::NotUnknown(record.head.state.name())));
        };
        let (chance, tries) = (self.chance(), attempts.saturating_add(1));
        // Never shorter than the look-up can last.
        let wait = self.terms.wait(tries, chance).max(self.timeout.saturating_mul(2));
        let until = self.store.now().await?.plus(wait);
        let change = Change::postpone(until, attempts);
        let change = match note {
            Some(note) => change.noted(note),
            None => change,
        };
        let answer = self.store.apply(&record.id, &change).await?;
        unknown::observe(&record.operation, &answer, Some(&change));
        let state = answer.record.as_ref().map(|record| record.head.state);
        Ok(match (answer.decision, answer.record, state) {
            (Decision::Applied, Some(record), Some(State::Unknown { .. })) => {
                metrics::scheduled();
                let (attempts, begun) = (tries, answer.now);
                Ok(PostponedCommand { record, attempts, begun, wait, until, chance })
            }
            (Decision::Refused(Refusal::WrongState), _, Some(state)) => {
                Err(LookUpOutcome::NotUnknown(state.name()))
            }
            _ => Err(LookUpOutcome::Overtaken),
        })
    }

    async fn look_while_held(&self, held: &PostponedCommand) -> LookUpOutcome {
        let all_read = match self.use_statements(&held.record).await {
            Ok(UsedStatements { settled: Some(verdict), .. }) => return LookUpOutcome::Resolved(verdict),
            Ok(used) => used.all_read,
            // The look-up may still find a verdict.
            Err(error) => {
                tracing::warn!(%error, "evidence that came by itself cannot be read");
                false
            }
        };
        if held.record.head.is_phased() {
            return match self.give_up(held, IN_PHASES.to_owned()).await {
                Ok(outcome) => outcome,
                Err(error) => self.failed(&held.record, &error),
            };
        }
        let looking = tokio::time::timeout(self.timeout, self.look_up.look_up(&held.record)).await;
        let finding = match looking.unwrap_or_else(|_| Finding::no_answer("no answer in time")) {
            Finding { found: LookUpAnswer::NotExecuted(_), .. } if !all_read => Finding::no_answer(UNREAD),
            finding => finding,
        };
        match self.conclude(held, &finding).await {
            Ok(outcome) => outcome,
            Err(error) => self.failed(&held.record, &error),
        }
    }

    /// Stores the finding.
    async fn conclude(
        &self,
        held: &PostponedCommand,
        finding: &Finding,
    ) -> Result<LookUpOutcome, StoreError> {
        match after_look(held.attempts, &finding.found, &self.terms, held.chance) {
            LookedNext::Settle(verdict) => self.resolve(held, finding, verdict).await,
            LookedNext::Again { after } => {
                let why = told(&finding.found);
                if !matches!(finding.found, LookUpAnswer::Pending) {
                    metrics::failed(&held.record, held.attempts, &why);
                }
                if after > held.wait {
                    return self.put_off(held, held.begun.plus(after), why).await;
                }
                Ok(LookUpOutcome::Again { at: held.until, why })
            }
            LookedNext::GiveUp => self.give_up(held, told(&finding.found)).await,
        }
    }

    async fn resolve(
        &self,
        held: &PostponedCommand,
        finding: &Finding,
        verdict: Verdict,
    ) -> Result<LookUpOutcome, StoreError> {
        let Some(change) = finding.found.change() else {
            return Ok(LookUpOutcome::Again { at: held.until, why: told(&finding.found) });
        };
        let seen = bounded(&finding.seen);
        // An effect that was found was made by this attempt or an earlier one; an effect that was not found may be made
        // by a later one.
        let about = About::UpTo(held.record.head.epoch);
        let change = change.seen_at(held.begun).about(about).noted(resolved_by(&seen));
        let answer = self.write(&held.record, &change).await?;
        match (answer.decision, &answer.record) {
            (Decision::Applied, record) => {
                let state = record.as_ref().unwrap_or(&held.record).head.state.name();
                metrics::resolved(&held.record, verdict, state, &seen);
                Ok(LookUpOutcome::Resolved(verdict))
            }
            (Decision::Refused(Refusal::StillInFlight { until }), _) => {
                self.wait_for_quarantine(held, until).await
            }
            (Decision::Refused(refusal @ (Refusal::PartlyDone | Refusal::InPhases)), _) => {
                self.without_verdict(held, refusal.to_string()).await
            }
            // The executor, an operator or an event was faster.
            (_, Some(record)) => {
                let deduplicates = self.look_up.deduplicates(record);
                if bearing(record, verdict, about, deduplicates) == Bearing::Contradicts {
                    self.contradicted(held, record, finding, &seen).await?;
                }
                Ok(LookUpOutcome::NotUnknown(record.head.state.name()))
            }
            (_, None) => Ok(LookUpOutcome::Overtaken),
        }
    }

    /// Stores a finding that contradicts the record as a statement.
    async fn contradicted(
        &self,
        held: &PostponedCommand,
        record: &Record,
        finding: &Finding,
        seen: &str,
    ) -> Result<(), StoreError> {
        let why = format!("the record is {}", record.head.state.name());
        let (id, epoch) = (record.operation_id, held.record.head.epoch);
        let event_id = format!("{id}:{epoch}:{}", held.attempts);
        let said = Statement::new(LOOK_UP.to_owned(), event_id, id, finding.found.clone(), seen.to_owned());
        match said.map(|said| said.of_attempt(Some(epoch))) {
            Some(said) => {
                self.evidence.take_in(&said).await?;
                self.raise(Some(record), &said, &why).await
            }
            // "Not found" is no statement: the effect may have landed since.
            None => {
                let verdict = Verdict::NotExecuted(Proof::Quarantine);
                metrics::contradiction(id, Some(record), verdict, &format!("{why}: {seen}"));
                Ok(())
            }
        }
    }

    /// Postpones a command that seems not executed, while a call may still be in flight.
    async fn wait_for_quarantine(
        &self,
        held: &PostponedCommand,
        until: Timestamp,
    ) -> Result<LookUpOutcome, StoreError> {
        let why = "not executed so far, and a call may still be on its way".to_owned();
        if until < Timestamp::MAX {
            return self.put_off(held, until, why).await;
        }
        // No time ends it: a message may be sent at any time.
        self.without_verdict(held, why).await
    }

    /// Schedules another look-up after a finding that settles nothing, or leaves the command to an operator.
    async fn without_verdict(
        &self,
        held: &PostponedCommand,
        why: String,
    ) -> Result<LookUpOutcome, StoreError> {
        match after_look(held.attempts, &LookUpAnswer::no_answer(&why), &self.terms, held.chance) {
            LookedNext::GiveUp => self.give_up(held, why).await,
            LookedNext::Again { .. } | LookedNext::Settle(_) => {
                Ok(LookUpOutcome::Again { at: held.until, why })
            }
        }
    }

    async fn give_up(&self, held: &PostponedCommand, why: String) -> Result<LookUpOutcome, StoreError> {
        metrics::failed(&held.record, held.attempts, &why);
        let answer = self.postpone(held, Timestamp::MAX).await?;
        if answer.decision != Decision::Applied {
            return Ok(LookUpOutcome::Overtaken);
        }
        metrics::given_up(&held.record, held.attempts, &why);
        Ok(LookUpOutcome::GivenUp { why })
    }

    async fn put_off(
        &self,
        held: &PostponedCommand,
        until: Timestamp,
        why: String,
    ) -> Result<LookUpOutcome, StoreError> {
        match self.postpone(held, until).await?.decision {
            Decision::Applied => Ok(LookUpOutcome::Again { at: until, why }),
            _ => Ok(LookUpOutcome::Overtaken),
        }
    }

    /// Writes a verdict. A command whose lease had expired, and that the write leaves unknown, is counted.
    pub(super) async fn write(&self, record: &Record, change: &Change) -> Result<StoreAnswer, StoreError> {
        let answer = self.settle.settle(record, change).await?;
        unknown::observe(&record.operation, &answer, Some(change));
        Ok(answer)
    }

    async fn postpone(&self, held: &PostponedCommand, until: Timestamp) -> Result<StoreAnswer, StoreError> {
        let change = Change::put_off(until, held.attempts);
        let answer = self.store.apply(&held.record.id, &change).await?;
        unknown::observe(&held.record.operation, &answer, Some(&change));
        Ok(answer)
    }

    fn failed(&self, record: &Record, error: &StoreError) -> LookUpOutcome {
        let why = error.to_string();
        let attempts = match record.head.state {
            State::Unknown { attempts, .. } => attempts,
            _ => 0,
        };
        metrics::failed(record, attempts, &why);
        LookUpOutcome::Failed { why }
    }
}

/// Returns the reason why there is no verdict.
fn told(found: &LookUpAnswer) -> String {
    match found {
        LookUpAnswer::NoAnswer { why, .. } => bounded(why),
        LookUpAnswer::Pending => "the provider is still at it".to_owned(),
        LookUpAnswer::Executed(_) | LookUpAnswer::Failed(_) | LookUpAnswer::NotExecuted(_) => {
            "the look-up's status does not fit its verdict".to_owned()
        }
    }
}
