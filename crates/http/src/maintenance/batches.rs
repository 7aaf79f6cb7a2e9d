//! Work on a store in small batches.

use semel_core::{AgedRecord, StoreError};

/// Works in small batches until there is nothing left, and lets live traffic go between them. `tell` gets the records of each
/// batch as soon as they are changed.
pub(super) async fn in_batches<F>(
    work: impl Fn() -> F,
    batch: usize,
    mut tell: impl FnMut(&[AgedRecord]),
) -> Result<(), StoreError>
where
    F: Future<Output = Result<Vec<AgedRecord>, StoreError>>,
{
    loop {
        let done = work().await?;
        tell(&done);
        if done.len() < batch {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}
