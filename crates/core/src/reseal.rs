//! The contract of a store whose sealed bytes can be sealed again under another key, one page after the other.
//!
//! Settled records are immutable but for this: the same clear bytes, under a new key.

use async_trait::async_trait;
use bytes::Bytes;

use crate::ids::{AttemptToken, OperationId};
use crate::scope::RecordId;
use crate::store_error::StoreError;
use crate::vault::{Sealed, SealedKind, Sealing};

/// Lists what is not sealed under one key, and takes it back sealed under that.
///
/// It is safe beside live traffic and beside others that do the same, and may be stopped and begun again at any time.
#[async_trait]
pub trait Reseal: Send + Sync + 'static {
    /// How much there is of each kind under each key. It may be slow.
    async fn key_uses(&self) -> Result<Vec<KeyUse>, StoreError>;

    /// At most `limit` things of this kind that are not sealed under `current`, those in the clear among them, in the order
    /// of their places, after `after`. Those that cannot be read are named, and keep no other from being listed.
    async fn kept_otherwise(
        &self,
        kind: SealedKind,
        current: &str,
        after: Option<&SealedPlace>,
        limit: usize,
    ) -> Result<KeptPage, StoreError>;

    /// Writes each where it was, if it is still what was read, and changes nothing else about it. All are of one kind. A
    /// response loses the readable address of what was made, which is inside it. One that cannot be written now, because
    /// another transaction holds it, keeps no other from being written.
    async fn reseal(&self, resealed: &[Resealed]) -> Result<ResealedBatch, StoreError>;
}

/// What became of a batch. Those that are in neither number have changed, or are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResealedBatch {
    /// Those that were written.
    pub written: usize,
    /// Those that are still as they were, because another transaction holds them or the database refuses them.
    pub held: usize,
}

/// How much there is of one kind under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// What it is.
    pub kind: SealedKind,
    /// The key; `None` is in the clear.
    pub key_id: Option<String>,
    /// How much there is.
    pub count: u64,
}

/// A page of what is kept.
#[derive(Clone, Debug, Default)]
pub struct KeptPage {
    /// What can be read.
    pub kept: Vec<StoredValue>,
    /// What cannot.
    pub unreadable: Vec<UnreadableValue>,
    /// The last place of this page, if there may be more after it. Of a response, only its id matters here.
    pub last: Option<SealedPlace>,
}

/// Something that is kept and cannot be read, not even which key it is under or what it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableValue {
    /// What it is.
    pub kind: SealedKind,
    /// The id of its operation; of evidence, its source and name.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// Something that is kept.
#[derive(Clone, Debug)]
pub struct StoredValue {
    /// Where it is.
    pub place: SealedPlace,
    /// What it is sealed about.
    pub about: Sealing,
    /// The key; `None` is in the clear.
    pub key_id: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

/// Where something is kept, and what must not have changed about it until it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealedPlace {
    /// In the record of this id, while it has this token and this many writes.
    Response(RecordId, AttemptToken, i64),
    /// Beside the record of this operation id.
    Request(OperationId),
    /// Evidence of this source and name.
    Evidence(String, String),
    /// The phase of this command and name.
    Phase(OperationId, String),
    /// The message of this event id.
    Message(String),
}

impl StoredValue {
    /// Something whose key is in its envelope, or in the clear.
    pub fn enveloped(place: SealedPlace, about: Sealing, bytes: Bytes) -> StoredValue {
        match Sealed::from_envelope(&bytes) {
            Some(Sealed { key_id, bytes }) => StoredValue { place, about, key_id: Some(key_id), bytes },
            None => StoredValue { place, about, key_id: None, bytes },
        }
    }

    /// The bytes as they were read.
    pub fn to_envelope(&self) -> Bytes {
        match &self.key_id {
            Some(key_id) => Sealed { key_id: key_id.clone(), bytes: self.bytes.clone() }.into_envelope(),
            None => self.bytes.clone(),
        }
    }
}

/// Something that is kept, and what it is to become.
#[derive(Clone, Debug)]
pub struct Resealed {
    /// What was read.
    pub before: StoredValue,
    /// What it is to be.
    pub after: Sealed,
}
