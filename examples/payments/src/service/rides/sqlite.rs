//! Rides in a SQLite file.

use std::sync::Arc;

use semel::flow::phases::{PhaseTerms, Stopped};
use semel::flow::rusqlite::{self, Row};
use semel::flow::{SqlitePhases, SqliteRun, SqliteTransactions};
use semel::protocol::Upkeep;

use super::{BOOK, Booking, Charge, PAY, RECEIPT, RIDE, Ride, Rides, Steps, ride, ride_id, status};
use crate::service::provider::Address;
use crate::service::stand::{self, Point};

/// Returns rides in these transactions, charged by this provider.
pub(in crate::service) fn rides(
    transactions: SqliteTransactions,
    store: Arc<dyn Upkeep>,
    terms: PhaseTerms,
    provider: Address,
) -> Arc<dyn Rides> {
    let code = move |run: SqliteRun, input| ride(run, input, provider.clone());
    Arc::new(SqlitePhases::new(transactions, store).operation_with(RIDE, terms, code))
}

impl Steps for SqliteRun {
    async fn book(&mut self, booking: Booking) -> Result<Ride, Stopped> {
        self.local("ride", move |tx| {
            let Booking { caller, from, to, charge } = booking;
            let values = (ride_id(tx.operation_id()), caller, from, to, charge.amount, charge.currency);
            let ride = tx.query_row(BOOK, values, read)?;
            stand::at(Point::InTransaction);
            Ok(ride)
        })
        .await
    }

    async fn conclude(&mut self, charge: Charge) -> Result<Ride, Stopped> {
        self.local("receipt", move |tx| {
            let id = ride_id(tx.operation_id());
            let ride = tx.query_row(PAY, (status(&charge), &charge.id, &id), read)?;
            if ride.status == "paid" {
                tx.push(RECEIPT, id.as_bytes())?;
            }
            stand::at(Point::InSettlement);
            Ok(ride)
        })
        .await
    }
}

pub(in crate::service) fn read(row: &Row<'_>) -> rusqlite::Result<Ride> {
    Ok(Ride {
        id: row.get(0)?,
        from: row.get(1)?,
        to: row.get(2)?,
        amount: row.get(3)?,
        currency: row.get(4)?,
        status: row.get(5)?,
        charge: row.get(6)?,
        receipts: row.get(7)?,
    })
}
