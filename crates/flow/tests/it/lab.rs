//! Databases under test, with Semel's tables and a service's own, and commands for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use semel_core::{
    Backend, Command, Decision, Note, OperationId, Outbox, Policy, Record, Records, Transacted,
};
use semel_flow::{Answered, Failure, PostgresTransactions, Reply, Settled, SqliteTransactions};
use semel_stores::postgres::{DatabaseAddress, SCHEMA_VERSION, migrate_database};
use semel_stores::{PostgresStore, SqliteStore};
use semel_testkit::postgres::{self, Database, Server};
use semel_testkit::sample;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// Generates a test of each behaviour on each database.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::lab::Postgres::new().await).await;
                }
            )*
        }
        mod on_sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::lab::Sqlite::new()).await;
                }
            )*
        }
    };
}
pub(crate) use both;

/// The service's own table.
const TABLE: &str = "CREATE TABLE payments (note TEXT NOT NULL)";

/// The one effect of commands in these tests.
pub(crate) const PAY: &str = "INSERT INTO payments (note) VALUES ('paid')";

/// Holds work at a point until the test releases it.
#[derive(Clone)]
pub(crate) struct Gate {
    begun: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { begun: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    pub(crate) async fn pass(&self) {
        self.begun.add_permits(1);
        self.open.acquire().await.expect("it is never closed").forget();
    }

    /// Waits until work has arrived here.
    pub(crate) async fn begun(&self) {
        self.begun.acquire().await.expect("it is never closed").forget();
    }

    /// Releases the work.
    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
}

/// Steps of work, in sequence.
#[derive(Clone)]
pub(crate) enum Step {
    /// A statement; if it fails, so does the work.
    Sql(&'static str),
    /// A statement whose error the work ignores.
    Swallow(&'static str),
    /// Pushes a message of this kind.
    Push(&'static str),
    /// Waits for the test.
    Wait(Gate),
    /// Calls this function.
    Call(fn()),
}

/// End of the work.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Created,
    Final(u16),
    Retryable(u16),
    Panic,
    /// A response with this number of bytes.
    Large(usize),
    /// Response 202, deferred for an hour.
    Deferred,
}

/// Work of a command.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

/// Returns work that pays and sends a message.
pub(crate) fn pays() -> Work {
    Work { steps: vec![Step::Sql(PAY), Step::Push("payment.created")], end: End::Created }
}

impl Work {
    pub(crate) fn then(mut self, step: Step) -> Work {
        self.steps.push(step);
        self
    }

    pub(crate) fn ending(mut self, end: End) -> Work {
        self.end = end;
        self
    }

    fn end(&self, operation: &dyn std::fmt::Display) -> Result<Reply, Failure> {
        let status = |code: u16| StatusCode::from_u16(code).expect("tests use real statuses");
        let text = |code: u16| Reply::new(status(code)).body(format!("answer of {operation}"));
        match self.end {
            End::Created => Ok(text(201).header(LOCATION, HeaderValue::from_static("/payments/7"))),
            End::Final(code) => Err(Failure::Final(text(code))),
            End::Retryable(code) => Err(Failure::Retryable(text(code))),
            End::Panic => panic!("work that panics"),
            End::Deferred => Ok(text(202).deferred(Duration::from_secs(3600))),
            End::Large(size) => Ok(Reply::new(StatusCode::CREATED).body(vec![b'x'; size])),
        }
    }
}

/// Returns a command under this key, whose duplicates wait long.
pub(crate) fn command(key: &str) -> Command {
    command_with(key, |policy| policy.wait = Duration::from_secs(20))
}

/// Returns a command under this key, with a changed policy.
pub(crate) fn command_with(key: &str, change: impl FnOnce(&mut Policy)) -> Command {
    let mut policy = Policy::default();
    change(&mut policy);
    Command {
        scope: sample::scope(key),
        fingerprint: sample::fingerprint(r#"{"amount":1}"#),
        business_reference: None,
        former: Arc::default(),
        policy: Arc::new(policy),
        trace: None,
    }
}

/// Returns the command with a business reference.
pub(crate) fn referring(command: Command, reference: &str) -> Command {
    Command { business_reference: Some(reference.into()), ..command }
}

/// Outcome of a command in the form that tests compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Saw {
    Executed(u16, String),
    Replayed(u16, String),
    Deferred(u16),
    RolledBack(u16),
    Decided(Decision),
    Unavailable,
    InDoubt,
}

pub(crate) fn saw(answered: &Answered) -> Saw {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("answers are text");
    match answered.outcome() {
        Transacted::Executed { response, .. } => {
            let body = response.body.as_deref().expect("an answer has a body");
            Saw::Executed(response.status.as_u16(), text(body))
        }
        Transacted::Decided { decision: Decision::Replay, record: Some(record), .. } => {
            let (status, body) = stored(record);
            Saw::Replayed(status, text(&body))
        }
        Transacted::Deferred { response, .. } => Saw::Deferred(response.status.as_u16()),
        Transacted::Decided { decision, .. } => Saw::Decided(*decision),
        Transacted::RolledBack { response, .. } => Saw::RolledBack(response.status.as_u16()),
        Transacted::Unavailable => Saw::Unavailable,
        Transacted::InDoubt => Saw::InDoubt,
    }
}

impl Saw {
    pub(crate) fn executed(&self) -> bool {
        matches!(self, Saw::Executed(..))
    }

    pub(crate) fn replayed(&self) -> bool {
        matches!(self, Saw::Replayed(..))
    }
}

/// Returns the stored response of a record.
pub(crate) fn stored(record: &Record) -> (u16, bytes::Bytes) {
    let result = record.result.as_ref().expect("it is settled");
    let response = result.response.decode().expect("it can be read");
    (response.status.as_u16(), response.body.unwrap_or_default())
}

/// A database under test.
pub(crate) trait Lab: Clone + Send + Sync + 'static {
    /// Outcome for a duplicate in another process whose first request does not end in time. SQLite cannot tell who
    /// holds its file.
    const HELD_ELSEWHERE: Saw;
    /// Column type of a foreign key to a command's id.
    const ID_TYPE: &'static str;

    /// Executes a command.
    fn transact(&self, command: &Command, work: Work) -> impl Future<Output = Answered> + Send;
    /// Settles a deferred command, or settles it by this evidence.
    fn settle(
        &self,
        id: OperationId,
        evidence: Option<Note>,
        work: Work,
    ) -> impl Future<Output = Settled> + Send;
    /// Returns a second lab on the same database, as another process would have it.
    fn second(&self) -> impl Future<Output = Self> + Send;
    /// Returns a number from the database.
    fn number(&self, sql: &str) -> impl Future<Output = i64> + Send;
    /// Executes a statement.
    fn run(&self, sql: &str) -> impl Future<Output = ()> + Send;
    /// Returns the store on the same database.
    fn store(&self) -> impl Future<Output = Arc<dyn Records>> + Send;

    /// Returns the outbox on the same database, with a clock that can be moved.
    fn kept(&self) -> impl Future<Output = Kept> + Send;
    /// Returns the address of the database for another process.
    fn place(&self) -> String;

    /// Executes a command, and returns its outcome for comparison.
    fn see(&self, command: &Command, work: Work) -> impl Future<Output = Saw> + Send {
        async move { saw(&self.transact(command, work).await) }
    }

    /// Returns the numbers of payments, messages and records.
    fn counts(&self) -> impl Future<Output = (i64, i64, i64)> + Send {
        async move {
            (
                self.number("SELECT count(*) FROM payments").await,
                self.number("SELECT count(*) FROM semel_outbox").await,
                self.number("SELECT count(*) FROM semel_records").await,
            )
        }
    }

    /// Makes every settled record expire.
    fn expire(&self) -> impl Future<Output = ()> + Send {
        self.run("UPDATE semel_records SET expires_at = updated_at WHERE expires_at IS NOT NULL")
    }
}

/// A store with a clock that can be moved.
#[derive(Clone)]
pub(crate) enum Kept {
    Postgres(Arc<PostgresStore>),
    Sqlite(Arc<SqliteStore>),
}

impl Kept {
    /// Opens the store at this address.
    pub(crate) async fn at(place: &str) -> Kept {
        if place.starts_with("postgres://") {
            let address: DatabaseAddress = place.parse().expect("it is an address");
            Kept::Postgres(Arc::new(PostgresStore::open(&address).await.expect("the database can be used")))
        } else {
            Kept::Sqlite(Arc::new(SqliteStore::open(place).expect("the file opens again")))
        }
    }

    pub(crate) fn outbox(&self) -> Arc<dyn Outbox> {
        self.store().outbox().expect("it keeps messages")
    }

    pub(crate) fn store(&self) -> Arc<dyn Backend> {
        match self {
            Kept::Postgres(store) => store.clone(),
            Kept::Sqlite(store) => store.clone(),
        }
    }

    pub(crate) fn shift_clock(&self, by: Duration) {
        match self {
            Kept::Postgres(store) => store.shift_clock(by),
            Kept::Sqlite(store) => store.shift_clock(by),
        }
    }
}

/// PostgreSQL under test.
#[derive(Clone)]
pub(crate) struct Postgres {
    pub(crate) transactions: PostgresTransactions,
    pub(crate) database: Arc<Database>,
    /// Connections of the test itself.
    pub(crate) pool: PgPool,
}

impl Postgres {
    pub(crate) async fn new() -> Postgres {
        Postgres::on(&postgres::shared().expect("there is a server")).await
    }

    /// Creates a new database on this server.
    pub(crate) async fn on(server: &Server) -> Postgres {
        let migrate = async |url: String| -> Result<(), Box<dyn std::error::Error>> {
            migrate_database(&url.parse()?).await?;
            let pool = pool(&url, 1).await;
            sqlx::raw_sql(TABLE).execute(&pool).await?;
            pool.close().await;
            Ok(())
        };
        let version = format!("flow-{SCHEMA_VERSION}");
        let database = server.database_from(&version, migrate).await.expect("a database can be made");
        let pool = pool(&database.url(), 4).await;
        Postgres {
            transactions: PostgresTransactions::new(self::pool(&database.url(), 2).await),
            database: Arc::new(database),
            pool,
        }
    }

    /// Returns the same database, connected through another address.
    pub(crate) async fn through(&self, url: &str) -> Postgres {
        Postgres { transactions: PostgresTransactions::new(pool(url, 2).await), ..self.clone() }
    }
}

/// Returns a pool of this number of connections, which are opened on demand.
pub(crate) async fn pool(url: &str, connections: u32) -> PgPool {
    let options = PgPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(20));
    options.connect_lazy(url).expect("it is an address")
}

impl Lab for Postgres {
    const HELD_ELSEWHERE: Saw = Saw::Decided(Decision::Wait);
    const ID_TYPE: &'static str = "uuid";

    async fn transact(&self, command: &Command, work: Work) -> Answered {
        on_postgres(&self.transactions, command, work).await
    }

    async fn settle(&self, id: OperationId, evidence: Option<Note>, work: Work) -> Settled {
        let work = |tx| postgres_work(tx, work);
        match evidence {
            None => self.transactions.settle(id, work).await,
            Some(note) => self.transactions.resolve(id, note, work).await,
        }
    }

    async fn second(&self) -> Postgres {
        self.through(&self.database.url()).await
    }

    async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&self.pool).await.expect("it is a number")
    }

    async fn run(&self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await.expect("the statement runs");
    }

    async fn store(&self) -> Arc<dyn Records> {
        let address: DatabaseAddress = self.database.url().parse().expect("it is an address");
        Arc::new(PostgresStore::open(&address).await.expect("the database can be used"))
    }

    async fn kept(&self) -> Kept {
        Kept::at(&self.place()).await
    }

    fn place(&self) -> String {
        self.database.url()
    }
}

/// Executes a command in PostgreSQL.
pub(crate) async fn on_postgres(
    transactions: &PostgresTransactions,
    command: &Command,
    work: Work,
) -> Answered {
    transactions.transact(command, |tx| postgres_work(tx, work)).await
}

async fn postgres_work(mut tx: semel_flow::postgres::PgTx, work: Work) -> Result<Reply, Failure> {
    for step in &work.steps {
        match step {
            Step::Sql(sql) => {
                sqlx::raw_sql(*sql).execute(&mut *tx).await?;
            }
            Step::Swallow(sql) => {
                let _ = sqlx::raw_sql(*sql).execute(&mut *tx).await;
            }
            Step::Push(kind) => {
                tx.push(kind, b"{}").await?;
            }
            Step::Wait(gate) => gate.pass().await,
            Step::Call(call) => call(),
        }
    }
    work.end(&tx.operation_id())
}

/// Executes a command in SQLite.
pub(crate) async fn on_sqlite(transactions: &SqliteTransactions, command: &Command, work: Work) -> Answered {
    transactions.transact(command, move |tx| sqlite_work(tx, &work)).await
}

fn sqlite_work(tx: &semel_flow::sqlite::SqliteTx<'_>, work: &Work) -> Result<Reply, Failure> {
    for step in &work.steps {
        match step {
            Step::Sql(sql) => tx.execute_batch(sql)?,
            Step::Swallow(sql) => {
                let _ = tx.execute_batch(sql);
            }
            Step::Push(kind) => {
                tx.push(kind, b"{}")?;
            }
            Step::Wait(gate) => tokio::runtime::Handle::current().block_on(gate.pass()),
            Step::Call(call) => call(),
        }
    }
    work.end(&tx.operation_id())
}

/// SQLite under test.
#[derive(Clone)]
pub(crate) struct Sqlite {
    pub(crate) transactions: SqliteTransactions,
    pub(crate) path: PathBuf,
    pub(crate) folder: Arc<TempDir>,
}

impl Sqlite {
    pub(crate) fn new() -> Sqlite {
        let folder = TempDir::new().expect("there is room for a test");
        let path = folder.path().join("service.db");
        let transactions = SqliteTransactions::open(&path).expect("a new file can be opened");
        // Tests hold work for as long as they need.
        let transactions = transactions.hold(Duration::from_secs(60));
        let lab = Sqlite { transactions, path, folder: Arc::new(folder) };
        lab.file().execute_batch(TABLE).expect("a table can be made");
        lab
    }

    /// Returns a connection for the test itself.
    pub(crate) fn file(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(&self.path).expect("the file opens");
        file.busy_timeout(Duration::from_secs(20)).expect("it is a duration");
        file
    }
}

impl Lab for Sqlite {
    const HELD_ELSEWHERE: Saw = Saw::Unavailable;
    const ID_TYPE: &'static str = "BLOB";

    async fn transact(&self, command: &Command, work: Work) -> Answered {
        on_sqlite(&self.transactions, command, work).await
    }

    async fn settle(&self, id: OperationId, evidence: Option<Note>, work: Work) -> Settled {
        let work = move |tx: &semel_flow::sqlite::SqliteTx<'_>| sqlite_work(tx, &work);
        match evidence {
            None => self.transactions.settle(id, work).await,
            Some(note) => self.transactions.resolve(id, note, work).await,
        }
    }

    async fn second(&self) -> Sqlite {
        let transactions = SqliteTransactions::open(&self.path).expect("the file opens again");
        Sqlite { transactions, path: self.path.clone(), folder: self.folder.clone() }
    }

    async fn number(&self, sql: &str) -> i64 {
        self.file().query_row(sql, [], |row| row.get(0)).expect("it is a number")
    }

    async fn run(&self, sql: &str) {
        self.file().execute_batch(sql).expect("the statement runs");
    }

    async fn store(&self) -> Arc<dyn Records> {
        Arc::new(SqliteStore::open(&self.path).expect("the file opens again"))
    }

    async fn kept(&self) -> Kept {
        Kept::at(&self.place()).await
    }

    fn place(&self) -> String {
        self.path.to_str().expect("it is text").to_owned()
    }
}
