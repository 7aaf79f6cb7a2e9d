//! A connection beside the lanes, for tasks that delay no change: sweeps, polls, lists. A slow count holds up
//! no command.

use std::sync::Arc;

use semel_core::StoreError;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::clock::StoreClock;
use super::errors::DbError;
use super::link::{Dialer, Link};

/// A connection that is lent to one task at a time.
pub(super) struct SideLink {
    dialer: Dialer,
    link: Arc<Mutex<Option<Link>>>,
    clock: StoreClock,
}

impl SideLink {
    /// Returns a side link. Without a connection, one is made when it is needed.
    pub(super) fn new(dialer: Dialer, link: Option<Link>, clock: StoreClock) -> SideLink {
        SideLink { dialer, link: Arc::new(Mutex::new(link)), clock }
    }

    /// Runs a task on the connection, in a spawned task of its own: a caller that leaves does not interrupt
    /// it.
    pub(super) async fn with<T, F, R>(&self, task: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(LentLink) -> R + Send + 'static,
        R: Future<Output = Result<T, DbError>> + Send + 'static,
    {
        let (dialer, link) = (self.dialer.clone(), self.link.clone());
        let (offset, clock) = (self.clock.ask().offset, self.clock.clone());
        let running = tokio::spawn(async move {
            let mut link = link.lock_owned().await;
            if link.as_ref().is_none_or(|link| !link.is_usable()) {
                *link = None;
                *link = Some(dialer.connect().await?);
            }
            task(LentLink { link, offset, clock }).await
        });
        match running.await {
            Ok(Ok(result)) => Ok(result),
            // No task here has an outcome to lose: it is simply run again.
            Ok(Err(DbError::Lost(why))) => Err(StoreError::Unavailable(why)),
            Ok(Err(error)) => Err(error.store_error()),
            Err(_) => Err(StoreError::Unavailable("the task ended early".into())),
        }
    }
}

/// The connection while one task has it.
pub(super) struct LentLink {
    link: OwnedMutexGuard<Option<Link>>,
    pub(super) offset: i64,
    pub(super) clock: StoreClock,
}

impl LentLink {
    pub(super) fn link(&mut self) -> Result<&mut Link, DbError> {
        self.link.as_mut().ok_or_else(|| DbError::Unconnected("there is no connection".to_owned()))
    }
}
