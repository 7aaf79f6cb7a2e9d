//! The deadline of one store call, whatever store it is.

use std::time::Duration;

use semel_core::StoreError;

/// Bounds a store call in time. A call that took too long may still have been made.
pub(crate) async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Ambiguous("the store did not answer in time".into()));
    tokio::time::timeout(deadline, call).await.unwrap_or_else(late)
}
