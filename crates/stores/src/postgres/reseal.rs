//! Resealing in PostgreSQL: the SQL, and the trait. It uses the connection for tasks that are not urgent.

use async_trait::async_trait;
use bytes::Bytes;
use semel_core::envelope::{ENVELOPE, envelope_under};
use semel_core::fingerprint::FingerprintVersion;
use semel_core::reseal::{
    KeptPage, KeyUse, Reseal, Resealed, ResealedBatch, SealedPlace, StoredValue, UnreadableValue,
};
use semel_core::vault::{SealedKind, Settler};
use semel_core::{AttemptToken, Epoch, Fingerprint, OperationId, Principal, Sealing, StoreError};

use super::PostgresStore;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::group;
use super::link::{BEGIN_BRIEFLY, Link};
use crate::columns;

const KEY_USES: &str = "
    SELECT 'response', encryption_key_id, count(*) FROM semel_records WHERE response_format IS NOT NULL GROUP BY 2
    UNION ALL SELECT 'request', encryption_key_id, count(*) FROM semel_requests GROUP BY 2
    UNION ALL SELECT 'evidence', encryption_key_id, count(*) FROM semel_evidence WHERE response_format IS NOT NULL
    GROUP BY 2
    UNION ALL SELECT 'phase', CASE WHEN substring(output FROM 1 FOR 14) = $1::bytea THEN encode(substring(
        output FROM 15 FOR greatest(position('\\x00'::bytea IN substring(output FROM 15)) - 1, 0)), 'escape') END, count(*)
    FROM semel_phases WHERE output IS NOT NULL GROUP BY 2
    UNION ALL SELECT 'message', CASE WHEN substring(payload FROM 1 FOR 14) = $1::bytea THEN encode(substring(
        payload FROM 15 FOR greatest(position('\\x00'::bytea IN substring(payload FROM 15)) - 1, 0)), 'escape') END, count(*)
    FROM semel_outbox GROUP BY 2";

pub(super) const RESPONSES: &str = "
    SELECT encryption_key_id, response, response_format, id, token, revision, operation_id, epoch, settled_by, status
    FROM semel_records
    WHERE id > $2 AND response_format IS NOT NULL AND encryption_key_id IS DISTINCT FROM $1 ORDER BY id LIMIT $3";

pub(super) const REQUESTS: &str = "
    SELECT q.encryption_key_id, q.request, q.format, q.operation_id, r.tenant, r.caller, r.key_hash_prefix,
        r.fingerprint_version, r.fingerprint
    FROM semel_requests AS q JOIN semel_records AS r ON r.operation_id = q.operation_id
    WHERE q.operation_id > $2 AND q.encryption_key_id IS DISTINCT FROM $1 ORDER BY q.operation_id LIMIT $3";

const EVIDENCE: &str = "
    SELECT encryption_key_id, response, response_format, source, event_id, operation_id, status FROM semel_evidence
    WHERE (source, event_id) > ($2, $3) AND response_format IS NOT NULL AND encryption_key_id IS DISTINCT FROM $1
    ORDER BY source, event_id LIMIT $4";

const PHASES: &str = "
    SELECT output, operation_id, name FROM semel_phases
    WHERE (operation_id, name) > ($2, $3) AND output IS NOT NULL AND substring(output FROM 1 FOR length($1::bytea)) <> $1::bytea
    ORDER BY operation_id, name LIMIT $4";

const MESSAGES: &str = "
    SELECT payload, event_id FROM semel_outbox
    WHERE event_id > $2 AND substring(payload FROM 1 FOR length($1::bytea)) <> $1::bytea ORDER BY event_id LIMIT $3";

const RESEAL_RESPONSES: &str = "
    UPDATE semel_records AS r SET
        encryption_key_id = i.key_id, response = i.response, resource = NULL, revision = r.revision + 1
    FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::text[], $5::text[], $6::bytea[])
        AS i (id, token, revision, key_before, key_id, response)
    WHERE r.id = i.id AND r.token = i.token AND r.revision = i.revision AND r.response_format IS NOT NULL
        AND r.encryption_key_id IS NOT DISTINCT FROM i.key_before
    RETURNING r.revision";

/// Guarded by the bytes: a later attempt may have brought another request.
const RESEAL_REQUESTS: &str = "
    UPDATE semel_requests AS q SET encryption_key_id = i.key_id, request = i.request
    FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::bytea[]) AS i (operation_id, before, key_id, request)
    WHERE q.operation_id = i.operation_id AND q.request = i.before
    RETURNING q.kept_at";

const RESEAL_EVIDENCE: &str = "
    UPDATE semel_evidence AS e SET encryption_key_id = i.key_id, response = i.response, resource = NULL
    FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bytea[])
        AS i (source, event_id, before, key_id, response)
    WHERE e.source = i.source AND e.event_id = i.event_id AND e.response = i.before
    RETURNING e.received_at";

const RESEAL_PHASES: &str = "
    UPDATE semel_phases AS p SET output = i.output
    FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[]) AS i (operation_id, name, before, output)
    WHERE p.operation_id = i.operation_id AND p.name = i.name AND p.output = i.before
    RETURNING p.position";

const RESEAL_MESSAGES: &str = "
    UPDATE semel_outbox AS m SET payload = i.payload
    FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS i (event_id, before, payload)
    WHERE m.event_id = i.event_id AND m.payload = i.before
    RETURNING m.position";

fn phase(row: &SqlRow) -> Option<StoredValue> {
    let (command, name) = (OperationId::from_bytes(row.uuid(1)?), row.text(2)?.to_owned());
    let about = Sealing::phase(command, &name);
    Some(StoredValue::enveloped(SealedPlace::Phase(command, name), about, row.bytes(0)?.clone()))
}

fn message(row: &SqlRow) -> Option<StoredValue> {
    let event_id = row.text(1)?.to_owned();
    let about = Sealing::message(&event_id);
    Some(StoredValue::enveloped(SealedPlace::Message(event_id), about, row.bytes(0)?.clone()))
}

fn response(row: &SqlRow) -> Option<StoredValue> {
    let id = group::id(row, 3)?;
    let token = AttemptToken::from_bytes(row.bytes(4)?[..].try_into().ok()?);
    let epoch = Epoch::try_from(row.int(7)?).ok()?;
    let settler = Settler::by(columns::settled_by(row.text(8)?)?, epoch);
    let (command, status) = (OperationId::from_bytes(row.uuid(6)?), u16::try_from(row.int(9)?).ok()?);
    kept(row, SealedPlace::Response(id, token, row.int(5)?), |format| {
        Sealing::response(&id, command, settler, status, format)
    })
}

fn request(row: &SqlRow) -> Option<StoredValue> {
    let principal = Principal::new(row.text(4)?, row.text(5)?).ok()?;
    let version = FingerprintVersion::from_number(u8::try_from(row.int(7)?).ok()?)?;
    let fingerprint = Fingerprint::from_parts(version, row.bytes(8)?[..].try_into().ok()?);
    let about =
        |format| Sealing::request_of(&principal, row.text(6).unwrap_or_default(), &fingerprint, format);
    kept(row, SealedPlace::Request(OperationId::from_bytes(row.uuid(3)?)), about)
}

fn evidence(row: &SqlRow) -> Option<StoredValue> {
    let (source, event_id) = (row.text(3)?, row.text(4)?);
    let (command, status) = (OperationId::from_bytes(row.uuid(5)?), u16::try_from(row.int(6)?).ok()?);
    let place = SealedPlace::Evidence(source.to_owned(), event_id.to_owned());
    kept(row, place, |format| Sealing::evidence(source, event_id, command, status, format))
}

/// Returns the place after which the next page begins, and the name of the row.
fn place(kind: SealedKind, row: &SqlRow) -> Option<(SealedPlace, String)> {
    let operation = |column| row.uuid(column).map(OperationId::from_bytes);
    Some(match kind {
        SealedKind::Response => {
            let id = group::id(row, 3)?;
            (SealedPlace::Response(id, AttemptToken::from_bytes([0; 16]), 0), operation(6)?.to_string())
        }
        SealedKind::Request => (SealedPlace::Request(operation(3)?), operation(3)?.to_string()),
        SealedKind::Evidence => {
            let (source, event_id) = (row.text(3)?.to_owned(), row.text(4)?.to_owned());
            let name = format!("{source} {event_id}");
            (SealedPlace::Evidence(source, event_id), name)
        }
        SealedKind::Phase => {
            let (command, phase) = (operation(1)?, row.text(2)?.to_owned());
            let name = format!("{command} {phase}");
            (SealedPlace::Phase(command, phase), name)
        }
        SealedKind::Message => {
            let event_id = row.text(1)?.to_owned();
            (SealedPlace::Message(event_id.clone()), event_id)
        }
    })
}

/// Reads a row that begins with the key, the bytes and their format.
fn kept(row: &SqlRow, place: SealedPlace, about: impl FnOnce(u8) -> Sealing) -> Option<StoredValue> {
    let format = u8::try_from(row.int(2)?).ok()?;
    let (key_id, bytes) = (row.text(0).map(str::to_owned), row.bytes(1)?.clone());
    Some(StoredValue { place, about: about(format), key_id, bytes })
}

async fn list(
    link: &mut Link,
    kind: SealedKind,
    current: &str,
    after: Option<&SealedPlace>,
    limit: usize,
) -> Result<KeptPage, DbError> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let under = envelope_under(current);
    let (current, most) = (SqlValue::Text(Some(current)), SqlValue::Int(Some(most)));
    let (rows, read): (_, fn(&SqlRow) -> Option<StoredValue>) = match kind {
        SealedKind::Response => {
            let id: &[u8] = match after {
                Some(SealedPlace::Response(id, ..)) => id.as_bytes(),
                _ => &[],
            };
            (link.query(RESPONSES, &[current, SqlValue::Bytes(Some(id)), most]).await?, response)
        }
        SealedKind::Request => {
            let id = match after {
                Some(SealedPlace::Request(id)) => *id.as_bytes(),
                _ => [0; 16],
            };
            (link.query(REQUESTS, &[current, SqlValue::Uuid(id), most]).await?, request)
        }
        SealedKind::Evidence => {
            let (source, event_id) = match after {
                Some(SealedPlace::Evidence(source, event_id)) => (source.as_str(), event_id.as_str()),
                _ => ("", ""),
            };
            let values = [current, SqlValue::Text(Some(source)), SqlValue::Text(Some(event_id)), most];
            (link.query(EVIDENCE, &values).await?, evidence)
        }
        SealedKind::Phase => {
            let (command, name) = match after {
                Some(SealedPlace::Phase(command, name)) => (*command.as_bytes(), name.as_str()),
                _ => ([0; 16], ""),
            };
            let values =
                [SqlValue::Bytes(Some(&under)), SqlValue::Uuid(command), SqlValue::Text(Some(name)), most];
            (link.query(PHASES, &values).await?, phase)
        }
        SealedKind::Message => {
            let event_id = match after {
                Some(SealedPlace::Message(event_id)) => event_id.as_str(),
                _ => "",
            };
            let values = [SqlValue::Bytes(Some(&under)), SqlValue::Text(Some(event_id)), most];
            (link.query(MESSAGES, &values).await?, message)
        }
    };
    let mut page = KeptPage::default();
    for row in &rows {
        let (place, name) =
            place(kind, row).ok_or_else(|| DbError::unreadable("id", "it is no place to go on from"))?;
        match read(row) {
            Some(kept) => page.kept.push(kept),
            None => {
                let why = "what belongs to it is not what it should be".to_owned();
                page.unreadable.push(UnreadableValue { kind, name, why });
            }
        }
        page.last = (rows.len() == limit).then_some(place);
    }
    Ok(page)
}

async fn write(link: &mut Link, resealed: &[Resealed]) -> Result<usize, DbError> {
    let (mut ids, mut tokens, mut revisions, mut keys_before) = (vec![], vec![], vec![], vec![]);
    let (mut commands, mut sources, mut event_ids) = (vec![], vec![], vec![]);
    for Resealed { before, .. } in resealed {
        match &before.place {
            SealedPlace::Response(id, token, revision) => {
                ids.push(Some(&id.as_bytes()[..]));
                tokens.push(Some(&token.as_bytes()[..]));
                revisions.push(Some(*revision));
                keys_before.push(before.key_id.as_deref());
            }
            SealedPlace::Request(id) => commands.push(*id.as_bytes()),
            SealedPlace::Evidence(source, event_id) => {
                sources.push(Some(source.as_str()));
                event_ids.push(Some(event_id.as_str()));
            }
            SealedPlace::Phase(command, name) => {
                commands.push(*command.as_bytes());
                sources.push(Some(name.as_str()));
            }
            SealedPlace::Message(event_id) => event_ids.push(Some(event_id.as_str())),
        }
    }
    let envelopes: Vec<(Bytes, Bytes)> = resealed
        .iter()
        .filter(|one| matches!(one.before.place, SealedPlace::Phase(..) | SealedPlace::Message(_)))
        .map(|Resealed { before, after }| (before.to_envelope(), after.clone().into_envelope()))
        .collect();
    let envelopes_before =
        SqlValue::BytesList(envelopes.iter().map(|(before, _)| Some(&before[..])).collect());
    let envelopes_after = SqlValue::BytesList(envelopes.iter().map(|(_, after)| Some(&after[..])).collect());
    let before = SqlValue::BytesList(resealed.iter().map(|one| Some(&one.before.bytes[..])).collect());
    let keys = SqlValue::TextList(resealed.iter().map(|one| Some(one.after.key_id.as_str())).collect());
    let bytes = SqlValue::BytesList(resealed.iter().map(|one| Some(&one.after.bytes[..])).collect());
    let (sql, values) = match resealed.first().map(|one| &one.before.place) {
        None => return Ok(0),
        Some(SealedPlace::Response(..)) => {
            let guard = [SqlValue::BytesList(ids), SqlValue::BytesList(tokens), SqlValue::IntList(revisions)];
            let [ids, tokens, revisions] = guard;
            (RESEAL_RESPONSES, vec![ids, tokens, revisions, SqlValue::TextList(keys_before), keys, bytes])
        }
        Some(SealedPlace::Request(_)) => {
            (RESEAL_REQUESTS, vec![SqlValue::UuidList(commands), before, keys, bytes])
        }
        Some(SealedPlace::Evidence(..)) => {
            let places = [SqlValue::TextList(sources), SqlValue::TextList(event_ids)];
            let [sources, event_ids] = places;
            (RESEAL_EVIDENCE, vec![sources, event_ids, before, keys, bytes])
        }
        Some(SealedPlace::Phase(..)) => {
            let places = [SqlValue::UuidList(commands), SqlValue::TextList(sources)];
            let [commands, names] = places;
            (RESEAL_PHASES, vec![commands, names, envelopes_before, envelopes_after])
        }
        Some(SealedPlace::Message(_)) => {
            (RESEAL_MESSAGES, vec![SqlValue::TextList(event_ids), envelopes_before, envelopes_after])
        }
    };
    Ok(link.query(sql, &values).await?.len())
}

/// Writes each item in a transaction of its own that hardly waits for locks, so that one that cannot be
/// written does not fail others.
async fn one_by_one(link: &mut Link, resealed: &[Resealed]) -> Result<ResealedBatch, DbError> {
    let mut batch = ResealedBatch::default();
    for one in resealed {
        link.run(BEGIN_BRIEFLY).await?;
        match write(link, std::slice::from_ref(one)).await {
            Ok(written) => {
                link.run("COMMIT").await?;
                batch.written += written;
            }
            Err(error) if error.blames_a_record() => {
                link.run("ROLLBACK").await?;
                tracing::debug!(why = %error, "something cannot be sealed anew now");
                batch.held += 1;
            }
            Err(error) => {
                let _ = link.run("ROLLBACK").await;
                return Err(error);
            }
        }
    }
    Ok(batch)
}

/// Returns the number of items of each kind under each key.
pub(super) async fn key_uses(link: &mut impl Executor) -> Result<Vec<KeyUse>, DbError> {
    let read = |row: &SqlRow| {
        let kind = SealedKind::ALL.into_iter().find(|kind| row.text(0) == Some(kind.as_str()));
        Some(KeyUse {
            kind: kind?,
            key_id: row.text(1).map(str::to_owned),
            count: u64::try_from(row.int(2)?).ok()?,
        })
    };
    Ok(link.query(KEY_USES, &[SqlValue::Bytes(Some(ENVELOPE))]).await?.iter().filter_map(read).collect())
}

#[async_trait]
impl Reseal for PostgresStore {
    async fn key_uses(&self) -> Result<Vec<KeyUse>, StoreError> {
        self.reports.with(|mut lent| async move { key_uses(lent.link()?).await }).await
    }

    async fn kept_otherwise(
        &self,
        kind: SealedKind,
        current: &str,
        after: Option<&SealedPlace>,
        limit: usize,
    ) -> Result<KeptPage, StoreError> {
        let (current, after) = (current.to_owned(), after.cloned());
        self.reports
            .with(move |mut lent| async move {
                list(lent.link()?, kind, &current, after.as_ref(), limit).await
            })
            .await
    }

    /// Writes rows in the order of their places, like groups of changes.
    async fn reseal(&self, resealed: &[Resealed]) -> Result<ResealedBatch, StoreError> {
        let resealed = resealed.to_vec();
        self.reports
            .with(move |mut lent| async move {
                match write(lent.link()?, &resealed).await {
                    Err(error) if error.blames_a_record() => one_by_one(lent.link()?, &resealed).await,
                    written => Ok(ResealedBatch { written: written?, held: 0 }),
                }
            })
            .await
    }
}
