//! One connection to the database. Statements are never cancelled: if an answer does not come in time, the
//! connection is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Statement};
use uuid::Uuid;

use super::address::DatabaseAddress;
use super::errors::DbError;
use super::executor::{Cell, Executor, SqlRow, SqlValue};
use super::expected::Expected;
use super::hosts::HostOrder;
use super::password;
use super::timelines::Timelines;
use super::tls::{self, Tls};
use super::witnesses::KnownWitness;

/// Makes the server send warnings: a hidden one could be the one that matters. Otherwise changes nothing.
const HEAR_WARNINGS: &str = "
    SELECT set_config('client_min_messages', 'warning', false)
    WHERE current_setting('client_min_messages') IN ('error', 'fatal', 'panic')";

/// Longest wait of a group of changes for a lock: a locked record delays its group for this time.
const GROUP_LOCK_WAIT: Duration = Duration::from_millis(250);

/// Begins a transaction that hardly waits for locks: for a change whose record another transaction holds.
pub(super) const BEGIN_BRIEFLY: &str = "BEGIN; SET LOCAL lock_timeout = '10ms'";

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) address: DatabaseAddress,
    pub(super) tls: Tls,
    /// Timeout of an answer.
    pub(super) patience: Duration,
    /// Timeout of a wait for a lock, always shorter than that of an answer.
    pub(super) lock_wait: Duration,
    /// Store that connections must lead to.
    pub(super) expected: Expected,
    /// Order in which hosts are tried.
    pub(super) hosts: HostOrder,
    /// Timelines of the server that were seen.
    pub(super) timelines: Timelines,
    /// Beats of the store that this process has seen.
    pub(super) witness: KnownWitness,
}

/// One connection.
pub(super) struct Link {
    client: Client,
    driver: JoinHandle<()>,
    prepared: Option<HashMap<&'static str, Statement>>,
    patience: Duration,
    /// Statement that begins a transaction with bounded waits for locks.
    begin: String,
    /// True if the session bounds its waits for locks by itself.
    is_bounded: bool,
    /// True if the server has warned that a commit may not be replicated as it should be.
    warned: Arc<AtomicBool>,
    /// Timelines that were seen over any connection, and that of this one, if the server has one.
    timelines: Timelines,
    timeline: Option<u64>,
    /// True if the connection can no longer be used.
    broken: bool,
}

impl Dialer {
    /// Connects to the first host that can be used. Nothing was written if this fails.
    pub(super) async fn connect(&self) -> Result<Link, DbError> {
        let each = self.address.host_timeout().min(self.patience);
        let (places, mut failures) = self.hosts.places(&self.address, each).await;
        // A single host has all the time that an answer has: nothing waits behind it.
        let deadline = if places.len() > 1 { each } else { self.patience };
        for place in &places {
            let config = place.config(&self.address.config);
            match tokio::time::timeout(deadline, self.begin_session(&config)).await {
                Ok(Ok(link)) => {
                    self.hosts.answered(place);
                    return Ok(link);
                }
                Ok(Err(error)) => failures.of(place, error),
                Err(_) => {
                    self.hosts.silent(place, &places);
                    failures.of(place, DbError::Unconnected("no answer in time".to_owned()));
                }
            }
        }
        Err(failures.together())
    }

    /// Connects to one host, and makes the session ready for use.
    async fn begin_session(&self, config: &tokio_postgres::Config) -> Result<Link, DbError> {
        let (connected, is_bounded) = match self.connect_with(&self.bounded(config)).await {
            // A pooler that does not forward options says so before anything else.
            Err(error) if is_refused_parameter(&error) => (self.connect_with(config).await, false),
            connected => (connected, true),
        };
        let (client, mut connection) = connected?;
        let warned = Arc::new(AtomicBool::new(false));
        let seen = warned.clone();
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                // "canceling wait for synchronous replication": committed here, and perhaps nowhere else.
                if let AsyncMessage::Notice(notice) = message
                    && notice.code().code() == "01000"
                {
                    tracing::warn!(warning = notice.message(), "the database doubts a commit");
                    seen.store(true, Ordering::SeqCst);
                }
            }
        });
        let prepared = self.address.prepared.then(HashMap::new);
        let begin = match is_bounded {
            true => "BEGIN".to_owned(),
            false => format!("BEGIN; SET LOCAL lock_timeout = '{}ms'", self.lock_wait.as_millis()),
        };
        let patience = self.patience;
        let timelines = self.timelines.clone();
        let mut link = Link {
            client,
            driver,
            prepared,
            patience,
            begin,
            is_bounded,
            warned,
            timelines,
            timeline: None,
            broken: false,
        };
        let hears = link.run(HEAR_WARNINGS).await;
        hears.map_err(|error| DbError::Unconnected(error.to_string()))?;
        self.expected.check(&mut link).await?;
        link.timeline = self.timelines.check(&mut link).await?;
        self.witness.check(&mut link).await?;
        Ok(link)
    }
}

impl Dialer {
    /// Returns a dialer for connections to this address.
    pub(super) fn new(address: DatabaseAddress, tls: Tls, patience: Duration) -> Dialer {
        let (lock_wait, expected, hosts) = (patience * 2 / 5, Expected::default(), HostOrder::default());
        let timelines = Timelines::from(address.lowest_timeline);
        let witness = KnownWitness::default();
        Dialer { address, tls, patience, lock_wait, expected, hosts, timelines, witness }
    }

    /// Returns a dialer for connections whose changes are sent in groups.
    pub(super) fn for_groups(&self) -> Dialer {
        Dialer { lock_wait: self.lock_wait.min(GROUP_LOCK_WAIT), ..self.clone() }
    }

    /// Returns the configuration with a lock timeout shorter than the answer's: dropping a connection does
    /// not end a statement that waits on the server.
    fn bounded(&self, config: &tokio_postgres::Config) -> tokio_postgres::Config {
        let mut config = config.clone();
        let given = config.get_options().unwrap_or_default().to_owned();
        if !given.contains("lock_timeout") {
            let millis = self.lock_wait.as_millis();
            config.options(format!("{given} -c lock_timeout={millis}").trim());
        }
        config
    }

    /// Connects with the password that is found for the address. With `sslmode=prefer`, a server whose TLS
    /// cannot be used, or that refuses it, is tried again without TLS.
    async fn connect_with(&self, config: &tokio_postgres::Config) -> Result<ClientAndConnection, DbError> {
        let found = password::find(&self.address);
        let mut config = config.clone();
        if let Some(password) = &found.password {
            config.password(password);
        }
        let error = match config.connect(self.tls.clone()).await {
            Err(error) if config.get_ssl_mode() == SslMode::Prefer && is_about_tls(&error) => {
                match config.ssl_mode(SslMode::Disable).connect(self.tls.clone()).await {
                    Ok(connected) => return Ok(connected),
                    Err(_) => error,
                }
            }
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        Err(match tls::advice(&error) {
            Some(advice) => DbError::Tls(format!("{}; {advice}", reason(&error))),
            None => DbError::Unconnected(format!("{}{}", reason(&error), found.remark(&error))),
        })
    }
}

/// Returns true if an attempt without TLS may succeed: the handshake failed, or a rule in `pg_hba.conf`
/// forbids TLS.
fn is_about_tls(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        Some(said) => said.code().code() == "28000",
        None => tls::advice(error).is_some(),
    }
}

/// Parts of a connection: the client that sends, and the task that transports.
type ClientAndConnection = (
    Client,
    tokio_postgres::Connection<
        tokio_postgres::Socket,
        <Tls as MakeTlsConnect<tokio_postgres::Socket>>::Stream,
    >,
);

/// Returns true for PgBouncer's `unsupported startup parameter: options`, or `… in options: lock_timeout`.
fn is_refused_parameter(error: &DbError) -> bool {
    error.to_string().contains("unsupported startup parameter")
}

impl Drop for Link {
    /// Drops the socket with the driver. The server notices by itself, and finishes the statements that it
    /// received.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    /// Returns true if the connection can still be used.
    pub(super) fn is_usable(&self) -> bool {
        !self.broken && !self.client.is_closed() && self.timelines.is_current(self.timeline)
    }

    /// Ends the connection as a broken network would, for tests.
    pub(super) fn lose(&mut self) {
        self.broken = true;
        self.driver.abort();
    }

    /// Runs several statements atomically, and returns their rows. A single one is a transaction by itself if
    /// the session bounds its waits.
    pub(super) async fn write(
        &mut self,
        statements: &[(&'static str, Vec<SqlValue<'_>>)],
    ) -> Result<Vec<Vec<SqlRow>>, DbError> {
        match statements {
            [(sql, values)] if self.is_bounded => Ok(vec![self.query(sql, values).await?]),
            several => self.transaction(several, true).await,
        }
    }

    /// Begins a transaction.
    pub(super) async fn begin(&mut self) -> Result<(), DbError> {
        let result = within(self.patience, self.client.batch_execute(&self.begin)).await;
        self.checked(result)
    }

    /// Sends several statements in one transaction without waiting in between, and returns their rows. If one
    /// fails, all are rolled back. Without `commit`, the transaction stays open, even after an error.
    pub(super) async fn transaction(
        &mut self,
        statements: &[(&'static str, Vec<SqlValue<'_>>)],
        commit: bool,
    ) -> Result<Vec<Vec<SqlRow>>, DbError> {
        let mut ready = Vec::with_capacity(statements.len());
        for (sql, values) in statements {
            ready.push(self.ready(sql, values).await?);
        }
        let sending = async {
            // Polled in this order, so sent in this order, without waiting for each other's answers.
            let begin = self.client.batch_execute(&self.begin);
            let all = futures_util::future::join_all(
                statements
                    .iter()
                    .zip(&ready)
                    .map(|((sql, values), statement)| self.send(sql, statement.as_ref(), values)),
            );
            let end = async {
                match commit {
                    true => self.client.batch_execute("COMMIT").await,
                    false => Ok(()),
                }
            };
            let (begun, rows, ended) = futures_util::join!(begin, all, end);
            begun?;
            let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
            ended?;
            Ok(rows)
        };
        let result = within(self.patience, sending).await;
        let rows = self.checked(result)?;
        rows.into_iter().map(|rows| rows.iter().map(cells).collect()).collect()
    }

    async fn ready(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<Statement>, DbError> {
        let Some(prepared) = &mut self.prepared else { return Ok(None) };
        if let Some(statement) = prepared.get(sql) {
            return Ok(Some(statement.clone()));
        }
        let types: Vec<Type> = values.iter().map(type_of).collect();
        let result = within(self.patience, self.client.prepare_typed(sql, &types)).await;
        let statement = match result {
            Ok(statement) => statement,
            // Only a preparation was sent, so nothing was written.
            Err(error) => {
                let lost = error.is_ambiguous();
                self.broken |= lost;
                return Err(if lost { DbError::Unconnected(error.to_string()) } else { error });
            }
        };
        prepared.insert(sql, statement.clone());
        Ok(Some(statement))
    }

    async fn send(
        &self,
        sql: &'static str,
        statement: Option<&Statement>,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        let values: Vec<(Box<dyn ToSql + Sync + Send + '_>, Type)> =
            values.iter().map(|value| (parameter(value), type_of(value))).collect();
        match statement {
            Some(statement) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|(value, _)| &**value as &(dyn ToSql + Sync)).collect();
                self.client.query(statement, &values).await
            }
            None => {
                let values: Vec<(&(dyn ToSql + Sync), Type)> = values
                    .iter()
                    .map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone()))
                    .collect();
                self.client.query_typed(sql, &values).await
            }
        }
    }

    /// Marks the connection as broken if it is, and turns a commit that the server doubts into a lost one.
    fn checked<T>(&mut self, result: Result<T, DbError>) -> Result<T, DbError> {
        let result = match result {
            Ok(_) if self.warned.swap(false, Ordering::SeqCst) => {
                Err(DbError::Lost("the server warned that the commit may not be replicated".to_owned()))
            }
            Ok(_) if !self.timelines.is_current(self.timeline) => {
                Err(DbError::Lost("a former primary answered".to_owned()))
            }
            other => other,
        };
        match &result {
            Err(DbError::Lost(_)) => self.broken = true,
            // A prepared statement that no longer fits, or is gone: the table was altered, or the session
            // reset. Nothing was written, and a new connection prepares again.
            Err(DbError::Refused { code, message }) if matches!(code.as_str(), "0A000" | "26000") => {
                self.broken = true;
                return Err(DbError::Unconnected(message.clone()));
            }
            // The server is read-only: after a failover, another one is writable. The next connection finds
            // it.
            Err(DbError::Refused { code, .. }) if code == "25006" => self.broken = true,
            Ok(_) | Err(_) => {}
        }
        result
    }
}

impl Executor for Link {
    async fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, DbError> {
        let statement = self.ready(sql, values).await?;
        let result = within(self.patience, self.send(sql, statement.as_ref(), values)).await;
        self.checked(result)?.iter().map(cells).collect()
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), DbError> {
        let result = within(self.patience, self.client.batch_execute(sql)).await;
        self.checked(result)
    }
}

async fn within<T>(
    patience: Duration,
    sending: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DbError> {
    match tokio::time::timeout(patience, sending).await {
        Ok(result) => result.map_err(|error| db_error(&error)),
        Err(_) => Err(DbError::Lost("no answer in time".to_owned())),
    }
}

/// Returns the meaning of the driver's error.
fn db_error(error: &tokio_postgres::Error) -> DbError {
    match error.as_db_error() {
        Some(said) => DbError::from_sqlstate(said.code().code(), said.message().to_owned()),
        None => DbError::Lost(reason(error)),
    }
}

/// Returns an error with its causes.
fn reason(error: &tokio_postgres::Error) -> String {
    let mut told = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !told.contains(&more) {
            told = format!("{told}: {more}");
        }
        cause = error.source();
    }
    told
}

fn type_of(value: &SqlValue<'_>) -> Type {
    match value {
        SqlValue::Bytes(_) => Type::BYTEA,
        SqlValue::Text(_) => Type::TEXT,
        SqlValue::Int(_) => Type::INT8,
        SqlValue::Uuid(_) => Type::UUID,
        SqlValue::BytesList(_) => Type::BYTEA_ARRAY,
        SqlValue::TextList(_) => Type::TEXT_ARRAY,
        SqlValue::IntList(_) => Type::INT8_ARRAY,
        SqlValue::UuidList(_) => Type::UUID_ARRAY,
    }
}

fn parameter<'a>(value: &'a SqlValue<'a>) -> Box<dyn ToSql + Sync + Send + 'a> {
    match value {
        SqlValue::Bytes(bytes) => Box::new(bytes),
        SqlValue::Text(text) => Box::new(text),
        SqlValue::Int(number) => Box::new(number),
        SqlValue::Uuid(id) => Box::new(Uuid::from_bytes(*id)),
        SqlValue::BytesList(list) => Box::new(list),
        SqlValue::TextList(list) => Box::new(list),
        SqlValue::IntList(list) => Box::new(list),
        SqlValue::UuidList(list) => {
            Box::new(list.iter().copied().map(Uuid::from_bytes).collect::<Vec<Uuid>>())
        }
    }
}

fn cells(row: &tokio_postgres::Row) -> Result<SqlRow, DbError> {
    let cell = |(number, column): (usize, &tokio_postgres::Column)| {
        let unreadable = |error: tokio_postgres::Error| DbError::unreadable("a column", error);
        Ok(match *column.type_() {
            Type::INT8 => {
                row.try_get::<_, Option<i64>>(number).map_err(unreadable)?.map_or(Cell::Null, Cell::Int)
            }
            Type::UUID => row
                .try_get::<_, Option<Uuid>>(number)
                .map_err(unreadable)?
                .map_or(Cell::Null, |id| Cell::Uuid(id.into_bytes())),
            Type::BYTEA => row
                .try_get::<_, Option<&[u8]>>(number)
                .map_err(unreadable)?
                .map_or(Cell::Null, |bytes| Cell::Bytes(Bytes::copy_from_slice(bytes))),
            _ => row.try_get::<_, Option<String>>(number).map_err(unreadable)?.map_or(Cell::Null, Cell::Text),
        })
    };
    row.columns().iter().enumerate().map(cell).collect::<Result<_, _>>().map(SqlRow)
}
