//! Payments in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::PostgresStore;
use semel::flow::postgres::PgTx;
use semel::flow::sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use semel::flow::sqlx::{self, Row};
use semel::flow::{Answered, Command, Failure, PostgresTransactions, Reply, Settled};
use semel::protocol::{Clock, Note, OperationId, SystemClock};

use super::{
    ACCEPT, Book, CHARGE, Error, FIND, LIST, MAX_LISTED, Opened, Order, Payment, SETTLE, TABLES, Unavailable,
    refused,
};
use crate::service::Options;
use crate::service::payment::{Charge, payment_id};
use crate::service::rides::{self, Ride};
use crate::service::stand::{self, Point};

struct Postgres {
    transactions: PostgresTransactions,
    pool: PgPool,
    patience: Duration,
}

pub(in crate::service) async fn open(url: &str, options: &Options) -> Result<Opened, Error> {
    let store = Arc::new(PostgresStore::open(&url.parse()?).await?);
    // BEGIN detects a dead connection soon enough.
    let pool = PgPoolOptions::new().test_before_acquire(false).connect(url).await?;
    // Of several processes that start at once, one creates the tables.
    let tables = format!("BEGIN; SELECT pg_advisory_xact_lock(20260101); {TABLES} {} COMMIT", rides::TABLES);
    sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(&pool).await?;
    let transactions = PostgresTransactions::new(pool.clone());
    let (terms, provider) = (options.phase_terms(), options.provider.clone());
    let rides = rides::postgres::rides(transactions.clone(), store.clone(), terms, provider);
    let book = Postgres { transactions, pool, patience: options.patience };
    Ok(Opened { book: Arc::new(book), rides, store: store.clone(), outbox: store })
}

#[async_trait]
impl Book for Postgres {
    async fn accept(&self, command: &Command, order: Order) -> Answered {
        let (caller, patience) = (command.scope.principal().caller().to_owned(), self.patience);
        let work = move |mut tx: PgTx| async move {
            let insert = sqlx::query(ACCEPT)
                .bind(payment_id(tx.operation_id()))
                .bind(caller)
                .bind(order.amount)
                .bind(&order.currency)
                .bind(order.shown_card())
                .bind(&order.reference)
                .bind(SystemClock.now().to_rfc3339());
            let payment = payment(&insert.fetch_one(&mut *tx).await?)?;
            tx.push(CHARGE, &order.message()?).await?;
            stand::at(Point::InTransaction);
            Ok(payment.accepted()?.deferred(patience))
        };
        self.transactions.transact(command, work).await
    }

    async fn refuse(&self, command: &Command, why: String) -> Answered {
        self.transactions.transact(command, move |_| async move { Err::<Reply, _>(refused(&why)) }).await
    }

    async fn settle(&self, command: OperationId, charge: Charge, evidence: Option<Note>) -> Settled {
        let work = move |mut tx: PgTx| async move {
            let update = sqlx::query(SETTLE)
                .bind(charge.status.name())
                .bind(charge.id)
                .bind(payment_id(tx.operation_id()))
                .bind(charge.amount)
                .bind(charge.currency);
            let payment = payment(&update.fetch_one(&mut *tx).await?)?;
            stand::at(Point::InSettlement);
            payment.settled() as Result<Reply, Failure>
        };
        match evidence {
            None => self.transactions.settle(command, work).await,
            Some(note) => self.transactions.resolve(command, note, work).await,
        }
    }

    async fn find(&self, caller: String, id: String) -> Result<Option<Payment>, Unavailable> {
        let row = sqlx::query(FIND).bind(id).bind(caller).fetch_optional(&self.pool).await?;
        Ok(row.as_ref().map(payment).transpose()?)
    }

    async fn list(&self, caller: String) -> Result<Vec<Payment>, Unavailable> {
        let rows = sqlx::query(LIST).bind(caller).bind(MAX_LISTED).fetch_all(&self.pool).await?;
        Ok(rows.iter().map(payment).collect::<Result<_, _>>()?)
    }

    async fn find_ride(&self, caller: String, id: String) -> Result<Option<Ride>, Unavailable> {
        let row = sqlx::query(rides::FIND).bind(id).bind(caller).fetch_optional(&self.pool).await?;
        Ok(row.as_ref().map(rides::postgres::read).transpose()?)
    }

    async fn send_receipt(&self, event_id: String, ride: String) -> Result<(), Unavailable> {
        sqlx::query(rides::SEND_RECEIPT).bind(event_id).bind(ride).execute(&self.pool).await?;
        Ok(())
    }
}

impl From<sqlx::Error> for Unavailable {
    fn from(error: sqlx::Error) -> Unavailable {
        Unavailable(error.to_string())
    }
}

fn payment(row: &PgRow) -> Result<Payment, sqlx::Error> {
    Ok(Payment {
        id: row.try_get(0)?,
        amount: row.try_get(1)?,
        currency: row.try_get(2)?,
        card: row.try_get(3)?,
        reference: row.try_get(4)?,
        status: row.try_get(5)?,
        charge: row.try_get(6)?,
        created_at: row.try_get(7)?,
    })
}
