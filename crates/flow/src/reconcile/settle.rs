//! Who writes a verdict down.

use std::sync::Arc;

use async_trait::async_trait;
use semel_core::{Answer, Change, Record, Store, StoreError};

/// Writes a verdict down.
///
/// A service that keeps rows of its own about its commands implements it to change them in the same transaction, with
/// `semel_flow::postgres::apply_within` or `semel_stores::sqlite::apply_within`, and commits only what is answered with
/// [`Decision::Applied`](semel_core::Decision::Applied).
#[async_trait]
pub trait Settle: Send + Sync + 'static {
    /// Applies the change to the record, with whatever goes with it, and answers what the store answered.
    async fn settle(&self, record: &Record, change: &Change) -> Result<Answer, StoreError>;
}

/// Writes verdicts into the store, and nothing else anywhere.
pub struct ThroughTheStore(pub Arc<dyn Store>);

#[async_trait]
impl Settle for ThroughTheStore {
    async fn settle(&self, record: &Record, change: &Change) -> Result<Answer, StoreError> {
        self.0.apply(&record.id, change).await
    }
}
