//! A durable commit that leaves nothing behind: evidence that the server takes changes, for `/readyz` and `semel
//! doctor`. Called by `upkeep.rs` and `doctor.rs`.
//!
//! Invariant: one commit at a time is under way, however many callers ask, and it is never cancelled. A commit that
//! hangs leaves a waiting process on the server, so each one that was lost doubles the patience of the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::errors::DbError;
use super::executor::Executor;
use super::link::{Dialer, Link};

/// Writes a few bytes to the log, and to no table. Its commit waits for standbys like any other.
pub(super) const WRITE: &str = "SELECT pg_logical_emit_message(true, 'semel', '')";

/// Shortest and longest timeout of a commit.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_PATIENCE: Duration = Duration::from_secs(60);

/// Result of a commit; `None` while it is under way.
type CommitOutcome = Option<Result<(), DbError>>;

/// Commits on a connection of its own.
pub(super) struct CommitProbe {
    dialer: Dialer,
    kept: Arc<tokio::sync::Mutex<KeptLink>>,
    under_way: Mutex<Option<watch::Receiver<CommitOutcome>>>,
}

struct KeptLink {
    link: Option<Link>,
    patience: Duration,
}

impl CommitProbe {
    /// Returns a probe that connects when it is first used.
    pub(super) fn new(dialer: &Dialer) -> CommitProbe {
        let kept = KeptLink { link: None, patience: PATIENCE };
        let kept = Arc::new(tokio::sync::Mutex::new(kept));
        CommitProbe { dialer: dialer.clone(), kept, under_way: Mutex::new(None) }
    }

    /// Waits for a commit: the one that is under way, or a new one. A caller that leaves does not end it.
    pub(super) async fn commit(&self) -> Result<(), DbError> {
        let mut outcome = self.outcome();
        let ended = || DbError::Unconnected("the task ended early".to_owned());
        let found = outcome.wait_for(Option::is_some).await.map_err(|_| ended())?;
        found.clone().unwrap_or_else(|| Err(ended()))
    }

    fn outcome(&self) -> watch::Receiver<CommitOutcome> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |outcome: &&watch::Receiver<CommitOutcome>| {
            outcome.borrow().is_none() && outcome.has_changed().is_ok()
        };
        if let Some(outcome) = under_way.as_ref().filter(is_open) {
            return outcome.clone();
        }
        let (done, outcome) = watch::channel(None);
        let (dialer, kept) = (self.dialer.clone(), self.kept.clone());
        tokio::spawn(async move {
            let written = kept.lock().await.commit(dialer).await;
            done.send_replace(Some(written));
        });
        *under_way = Some(outcome.clone());
        outcome
    }
}

impl KeptLink {
    async fn commit(&mut self, dialer: Dialer) -> Result<(), DbError> {
        if self.link.as_ref().is_none_or(|link| !link.is_usable()) {
            self.link = None;
            let dialer = Dialer { patience: self.patience, ..dialer };
            self.link = Some(dialer.connect().await?);
        }
        let Some(link) = &mut self.link else {
            return Err(DbError::Unconnected("there is no connection".to_owned()));
        };
        let written = link.run(WRITE).await;
        self.patience = match &written {
            Err(DbError::Lost(_)) => (self.patience * 2).min(LONGEST_PATIENCE),
            Ok(()) | Err(_) => PATIENCE,
        };
        written
    }
}
