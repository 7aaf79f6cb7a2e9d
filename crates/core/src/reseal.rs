//! The contract of a store whose sealed bytes can be resealed under another key, page by page.
//!
//! Settled records are immutable except for this: the same clear bytes, under a new key.

use async_trait::async_trait;
use bytes::Bytes;

use crate::ids::{AttemptToken, OperationId};
use crate::scope::RecordId;
use crate::store_error::StoreError;
use crate::vault::{Sealed, SealedKind, Sealing};

/// Lists items that are not sealed under a given key, and replaces them with resealed ones.
///
/// Resealing is safe beside live traffic and other resealing processes, and may be stopped and restarted at
/// any time.
#[async_trait]
pub trait Reseal: Send + Sync + 'static {
    /// Returns the number of items of each kind under each key. The call may be slow.
    async fn key_uses(&self) -> Result<Vec<KeyUse>, StoreError>;

    /// Returns at most `limit` items of this kind after `after` that are not sealed under `current`,
    /// plaintext included, in the order of their places. Unreadable items are named, and do not prevent
    /// others from being listed.
    async fn kept_otherwise(
        &self,
        kind: SealedKind,
        current: &str,
        after: Option<&SealedPlace>,
        limit: usize,
    ) -> Result<KeptPage, StoreError>;

    /// Writes each item to its place if it is unchanged since it was read, and changes nothing else. All
    /// items are of one kind. A response loses its readable resource address, which is inside the sealed
    /// bytes. An item that another transaction holds does not prevent others from being written.
    async fn reseal(&self, resealed: &[Resealed]) -> Result<ResealedBatch, StoreError>;
}

/// Result of a batch. Items in neither number have changed, or are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResealedBatch {
    /// Number of written items.
    pub written: usize,
    /// Number of unchanged items: another transaction holds them, or the database refuses them.
    pub held: usize,
}

/// Number of items of one kind under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Kind of the items.
    pub kind: SealedKind,
    /// Id of the key; `None` for plaintext.
    pub key_id: Option<String>,
    /// Number of items.
    pub count: u64,
}

/// A page of items.
#[derive(Clone, Debug, Default)]
pub struct KeptPage {
    /// Readable items.
    pub kept: Vec<StoredValue>,
    /// Unreadable items.
    pub unreadable: Vec<UnreadableValue>,
    /// Last place of this page, if there may be more after it. For a response, only its id matters here.
    pub last: Option<SealedPlace>,
}

/// An unreadable item: neither its key nor its owner is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableValue {
    /// Kind of the item.
    pub kind: SealedKind,
    /// Id of its operation; for evidence, its source and id.
    pub name: String,
    /// Reason why the item is unreadable.
    pub why: String,
}

/// A stored item.
#[derive(Clone, Debug)]
pub struct StoredValue {
    /// Place of the item.
    pub place: SealedPlace,
    /// Associated data of the item.
    pub about: Sealing,
    /// Id of the key; `None` for plaintext.
    pub key_id: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

/// Place of an item, with the values that must not change before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealedPlace {
    /// The response in the record with this id, while the record has this token and this number of writes.
    Response(RecordId, AttemptToken, i64),
    /// The request beside the record of this operation id.
    Request(OperationId),
    /// The evidence with this source and id.
    Evidence(String, String),
    /// The output of the phase with this command and name.
    Phase(OperationId, String),
    /// The payload of the message with this event id.
    Message(String),
}

impl StoredValue {
    /// Returns an item whose key is in its envelope, or which is plaintext.
    pub fn enveloped(place: SealedPlace, about: Sealing, bytes: Bytes) -> StoredValue {
        match Sealed::from_envelope(&bytes) {
            Some(Sealed { key_id, bytes }) => StoredValue { place, about, key_id: Some(key_id), bytes },
            None => StoredValue { place, about, key_id: None, bytes },
        }
    }

    /// Returns the bytes as they were read.
    pub fn to_envelope(&self) -> Bytes {
        match &self.key_id {
            Some(key_id) => Sealed { key_id: key_id.clone(), bytes: self.bytes.clone() }.into_envelope(),
            None => self.bytes.clone(),
        }
    }
}

/// A stored item and its replacement.
#[derive(Clone, Debug)]
pub struct Resealed {
    /// The item as read.
    pub before: StoredValue,
    /// The resealed bytes.
    pub after: Sealed,
}
