//! Seals the data that transactions store, and opens the data that they return, if there is a vault.

use std::borrow::Cow;
use std::sync::Arc;

use semel_core::{Change, Mark, OperationId, Record, StoreAnswer, Vault, VaultError};

/// Seals and opens data with a vault; passes it through without one.
#[derive(Clone, Default)]
pub(crate) struct Seals(Option<Arc<dyn Vault>>);

impl Seals {
    /// Uses the keys of this vault.
    pub(crate) fn new(vault: Arc<dyn Vault>) -> Seals {
        Seals(Some(vault))
    }

    /// Returns the change as it is stored.
    pub(crate) fn change(&self, record: &Record, change: Change) -> Result<Change, VaultError> {
        match &self.0 {
            Some(vault) => vault.seal_change(record, &change),
            None => Ok(change),
        }
    }

    /// Returns the mark of a phase as it is stored.
    pub(crate) fn mark(&self, command: OperationId, mark: Mark) -> Result<Mark, VaultError> {
        match &self.0 {
            Some(vault) => vault.seal_mark(command, &mark),
            None => Ok(mark),
        }
    }

    /// Returns the payload of a message as it is stored.
    pub(crate) fn payload<'a>(&self, event_id: &str, payload: &'a [u8]) -> Result<Cow<'a, [u8]>, VaultError> {
        match &self.0 {
            Some(vault) => Ok(Cow::Owned(vault.seal_payload(event_id, payload)?.to_vec())),
            None => Ok(Cow::Borrowed(payload)),
        }
    }

    /// Returns the record in the clear. A response that cannot be opened stays sealed, and cannot be decoded.
    pub(crate) fn opened(&self, mut record: Record) -> Record {
        if let Some(Err(why)) = self.0.as_ref().map(|vault| vault.open_record(&mut record)) {
            tracing::error!(operation_id = %record.operation_id, %why, "a stored response stays sealed");
        }
        record
    }

    /// Opens the record in an answer.
    pub(crate) fn answer(&self, answer: StoreAnswer) -> StoreAnswer {
        StoreAnswer { record: answer.record.map(|record| self.opened(record)), ..answer }
    }
}
