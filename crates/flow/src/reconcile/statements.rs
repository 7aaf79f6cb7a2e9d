//! Uses evidence that came by itself: at once where the command is unknown, later where it may still become so.
//!
//! Invariant: nothing frees a key while there is evidence about its command that nobody has read.

use std::sync::PoisonError;

use semel_core::reconcile::{Bearing, LastHeard, Statement, StatementOutcome, bearing};
use semel_core::transition::{Refusal, Verdict};
use semel_core::{Decision, OperationId, Record, StoreError};

use super::look::{Looks, bounded, note};
use super::metrics;

/// How many statements about one command are looked at at a time, and how often in one go.
const PAGE: usize = 32;
const MAX_PAGES: usize = 32;

/// What came of the statements about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// The verdict that settled it now, if one did.
    pub(super) settled: Option<Verdict>,
    /// Whether all of them could be read. What nobody has read may say that the command took place.
    pub(super) all_read: bool,
}

impl Looks {
    /// Uses what was said about a command. Answers with the verdict that settled it now, if one did.
    pub(super) async fn use_statements_about(
        &self,
        operation_id: OperationId,
    ) -> Result<Option<Verdict>, StoreError> {
        match self.store.find(operation_id).await?.record {
            Some(record) => Ok(self.use_statements(&record).await?.settled),
            // Its record may come later. If it never does, what was said is forgotten in time.
            None => Ok(None),
        }
    }

    /// The same, for a record that is at hand. What says that the command was not executed comes last, and only if nothing
    /// is left that might say otherwise.
    pub(super) async fn use_statements(&self, record: &Record) -> Result<Used, StoreError> {
        let (mut settled, mut trouble) = (None, None);
        let (mut not_executed, mut unreadable) = (Vec::new(), 0);
        let (mut last, mut pages) = (None::<LastHeard>, 0);
        loop {
            let page = self.evidence.open_statements(record.operation_id, last.as_ref(), PAGE).await?;
            unreadable += page.unreadable;
            for statement in page.statements {
                if !self.may_speak(&statement, record) {
                    metrics::out_of_bounds(record, &statement);
                    self.close(&statement, StatementOutcome::OutOfBounds).await?;
                } else if matches!(statement.verdict(), Verdict::NotExecuted(_)) {
                    not_executed.push(statement);
                } else {
                    // Trouble with one says nothing about the others.
                    match self.use_statement(record, &statement).await {
                        Ok(verdict) => settled = settled.or(verdict),
                        Err(error) => trouble = Some(error),
                    }
                }
            }
            (last, pages) = (page.last, pages + 1);
            if last.is_none() || pages == MAX_PAGES {
                break;
            }
        }
        let all_read = unreadable == 0 && last.is_none() && trouble.is_none();
        for statement in not_executed {
            let used = if all_read {
                self.use_statement(record, &statement).await
            } else {
                metrics::held_back(record, &statement, unreadable);
                self.compare(record, &statement).await.map(|()| None)
            };
            match used {
                Ok(verdict) => settled = settled.or(verdict),
                Err(error) => trouble = Some(error),
            }
        }
        match trouble {
            Some(error) if settled.is_none() => Err(error),
            _ => Ok(Used { settled, all_read }),
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
                self.compare(after, statement).await.map(|()| None)
            }
            _ => Ok(None),
        }
    }

    /// Closes a statement that a record needs no longer.
    async fn compare(&self, record: &Record, statement: &Statement) -> Result<(), StoreError> {
        match bearing(&record.head.state, statement.verdict()) {
            Bearing::Waits => {}
            Bearing::Confirms => {
                self.close(statement, StatementOutcome::Confirmed).await?;
            }
            Bearing::Contradicts => {
                if self.close(statement, StatementOutcome::Contradicted).await? {
                    metrics::contradiction(record, statement.verdict(), &bounded(&statement.seen));
                }
            }
        }
        Ok(())
    }

    async fn close(&self, statement: &Statement, outcome: StatementOutcome) -> Result<bool, StoreError> {
        self.evidence.close_statement(&statement.source, &statement.event_id, outcome).await
    }
}
