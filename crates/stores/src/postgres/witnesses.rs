//! Beats of witnesses: numbers by which a gateway, or a file outside, notices that the database was set back. Called by
//! `link.rs` for every connection.
//!
//! Invariant: once this process has seen a beat, no connection to a database that is behind it is used before the store is
//! fenced there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use semel_core::{Beat, HoldTarget, Note, StoreError, StorePoint, Witness, Witnessed};

use super::PostgresStore;
use super::errors::DbError;
use super::executor::{Executor, SqlValue};
use super::fence;

/// Selects the generation of the store, and the beat of a witness, if it has one.
const POINT: &str = "
    SELECT generation, coalesce((SELECT beat FROM semel_witnesses WHERE id = $1), 0) FROM semel_store";

const NEXT: &str = "
    UPDATE semel_witnesses SET beat = beat + 1, seen_at = (extract(epoch FROM now()) * 1000)::bigint
    WHERE id = $1 RETURNING beat";

const FIRST: &str = "
    INSERT INTO semel_witnesses (id, beat, seen_at) VALUES ($1, 1, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT DO NOTHING RETURNING beat";

/// The witness of this process, with the latest point that it has seen; `None` before its first beat. All connections share it.
#[derive(Clone, Default)]
pub(super) struct KnownWitness(Arc<Mutex<Option<Witness>>>);

impl KnownWitness {
    fn known(&self) -> MutexGuard<'_, Option<Witness>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the database behind a new connection, and fences the store if it is behind.
    pub(super) async fn check(&self, db: &mut impl Executor) -> Result<(), DbError> {
        let Some(witness) = *self.known() else { return Ok(()) };
        let unusable = |error: DbError| DbError::Unconnected(error.to_string());
        let point = point(db, witness).await.map_err(unusable)?;
        if point >= witness.seen {
            return Ok(());
        }
        let note = Note {
            who: "semel".to_owned(),
            action: format!("hold {}", HoldTarget::Store),
            why: "the database has lost writes that this gateway has seen: it was restored, or failed over"
                .to_owned(),
        };
        fence::fence_store(db, &note).await.map_err(unusable)?;
        tracing::error!("the database has lost writes that this gateway has seen: the store is fenced");
        *self.known() = Some(Witness { seen: point, ..witness });
        Ok(())
    }

    /// Remembers what a beat has shown.
    fn learn(&self, witness: Witness) {
        *self.known() = Some(witness);
    }
}

#[async_trait]
impl Witnessed for PostgresStore {
    async fn beat(&self, witness: Witness) -> Result<Beat, StoreError> {
        let known = self.dialer.witness.clone();
        let beaten =
            self.sweeps.with(move |mut lent| async move { beat(lent.link()?, witness).await }).await?;
        if let Beat::Kept(seen) = beaten {
            known.learn(Witness { seen, ..witness });
        }
        Ok(beaten)
    }
}

async fn beat(db: &mut impl Executor, witness: Witness) -> Result<Beat, DbError> {
    let point = point(db, witness).await?;
    if point < witness.seen {
        return Ok(Beat::Behind(point));
    }
    let id = [SqlValue::Uuid(*witness.id.as_bytes())];
    let mut rows = db.query(NEXT, &id).await?;
    if rows.is_empty() {
        rows = db.query(FIRST, &id).await?;
    }
    let number = rows.first().and_then(|row| row.int(0)).and_then(|beat| u64::try_from(beat).ok());
    let beat = number.ok_or_else(|| DbError::Conflict("another process has the witness".to_owned()))?;
    Ok(Beat::Kept(StorePoint { beat, ..point }))
}

async fn point(db: &mut impl Executor, witness: Witness) -> Result<StorePoint, DbError> {
    let rows = db.query(POINT, &[SqlValue::Uuid(*witness.id.as_bytes())]).await?;
    let number = |column| rows.first().and_then(|row| row.int(column));
    let (Some(generation), Some(beat)) = (number(0), number(1)) else {
        return Err(DbError::unreadable("semel_store", "it has no generation"));
    };
    Ok(StorePoint { generation, beat: u64::try_from(beat).unwrap_or(0) })
}
