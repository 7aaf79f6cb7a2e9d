//! Waits until everything that is committed is where the server's settings want it.
//!
//! A driver that does not pass warnings on hides the one that a wait for standbys was cancelled: the commit then looks like
//! any other. Whoever commits over such a driver asks here afterwards. A commit over a connection of our own comes later
//! in the log than all before it; once it is replicated, so are they. One such commit serves everybody who waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use super::address::DatabaseAddress;
use super::errors::DbError;
use super::executor::Executor;
use super::link::{Dialer, Link};
use super::tls::Tls;

/// Writes a few bytes to the log, and no table. Its commit waits for standbys as any other does.
const WRITE: &str = "SELECT pg_logical_emit_message(true, 'semel', '')";

/// How long a wait for standbys may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that hears what becomes of commits.
pub struct Standbys {
    address: DatabaseAddress,
    tickets: AtomicU64,
    last: Mutex<LastReplication>,
}

#[derive(Default)]
struct LastReplication {
    link: Option<Link>,
    /// Everybody with a lower ticket had committed before the last write that was replicated began.
    replicated: u64,
}

impl Standbys {
    /// Of the server at this address, which is connected to when it is asked first.
    pub fn new(address: DatabaseAddress) -> Standbys {
        Standbys { address, tickets: AtomicU64::new(0), last: Mutex::default() }
    }

    /// Waits until what was committed before this call is replicated. An error says that nobody knows.
    pub async fn wait(&self) -> Result<(), DbError> {
        let own = self.tickets.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if own < last.replicated {
            return Ok(());
        }
        let begun = self.tickets.fetch_add(1, Ordering::SeqCst);
        let written = self.write(&mut last.link).await;
        written.map_err(|error| DbError::Lost(format!("a commit may not be replicated: {error}")))?;
        last.replicated = begun;
        Ok(())
    }

    async fn write(&self, link: &mut Option<Link>) -> Result<(), DbError> {
        if link.as_ref().is_none_or(|link| !link.is_usable()) {
            *link = None;
            let tls = Tls::new(&self.address).map_err(DbError::Tls)?;
            *link = Some(Dialer::new(self.address.clone(), tls, PATIENCE).connect().await?);
        }
        match link {
            Some(link) => link.run(WRITE).await,
            None => Err(DbError::Unconnected("there is no connection".to_owned())),
        }
    }
}
