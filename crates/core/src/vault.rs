//! How stored responses and requests are sealed, so that whoever reads a store without its keys learns nothing from them.
//!
//! A [`Vault`] encrypts; [`Sealing`] says what is encrypted and to whom it belongs, and goes with it as associated data:
//! what is moved to another record, or presented as something else, does not open. Stores see only sealed bytes and the
//! id of a key. What does not open stays as it is, cannot be decoded, and is never a reason to run a command again.

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

/// The longest id of a key.
pub const MAX_KEY_ID_CHARS: usize = 64;

/// Returns true for a text that can be the id of a key: 1 to 64 letters, digits, dots, dashes and underscores.
pub fn is_key_id(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=MAX_KEY_ID_CHARS).contains(&text.len()) && text.chars().all(allowed)
}

/// Seals and opens bytes, under keys that it knows by their ids.
pub trait Vault: Send + Sync + 'static {
    /// The id of the key that [`seal`](Vault::seal) uses.
    fn current(&self) -> &str;

    /// Seals under the current key. The same bytes look different each time.
    fn seal(&self, about: &Sealing, clear: &[u8]) -> Result<Sealed, VaultError>;

    /// Opens what was sealed under this key about this, and about nothing else.
    fn open(&self, about: &Sealing, key_id: &str, sealed: &[u8]) -> Result<Bytes, VaultError>;

    /// Says what becomes of bytes that are not sealed. By default they are taken, as they were stored before encryption
    /// was switched on.
    fn plaintext(&self) -> Plaintext {
        Plaintext::Accept
    }
}

/// What becomes of stored bytes that are not sealed, although there is a vault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plaintext {
    /// They are read as they are. Whoever may write to the store can put plaintext in the place of what was sealed.
    #[default]
    Accept,
    /// They are refused like bytes that do not open.
    Refuse,
}

/// Sealed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The key that they are sealed under.
    pub key_id: String,
    /// The bytes.
    pub bytes: Bytes,
}

/// Why something cannot be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The key is not at hand.
    #[error("it is sealed under key {0:?}, which is not at hand")]
    UnknownKey(String),
    /// It was changed, moved to another place, or sealed under another key of the same id.
    #[error(
        "it does not open under key {0:?}: it was changed, or belongs elsewhere, or this is another key of that id"
    )]
    DoesNotOpen(String),
    /// It is not sealed, and plaintext is refused.
    #[error("it is not sealed, and plaintext is refused here")]
    NotSealed,
    /// The machine has no randomness, or no memory, to seal with.
    #[error("it cannot be sealed")]
    CannotSeal,
}

impl dyn Vault {
    /// Opens bytes that are kept: sealed ones under their key, others as they are unless plaintext is refused.
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

    /// The change as a store is to carry it out on the record of this id, which is of the command of this operation id.
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

    /// The change as a store is to carry it out on this record.
    pub fn seal_change(&self, record: &Record, change: &Change) -> Result<Change, VaultError> {
        self.seal_change_of(&record.id, record.operation_id, change)
    }

    /// Opens the result of a record, if it has one. What does not open cannot be decoded.
    pub fn open_record(&self, record: &mut Record) -> Result<(), VaultError> {
        let Some(mut result) = record.result.take() else { return Ok(()) };
        let about = Sealing::result(record, result.status, result.response.format);
        let opened = self.open_as(&about, &mut result);
        record.result = Some(result);
        opened
    }

    /// The address of what was made is inside the response, and from now on nowhere else. What is sealed already stays as
    /// it is.
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

    /// The address beside a response that does not open is nobody's word, and goes; so do bytes that should be sealed.
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

    /// The claim as a store is to decide it.
    pub fn seal_claim(&self, claim: &Claim) -> Result<Claim, VaultError> {
        let clear = claim.request.as_ref().filter(|request| request.encryption_key_id.is_none());
        let Some(request) = clear else { return Ok(claim.clone()) };
        let Sealed { key_id, bytes } = self.seal(&Sealing::claim(claim, request.format), &request.bytes)?;
        let request = StoredRequest { format: request.format, encryption_key_id: Some(key_id), bytes };
        Ok(Claim { request: Some(request), ..claim.clone() })
    }

    /// The statement as a store is to keep it.
    pub fn seal_statement(&self, statement: &Statement) -> Result<Statement, VaultError> {
        let Some(result) = statement.result() else { return Ok(statement.clone()) };
        let about = |format| Sealing::statement(statement, result.status, format);
        Ok(statement.with_result(self.seal_as(about, result)?))
    }

    /// The statement as it was said.
    pub fn open_statement(&self, statement: &Statement) -> Result<Statement, VaultError> {
        let Some(mut result) = statement.result().cloned() else { return Ok(statement.clone()) };
        self.open_as(&Sealing::statement(statement, result.status, result.response.format), &mut result)?;
        Ok(statement.with_result(result))
    }

    /// Opens the request that is kept for this record. What does not open cannot be decoded.
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
