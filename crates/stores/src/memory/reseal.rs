//! Resealing of the memory store.

use std::collections::HashMap;

use async_trait::async_trait;
use semel_core::reseal::{KeptPage, KeyUse, Reseal, Resealed, ResealedBatch, SealedPlace, StoredValue};
use semel_core::vault::SealedKind;
use semel_core::{Record, Sealing, Statement, StoreError};

use super::{MemoryStore, Tables};

impl Tables {
    /// Returns all items of this kind, in the order of their places.
    fn kept(&self, kind: SealedKind) -> Vec<StoredValue> {
        let mut records: Vec<&Record> = self.records.values().collect();
        match kind {
            SealedKind::Response => {
                records.sort_by_key(|record| *record.id.as_bytes());
                let response = |record: &&Record| {
                    let result = record.result.as_ref()?;
                    let response = &result.response;
                    Some(StoredValue {
                        place: SealedPlace::Response(record.id, record.head.token, 0),
                        about: Sealing::result(record, result.status, response.format),
                        key_id: response.encryption_key_id.clone(),
                        bytes: response.bytes.clone(),
                    })
                };
                records.iter().filter_map(response).collect()
            }
            SealedKind::Request => {
                records.sort_by_key(|record| record.operation_id);
                let request = |record: &&Record| {
                    let request = self.requests.get(&record.operation_id)?;
                    Some(StoredValue {
                        place: SealedPlace::Request(record.operation_id),
                        about: Sealing::request(record, request.format),
                        key_id: request.encryption_key_id.clone(),
                        bytes: request.bytes.clone(),
                    })
                };
                records.iter().filter_map(request).collect()
            }
            SealedKind::Evidence => {
                let mut all: Vec<_> = self.evidence.values().map(|kept| &kept.statement).collect();
                all.sort_by_key(|statement| (&statement.source, &statement.event_id));
                let response = |statement: &&Statement| {
                    let result = statement.result()?;
                    let response = &result.response;
                    Some(StoredValue {
                        place: SealedPlace::Evidence(statement.source.clone(), statement.event_id.clone()),
                        about: Sealing::statement(statement, result.status, response.format),
                        key_id: response.encryption_key_id.clone(),
                        bytes: response.bytes.clone(),
                    })
                };
                all.iter().filter_map(response).collect()
            }
            // No transaction can write any in this store.
            SealedKind::Phase | SealedKind::Message => Vec::new(),
        }
    }

    /// Writes an item, if it is unchanged since it was read.
    fn reseal(&mut self, resealed: &Resealed) -> bool {
        let Resealed { before, after } = resealed;
        let key_id = Some(after.key_id.clone());
        match &before.place {
            SealedPlace::Response(id, token, _) => {
                let record = self.records.get_mut(id).filter(|record| record.head.token == *token);
                let result = record.and_then(|record| record.result.as_mut());
                let result = result.filter(|result| result.response.encryption_key_id == before.key_id);
                let Some(result) = result else { return false };
                result.resource = None;
                (result.response.encryption_key_id, result.response.bytes) = (key_id, after.bytes.clone());
            }
            SealedPlace::Request(id) => {
                let request = self.requests.get_mut(id).filter(|request| request.bytes == before.bytes);
                let Some(request) = request else { return false };
                (request.encryption_key_id, request.bytes) = (key_id, after.bytes.clone());
            }
            SealedPlace::Evidence(source, event_id) => {
                let kept = self.evidence.get_mut(&(source.clone(), event_id.clone()));
                let Some(kept) = kept else { return false };
                let result = kept.statement.result().filter(|result| result.response.bytes == before.bytes);
                let Some(mut result) = result.cloned() else { return false };
                result.resource = None;
                (result.response.encryption_key_id, result.response.bytes) = (key_id, after.bytes.clone());
                kept.statement = kept.statement.with_result(result);
            }
            SealedPlace::Phase(..) | SealedPlace::Message(_) => return false,
        }
        true
    }
}

/// Returns true if one place comes after another of its kind.
fn is_after(place: &SealedPlace, after: &SealedPlace) -> bool {
    match (place, after) {
        (SealedPlace::Response(id, ..), SealedPlace::Response(after, ..)) => id.as_bytes() > after.as_bytes(),
        (SealedPlace::Request(id), SealedPlace::Request(after)) => id > after,
        (SealedPlace::Evidence(source, event_id), SealedPlace::Evidence(after_source, after_id)) => {
            (source, event_id) > (after_source, after_id)
        }
        _ => false,
    }
}

#[async_trait]
impl Reseal for MemoryStore {
    async fn key_uses(&self) -> Result<Vec<KeyUse>, StoreError> {
        let tables = self.tables();
        let mut uses: HashMap<(SealedKind, Option<String>), u64> = HashMap::new();
        for kind in SealedKind::ALL {
            for kept in tables.kept(kind) {
                *uses.entry((kind, kept.key_id)).or_default() += 1;
            }
        }
        Ok(uses.into_iter().map(|((kind, key_id), count)| KeyUse { kind, key_id, count }).collect())
    }

    async fn kept_otherwise(
        &self,
        kind: SealedKind,
        current: &str,
        after: Option<&SealedPlace>,
        limit: usize,
    ) -> Result<KeptPage, StoreError> {
        let wanted = |kept: &StoredValue| {
            kept.key_id.as_deref() != Some(current) && after.is_none_or(|after| is_after(&kept.place, after))
        };
        let kept: Vec<StoredValue> =
            self.tables().kept(kind).into_iter().filter(wanted).take(limit).collect();
        let last = kept.last().filter(|_| kept.len() == limit).map(|kept| kept.place.clone());
        Ok(KeptPage { kept, unreadable: Vec::new(), last })
    }

    async fn reseal(&self, resealed: &[Resealed]) -> Result<ResealedBatch, StoreError> {
        let mut tables = self.tables();
        let written = resealed.iter().filter(|resealed| tables.reseal(resealed)).count();
        Ok(ResealedBatch { written, held: 0 })
    }
}
