//! The holds of a store, as this process knows them. Requests, workers, the outbox and the reconciler ask it before they begin
//! something.
//!
//! Invariant: no command begins before the holds were read once. The last known holds stay in force while the store is away.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Gauge, gauge};
use semel_core::{Hold, HoldTarget, Holds, StoreError};
use tokio::sync::OnceCell;

use crate::deadline;

/// The interval at which the holds are read.
const READ_EVERY: Duration = Duration::from_secs(2);

/// The timeout of one read.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// The holds of a store, as this process knows them. Make one for each process, give it to
/// [`Builder::holds`](crate::Builder::holds), and [run](HoldBoard::run) it.
///
/// ```
/// # use std::sync::Arc;
/// # use semel_core::Principal;
/// # use semel_http::{HoldBoard, IdempotencyLayer};
/// # use semel_stores::MemoryStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), semel_http::ConfigError> {
/// let store = Arc::new(MemoryStore::new());
/// let board = HoldBoard::new(store.clone());
/// tokio::spawn(board.clone().run());
/// let layer = IdempotencyLayer::builder(store)
///     .identify(|_| Principal::new("acme", "alice").map_err(|_| semel_http::Denied::unauthenticated()))
///     .holds(board)
///     .build()?;
/// # Ok(())
/// # }
/// ```
pub struct HoldBoard {
    source: Arc<dyn Holds>,
    first_read: OnceCell<()>,
    known: RwLock<Arc<HeldTargets>>,
    /// Number of changes so far.
    version: AtomicU64,
}

impl fmt::Debug for HoldBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldBoard").field("known", &self.known()).finish_non_exhaustive()
    }
}

/// Permission of commands of an operation and tenant to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// They may begin.
    Free,
    /// An operator holds them.
    Held,
    /// The holds were never read.
    NotKnown,
}

/// The held targets, by their kinds.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeldTargets {
    operations: HashSet<String>,
    tenants: HashSet<String>,
    sinks: HashSet<String>,
    reconciler: bool,
}

impl HeldTargets {
    fn of(holds: &[Hold]) -> HeldTargets {
        let mut held = HeldTargets::default();
        for Hold { target, .. } in holds {
            match target {
                HoldTarget::Operation(name) => drop(held.operations.insert(name.clone())),
                HoldTarget::Tenant(name) => drop(held.tenants.insert(name.clone())),
                HoldTarget::Sink(kind) => drop(held.sinks.insert(kind.clone())),
                HoldTarget::Reconciler => held.reconciler = true,
                // The store itself obeys these.
                HoldTarget::Store | HoldTarget::LookUpFirst(_) | HoldTarget::YoungerKeys(_) => {}
            }
        }
        held
    }
}

impl HoldBoard {
    /// Returns a board of the holds of this store.
    pub fn new(source: Arc<dyn Holds>) -> Arc<HoldBoard> {
        HoldTarget::KINDS.iter().for_each(|kind| in_force(kind).set(0.0));
        let (first_read, version) = (OnceCell::new(), AtomicU64::new(0));
        Arc::new(HoldBoard { source, first_read, known: RwLock::default(), version })
    }

    /// Reads the holds every two seconds, until it is dropped.
    pub async fn run(self: Arc<HoldBoard>) {
        let mut was_away = false;
        loop {
            let read = self.read().await;
            if let (Err(error), false) = (&read, was_away) {
                tracing::warn!(%error, "the holds cannot be read; those that are known stay in force");
            }
            was_away = read.is_err();
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    /// Reads the holds once. If the store fails, the known ones stay in force.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn read(&self) -> Result<(), StoreError> {
        let holds = deadline::within(READ_WITHIN, self.source.holds()).await?;
        self.learn(&holds);
        let _ = self.first_read.set(());
        Ok(())
    }

    /// Reads the holds, if they were never read. Returns false if they could not be: nothing may begin then.
    pub async fn ready(&self) -> bool {
        if self.first_read.initialized() {
            return true;
        }
        let read = self.read().await;
        if let Err(error) = &read {
            tracing::warn!(%error, "the holds cannot be read: nothing begins until they are");
        }
        read.is_ok()
    }

    /// Returns true if commands of this tenant, or of an operation with one of these names, must not begin.
    pub fn holds_command<'a>(&self, tenant: &str, operations: impl IntoIterator<Item = &'a str>) -> bool {
        let held = self.known();
        held.tenants.contains(tenant)
            || (!held.operations.is_empty()
                && operations.into_iter().any(|name| held.operations.contains(name)))
    }

    /// Returns the kinds of messages that are not delivered.
    pub fn held_sinks(&self) -> Vec<String> {
        let mut sinks: Vec<String> = self.known().sinks.iter().cloned().collect();
        sinks.sort_unstable();
        sinks
    }

    /// Returns true if the reconciler makes no scheduled look-ups.
    pub fn holds_reconciler(&self) -> bool {
        self.known().reconciler
    }

    /// Returns the number of changes so far.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn known(&self) -> Arc<HeldTargets> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts these holds into force, and logs a change.
    fn learn(&self, holds: &[Hold]) {
        for kind in HoldTarget::KINDS {
            in_force(kind).set(holds.iter().filter(|hold| hold.target.kind() == kind).count() as f64);
        }
        let held = Arc::new(HeldTargets::of(holds));
        {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if *known == held {
                return;
            }
            *known = held;
        }
        self.version.fetch_add(1, Ordering::Release);
        let targets: Vec<String> = holds.iter().map(|hold| hold.target.to_string()).collect();
        tracing::warn!(event = "idempotency_holds", holds = targets.join(", "), "the holds have changed");
    }
}

fn in_force(kind: &'static str) -> Gauge {
    gauge!("idempotency_holds", "kind" => kind)
}
