//! Rides in PostgreSQL.

use std::sync::Arc;

use semel::flow::phases::{PhaseTerms, Stopped};
use semel::flow::sqlx::postgres::PgRow;
use semel::flow::sqlx::{self, Row};
use semel::flow::{PgRun, PostgresPhases, PostgresTransactions};
use semel::protocol::Upkeep;

use super::{BOOK, Booking, Charge, PAY, RECEIPT, RIDE, Ride, Rides, Steps, ride, ride_id, status};
use crate::service::provider::Address;
use crate::service::stand::{self, Point};

/// Returns rides in these transactions, charged by this provider.
pub(in crate::service) fn rides(
    transactions: PostgresTransactions,
    store: Arc<dyn Upkeep>,
    terms: PhaseTerms,
    provider: Address,
) -> Arc<dyn Rides> {
    let code = move |run: PgRun, input| ride(run, input, provider.clone());
    Arc::new(PostgresPhases::new(transactions, store).operation_with(RIDE, terms, code))
}

impl Steps for PgRun {
    async fn book(&mut self, booking: Booking) -> Result<Ride, Stopped> {
        self.local("ride", move |mut tx| async move {
            let insert = sqlx::query(BOOK)
                .bind(ride_id(tx.operation_id()))
                .bind(booking.caller)
                .bind(booking.from)
                .bind(booking.to)
                .bind(booking.charge.amount)
                .bind(booking.charge.currency);
            let ride = read(&insert.fetch_one(&mut *tx).await?)?;
            stand::at(Point::InTransaction);
            Ok(ride)
        })
        .await
    }

    async fn conclude(&mut self, charge: Charge) -> Result<Ride, Stopped> {
        self.local("receipt", move |mut tx| async move {
            let id = ride_id(tx.operation_id());
            let update = sqlx::query(PAY).bind(status(&charge)).bind(&charge.id).bind(&id);
            let ride = read(&update.fetch_one(&mut *tx).await?)?;
            if ride.status == "paid" {
                tx.push(RECEIPT, id.as_bytes()).await?;
            }
            stand::at(Point::InSettlement);
            Ok(ride)
        })
        .await
    }
}

pub(in crate::service) fn read(row: &PgRow) -> Result<Ride, sqlx::Error> {
    Ok(Ride {
        id: row.try_get(0)?,
        from: row.try_get(1)?,
        to: row.try_get(2)?,
        amount: row.try_get(3)?,
        currency: row.try_get(4)?,
        status: row.try_get(5)?,
        charge: row.try_get(6)?,
        receipts: row.try_get(7)?,
    })
}
