//! The read-only connections.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use semel_core::StoreError;
use tokio::sync::Semaphore;

use super::errors::store_error;

/// A few read-only connections, passed from one blocking task to the next.
pub(super) struct Readers {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Readers {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Readers { free: Arc::new(Mutex::new(connections)), permits }
    }

    pub(super) async fn with<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unavailable = |why: &str| StoreError::Unavailable(why.into());
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| unavailable("the store is closed"))?;
        let free = self.free.clone();
        let reading = tokio::task::spawn_blocking(move || {
            // The permit stays with the connection, even if the caller has left.
            let _permit = permit;
            let connection = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = connection.ok_or(rusqlite::Error::InvalidQuery)?;
            let result = query(&connection);
            free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result
        });
        match reading.await {
            Ok(result) => result.map_err(|error| store_error(&error)),
            Err(_) => Err(unavailable("the reading task ended early")),
        }
    }
}
