//! Received evidence in a SQLite file: all SQL about statements.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use semel_core::reconcile::{Heard, LastHeard, OpenStatements, StatementOutcome};
use semel_core::transition::ReferenceWrite;
use semel_core::{Evidence, Note, OperationId, Statement, StoreError, Timestamp};
use semel_faults::Point;

use super::errors::{is_unreadable, stored};
use super::job::{Task, WriteTransaction};
use super::rows::{damaged, result};
use super::savepoint::all_or_nothing;
use super::{SqliteStore, queries};
use crate::columns::{StatementColumns, heard_after, of_statement};

/// Inserts a statement. An existing one stays unchanged.
const TAKE_IN: &str = "
    INSERT INTO semel_evidence (source, event_id, operation_id, verdict, proof, why, received_at, status, resource,
        response_format, encryption_key_id, response, attempt, content)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT DO NOTHING";

const CONTENT: &str = "SELECT content FROM semel_evidence WHERE source = ?1 AND event_id = ?2";

const OPEN: &str = "
    SELECT source, event_id, operation_id, verdict, proof, why, response_format, status, resource, encryption_key_id,
        response, received_at, attempt, content
    FROM semel_evidence
    WHERE operation_id = ?1 AND done_at IS NULL AND (received_at, source, event_id) > (?2, ?3, ?4)
    ORDER BY received_at, source, event_id LIMIT ?5";

const COMMANDS: &str = "
    SELECT DISTINCT operation_id FROM semel_evidence WHERE done_at IS NULL AND operation_id > ?1
    ORDER BY operation_id LIMIT ?2";

const CLOSE: &str = "
    UPDATE semel_evidence SET done_at = ?3, outcome = ?4 WHERE source = ?1 AND event_id = ?2 AND done_at IS NULL";

const ABOUT: &str = "SELECT operation_id FROM semel_evidence WHERE source = ?1 AND event_id = ?2";

const REAP: &str = "
    DELETE FROM semel_evidence WHERE rowid IN (
        SELECT rowid FROM semel_evidence AS old WHERE received_at <= ?1 AND (done_at IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM semel_records AS open
            WHERE open.operation_id = old.operation_id AND open.state IN ('claimed', 'processing', 'unknown')))
        ORDER BY received_at LIMIT ?2)";

fn take_in(connection: &Connection, statement: &Statement, now: Timestamp) -> rusqlite::Result<usize> {
    let (verdict, proof, result) = of_statement(statement);
    let result = result.as_ref();
    connection.prepare_cached(TAKE_IN)?.execute(params![
        statement.source,
        statement.event_id,
        statement.operation_id.as_bytes(),
        verdict,
        proof,
        statement.seen,
        now.as_millis(),
        result.map(|result| result.status),
        result.and_then(|result| result.resource.as_deref()),
        result.map(|result| result.response_format),
        result.and_then(|result| result.encryption_key_id.as_deref()),
        result.map(|result| &result.response[..]),
        statement.attempt,
        statement.content,
    ])
}

fn close(
    connection: &Connection,
    source: &str,
    event_id: &str,
    outcome: StatementOutcome,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    connection.prepare_cached(CLOSE)?.execute(params![source, event_id, now.as_millis(), outcome.as_str()])
}

fn reap(
    connection: &Connection,
    retention: Duration,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
    let until = now.as_millis().saturating_sub(retention);
    connection.prepare_cached(REAP)?.execute(params![until, count(limit)])
}

/// Closes the statement, writes the note, and takes the reference of its command back if no other command
/// holds it.
fn contradict(
    connection: &Connection,
    (source, event_id): (&str, &str),
    note: &Note,
    reference: ReferenceWrite,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    if close(connection, source, event_id, StatementOutcome::Contradicted, now)? == 0 {
        return Ok(0);
    }
    let id = connection.prepare_cached(ABOUT)?.query_row([source, event_id], |row| row.get(0))?;
    let id = OperationId::from_bytes(id);
    queries::take_note(connection, Some(id), note, now)?;
    if reference == ReferenceWrite::TakeBack {
        queries::take_references_back(connection, id, now)?;
    }
    Ok(1)
}

fn statement(row: &Row<'_>) -> rusqlite::Result<Statement> {
    let columns = StatementColumns {
        source: row.get("source")?,
        event_id: row.get("event_id")?,
        operation_id: row.get("operation_id")?,
        verdict: row.get("verdict")?,
        proof: row.get("proof")?,
        why: row.get("why")?,
        received_at: row.get("received_at")?,
        attempt: row.get("attempt")?,
        content: row.get("content")?,
        result: result(row, 6)?,
    };
    columns.statement().map_err(damaged)
}

fn heard(row: &Row<'_>) -> rusqlite::Result<LastHeard> {
    Ok(LastHeard {
        received_at: Timestamp::from_millis(row.get("received_at")?),
        source: row.get("source")?,
        event_id: row.get("event_id")?,
    })
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl Evidence for SqliteStore {
    async fn take_in(&self, statement: &Statement) -> Result<Heard, StoreError> {
        let heard = statement.clone();
        let task = Task::new(move |turn| stored(take_in(turn.connection, &heard, turn.now)));
        if self.write(task.held_at(Some(Point::EvidenceSent))).await? == 1 {
            return Ok(Heard::New);
        }
        let (source, event_id) = (statement.source.clone(), statement.event_id.clone());
        let kept: Option<Vec<u8>> = self
            .read(move |connection, _| {
                let mut content = connection.prepare_cached(CONTENT)?;
                content.query_row([source, event_id], |row| row.get(0)).optional()
            })
            .await?;
        let differs = kept.is_some_and(|kept| statement.differs_from(&kept));
        Ok(if differs { Heard::Other } else { Heard::Before })
    }

    async fn open_statements(
        &self,
        id: OperationId,
        after: Option<&LastHeard>,
        limit: usize,
    ) -> Result<OpenStatements, StoreError> {
        let after = after.cloned();
        self.read(move |connection, _| {
            let mut open = connection.prepare_cached(OPEN)?;
            let (received_at, source, event_id) = heard_after(after.as_ref());
            let mut rows = open.query(params![id.as_bytes(), received_at, source, event_id, count(limit)])?;
            let mut page = OpenStatements::default();
            while let Some(row) = rows.next()? {
                match statement(row) {
                    Ok(statement) => page.statements.push(statement),
                    // An unreadable statement is left to an operator, and does not hide others.
                    Err(why) if is_unreadable(&why) => {
                        tracing::error!(%why, operation_id = %id, "evidence cannot be read, and is not used");
                        page.unreadable += 1;
                    }
                    Err(why) => return Err(why),
                }
                if page.statements.len() + page.unreadable == limit {
                    page.last = Some(heard(row)?);
                }
            }
            Ok(page)
        })
        .await
    }

    async fn commands_with_evidence(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<OperationId>, StoreError> {
        self.read(move |connection, _| {
            let after = after.map_or([0; 16], |id| *id.as_bytes());
            let mut commands = connection.prepare_cached(COMMANDS)?;
            let read = |row: &Row<'_>| row.get(0).map(OperationId::from_bytes);
            commands.query_map(params![after, count(limit)], read)?.collect()
        })
        .await
    }

    async fn close_statement(
        &self,
        source: &str,
        event_id: &str,
        outcome: StatementOutcome,
    ) -> Result<bool, StoreError> {
        let (source, event_id) = (source.to_owned(), event_id.to_owned());
        let close = move |turn: &mut WriteTransaction<'_>| {
            stored(self::close(turn.connection, &source, &event_id, outcome, turn.now))
        };
        Ok(self.write(Task::new(close)).await? == 1)
    }

    async fn contradict(
        &self,
        source: &str,
        event_id: &str,
        note: &Note,
        reference: ReferenceWrite,
    ) -> Result<bool, StoreError> {
        let (source, event_id, note) = (source.to_owned(), event_id.to_owned(), note.clone());
        let contradict = move |turn: &mut WriteTransaction<'_>| {
            let statement = (source.as_str(), event_id.as_str());
            let write = || self::contradict(turn.connection, statement, &note, reference, turn.now);
            all_or_nothing(turn.connection, || stored(write()))
        };
        Ok(self.write(Task::new(contradict)).await? == 1)
    }

    async fn reap_statements(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.write(Task::new(move |turn| stored(reap(turn.connection, retention, limit, turn.now)))).await
    }
}
