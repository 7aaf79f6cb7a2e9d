//! Charges in the ledger, and the answers to their keys. All SQL about them except their tables is here.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior};

use super::events::{self, Fate};
use super::ledger::{Broken, Charge, Ledger, PAGE, Status};
use super::order::Order;

/// Maximum number of charges found under one reference; there should be one.
const MAX_FOUND: u32 = 1000;
/// Number of charges shown on the page.
pub(super) const LATEST: u32 = 100;

const INSERT_CHARGE: &str = "
    INSERT INTO charges (id, reference, amount, currency, status, created_at)
    VALUES ('ch_' || lower(hex(randomblob(12))), ?1, ?2, ?3, ?4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    RETURNING id, reference, amount, currency, status, created_at, position";
const FIND_KEY: &str = "
    SELECT c.id, c.reference, c.amount, c.currency, c.status, c.created_at, c.position, k.fingerprint
    FROM keys k JOIN charges c ON c.id = k.charge WHERE k.key = ?1";
const INSERT_KEY: &str = "INSERT INTO keys (key, fingerprint, charge) VALUES (?1, ?2, ?3)";
const FIND_CHARGE: &str = "
    SELECT id, reference, amount, currency, status, created_at, position FROM charges WHERE id = ?1";
const FIND_REFERENCE: &str = "
    SELECT id, reference, amount, currency, status, created_at, position FROM charges WHERE reference = ?1
    ORDER BY position LIMIT ?2";
const READ_PAGE: &str = "
    SELECT id, reference, amount, currency, status, created_at, position FROM charges WHERE position > ?1
    ORDER BY position LIMIT ?2";

const READ_LATEST: &str = "
    SELECT id, reference, amount, currency, status, created_at, position,
        (SELECT state FROM events WHERE charge = charges.id)
    FROM charges ORDER BY position DESC LIMIT ?1";
const COUNT: &str = "
    SELECT count(*) FILTER (WHERE status = 'captured'), count(*) FILTER (WHERE status = 'declined') FROM charges";

/// Summary of the ledger.
pub(super) struct Overview {
    pub(super) captured: i64,
    pub(super) declined: i64,
    /// The latest charges first, each with the state of its event, if it has one.
    pub(super) latest: Vec<(Charge, Option<String>)>,
}

/// Effect of the switches on a new charge.
pub(super) struct Plan {
    pub(super) declines: bool,
    pub(super) fate: Fate,
}

/// Outcome of an order.
pub(super) enum Outcome {
    New(Charge),
    /// The key had this charge already.
    Known(Charge),
    /// The key belongs to another order.
    KeyTaken,
}

impl Ledger {
    /// Charges, or finds the charge of this key. `plan` is called only for a new charge.
    pub(super) async fn charge(
        &self,
        order: Order,
        key: Option<String>,
        plan: impl FnOnce(&Order) -> Plan + Send + 'static,
    ) -> Result<Outcome, Broken> {
        let ledger = self.clone();
        self.with(move |connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let fingerprint = order.fingerprint();
            if let Some(known) =
                key.as_deref().map(|key| known(&tx, key, &fingerprint)).transpose()?.flatten()
            {
                return Ok(known);
            }
            let plan = plan(&order);
            let status = if plan.declines { Status::Declined } else { Status::Captured };
            let values = (&order.reference, order.amount, &order.currency, status.name());
            let charge = tx.query_row(INSERT_CHARGE, values, read)?;
            if let Some(key) = key {
                tx.execute(INSERT_KEY, (key, fingerprint, &charge.id))?;
            }
            events::insert(&tx, &charge, plan.fate)?;
            tx.commit()?;
            // Here, so that it happens even if the client is gone.
            ledger.has_news();
            Ok(Outcome::New(charge))
        })
        .await
    }

    pub(super) async fn find(&self, id: String) -> Result<Option<Charge>, Broken> {
        self.with(move |connection| connection.query_row(FIND_CHARGE, [id], read).optional()).await
    }

    pub(super) async fn find_reference(&self, reference: String) -> Result<Vec<Charge>, Broken> {
        let find = move |connection: &mut Connection| {
            connection.prepare_cached(FIND_REFERENCE)?.query_map((reference, MAX_FOUND), read)?.collect()
        };
        self.with(find).await
    }

    pub(super) async fn overview(&self) -> Result<Overview, Broken> {
        self.with(|connection| {
            let tx = connection.transaction()?;
            let (captured, declined) = tx.query_row(COUNT, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let with_event = |row: &Row<'_>| Ok((read(row)?, row.get(7)?));
            let latest =
                tx.prepare_cached(READ_LATEST)?.query_map([LATEST], with_event)?.collect::<Result<_, _>>()?;
            Ok(Overview { captured, declined, latest })
        })
        .await
    }

    /// Returns the charges after this position, in the order in which they were made.
    pub(super) async fn page(&self, after: i64) -> Result<Vec<Charge>, Broken> {
        let find = move |connection: &mut Connection| {
            connection.prepare_cached(READ_PAGE)?.query_map((after, PAGE), read)?.collect()
        };
        self.with(find).await
    }
}

fn known(tx: &Transaction<'_>, key: &str, fingerprint: &[u8; 32]) -> rusqlite::Result<Option<Outcome>> {
    let found =
        tx.query_row(FIND_KEY, [key], |row| Ok((read(row)?, row.get::<_, [u8; 32]>(7)?))).optional()?;
    Ok(found.map(
        |(charge, first)| if first == *fingerprint { Outcome::Known(charge) } else { Outcome::KeyTaken },
    ))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Charge> {
    let status: String = row.get(4)?;
    Ok(Charge {
        id: row.get(0)?,
        reference: row.get(1)?,
        amount: row.get(2)?,
        currency: row.get(3)?,
        status: if status == "captured" { Status::Captured } else { Status::Declined },
        created_at: row.get(5)?,
        position: row.get(6)?,
    })
}
