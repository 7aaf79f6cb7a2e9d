//! Uses evidence that came by itself: at once where the command is unknown, later where it may still become so.

use std::sync::PoisonError;

use semel_core::reconcile::{Bearing, Statement, StatementOutcome, bearing};
use semel_core::transition::{Refusal, Verdict};
use semel_core::{Decision, OperationId, Record, StoreError};

use super::look::{Looks, bounded, note};
use super::metrics;

/// The most statements about one command that are looked at in one go.
const MAX_STATEMENTS: usize = 32;

impl Looks {
    /// Uses what was said about a command. Answers with the verdict that settled it now, if one did.
    pub(super) async fn use_statements_about(
        &self,
        operation_id: OperationId,
    ) -> Result<Option<Verdict>, StoreError> {
        match self.store.find(operation_id).await?.record {
            Some(record) => self.use_statements(&record).await,
            // Its record may come later. If it never does, what was said is forgotten in time.
            None => Ok(None),
        }
    }

    /// The same, for a record that is at hand.
    pub(super) async fn use_statements(&self, record: &Record) -> Result<Option<Verdict>, StoreError> {
        let (mut settled, mut trouble) = (None, None);
        for statement in self.evidence.open_statements(record.operation_id, MAX_STATEMENTS).await? {
            if self.may_speak(&statement, record) {
                // Trouble with one says nothing about the others.
                match self.use_statement(record, &statement).await {
                    Ok(verdict) => settled = settled.or(verdict),
                    Err(error) => trouble = Some(error),
                }
            } else {
                metrics::out_of_bounds(record, &statement);
                self.close(&statement, StatementOutcome::OutOfBounds).await?;
            }
        }
        match trouble {
            Some(error) if settled.is_none() => Err(error),
            _ => Ok(settled),
        }
    }

    /// Whether this source has anything to do with this operation.
    fn may_speak(&self, statement: &Statement, record: &Record) -> bool {
        let bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        bounds.get(&statement.source).is_none_or(|operations| operations.contains(&record.operation))
    }

    async fn use_statement(
        &self,
        record: &Record,
        statement: &Statement,
    ) -> Result<Option<Verdict>, StoreError> {
        let (verdict, seen) = (statement.verdict(), bounded(&statement.seen));
        let Some(change) = statement.found().change() else { return Ok(None) };
        let answer = self.settle.settle(record, &change.noted(note(&seen))).await?;
        let after = answer.record.as_ref();
        match (answer.decision, after) {
            (Decision::Applied, _) => {
                let state = after.unwrap_or(record).head.state.name();
                metrics::resolved(record, verdict, state, &seen);
                self.close(statement, StatementOutcome::Used).await?;
                Ok(Some(verdict))
            }
            (Decision::Refused(Refusal::WrongState), Some(after)) => {
                match bearing(&after.head.state, verdict) {
                    Bearing::Waits => {}
                    Bearing::Confirms => {
                        self.close(statement, StatementOutcome::Confirmed).await?;
                    }
                    Bearing::Contradicts => {
                        if self.close(statement, StatementOutcome::Contradicted).await? {
                            metrics::contradiction(after, verdict, &seen);
                        }
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    async fn close(&self, statement: &Statement, outcome: StatementOutcome) -> Result<bool, StoreError> {
        self.evidence.close_statement(&statement.source, &statement.event_id, outcome).await
    }
}
