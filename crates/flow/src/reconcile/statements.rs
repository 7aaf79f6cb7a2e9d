//! Uses received evidence: at once if the command is unknown, later if it may still become so.
//!
//! Invariant: no key is released while there is unread evidence about its command.

use semel_core::reconcile::{
    Bearing, CONTRADICTION, LastHeard, Statement, StatementOutcome, bearing, bearing_on_notes,
};
use semel_core::transition::{Refusal, Verdict};
use semel_core::{Decision, Note, OperationId, Record, StoreError};

use super::looker::Looker;
use super::metrics;
use super::notes::{RECONCILER, bounded, resolved_by};

/// Number of statements about one command read per page, and number of pages.
const PAGE: usize = 32;
const MAX_PAGES: usize = 32;

/// Result of using the statements about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedStatements {
    /// The verdict that settled the command now, if any.
    pub(super) settled: Option<Verdict>,
    /// True if all statements could be read. An unread one may say that the command was executed.
    pub(super) all_read: bool,
}

impl Looker {
    /// Uses the statements about a command. Returns the verdict that settled it now, if any.
    pub(super) async fn use_statements_about(
        &self,
        operation_id: OperationId,
    ) -> Result<Option<Verdict>, StoreError> {
        match self.store.find(operation_id).await?.record {
            Some(record) => Ok(self.use_statements(&record).await?.settled),
            // Its record may come later. If it never does, the statements expire.
            None => self.compare_with_notes(operation_id).await.map(|()| None),
        }
    }

    /// Compares the statements about a command whose record is gone with its notes.
    async fn compare_with_notes(&self, operation_id: OperationId) -> Result<(), StoreError> {
        let notes = self.store.notes(operation_id).await?;
        let (mut last, mut pages) = (None::<LastHeard>, 0);
        loop {
            let page = self.evidence.open_statements(operation_id, last.as_ref(), PAGE).await?;
            for statement in &page.statements {
                match bearing_on_notes(&notes, statement.verdict()) {
                    Bearing::Waits => {}
                    Bearing::Confirms => {
                        self.close(statement, StatementOutcome::Confirmed).await?;
                    }
                    // The command's tenant is no longer known.
                    Bearing::Contradicts if !self.bounds.speaks_for_all(&statement.source) => {
                        self.close(statement, StatementOutcome::OutOfBounds).await?;
                    }
                    Bearing::Contradicts => self.raise(None, statement, "its record is gone").await?,
                }
            }
            (last, pages) = (page.last, pages + 1);
            if last.is_none() || pages == MAX_PAGES {
                return Ok(());
            }
        }
    }

    /// Uses the statements about the command of this record. "Not executed" comes last, and only if no unread statement
    /// is left that might contradict it.
    pub(super) async fn use_statements(&self, record: &Record) -> Result<UsedStatements, StoreError> {
        let (mut settled, mut trouble) = (None, None);
        let (mut not_executed, mut unreadable) = (Vec::new(), 0);
        let (mut last, mut pages) = (None::<LastHeard>, 0);
        loop {
            let page = self.evidence.open_statements(record.operation_id, last.as_ref(), PAGE).await?;
            unreadable += page.unreadable;
            for statement in page.statements {
                if !self.bounds.is_bound(&statement.source) && record.head.state.is_open() {
                    // Another node may know its source, or later settings will.
                    metrics::unbound(record, &statement);
                } else if !self.bounds.may_speak(&statement, record) {
                    metrics::out_of_bounds(record, &statement);
                    self.close(&statement, StatementOutcome::OutOfBounds).await?;
                } else if matches!(statement.verdict(), Verdict::NotExecuted(_)) {
                    not_executed.push(statement);
                } else {
                    // An error with one says nothing about the others.
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
            _ => Ok(UsedStatements { settled, all_read }),
        }
    }

    async fn use_statement(
        &self,
        record: &Record,
        statement: &Statement,
    ) -> Result<Option<Verdict>, StoreError> {
        let (verdict, seen) = (statement.verdict(), bounded(&statement.seen));
        // It names an operation id; an attempt that a restored store has forgotten may have had another one.
        if record.head.is_in_doubt() && matches!(verdict, Verdict::NotExecuted(_)) {
            return Ok(None);
        }
        let Some(change) = statement.found().change() else { return Ok(None) };
        let change = change.about(statement.about(record)).noted(resolved_by(&seen));
        let answer = self.write(record, &change).await?;
        let after = answer.record.as_ref();
        match (answer.decision, after) {
            (Decision::Applied, _) => {
                let after = after.unwrap_or(record);
                metrics::resolved(record, verdict, after.head.state.name(), &seen);
                self.closed_by(after, statement).await?;
                Ok(Some(verdict))
            }
            (Decision::Refused(Refusal::WrongState | Refusal::OtherAttempt { .. }), Some(after)) => {
                self.compare(after, statement).await.map(|()| None)
            }
            _ => Ok(None),
        }
    }

    /// Closes a statement that has just settled its command, and raises a contradiction if the command had been run
    /// again.
    async fn closed_by(&self, after: &Record, statement: &Statement) -> Result<(), StoreError> {
        if self.bears(after, statement) == Bearing::Contradicts {
            return self.raise(Some(after), statement, "the key was run again after that attempt").await;
        }
        self.close(statement, StatementOutcome::Used).await.map(drop)
    }

    /// Closes a statement that the record no longer needs.
    async fn compare(&self, record: &Record, statement: &Statement) -> Result<(), StoreError> {
        match self.bears(record, statement) {
            Bearing::Waits => Ok(()),
            Bearing::Confirms => self.close(statement, StatementOutcome::Confirmed).await.map(drop),
            Bearing::Contradicts => {
                let why = format!("the record is {}", record.head.state.name());
                self.raise(Some(record), statement, &why).await
            }
        }
    }

    fn bears(&self, record: &Record, statement: &Statement) -> Bearing {
        let deduplicates = self.bounds.deduplicates(&statement.source);
        bearing(record, statement.verdict(), statement.about(record), deduplicates)
    }

    /// Raises a contradiction, once: in the audit log, in the log and as a metric. The statement itself does not
    /// change.
    pub(super) async fn raise(
        &self,
        record: Option<&Record>,
        statement: &Statement,
        why: &str,
    ) -> Result<(), StoreError> {
        let (verdict, seen) = (statement.verdict(), bounded(&statement.seen));
        let attempt = statement.attempt.map_or(String::new(), |epoch| format!(" (attempt {epoch})"));
        let note = Note {
            who: RECONCILER.to_owned(),
            action: CONTRADICTION.to_owned(),
            why: bounded(&format!("{}{attempt}, but {why}: {seen}", verdict.as_str())),
        };
        let reference = Bearing::Contradicts.reference(verdict);
        if self.evidence.contradict(&statement.source, &statement.event_id, &note, reference).await? {
            metrics::contradiction(statement.operation_id, record, verdict, &note.why);
        }
        Ok(())
    }

    async fn close(&self, statement: &Statement, outcome: StatementOutcome) -> Result<bool, StoreError> {
        self.evidence.close_statement(&statement.source, &statement.event_id, outcome).await
    }
}
