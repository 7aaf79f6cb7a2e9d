//! The trait for writing verdicts.

use std::sync::Arc;

use async_trait::async_trait;
use semel_core::{Change, Record, Store, StoreAnswer, StoreError};

/// Writes a verdict.
///
/// A service with rows of its own about its commands implements it to change them in the same transaction, with
/// `semel_flow::postgres::apply_within` or `semel_stores::sqlite::apply_within`, and commits only if the decision is
/// [`Decision::Applied`](semel_core::Decision::Applied).
#[async_trait]
pub trait Settle: Send + Sync + 'static {
    /// Applies the change to the record, together with the service's own rows, and returns the store's answer.
    async fn settle(&self, record: &Record, change: &Change) -> Result<StoreAnswer, StoreError>;
}

/// Writes verdicts only into the store.
pub struct ThroughTheStore(pub Arc<dyn Store>);

#[async_trait]
impl Settle for ThroughTheStore {
    async fn settle(&self, record: &Record, change: &Change) -> Result<StoreAnswer, StoreError> {
        self.0.apply(&record.id, change).await
    }
}
