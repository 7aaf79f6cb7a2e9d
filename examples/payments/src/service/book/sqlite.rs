//! Payments in a SQLite file.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use semel::SqliteStore;
use semel::flow::rusqlite::{self, Connection, OptionalExtension, Row};
use semel::flow::sqlite::SqliteTx;
use semel::flow::{Answered, Command, Failure, Reply, Settled, SqliteTransactions};
use semel::protocol::{Clock, Note, OperationId, SystemClock};

use super::{
    ACCEPT, Book, CHARGE, Error, FIND, LIST, MAX_LISTED, Opened, Order, Payment, SETTLE, TABLES, Unavailable,
    refused,
};
use crate::service::Options;
use crate::service::payment::{Charge, payment_id};
use crate::service::rides::{self, Ride};
use crate::service::stand::{self, Point};

/// Busy timeout while another process writes the file.
const BUSY_TIME: Duration = Duration::from_secs(5);

struct Sqlite {
    transactions: SqliteTransactions,
    /// Connection for requests that are no commands.
    connection: Arc<Mutex<Connection>>,
    patience: Duration,
}

pub(in crate::service) fn open(path: &Path, options: &Options) -> Result<Opened, Error> {
    let store = Arc::new(SqliteStore::open(path)?);
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIME)?;
    connection.execute_batch(TABLES)?;
    connection.execute_batch(rides::TABLES)?;
    let transactions = SqliteTransactions::open(path)?;
    let (terms, provider) = (options.phase_terms(), options.provider.clone());
    let rides = rides::sqlite::rides(transactions.clone(), store.clone(), terms, provider);
    let connection = Arc::new(Mutex::new(connection));
    let book = Sqlite { transactions, connection, patience: options.patience };
    Ok(Opened { book: Arc::new(book), rides, store: store.clone(), outbox: store })
}

impl Sqlite {
    async fn with<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let connection = self.connection.clone();
        let look = move || look(&connection.lock().unwrap_or_else(PoisonError::into_inner));
        let looked =
            tokio::task::spawn_blocking(look).await.map_err(|error| Unavailable(error.to_string()))?;
        looked.map_err(|error| Unavailable(error.to_string()))
    }
}

#[async_trait]
impl Book for Sqlite {
    async fn accept(&self, command: &Command, order: Order) -> Answered {
        let (caller, patience) = (command.scope.principal().caller().to_owned(), self.patience);
        let work = move |tx: &SqliteTx<'_>| {
            let (id, now) = (payment_id(tx.operation_id()), SystemClock.now().to_rfc3339());
            let Order { amount, currency, reference, .. } = &order;
            let values = (id, caller, amount, currency, order.shown_card(), reference, now);
            let payment = tx.query_row(ACCEPT, values, payment)?;
            tx.push(CHARGE, &order.message()?)?;
            stand::at(Point::InTransaction);
            Ok(payment.accepted()?.deferred(patience))
        };
        self.transactions.transact(command, work).await
    }

    async fn refuse(&self, command: &Command, why: String) -> Answered {
        self.transactions.transact(command, move |_| Err::<Reply, _>(refused(&why))).await
    }

    async fn settle(&self, command: OperationId, charge: Charge, evidence: Option<Note>) -> Settled {
        let work = move |tx: &SqliteTx<'_>| -> Result<Reply, Failure> {
            let Charge { id, amount, currency, status, .. } = charge;
            let values = (status.name(), id, payment_id(tx.operation_id()), amount, currency);
            let payment = tx.query_row(SETTLE, values, payment)?;
            stand::at(Point::InSettlement);
            payment.settled()
        };
        match evidence {
            None => self.transactions.settle(command, work).await,
            Some(note) => self.transactions.resolve(command, note, work).await,
        }
    }

    async fn find(&self, caller: String, id: String) -> Result<Option<Payment>, Unavailable> {
        self.with(move |connection| connection.query_row(FIND, (id, caller), payment).optional()).await
    }

    async fn list(&self, caller: String) -> Result<Vec<Payment>, Unavailable> {
        self.with(move |reader| {
            reader.prepare_cached(LIST)?.query_map((caller, MAX_LISTED), payment)?.collect()
        })
        .await
    }

    async fn find_ride(&self, caller: String, id: String) -> Result<Option<Ride>, Unavailable> {
        let find = move |connection: &Connection| {
            connection.query_row(rides::FIND, (id, caller), rides::sqlite::read).optional()
        };
        self.with(find).await
    }

    async fn send_receipt(&self, event_id: String, ride: String) -> Result<(), Unavailable> {
        self.with(move |connection| connection.execute(rides::SEND_RECEIPT, (event_id, ride))).await.map(drop)
    }
}

fn payment(row: &Row<'_>) -> rusqlite::Result<Payment> {
    Ok(Payment {
        id: row.get(0)?,
        amount: row.get(1)?,
        currency: row.get(2)?,
        card: row.get(3)?,
        reference: row.get(4)?,
        status: row.get(5)?,
        charge: row.get(6)?,
        created_at: row.get(7)?,
    })
}
