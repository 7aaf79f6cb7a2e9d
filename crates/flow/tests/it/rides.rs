//! A service whose command has phases, and the provider that it calls: it books a ride, charges the rider, and sends a
//! receipt. A script injects faults.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use semel_core::{Record, RecordId, Records, StateName};
use semel_flow::phases::{Call, CallFailed, CompleterOptions, Deduplication, PhaseTerms, Phases, Stopped};
use semel_flow::{
    Failure, PgRun, PostgresPhases, PostgresTransactions, Reply, SqlitePhases, SqliteRun, SqliteTransactions,
};
use semel_testkit::client::pay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{Gate, Kept, Lab, Postgres, Sqlite};

/// Every place between two steps of a ride.
pub(crate) const PLACES: [&str; 8] = [
    "begun",
    "in the ride",
    "after the ride",
    "before sending",
    "after sending",
    "after the charge",
    "in the receipt",
    "after the receipt",
];

/// Fault at a place.
pub(crate) enum Act {
    Go,
    Panic,
    Retry,
    Refuse,
    Wait(Gate),
    Call(fn()),
}

/// Fault for each place and attempt.
type Script = Arc<dyn Fn(&str, u32) -> Act + Send + Sync>;

/// Settings of a ride.
#[derive(Clone)]
pub(crate) struct Ride {
    pub(crate) provider: SocketAddr,
    pub(crate) deduplication: Deduplication,
    pub(crate) script: Script,
}

impl Ride {
    /// Creates a ride without faults.
    pub(crate) fn new(provider: &Provider) -> Ride {
        let deduplication = match provider.ledger().deduplicates {
            true => Deduplication::ByKey,
            false => Deduplication::None,
        };
        Ride { provider: provider.address, deduplication, script: Arc::new(|_, _| Act::Go) }
    }

    pub(crate) fn script(self, script: impl Fn(&str, u32) -> Act + Send + Sync + 'static) -> Ride {
        Ride { script: Arc::new(script), ..self }
    }

    /// Injects this fault at this place, once, in the first attempt.
    pub(crate) fn once(self, place: &'static str, act: impl Fn() -> Act + Send + Sync + 'static) -> Ride {
        self.script(move |at, attempt| if at == place && attempt == 1 { act() } else { Act::Go })
    }

    async fn at(&self, place: &str, attempt: u32) -> Result<(), Failure> {
        match (self.script)(place, attempt) {
            Act::Go => {}
            Act::Panic => panic!("a ride that panics {place}"),
            Act::Retry => return Err(Failure::Retryable(Reply::new(StatusCode::SERVICE_UNAVAILABLE))),
            Act::Refuse => return Err(Failure::Final(Reply::new(StatusCode::GONE).body("no more rides"))),
            Act::Wait(gate) => gate.pass().await,
            Act::Call(call) => call(),
        }
        Ok(())
    }

    pub(crate) async fn charge(self, call: Call, attempt: u32) -> Result<u64, CallFailed> {
        let failed = |failure| match failure {
            Failure::Final(reply) => CallFailed::Final(reply),
            _ => CallFailed::NotExecuted("so the script says".to_owned()),
        };
        self.at("before sending", attempt).await.map_err(failed)?;
        let connecting = TcpStream::connect(self.provider).await;
        let mut stream = connecting.map_err(|error| CallFailed::NotExecuted(error.to_string()))?;
        let request = pay("{}").set("idempotency-key", call.permit()?).with("connection", "close");
        stream.write_all(&request.into_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let failed = |_| CallFailed::Unsure("so the script says".to_owned());
        self.at("after sending", attempt).await.map_err(failed)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        match head.split(' ').nth(1) {
            Some("201") => Ok(body.parse()?),
            Some("402") => Err(CallFailed::Final(Reply::new(StatusCode::PAYMENT_REQUIRED).body("declined"))),
            status => Err(CallFailed::Unsure(format!("status {status:?}"))),
        }
    }
}

/// A run, on either database.
pub(crate) trait Rides: Send + 'static {
    /// Runs a statement, and sends a message if it is the receipt.
    fn write(
        &mut self,
        name: &'static str,
        sql: &'static str,
        ride: Ride,
        place: &'static str,
    ) -> impl Future<Output = Result<String, Stopped>> + Send;
    fn charge(&mut self, name: &str, ride: Ride) -> impl Future<Output = Result<u64, Stopped>> + Send;
    fn number(&self) -> u32;
}

impl Rides for PgRun {
    async fn write(
        &mut self,
        name: &'static str,
        sql: &'static str,
        ride: Ride,
        place: &'static str,
    ) -> Result<String, Stopped> {
        let attempt = self.attempt();
        self.local(name, move |mut tx| async move {
            sqlx::raw_sql(sql).execute(&mut *tx).await?;
            if name == "receipt_sent" {
                tx.push("receipt", b"{}").await?;
            }
            ride.at(place, attempt).await?;
            Ok(format!("{name} by attempt {attempt}"))
        })
        .await
    }

    async fn charge(&mut self, name: &str, ride: Ride) -> Result<u64, Stopped> {
        let attempt = self.attempt();
        self.external(name, ride.deduplication, move |call| ride.charge(call, attempt)).await
    }

    fn number(&self) -> u32 {
        self.attempt()
    }
}

impl Rides for SqliteRun {
    async fn write(
        &mut self,
        name: &'static str,
        sql: &'static str,
        ride: Ride,
        place: &'static str,
    ) -> Result<String, Stopped> {
        let attempt = self.attempt();
        self.local(name, move |tx| {
            tx.execute_batch(sql)?;
            if name == "receipt_sent" {
                tx.push("receipt", b"{}")?;
            }
            tokio::runtime::Handle::current().block_on(ride.at(place, attempt))?;
            Ok(format!("{name} by attempt {attempt}"))
        })
        .await
    }

    async fn charge(&mut self, name: &str, ride: Ride) -> Result<u64, Stopped> {
        let attempt = self.attempt();
        self.external(name, ride.deduplication, move |call| ride.charge(call, attempt)).await
    }

    fn number(&self) -> u32 {
        self.attempt()
    }
}

pub(crate) const RIDE: &str = "INSERT INTO payments (note) VALUES ('ride')";
pub(crate) const RECEIPT: &str = "INSERT INTO payments (note) VALUES ('receipt')";

/// Code of the operation.
pub(crate) async fn ride(mut run: impl Rides, input: Bytes, ride: Ride) -> Result<Reply, Failure> {
    let attempt = run.number();
    ride.at("begun", attempt).await?;
    let created = run.write("ride_created", RIDE, ride.clone(), "in the ride").await?;
    ride.at("after the ride", attempt).await?;
    let charge = run.charge("charge_created", ride.clone()).await?;
    ride.at("after the charge", attempt).await?;
    let receipt = run.write("receipt_sent", RECEIPT, ride.clone(), "in the receipt").await?;
    ride.at("after the receipt", attempt).await?;
    let input = String::from_utf8_lossy(&input);
    let body = format!("{input}: {created}, charge {charge}, {receipt}");
    Ok(Reply::new(StatusCode::CREATED).body(body))
}

/// A database with phases.
pub(crate) trait Phased: Lab {
    type Transactions: Clone + Send + Sync + 'static;
    type Run: Rides;

    /// Returns phases without an operation, on this store.
    fn none(&self, store: Arc<dyn Records>) -> Phases<Self::Transactions>;

    /// Adds the code of an operation.
    fn with<F, R>(
        phases: Phases<Self::Transactions>,
        terms: PhaseTerms,
        code: F,
    ) -> Phases<Self::Transactions>
    where
        F: Fn(Self::Run, Bytes) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, Failure>> + Send + 'static;

    /// Runs an external phase.
    fn call<F, R>(
        run: &mut Self::Run,
        name: &str,
        deduplication: Deduplication,
        call: F,
    ) -> impl Future<Output = Result<u64, Stopped>> + Send
    where
        F: FnOnce(Call) -> R + Send + 'static,
        R: Future<Output = Result<u64, CallFailed>> + Send + 'static;

    /// Runs a local phase with this output.
    fn output(
        run: &mut Self::Run,
        name: &str,
        sql: &'static str,
        output: String,
    ) -> impl Future<Output = Result<String, Stopped>> + Send;

    /// Returns phases with rides, on this store.
    fn rides(&self, store: Arc<dyn Records>, what: Ride) -> Phases<Self::Transactions> {
        self.rides_under(store, PhaseTerms::default(), what)
    }

    fn rides_under(
        &self,
        store: Arc<dyn Records>,
        terms: PhaseTerms,
        what: Ride,
    ) -> Phases<Self::Transactions> {
        Self::with(self.none(store), terms, move |run, input| ride(run, input, what.clone()))
    }
}

impl Phased for Postgres {
    type Transactions = PostgresTransactions;
    type Run = PgRun;

    fn none(&self, store: Arc<dyn Records>) -> PostgresPhases {
        PostgresPhases::new(self.transactions.clone(), store)
    }

    async fn call<F, R>(
        run: &mut PgRun,
        name: &str,
        deduplication: Deduplication,
        call: F,
    ) -> Result<u64, Stopped>
    where
        F: FnOnce(Call) -> R + Send + 'static,
        R: Future<Output = Result<u64, CallFailed>> + Send + 'static,
    {
        run.external(name, deduplication, call).await
    }

    async fn output(
        run: &mut PgRun,
        name: &str,
        sql: &'static str,
        output: String,
    ) -> Result<String, Stopped> {
        run.local(name, move |mut tx| async move {
            sqlx::raw_sql(sql).execute(&mut *tx).await?;
            Ok(output)
        })
        .await
    }

    fn with<F, R>(phases: PostgresPhases, terms: PhaseTerms, code: F) -> PostgresPhases
    where
        F: Fn(PgRun, Bytes) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        phases.operation_with("payments.create", terms, code)
    }
}

impl Phased for Sqlite {
    type Transactions = SqliteTransactions;
    type Run = SqliteRun;

    fn none(&self, store: Arc<dyn Records>) -> SqlitePhases {
        SqlitePhases::new(self.transactions.clone(), store)
    }

    async fn call<F, R>(
        run: &mut SqliteRun,
        name: &str,
        deduplication: Deduplication,
        call: F,
    ) -> Result<u64, Stopped>
    where
        F: FnOnce(Call) -> R + Send + 'static,
        R: Future<Output = Result<u64, CallFailed>> + Send + 'static,
    {
        run.external(name, deduplication, call).await
    }

    async fn output(
        run: &mut SqliteRun,
        name: &str,
        sql: &'static str,
        output: String,
    ) -> Result<String, Stopped> {
        run.local(name, move |tx| {
            tx.execute_batch(sql)?;
            Ok(output)
        })
        .await
    }

    fn with<F, R>(phases: SqlitePhases, terms: PhaseTerms, code: F) -> SqlitePhases
    where
        F: Fn(SqliteRun, Bytes) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        phases.operation_with("payments.create", terms, code)
    }
}

/// Returns the numbers of rides, messages and receipts: never more than one for each command.
pub(crate) async fn written(lab: &impl Lab) -> (i64, i64, i64) {
    (
        lab.number("SELECT count(*) FROM payments WHERE note = 'ride'").await,
        lab.number("SELECT count(*) FROM payments WHERE note = 'receipt'").await,
        lab.number("SELECT count(*) FROM semel_outbox").await,
    )
}

/// Runs completers until the command is settled, or its outcome unknown.
pub(crate) async fn resumed<D: Clone + Send + Sync + 'static>(
    phases: &[&Phases<D>],
    kept: &Kept,
    command: &RecordId,
) -> Record {
    let options = CompleterOptions { poll: Duration::from_millis(10), ..CompleterOptions::default() };
    let completers: Vec<_> = phases.iter().map(|phases| phases.completer(options)).collect();
    let stops: Vec<_> = completers.iter().map(|completer| completer.stopper()).collect();
    let running: Vec<_> = completers.into_iter().map(|completer| tokio::spawn(completer.run())).collect();
    let record = until(kept, command, |record| {
        !matches!(record.head.state.name(), StateName::Claimed | StateName::Processing)
    })
    .await;
    stops.iter().for_each(|stop| stop.stop());
    for running in running {
        assert_eq!(running.await.expect("it ends").left, 0);
    }
    record
}

/// Returns the record, once the condition is true.
pub(crate) async fn until(kept: &Kept, command: &RecordId, is_so: impl Fn(&Record) -> bool) -> Record {
    let store = kept.store();
    for _ in 0..6000 {
        let found = store.get(command).await.expect("it can be read");
        if let Some(record) = found.record
            && is_so(&record)
        {
            return record;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let found = store.get(command).await;
    panic!("the record never came to be so: {found:?}");
}

/// A provider that charges riders, over HTTP, and keeps a ledger of it.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) deduplicates: bool,
    /// True to answer 402, without a charge.
    pub(crate) declines: bool,
    /// True to charge, and answer 500.
    pub(crate) breaks: bool,
    /// Keys of all calls.
    pub(crate) calls: Vec<String>,
    /// Keys of all charges: the effect.
    pub(crate) charges: Vec<String>,
}

impl Provider {
    pub(crate) async fn start(deduplicates: bool) -> Provider {
        let provider = Provider::down(deduplicates).await;
        provider.up().await;
        provider
    }

    /// Creates a provider that refuses connections.
    pub(crate) async fn down(deduplicates: bool) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let ledger = Ledger { deduplicates, ..Ledger::default() };
        Provider { address, ledger: Arc::new(Mutex::new(ledger)) }
    }

    pub(crate) async fn up(&self) {
        let listener = TcpListener::bind(self.address).await.expect("the port is still free");
        let app = Router::new().route("/payments", post(charge)).with_state(self.ledger.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody panics here")
    }

    /// Returns the numbers of its calls and of its charges.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let ledger = self.ledger();
        (ledger.calls.len(), ledger.charges.len())
    }
}

async fn charge(State(ledger): State<Arc<Mutex<Ledger>>>, headers: HeaderMap) -> (StatusCode, String) {
    let key = headers["idempotency-key"].to_str().expect("keys are text").to_owned();
    let mut ledger = ledger.lock().expect("nobody panics here");
    ledger.calls.push(key.clone());
    if ledger.declines {
        return (StatusCode::PAYMENT_REQUIRED, "declined".to_owned());
    }
    let before = ledger.charges.iter().position(|charged| *charged == key);
    let number = match before.filter(|_| ledger.deduplicates) {
        Some(place) => place + 1,
        None => {
            ledger.charges.push(key);
            ledger.charges.len()
        }
    };
    match ledger.breaks {
        true => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        false => (StatusCode::CREATED, number.to_string()),
    }
}
