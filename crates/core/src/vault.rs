//! Sealing of stored responses and requests, so that a reader of a store without its keys learns nothing from
//! them. A [`Vault`] encrypts; [`Sealing`] is the associated data: bytes that are moved to another record, or
//! presented as another kind, do not open. Stores see only sealed bytes and the id of a key. Bytes that do
//! not open stay sealed, cannot be decoded, and never cause a command to run again.

use bytes::Bytes;

use crate::change::Change;
use crate::ids::OperationId;
use crate::progress::OpenCall;
use crate::reconcile::Statement;
use crate::record::{Claim, Record, StoredResult};
use crate::request::StoredRequest;
use crate::response::StoredResponse;
use crate::scope::RecordId;
pub use crate::sealing::{SealedKind, Sealing, Settler};

/// Longest id of a key, in characters.
pub const MAX_KEY_ID_CHARS: usize = 64;

/// Returns true if a text can be the id of a key: 1 to 64 letters, digits, dots, dashes and underscores.
pub fn is_key_id(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=MAX_KEY_ID_CHARS).contains(&text.len()) && text.chars().all(allowed)
}

/// Seals and opens bytes, under keys with ids.
pub trait Vault: Send + Sync + 'static {
    /// Returns the id of the key that [`seal`](Vault::seal) uses.
    fn current(&self) -> &str;

    /// Seals under the current key. The same bytes look different each time.
    fn seal(&self, about: &Sealing, clear: &[u8]) -> Result<Sealed, VaultError>;

    /// Opens bytes that were sealed under this key with this associated data.
    fn open(&self, about: &Sealing, key_id: &str, sealed: &[u8]) -> Result<Bytes, VaultError>;

    /// Returns the treatment of plaintext. By default it is accepted: it was stored before encryption was
    /// switched on.
    fn plaintext(&self) -> Plaintext {
        Plaintext::Accept
    }
}

/// Treatment of stored plaintext if there is a vault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plaintext {
    /// Plaintext is read as it is. A process that can write to the store can replace sealed bytes with
    /// plaintext.
    #[default]
    Accept,
    /// Plaintext is refused like bytes that do not open.
    Refuse,
}

/// Sealed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Key that seals the bytes.
    pub key_id: String,
    /// The bytes.
    pub bytes: Bytes,
}

/// Reason why something cannot be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The key is missing.
    #[error("it is sealed under key {0:?}, which is not at hand")]
    UnknownKey(String),
    /// The bytes were changed, moved to another place, or sealed under another key with the same id.
    #[error(
        "it does not open under key {0:?}: it was changed, or belongs elsewhere, or this is another key of that id"
    )]
    DoesNotOpen(String),
    /// The bytes are plaintext, and plaintext is refused.
    #[error("it is not sealed, and plaintext is refused here")]
    NotSealed,
    /// The machine has no randomness, or no memory, to seal with.
    #[error("it cannot be sealed")]
    CannotSeal,
}

impl dyn Vault {
    /// Opens stored bytes: sealed ones under their key; plaintext is returned as it is, unless it is refused.
    pub fn open_kept(
        &self,
        about: &Sealing,
        key_id: Option<&str>,
        kept: &Bytes,
    ) -> Result<Bytes, VaultError> {
        match (key_id, self.plaintext()) {
            (Some(key_id), _) => self.open(about, key_id, kept),
            (None, Plaintext::Accept) => Ok(kept.clone()),
            (None, Plaintext::Refuse) => Err(VaultError::NotSealed),
        }
    }

    /// Returns the sealed form of a change for the store, for the record `id` of the command `operation_id`.
    pub fn seal_change_of(
        &self,
        id: &RecordId,
        operation_id: OperationId,
        change: &Change,
    ) -> Result<Change, VaultError> {
        if let Some(OpenCall::Executed { phase, output }) = change.call() {
            return Ok(change.with_call_output(self.seal_output(operation_id, phase, output)?));
        }
        let Some(result) = change.result() else { return Ok(change.clone()) };
        let settler = Settler::of_event(change.event());
        let about = |format| Sealing::response(id, operation_id, settler, result.status, format);
        Ok(change.with_result(self.seal_as(about, result)?))
    }

    /// Returns the sealed form of a change to this record, for the store.
    pub fn seal_change(&self, record: &Record, change: &Change) -> Result<Change, VaultError> {
        self.seal_change_of(&record.id, record.operation_id, change)
    }

    /// Opens the result of a record, if it has one. A result that does not open cannot be decoded.
    pub fn open_record(&self, record: &mut Record) -> Result<(), VaultError> {
        let Some(mut result) = record.result.take() else { return Ok(()) };
        let about = Sealing::result(record, result.status, result.response.format);
        let opened = self.open_as(&about, &mut result);
        record.result = Some(result);
        opened
    }

    /// Seals a result. The resource address is then inside the sealed response only. A result that is already
    /// sealed stays unchanged.
    fn seal_as(
        &self,
        about: impl Fn(u8) -> Sealing,
        result: &StoredResult,
    ) -> Result<StoredResult, VaultError> {
        let response = &result.response;
        if response.encryption_key_id.is_some() {
            return Ok(result.clone());
        }
        let Sealed { key_id, bytes } = self.seal(&about(response.format), &response.bytes)?;
        let response = StoredResponse { encryption_key_id: Some(key_id), bytes, ..*response };
        Ok(StoredResult { response, status: result.status, resource: None })
    }

    /// Opens a result. The address beside a response that does not open is not trustworthy, and is dropped;
    /// so are bytes that should be sealed.
    fn open_as(&self, about: &Sealing, result: &mut StoredResult) -> Result<(), VaultError> {
        let response = &mut result.response;
        let was_sealed = response.encryption_key_id.is_some();
        match self.open_kept(about, response.encryption_key_id.as_deref(), &response.bytes) {
            Ok(clear) => response.bytes = clear,
            Err(why) => {
                result.resource = None;
                if !was_sealed {
                    response.bytes = Bytes::new();
                }
                return Err(why);
            }
        }
        response.encryption_key_id = None;
        if was_sealed {
            let response = response.decode().ok();
            result.resource = response.and_then(|response| response.resource().map(str::to_owned));
        }
        Ok(())
    }

    /// Returns the sealed form of a claim, for the store.
    pub fn seal_claim(&self, claim: &Claim) -> Result<Claim, VaultError> {
        let clear = claim.request.as_ref().filter(|request| request.encryption_key_id.is_none());
        let Some(request) = clear else { return Ok(claim.clone()) };
        let Sealed { key_id, bytes } = self.seal(&Sealing::claim(claim, request.format), &request.bytes)?;
        let request = StoredRequest { format: request.format, encryption_key_id: Some(key_id), bytes };
        Ok(Claim { request: Some(request), ..claim.clone() })
    }

    /// Returns the sealed form of a statement, for the store.
    pub fn seal_statement(&self, statement: &Statement) -> Result<Statement, VaultError> {
        let Some(result) = statement.result() else { return Ok(statement.clone()) };
        let about = |format| Sealing::statement(statement, result.status, format);
        Ok(statement.with_result(self.seal_as(about, result)?))
    }

    /// Returns the opened statement.
    pub fn open_statement(&self, statement: &Statement) -> Result<Statement, VaultError> {
        let Some(mut result) = statement.result().cloned() else { return Ok(statement.clone()) };
        self.open_as(&Sealing::statement(statement, result.status, result.response.format), &mut result)?;
        Ok(statement.with_result(result))
    }

    /// Opens the request stored for this record. A request that does not open cannot be decoded.
    pub fn open_request(&self, record: &Record, request: &mut StoredRequest) -> Result<(), VaultError> {
        let about = Sealing::request(record, request.format);
        match self.open_kept(&about, request.encryption_key_id.as_deref(), &request.bytes) {
            Ok(clear) => (request.encryption_key_id, request.bytes) = (None, clear),
            Err(why) => {
                if request.encryption_key_id.is_none() {
                    request.bytes = Bytes::new();
                }
                return Err(why);
            }
        }
        Ok(())
    }
}
