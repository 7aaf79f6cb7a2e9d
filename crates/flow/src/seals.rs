//! What transactions store is sealed, and what they give back is clear, where a vault is given.

use std::borrow::Cow;
use std::sync::Arc;

use semel_core::{Answer, Change, Mark, OperationId, Record, Vault, VaultError};

/// Seals and opens, or does neither.
#[derive(Clone, Default)]
pub(crate) struct Seals(Option<Arc<dyn Vault>>);

impl Seals {
    /// Under the keys of this vault.
    pub(crate) fn new(vault: Arc<dyn Vault>) -> Seals {
        Seals(Some(vault))
    }

    /// The change as it is to be stored.
    pub(crate) fn change(&self, record: &Record, change: Change) -> Result<Change, VaultError> {
        match &self.0 {
            Some(vault) => vault.seal_change(record, &change),
            None => Ok(change),
        }
    }

    /// What is to be written about a phase of this command.
    pub(crate) fn mark(&self, command: OperationId, mark: Mark) -> Result<Mark, VaultError> {
        match &self.0 {
            Some(vault) => vault.seal_mark(command, &mark),
            None => Ok(mark),
        }
    }

    /// The payload of a message as it is to be kept.
    pub(crate) fn payload<'a>(&self, event_id: &str, payload: &'a [u8]) -> Result<Cow<'a, [u8]>, VaultError> {
        match &self.0 {
            Some(vault) => Ok(Cow::Owned(vault.seal_payload(event_id, payload)?.to_vec())),
            None => Ok(Cow::Borrowed(payload)),
        }
    }

    /// The record as it was before it was sealed. What does not open stays as it is, and cannot be decoded.
    pub(crate) fn opened(&self, mut record: Record) -> Record {
        if let Some(Err(why)) = self.0.as_ref().map(|vault| vault.open_record(&mut record)) {
            tracing::error!(operation_id = %record.operation_id, %why, "a stored response stays sealed");
        }
        record
    }

    /// The same, of the record in an answer.
    pub(crate) fn answer(&self, answer: Answer) -> Answer {
        Answer { record: answer.record.map(|record| self.opened(record)), ..answer }
    }
}
