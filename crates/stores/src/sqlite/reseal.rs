//! Resealing in SQLite: the SQL, and the trait. Readers list items, and the writer writes them among other
//! changes.

use async_trait::async_trait;
use rusqlite::{Connection, Params, Row, params};
use semel_core::envelope::{ENVELOPE, envelope_under};
use semel_core::fingerprint::FingerprintVersion;
use semel_core::reseal::{
    KeptPage, KeyUse, Reseal, Resealed, ResealedBatch, SealedPlace, StoredValue, UnreadableValue,
};
use semel_core::vault::{SealedKind, Settler};
use semel_core::{AttemptToken, Fingerprint, OperationId, Principal, RecordId, Sealing, StoreError};
use semel_faults::Point;

use super::SqliteStore;
use super::errors::{is_unreadable, stored};
use super::job::{Task, WriteTransaction};
use super::rows::damaged_column;
use super::savepoint::all_or_nothing;
use crate::columns;

const KEY_USES: &str = "
    SELECT 'response', encryption_key_id, count(*) FROM semel_records WHERE response_format IS NOT NULL GROUP BY 2
    UNION ALL SELECT 'request', encryption_key_id, count(*) FROM semel_requests GROUP BY 2
    UNION ALL SELECT 'evidence', encryption_key_id, count(*) FROM semel_evidence WHERE response_format IS NOT NULL
    GROUP BY 2
    UNION ALL SELECT 'phase', iif(substr(output, 1, 14) = ?1,
        CAST(substr(output, 15, instr(substr(output, 15), X'00') - 1) AS TEXT), NULL), count(*)
    FROM semel_phases WHERE output IS NOT NULL GROUP BY 2
    UNION ALL SELECT 'message', iif(substr(payload, 1, 14) = ?1,
        CAST(substr(payload, 15, instr(substr(payload, 15), X'00') - 1) AS TEXT), NULL), count(*)
    FROM semel_outbox GROUP BY 2";

const RESPONSES: &str = "
    SELECT encryption_key_id, response, response_format, id, token, operation_id, epoch, settled_by, status
    FROM semel_records
    WHERE id > ?1 AND response_format IS NOT NULL AND encryption_key_id IS NOT ?2 ORDER BY id LIMIT ?3";

const REQUESTS: &str = "
    SELECT kept.encryption_key_id, request, format, operation_id, tenant, caller, key_hash_prefix, fingerprint_version,
        fingerprint
    FROM semel_requests AS kept JOIN semel_records USING (operation_id)
    WHERE operation_id > ?1 AND kept.encryption_key_id IS NOT ?2 ORDER BY operation_id LIMIT ?3";

const EVIDENCE: &str = "
    SELECT encryption_key_id, response, response_format, source, event_id, operation_id, status FROM semel_evidence
    WHERE (source, event_id) > (?1, ?2) AND response_format IS NOT NULL AND encryption_key_id IS NOT ?3
    ORDER BY source, event_id LIMIT ?4";

const PHASES: &str = "
    SELECT output, operation_id, name FROM semel_phases
    WHERE (operation_id, name) > (?1, ?2) AND output IS NOT NULL AND substr(output, 1, length(?3)) IS NOT ?3
    ORDER BY operation_id, name LIMIT ?4";

const MESSAGES: &str = "
    SELECT payload, event_id FROM semel_outbox WHERE event_id > ?1 AND substr(payload, 1, length(?2)) IS NOT ?2
    ORDER BY event_id LIMIT ?3";

fn phase(row: &Row<'_>) -> rusqlite::Result<StoredValue> {
    let (command, name) = (OperationId::from_bytes(row.get(1)?), row.get::<_, String>(2)?);
    let about = Sealing::phase(command, &name);
    Ok(StoredValue::enveloped(SealedPlace::Phase(command, name), about, row.get::<_, Vec<u8>>(0)?.into()))
}

fn message(row: &Row<'_>) -> rusqlite::Result<StoredValue> {
    let event_id: String = row.get(1)?;
    let about = Sealing::message(&event_id);
    Ok(StoredValue::enveloped(SealedPlace::Message(event_id), about, row.get::<_, Vec<u8>>(0)?.into()))
}

fn response(row: &Row<'_>) -> rusqlite::Result<StoredValue> {
    let (id, token) = (RecordId::from_bytes(row.get(3)?), AttemptToken::from_bytes(row.get(4)?));
    let settled_by = columns::settled_by(&row.get::<_, String>(7)?);
    let settled_by = settled_by.ok_or_else(|| damaged_column("settled_by", "no settler has this value"))?;
    let settler = Settler::by(settled_by, row.get(6)?);
    let command = OperationId::from_bytes(row.get(5)?);
    let about = Sealing::response(&id, command, settler, row.get(8)?, row.get(2)?);
    kept(row, SealedPlace::Response(id, token, 0), about)
}

fn request(row: &Row<'_>) -> rusqlite::Result<StoredValue> {
    let principal = Principal::new(&row.get::<_, String>(4)?, &row.get::<_, String>(5)?);
    let principal = principal.map_err(|error| damaged_column("tenant, caller", error))?;
    let version = FingerprintVersion::from_number(row.get(7)?)
        .ok_or_else(|| damaged_column("fingerprint_version", "it is not known here"))?;
    let fingerprint = Fingerprint::from_parts(version, row.get(8)?);
    let prefix: String = row.get(6)?;
    let about = Sealing::request_of(&principal, &prefix, &fingerprint, row.get(2)?);
    kept(row, SealedPlace::Request(OperationId::from_bytes(row.get(3)?)), about)
}

fn evidence(row: &Row<'_>) -> rusqlite::Result<StoredValue> {
    let (source, event_id): (String, String) = (row.get(3)?, row.get(4)?);
    let command = OperationId::from_bytes(row.get(5)?);
    let about = Sealing::evidence(&source, &event_id, command, row.get(6)?, row.get(2)?);
    kept(row, SealedPlace::Evidence(source, event_id), about)
}

/// Returns the place after which the next page begins, and the name of the row.
fn place(kind: SealedKind, row: &Row<'_>) -> rusqlite::Result<(SealedPlace, String)> {
    let operation = |column| row.get(column).map(OperationId::from_bytes);
    Ok(match kind {
        SealedKind::Response => {
            let id = RecordId::from_bytes(row.get(3)?);
            (SealedPlace::Response(id, AttemptToken::from_bytes([0; 16]), 0), operation(5)?.to_string())
        }
        SealedKind::Request => (SealedPlace::Request(operation(3)?), operation(3)?.to_string()),
        SealedKind::Evidence => {
            let (source, event_id): (String, String) = (row.get(3)?, row.get(4)?);
            let name = format!("{source} {event_id}");
            (SealedPlace::Evidence(source, event_id), name)
        }
        SealedKind::Phase => {
            let (command, phase) = (operation(1)?, row.get::<_, String>(2)?);
            let name = format!("{command} {phase}");
            (SealedPlace::Phase(command, phase), name)
        }
        SealedKind::Message => {
            let event_id: String = row.get(1)?;
            (SealedPlace::Message(event_id.clone()), event_id)
        }
    })
}

/// Returns the rows of a statement.
fn page(
    connection: &Connection,
    kind: SealedKind,
    (sql, read): (&str, fn(&Row<'_>) -> rusqlite::Result<StoredValue>),
    values: impl Params,
    limit: usize,
) -> rusqlite::Result<KeptPage> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut page = KeptPage::default();
    while let Some(row) = rows.next()? {
        let (place, name) = place(kind, row)?;
        match read(row) {
            Ok(kept) => page.kept.push(kept),
            Err(why) if is_unreadable(&why) => {
                page.unreadable.push(UnreadableValue { kind, name, why: why.to_string() });
            }
            Err(error) => return Err(error),
        }
        page.last = (page.kept.len() + page.unreadable.len() == limit).then_some(place);
    }
    Ok(page)
}

fn kept(row: &Row<'_>, place: SealedPlace, about: Sealing) -> rusqlite::Result<StoredValue> {
    Ok(StoredValue { place, about, key_id: row.get(0)?, bytes: row.get::<_, Vec<u8>>(1)?.into() })
}

/// Writes each item that is unchanged since it was read, within the open transaction. Returns their number.
fn write(connection: &Connection, resealed: &[Resealed]) -> rusqlite::Result<usize> {
    let mut written = 0;
    for Resealed { before, after } in resealed {
        let (key_id, bytes) = (&after.key_id, &after.bytes[..]);
        written += match &before.place {
            SealedPlace::Response(id, token, _) => connection
                .prepare_cached(
                    "UPDATE semel_records SET encryption_key_id = ?1, response = ?2, resource = NULL
                     WHERE id = ?3 AND token = ?4 AND response_format IS NOT NULL AND encryption_key_id IS ?5",
                )?
                .execute(params![key_id, bytes, id.as_bytes(), token.as_bytes(), before.key_id])?,
            // Guarded by the bytes: a later attempt may have brought another request.
            SealedPlace::Request(id) => connection
                .prepare_cached(
                    "UPDATE semel_requests SET encryption_key_id = ?1, request = ?2
                     WHERE operation_id = ?3 AND request = ?4",
                )?
                .execute(params![key_id, bytes, id.as_bytes(), &before.bytes[..]])?,
            SealedPlace::Evidence(source, event_id) => connection
                .prepare_cached(
                    "UPDATE semel_evidence SET encryption_key_id = ?1, response = ?2, resource = NULL
                     WHERE source = ?3 AND event_id = ?4 AND response = ?5",
                )?
                .execute(params![key_id, bytes, source, event_id, &before.bytes[..]])?,
            SealedPlace::Phase(command, name) => connection
                .prepare_cached(
                    "UPDATE semel_phases SET output = ?1 WHERE operation_id = ?2 AND name = ?3 AND output = ?4",
                )?
                .execute(params![
                    &after.clone().into_envelope()[..],
                    command.as_bytes(),
                    name,
                    &before.to_envelope()[..]
                ])?,
            SealedPlace::Message(event_id) => connection
                .prepare_cached("UPDATE semel_outbox SET payload = ?1 WHERE event_id = ?2 AND payload = ?3")?
                .execute(params![&after.clone().into_envelope()[..], event_id, &before.to_envelope()[..]])?,
        };
    }
    Ok(written)
}

/// Returns the number of items of each kind under each key.
pub(super) fn key_uses(connection: &Connection) -> rusqlite::Result<Vec<KeyUse>> {
    let read = |row: &Row<'_>| {
        let kind: String = row.get(0)?;
        let kind = SealedKind::ALL.into_iter().find(|known| known.as_str() == kind);
        let count = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
        Ok(KeyUse { kind: kind.ok_or(rusqlite::Error::InvalidQuery)?, key_id: row.get(1)?, count })
    };
    connection.prepare(KEY_USES)?.query_map([ENVELOPE], read)?.collect()
}

#[async_trait]
impl Reseal for SqliteStore {
    async fn key_uses(&self) -> Result<Vec<KeyUse>, StoreError> {
        self.read(move |connection, _| key_uses(connection)).await
    }

    async fn kept_otherwise(
        &self,
        kind: SealedKind,
        current: &str,
        after: Option<&SealedPlace>,
        limit: usize,
    ) -> Result<KeptPage, StoreError> {
        let (current, after) = (current.to_owned(), after.cloned());
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |connection, _| match kind {
            SealedKind::Response => {
                let id: &[u8] = match &after {
                    Some(SealedPlace::Response(id, ..)) => id.as_bytes(),
                    _ => &[],
                };
                page(connection, kind, (RESPONSES, response), params![id, current, most], limit)
            }
            SealedKind::Request => {
                let id: &[u8] = match &after {
                    Some(SealedPlace::Request(id)) => id.as_bytes(),
                    _ => &[],
                };
                page(connection, kind, (REQUESTS, request), params![id, current, most], limit)
            }
            SealedKind::Evidence => {
                let (source, event_id) = match &after {
                    Some(SealedPlace::Evidence(source, event_id)) => (source.as_str(), event_id.as_str()),
                    _ => ("", ""),
                };
                let values = params![source, event_id, current, most];
                page(connection, kind, (EVIDENCE, evidence), values, limit)
            }
            SealedKind::Phase => {
                let (command, name): (&[u8], &str) = match &after {
                    Some(SealedPlace::Phase(command, name)) => (command.as_bytes(), name),
                    _ => (&[], ""),
                };
                let values = params![command, name, envelope_under(&current), most];
                page(connection, kind, (PHASES, phase), values, limit)
            }
            SealedKind::Message => {
                let event_id = match &after {
                    Some(SealedPlace::Message(event_id)) => event_id.as_str(),
                    _ => "",
                };
                let values = params![event_id, envelope_under(&current), most];
                page(connection, kind, (MESSAGES, message), values, limit)
            }
        })
        .await
    }

    async fn reseal(&self, resealed: &[Resealed]) -> Result<ResealedBatch, StoreError> {
        let resealed = resealed.to_vec();
        let write = move |turn: &mut WriteTransaction<'_>| {
            all_or_nothing(turn.connection, || stored(self::write(turn.connection, &resealed)))
        };
        let written = self.write(Task::new(write).held_at(Some(Point::ResealSent))).await?;
        Ok(ResealedBatch { written, held: 0 })
    }
}
