//! Waits until all commits are replicated as the server's settings demand.
//!
//! A driver that does not forward warnings hides that a wait for standbys was cancelled: the commit looks
//! like any other. A process that commits over such a driver calls this afterwards. A commit over our own
//! connection comes later in the log than all before it; once it is replicated, so are they. One such commit
//! serves all waiting callers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use super::address::DatabaseAddress;
use super::commit_probe::WRITE;
use super::errors::DbError;
use super::executor::Executor;
use super::link::{Dialer, Link};
use super::tls::Tls;

/// Timeout of a wait for standbys.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that receives the warnings about commits.
pub struct Standbys {
    address: DatabaseAddress,
    tickets: AtomicU64,
    last: Mutex<LastReplication>,
}

#[derive(Default)]
struct LastReplication {
    /// Made for the first connection, and kept: it knows which host answered last.
    dialer: Option<Dialer>,
    link: Option<Link>,
    /// Every caller with a lower ticket had committed before the last replicated write began.
    replicated: u64,
}

impl Standbys {
    /// Returns the standbys of the server at this address. It connects at the first call.
    pub fn new(address: DatabaseAddress) -> Standbys {
        Standbys { address, tickets: AtomicU64::new(0), last: Mutex::default() }
    }

    /// Waits until everything that was committed before this call is replicated. After an error, the state is
    /// unknown.
    pub async fn wait(&self) -> Result<(), DbError> {
        let own = self.tickets.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if own < last.replicated {
            return Ok(());
        }
        let begun = self.tickets.fetch_add(1, Ordering::SeqCst);
        let written = self.write(&mut last).await;
        written.map_err(|error| DbError::Lost(format!("a commit may not be replicated: {error}")))?;
        last.replicated = begun;
        Ok(())
    }

    async fn write(&self, last: &mut LastReplication) -> Result<(), DbError> {
        let LastReplication { dialer, link, .. } = last;
        if link.as_ref().is_none_or(|link| !link.is_usable()) {
            *link = None;
            let dialer = match dialer {
                Some(dialer) => dialer,
                None => {
                    let tls = Tls::new(&self.address).map_err(DbError::Tls)?;
                    dialer.insert(Dialer::new(self.address.clone(), tls, PATIENCE))
                }
            };
            *link = Some(dialer.connect().await?);
        }
        match link {
            Some(link) => link.run(WRITE).await,
            None => Err(DbError::Unconnected("there is no connection".to_owned())),
        }
    }
}
