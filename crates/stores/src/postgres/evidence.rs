//! Received evidence in PostgreSQL: all SQL about statements. Each change is a transaction of its own, and
//! repeating it changes nothing.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::reconcile::{Heard, LastHeard, OpenStatements, StatementOutcome};
use semel_core::transition::ReferenceWrite;
use semel_core::{Evidence, Ids, Note, OperationId, RandomIds, Statement, Store, StoreError, Timestamp};

use super::PostgresStore;
use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::link::Link;
use super::outbox::in_transaction;
use super::queries::take_references_back;
use crate::columns::{ResultColumns, StatementColumns, heard_after, of_statement};

/// Inserts a statement. An existing one stays unchanged.
const TAKE_IN: &str = concat!(
    "INSERT INTO semel_evidence (source, event_id, operation_id, verdict, proof, why, received_at, status, resource,
         response_format, encryption_key_id, response, attempt, content)
     SELECT $2, $3, $4, $5, $6, $7, n.now, $8, $9, $10, $11, $12, $13, $14 FROM ",
    now!(),
    " ON CONFLICT DO NOTHING RETURNING received_at"
);

const CONTENT: &str = "SELECT content FROM semel_evidence WHERE source = $1 AND event_id = $2";

const OPEN: &str = "
    SELECT source, event_id, operation_id, verdict, proof, why, status, resource, response_format, encryption_key_id,
        response, received_at, attempt, content
    FROM semel_evidence
    WHERE operation_id = $1 AND done_at IS NULL AND (received_at, source, event_id) > ($2, $3, $4)
    ORDER BY received_at, source, event_id LIMIT $5";

const COMMANDS: &str = "
    SELECT DISTINCT operation_id FROM semel_evidence WHERE done_at IS NULL AND operation_id > $1
    ORDER BY operation_id LIMIT $2";

const CLOSE: &str = concat!(
    "UPDATE semel_evidence SET done_at = n.now, outcome = $4 FROM ",
    now!(),
    " WHERE source = $2 AND event_id = $3 AND done_at IS NULL RETURNING done_at"
);

/// Closes a statement and writes the note in one statement: the note belongs to the first process that closes
/// it.
const CONTRADICT: &str = concat!(
    "WITH closed AS (
         UPDATE semel_evidence SET done_at = n.now, outcome = $4 FROM ",
    now!(),
    "    WHERE source = $2 AND event_id = $3 AND done_at IS NULL RETURNING operation_id, done_at),
     noted AS (
         INSERT INTO semel_audit (id, at, operation_id, who, action, why)
         SELECT $5, done_at, operation_id, $6, $7, $8 FROM closed)
     SELECT operation_id, done_at FROM closed"
);

const REAP: &str = concat!(
    "WITH old AS MATERIALIZED (
         SELECT source, event_id FROM semel_evidence, ",
    now!(),
    "    WHERE received_at <= n.now - $2 AND (done_at IS NOT NULL OR NOT EXISTS (
             SELECT 1 FROM semel_records AS open
             WHERE open.operation_id = semel_evidence.operation_id
                 AND open.state IN ('claimed', 'processing', 'unknown')))
         ORDER BY received_at LIMIT $3 FOR UPDATE OF semel_evidence SKIP LOCKED),
     gone AS (
         DELETE FROM semel_evidence USING old
         WHERE semel_evidence.source = old.source AND semel_evidence.event_id = old.event_id RETURNING 1)
     SELECT count(*) FROM gone"
);

fn statement(row: &SqlRow) -> Result<Statement, DbError> {
    let text = |column| row.text(column).unwrap_or_default().to_owned();
    let number = |column| row.int(column).and_then(|number| u16::try_from(number).ok());
    let format = number(8).and_then(|format| u8::try_from(format).ok());
    let result = match (number(6), format, row.bytes(10)) {
        (Some(status), Some(response_format), Some(response)) => Some(ResultColumns {
            status,
            resource: row.text(7).map(|text| text.to_owned().into()),
            response_format,
            encryption_key_id: row.text(9).map(|text| text.to_owned().into()),
            response: response.clone(),
        }),
        (Some(_) | None, Some(_) | None, Some(_) | None) => None,
    };
    let columns = StatementColumns {
        source: text(0),
        event_id: text(1),
        operation_id: row.uuid(2).ok_or_else(|| DbError::unreadable("operation_id", "there is none"))?,
        verdict: text(3),
        proof: row.text(4).map(str::to_owned),
        why: text(5),
        received_at: row.int(11).unwrap_or_default(),
        attempt: row.int(12).and_then(|attempt| u32::try_from(attempt).ok()),
        content: row
            .bytes(13)
            .and_then(|content| content[..].try_into().ok())
            .ok_or_else(|| DbError::unreadable("content", "no digest"))?,
        result,
    };
    columns.statement().map_err(|damage| DbError::unreadable(damage.column, damage.what))
}

fn heard(row: &SqlRow) -> Result<LastHeard, DbError> {
    let nothing = |column| DbError::unreadable(column, "there is nothing");
    Ok(LastHeard {
        received_at: Timestamp::from_millis(row.int(11).ok_or_else(|| nothing("received_at"))?),
        source: row.text(0).ok_or_else(|| nothing("source"))?.to_owned(),
        event_id: row.text(1).ok_or_else(|| nothing("event_id"))?.to_owned(),
    })
}

fn count(limit: usize) -> SqlValue<'static> {
    SqlValue::Int(Some(i64::try_from(limit).unwrap_or(i64::MAX)))
}

#[async_trait]
impl Evidence for PostgresStore {
    async fn take_in(&self, statement: &Statement) -> Result<Heard, StoreError> {
        let statement = statement.clone();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let (verdict, proof, result) = of_statement(&statement);
                let result = result.as_ref();
                let number = |number: Option<u16>| SqlValue::Int(number.map(i64::from));
                let values = [
                    SqlValue::Int(Some(lent.offset)),
                    SqlValue::Text(Some(&statement.source)),
                    SqlValue::Text(Some(&statement.event_id)),
                    SqlValue::Uuid(*statement.operation_id.as_bytes()),
                    SqlValue::Text(Some(verdict)),
                    SqlValue::Text(proof),
                    SqlValue::Text(Some(&statement.seen)),
                    number(result.map(|result| result.status)),
                    SqlValue::Text(result.and_then(|result| result.resource.as_deref())),
                    number(result.map(|result| result.response_format.into())),
                    SqlValue::Text(result.and_then(|result| result.encryption_key_id.as_deref())),
                    SqlValue::Bytes(result.map(|result| &result.response[..])),
                    SqlValue::Int(statement.attempt.map(i64::from)),
                    SqlValue::Bytes(Some(&statement.content)),
                ];
                if lent.link()?.query(TAKE_IN, &values).await?.len() == 1 {
                    return Ok(Heard::New);
                }
                let name =
                    [SqlValue::Text(Some(&statement.source)), SqlValue::Text(Some(&statement.event_id))];
                let rows = lent.link()?.query(CONTENT, &name).await?;
                let kept = rows.first().and_then(|row| row.bytes(0));
                let differs = kept.is_some_and(|kept| statement.differs_from(kept));
                Ok(if differs { Heard::Other } else { Heard::Before })
            })
            .await
    }

    async fn open_statements(
        &self,
        id: OperationId,
        after: Option<&LastHeard>,
        limit: usize,
    ) -> Result<OpenStatements, StoreError> {
        let after = after.cloned();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let (received_at, source, event_id) = heard_after(after.as_ref());
                let values = [
                    SqlValue::Uuid(*id.as_bytes()),
                    SqlValue::Int(Some(received_at)),
                    SqlValue::Text(Some(source)),
                    SqlValue::Text(Some(event_id)),
                    count(limit),
                ];
                let found = lent.link()?.query(OPEN, &values).await?;
                // An unreadable statement is left to an operator, and does not hide others.
                let left = |why: &DbError| {
                    tracing::error!(%why, operation_id = %id, "evidence cannot be read, and is not used");
                };
                let statements: Vec<Statement> =
                    found.iter().filter_map(|row| statement(row).inspect_err(left).ok()).collect();
                let unreadable = found.len() - statements.len();
                let last = found.last().filter(|_| found.len() == limit).map(heard).transpose()?;
                Ok(OpenStatements { statements, unreadable, last })
            })
            .await
    }

    async fn commands_with_evidence(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<OperationId>, StoreError> {
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let after = after.map_or([0; 16], |id| *id.as_bytes());
                let rows = lent.link()?.query(COMMANDS, &[SqlValue::Uuid(after), count(limit)]).await?;
                Ok(rows.iter().filter_map(|row| row.uuid(0)).map(OperationId::from_bytes).collect())
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
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [
                    SqlValue::Int(Some(lent.offset)),
                    SqlValue::Text(Some(&source)),
                    SqlValue::Text(Some(&event_id)),
                    SqlValue::Text(Some(outcome.as_str())),
                ];
                Ok(lent.link()?.query(CLOSE, &values).await?.len() == 1)
            })
            .await
    }

    async fn contradict(
        &self,
        source: &str,
        event_id: &str,
        note: &Note,
        reference: ReferenceWrite,
    ) -> Result<bool, StoreError> {
        let id = *RandomIds.operation_id(self.now().await?).as_bytes();
        let (source, event_id, note) = (source.to_owned(), event_id.to_owned(), note.clone());
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [
                    SqlValue::Int(Some(lent.offset)),
                    SqlValue::Text(Some(&source)),
                    SqlValue::Text(Some(&event_id)),
                    SqlValue::Text(Some(StatementOutcome::Contradicted.as_str())),
                    SqlValue::Uuid(id),
                    SqlValue::Text(Some(&note.who)),
                    SqlValue::Text(Some(&note.action)),
                    SqlValue::Text(Some(&note.why)),
                ];
                let raised = in_transaction(lent.link()?, async |link: &mut Link| {
                    let closed = link.query(CONTRADICT, &values).await?;
                    let closed = closed.first().and_then(|row| row.uuid(0).zip(row.int(1)));
                    let Some((command, now)) = closed else { return Ok(None) };
                    if reference == ReferenceWrite::TakeBack {
                        take_references_back(link, vec![command], Timestamp::from_millis(now)).await?;
                    }
                    Ok(Some(()))
                });
                Ok(raised.await?.is_some())
            })
            .await
    }

    async fn reap_statements(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [SqlValue::Int(Some(lent.offset)), SqlValue::Int(Some(retention)), count(limit)];
                let rows = lent.link()?.query(REAP, &values).await?;
                let gone = rows.first().and_then(|row| row.int(0)).unwrap_or(0);
                Ok(usize::try_from(gone).unwrap_or(0))
            })
            .await
    }
}
