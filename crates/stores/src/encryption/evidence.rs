//! Received evidence, with its responses sealed while it waits.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::reconcile::{Heard, LastHeard, OpenStatements, StatementOutcome};
use semel_core::transition::ReferenceWrite;
use semel_core::{Evidence, Note, OperationId, Statement, StoreError};

use super::store::{SealedStore, not_sealed};

#[async_trait]
impl<S: Evidence + ?Sized> Evidence for SealedStore<S> {
    async fn take_in(&self, statement: &Statement) -> Result<Heard, StoreError> {
        let sealed = self.vault.seal_statement(statement).map_err(|why| not_sealed(&why))?;
        self.inner.take_in(&sealed).await
    }

    /// Counts statements that do not open as unreadable: they would settle their command with an unreadable
    /// response. They wait for their key.
    async fn open_statements(
        &self,
        operation_id: OperationId,
        after: Option<&LastHeard>,
        limit: usize,
    ) -> Result<OpenStatements, StoreError> {
        let page = self.inner.open_statements(operation_id, after, limit).await?;
        let opened = |statement: &Statement| match self.vault.open_statement(statement) {
            Ok(opened) => Some(opened),
            Err(why) => {
                let source = &statement.source;
                tracing::error!(%operation_id, source, %why, "evidence stays sealed, and is not used");
                None
            }
        };
        let statements: Vec<Statement> = page.statements.iter().filter_map(opened).collect();
        let unreadable = page.unreadable + page.statements.len() - statements.len();
        Ok(OpenStatements { statements, unreadable, last: page.last })
    }

    async fn commands_with_evidence(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<OperationId>, StoreError> {
        self.inner.commands_with_evidence(after, limit).await
    }

    async fn close_statement(
        &self,
        source: &str,
        event_id: &str,
        outcome: StatementOutcome,
    ) -> Result<bool, StoreError> {
        self.inner.close_statement(source, event_id, outcome).await
    }

    async fn contradict(
        &self,
        source: &str,
        event_id: &str,
        note: &Note,
        reference: ReferenceWrite,
    ) -> Result<bool, StoreError> {
        self.inner.contradict(source, event_id, note, reference).await
    }

    async fn reap_statements(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.inner.reap_statements(retention, limit).await
    }
}
