//! How stored responses and requests are sealed, so that whoever reads a store without its keys learns nothing from them.
//!
//! A [`Vault`] encrypts; [`Sealing`] says what is encrypted and to whom it belongs, and goes with it as associated data:
//! what is moved to another record, or presented as something else, does not open. Stores see only sealed bytes and the
//! id of a key. What does not open stays as it is, cannot be decoded, and is never a reason to run a command again.

use bytes::{BufMut, Bytes};

use crate::fingerprint::Fingerprint;
use crate::ids::OperationId;
use crate::reconcile::Statement;
use crate::record::{Claim, Record, StoredResult};
use crate::request::StoredRequest;
use crate::response::StoredResponse;
use crate::scope::{Principal, RecordId};
use crate::store::Change;

/// Seals and opens bytes, under keys that it knows by their ids.
pub trait Vault: Send + Sync + 'static {
    /// The id of the key that [`seal`](Vault::seal) uses.
    fn current(&self) -> &str;

    /// Seals under the current key. The same bytes look different each time.
    fn seal(&self, about: &Sealing, clear: &[u8]) -> Result<Sealed, VaultError>;

    /// Opens what was sealed under this key about this, and about nothing else.
    fn open(&self, about: &Sealing, key_id: &str, sealed: &[u8]) -> Result<Bytes, VaultError>;
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
    /// The machine has no randomness, or no memory, to seal with.
    #[error("it cannot be sealed")]
    CannotSeal,
}

/// What kind of thing is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealedKind {
    /// The response of a settled command.
    Response,
    /// The request of a command that waits for a worker.
    Request,
    /// The response that evidence brings, before it settles its command.
    Evidence,
}

impl SealedKind {
    /// Every kind.
    pub const ALL: [SealedKind; 3] = [SealedKind::Response, SealedKind::Request, SealedKind::Evidence];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            SealedKind::Response => "response",
            SealedKind::Request => "request",
            SealedKind::Evidence => "evidence",
        }
    }
}

/// What is sealed, and to whom it belongs. Made only by its constructors, so that sealing and opening agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealing {
    associated: Vec<u8>,
}

/// Tells our associated data from anybody else's, and this form of it from later ones.
const DOMAIN: &[u8] = b"semel sealed v1";

impl Sealing {
    /// The response of this record.
    pub fn response(id: &RecordId, format: u8) -> Sealing {
        Sealing::new(SealedKind::Response, format, &[id.as_bytes()])
    }

    /// The request that a claim brings. Neither the record nor the operation id that it ends up with is certain before
    /// the claim is decided: a live record under a former name of its operation keeps both.
    pub fn claim(claim: &Claim, format: u8) -> Sealing {
        let (scope, fingerprint) = (&claim.scope, &claim.attempt.fingerprint);
        Sealing::request_of(&scope.principal, &scope.key.hash_prefix(), fingerprint, format)
    }

    /// The request that is kept for this record: the same as that of the claim which brought it.
    pub fn request(record: &Record, format: u8) -> Sealing {
        let Record { principal, key_hash_prefix, head, .. } = record;
        Sealing::request_of(principal, key_hash_prefix, &head.fingerprint, format)
    }

    /// The same, of a record that is known by these parts.
    pub fn request_of(
        principal: &Principal,
        key_hash_prefix: &str,
        fingerprint: &Fingerprint,
        format: u8,
    ) -> Sealing {
        let version = [fingerprint.version().number()];
        let who = [principal.tenant().as_bytes(), principal.caller().as_bytes(), key_hash_prefix.as_bytes()];
        Sealing::new(SealedKind::Request, format, &[who[0], who[1], who[2], &version, fingerprint.digest()])
    }

    /// The response that a statement brings.
    pub fn statement(statement: &Statement, format: u8) -> Sealing {
        Sealing::evidence(&statement.source, &statement.event_id, statement.operation_id, format)
    }

    /// The same, of a statement that is known by these parts: who said so, by which name, about which command.
    pub fn evidence(source: &str, event_id: &str, command: OperationId, format: u8) -> Sealing {
        let parts = [source.as_bytes(), event_id.as_bytes(), command.as_bytes()];
        Sealing::new(SealedKind::Evidence, format, &parts)
    }

    fn new(kind: SealedKind, format: u8, parts: &[&[u8]]) -> Sealing {
        let mut associated = Vec::with_capacity(128);
        for part in [DOMAIN, kind.as_str().as_bytes(), &[format]].iter().chain(parts) {
            associated.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
            associated.put_slice(part);
        }
        Sealing { associated }
    }

    /// What goes with the sealed bytes: every part with its length in front, so that no two meanings are the same bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.associated
    }
}

impl dyn Vault {
    /// The result of this record as a store keeps it.
    pub fn seal_result(&self, id: &RecordId, result: &StoredResult) -> Result<StoredResult, VaultError> {
        self.seal_as(|format| Sealing::response(id, format), result)
    }

    /// Opens the result of this record, if it is sealed. What does not open stays as it is.
    pub fn open_result(&self, id: &RecordId, result: &mut StoredResult) -> Result<(), VaultError> {
        self.open_as(|format| Sealing::response(id, format), result)
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

    fn open_as(&self, about: impl Fn(u8) -> Sealing, result: &mut StoredResult) -> Result<(), VaultError> {
        let response = &mut result.response;
        let Some(key_id) = &response.encryption_key_id else { return Ok(()) };
        response.bytes = self.open(&about(response.format), key_id, &response.bytes)?;
        response.encryption_key_id = None;
        result.resource = response.decode().ok().and_then(|response| response.resource().map(str::to_owned));
        Ok(())
    }

    /// Opens the result of a record, if it has one and that is sealed.
    pub fn open_record(&self, record: &mut Record) -> Result<(), VaultError> {
        record.result.as_mut().map_or(Ok(()), |result| self.open_result(&record.id, result))
    }

    /// The change of this record as a store is to carry it out.
    pub fn seal_change(&self, id: &RecordId, change: &Change) -> Result<Change, VaultError> {
        match change.result() {
            Some(result) => Ok(change.with_result(self.seal_result(id, result)?)),
            None => Ok(change.clone()),
        }
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
        let sealed = self.seal_as(|format| Sealing::statement(statement, format), result)?;
        Ok(statement.with_result(sealed))
    }

    /// The statement as it was said.
    pub fn open_statement(&self, statement: &Statement) -> Result<Statement, VaultError> {
        let Some(mut result) = statement.result().cloned() else { return Ok(statement.clone()) };
        self.open_as(|format| Sealing::statement(statement, format), &mut result)?;
        Ok(statement.with_result(result))
    }

    /// Opens the request that is kept for this record, if it is sealed. What does not open stays as it is.
    pub fn open_request(&self, record: &Record, request: &mut StoredRequest) -> Result<(), VaultError> {
        let Some(key_id) = &request.encryption_key_id else { return Ok(()) };
        request.bytes = self.open(&Sealing::request(record, request.format), key_id, &request.bytes)?;
        request.encryption_key_id = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_sealed_has_associated_data_of_its_own() {
        let id = |byte| RecordId::from_bytes([byte; 32]);
        let command = |byte| OperationId::from_bytes([byte; 16]);
        let all = [
            Sealing::response(&id(1), 1),
            Sealing::response(&id(2), 1),
            Sealing::response(&id(1), 2),
            Sealing::evidence("ab", "c", command(1), 1),
            Sealing::evidence("a", "bc", command(1), 1),
            Sealing::evidence("a", "bc", command(2), 1),
            Sealing::new(SealedKind::Request, 1, &[id(1).as_bytes()]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other.as_bytes() != one.as_bytes()), "{one:?}");
        }
    }
}
