//! Adapter that sends the store's statements over an sqlx connection.

use bytes::Bytes;
use semel_stores::postgres::{Cell, DbError, Executor, SqlRow, SqlValue};
use sqlx::postgres::{PgArguments, PgDatabaseError, PgRow, PgSeverity};
use sqlx::types::Uuid;
use sqlx::{Column, PgConnection, Postgres, Row as _, TypeInfo};

/// A connection that is in a transaction.
pub(super) struct Joined<'a> {
    connection: &'a mut PgConnection,
    statements: usize,
    waits: Option<&'a mut bool>,
}

impl<'a> Joined<'a> {
    pub(super) fn new(connection: &'a mut PgConnection) -> Joined<'a> {
        Joined { connection, statements: 0, waits: None }
    }

    /// Records in `waits` whether the COMMIT waits for standbys.
    pub(super) fn telling(self, waits: &'a mut bool) -> Joined<'a> {
        Joined { waits: Some(waits), ..self }
    }

    /// Returns the number of statements sent.
    pub(super) fn statements(&self) -> usize {
        self.statements
    }
}

/// A connection whose transaction claims nothing.
pub(super) struct LentConnection<'a>(pub(super) Joined<'a>);

impl Executor for LentConnection<'_> {
    async fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, DbError> {
        self.0.query(sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), DbError> {
        self.0.run(sql).await
    }
}

impl Executor for Joined<'_> {
    const JOINED: bool = true;

    fn commit_waits(&mut self, waits: bool) {
        if let Some(known) = &mut self.waits {
            **known |= waits;
        }
    }

    async fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, DbError> {
        self.statements += 1;
        let query = values.iter().fold(sqlx::query(sql), bind);
        let rows = query.fetch_all(&mut *self.connection).await.map_err(|error| db_error(&error))?;
        rows.iter().map(cells).collect()
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), DbError> {
        self.statements += 1;
        sqlx::raw_sql(sql).execute(&mut *self.connection).await.map(|_| ()).map_err(|error| db_error(&error))
    }
}

type PgQuery<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

/// Binds a value. sqlx encodes it at once, so it is copied.
fn bind<'q>(query: PgQuery<'q>, value: &SqlValue<'_>) -> PgQuery<'q> {
    match value {
        SqlValue::Bytes(bytes) => query.bind(bytes.map(<[u8]>::to_vec)),
        SqlValue::Text(text) => query.bind(text.map(str::to_owned)),
        SqlValue::Int(number) => query.bind(*number),
        SqlValue::Uuid(id) => query.bind(Uuid::from_bytes(*id)),
        SqlValue::BytesList(list) => {
            query.bind(list.iter().map(|bytes| bytes.map(<[u8]>::to_vec)).collect::<Vec<_>>())
        }
        SqlValue::TextList(list) => {
            query.bind(list.iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>())
        }
        SqlValue::IntList(list) => query.bind(list.clone()),
        SqlValue::UuidList(list) => {
            query.bind(list.iter().copied().map(Uuid::from_bytes).collect::<Vec<_>>())
        }
    }
}

fn cells(row: &PgRow) -> Result<SqlRow, DbError> {
    let cell = |column: &sqlx::postgres::PgColumn| {
        let number = column.ordinal();
        let found = match column.type_info().name() {
            "INT8" => row.try_get::<Option<i64>, _>(number).map(|value| value.map(Cell::Int)),
            "UUID" => {
                row.try_get::<Option<Uuid>, _>(number).map(|id| id.map(|id| Cell::Uuid(id.into_bytes())))
            }
            "BYTEA" => row
                .try_get::<Option<Vec<u8>>, _>(number)
                .map(|bytes| bytes.map(|bytes| Cell::Bytes(Bytes::from(bytes)))),
            _ => row.try_get::<Option<String>, _>(number).map(|text| text.map(Cell::Text)),
        };
        found
            .map(|cell| cell.unwrap_or(Cell::Null))
            .map_err(|error| DbError::Unreadable { column: "a column", what: error.to_string() })
    };
    row.columns().iter().map(cell).collect::<Result<_, _>>().map(SqlRow)
}

/// Classifies an sqlx error.
pub(super) fn db_error(error: &sqlx::Error) -> DbError {
    match error {
        // The server ended the session with this error, and may have done anything before.
        sqlx::Error::Database(said) if is_the_last_word(said.as_ref()) => {
            DbError::Lost(said.message().to_owned())
        }
        sqlx::Error::Database(said) => {
            DbError::from_sqlstate(said.code().as_deref().unwrap_or("XX000"), said.message().to_owned())
        }
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => DbError::Unconnected(error.to_string()),
        error => DbError::Lost(error.to_string()),
    }
}

/// Returns true if the session, or the whole server, ended with this error.
fn is_the_last_word(error: &dyn sqlx::error::DatabaseError) -> bool {
    let said = error.try_downcast_ref::<PgDatabaseError>();
    said.is_some_and(|said| matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}
