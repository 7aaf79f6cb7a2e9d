//! The witness of a store: this process, and a file of its own, remember how far the store had come. A store that has lost writes
//! since is fenced.
//!
//! Invariant: once the file names a point, no command begins in a store that is behind it, unless an operator has lifted the
//! fence.

mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use semel_core::store::CALL_DEADLINE;
use semel_core::{
    Backend, Beat, HoldTarget, Ids, Note, RandomIds, StoreError, StoreId, StorePoint, Witness, WitnessId,
};
use tokio::sync::Mutex;

use crate::deadline;
use crate::holds::HoldBoard;

/// Interval between two beats. Writes that were lost within it may go unnoticed.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// The name under which the fence is noted.
const WHO: &str = "semel";

/// Reason why a witness cannot be used, with advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// The file cannot be read or written, or is no witness.
    #[error("the witness {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Description of the fault, with advice.
        why: String,
    },
    /// The file remembers another store.
    #[error(
        "the witness {} is of the store {remembered}, and this one is {found}: open the store that belongs to it, or name another file",
        path.display()
    )]
    OtherStore {
        /// The file.
        path: PathBuf,
        /// The store that the file remembers.
        remembered: StoreId,
        /// The store that was opened.
        found: StoreId,
    },
    /// The store cannot be compared with the file.
    #[error("the store cannot be compared with its witness {}, so nothing may begin: {error}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// Error of the store.
        error: StoreError,
    },
}

/// The witness of a store. Start one in each process, and [run](StoreWitness::run) it.
pub struct StoreWitness {
    store: Arc<dyn Backend>,
    holds: Arc<HoldBoard>,
    place: Option<(PathBuf, StoreId)>,
    witness: Mutex<Witness>,
}

impl StoreWitness {
    /// Returns the witness of this store. With a file that has a memory already, the store is compared with it first, and fenced
    /// if it is behind. Without a file, the memory ends with the process. A store that is lost with its process needs none.
    ///
    /// # Errors
    /// If the file cannot be used, or the store cannot be compared with it.
    pub async fn start(
        store: Arc<dyn Backend>,
        holds: Arc<HoldBoard>,
        file: Option<&Path>,
    ) -> Result<Arc<StoreWitness>, WitnessError> {
        let fresh = Witness {
            id: WitnessId::from_bytes(*RandomIds.attempt_token().as_bytes()),
            seen: StorePoint::NONE,
        };
        let (mut place, mut remembered) = (None, None);
        if let Some(path) = file {
            let failed = |error| WitnessError::Store { path: path.to_owned(), error };
            if let Some(found) = store.store_id().await.map_err(failed)? {
                remembered = file::read(path, found)?;
                file::check_writable(path)?;
                place = Some((path.to_owned(), found));
            }
        }
        let witness = Mutex::new(remembered.unwrap_or(fresh));
        let own = Arc::new(StoreWitness { store, holds, place, witness });
        if let Some((path, _)) = &own.place {
            let compared = own.once().await;
            // A new witness has nothing to compare: the store may be away for a while.
            if remembered.is_some() {
                compared.map_err(|error| WitnessError::Store { path: path.clone(), error })?;
            }
        }
        Ok(own)
    }

    /// Compares the store every second, until it is dropped.
    pub async fn run(self: Arc<StoreWitness>) {
        counter!("idempotency_store_behind_total").increment(0);
        let mut was_away = false;
        loop {
            let beaten = self.once().await;
            if let (Err(error), false) = (&beaten, was_away) {
                tracing::warn!(%error, "the store cannot be compared with its witness; it is tried again");
            }
            was_away = beaten.is_err();
            tokio::time::sleep(BEAT_EVERY).await;
        }
    }

    /// Compares the store once, and fences it if it is behind.
    ///
    /// # Errors
    /// If the store fails. A store that is behind is then compared again.
    pub async fn once(&self) -> Result<(), StoreError> {
        let mut witness = self.witness.lock().await;
        let seen = match deadline::within(CALL_DEADLINE, self.store.beat(*witness)).await? {
            Beat::Kept(seen) => seen,
            Beat::Behind(point) => {
                counter!("idempotency_store_behind_total").increment(1);
                tracing::error!(
                    event = "idempotency_store_behind",
                    remembered = witness.seen.beat,
                    found = point.beat,
                    "the store has lost writes that its witness remembers: it was restored from a backup, or failed over. It is \
                     fenced: known commands are answered, and no other begins. See `semel hold list`, and lift the fence when \
                     the lost part is settled"
                );
                self.fence().await?;
                point
            }
        };
        let is_new = witness.seen != seen;
        *witness = Witness { seen, ..*witness };
        if is_new {
            self.remember(*witness).await;
        }
        Ok(())
    }

    async fn fence(&self) -> Result<(), StoreError> {
        let note = Note {
            who: WHO.to_owned(),
            action: format!("hold {}", HoldTarget::Store),
            why: "the store has lost writes that its witness remembers: it was restored, or failed over"
                .to_owned(),
        };
        deadline::within(CALL_DEADLINE, self.store.hold(&HoldTarget::Store, &note)).await?;
        self.holds.read().await
    }

    /// Writes the file, if there is one. An older memory than the true one is safe: it notices less.
    async fn remember(&self, witness: Witness) {
        let Some((path, store)) = self.place.clone() else { return };
        let written = tokio::task::spawn_blocking(move || file::write(&path, store, witness)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the file of the witness cannot be written");
        }
    }
}
