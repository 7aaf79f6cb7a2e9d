//! Commands that wait for a worker, tenant by tenant: all SQL about listing them.

use semel_core::{RecordId, StoredRequest, Timestamp, Waiting, WaitingFilter, WaitingPage, WaitingPlace};

use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::fence::not_fenced;
use super::rows::{record, record_columns_without_response};

/// Number of tenants that one page looks at, with or without commands.
const MAX_TENANTS: usize = 64;

/// Selects tenants with waiting commands, behind $1 in the order of the index: one step in it for each.
pub(super) const TENANTS: &str = "
    WITH RECURSIVE own(tenant, place) AS (
        (SELECT tenant, 1::bigint FROM semel_records
         WHERE ready_at IS NOT NULL AND tenant > $1 ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT tenant FROM semel_records WHERE ready_at IS NOT NULL AND tenant > own.tenant
                ORDER BY tenant LIMIT 1), own.place + 1
        FROM own WHERE own.tenant IS NOT NULL AND own.place < $2)
    SELECT tenant FROM own WHERE tenant IS NOT NULL ORDER BY place";

/// Selects commands of these tenants that are ready to start: of each at most a share, of the first only
/// those behind a place.
pub(super) const WAITING: &str = concat!(
    "SELECT q.format, q.encryption_key_id, q.request, picked.its_tenant, picked.its_ready_at, picked.its_id, picked.now, ",
    record_columns_without_response!(),
    " FROM (
          SELECT own.place, n.now, one.* FROM ",
    now!(),
    ",    unnest($5::text[]) WITH ORDINALITY AS own(tenant, place) CROSS JOIN LATERAL (
              SELECT r.tenant AS its_tenant, r.ready_at AS its_ready_at, r.id AS its_id FROM semel_records AS r
              WHERE r.ready_at IS NOT NULL AND r.tenant = own.tenant AND r.ready_at <= n.now
                AND (r.ready_at, r.id) > (CASE own.place WHEN 1 THEN $6 ELSE -1 END,
                                          CASE own.place WHEN 1 THEN $7 ELSE ''::bytea END)
                AND r.state = 'claimed' AND r.due_at > n.now AND (r.on_lease_expired = 'resume')::int = $2
                AND ($3::int = 0 OR r.operation = ANY($4))
              ORDER BY r.ready_at, r.id LIMIT $8
          ) AS one
          WHERE ",
    not_fenced!(),
    "     ORDER BY own.place, one.its_ready_at, one.its_id LIMIT $9
      ) AS picked
      JOIN semel_records ON semel_records.id = picked.its_id
      LEFT JOIN LATERAL (
          SELECT format, encryption_key_id, request FROM semel_requests
          WHERE semel_requests.operation_id = semel_records.operation_id
      ) AS q ON true
      ORDER BY picked.place, picked.its_ready_at, picked.its_id"
);

/// Returns a page of the commands that wait for a worker, without unreadable ones.
pub(super) async fn page(
    db: &mut impl Executor,
    filter: &WaitingFilter,
    offset: i64,
) -> Result<WaitingPage, DbError> {
    let after = filter.after.as_ref();
    let mut tenants: Vec<String> = after.map(|place| place.tenant.clone()).into_iter().collect();
    // No tenant has an empty name.
    let more = [SqlValue::Text(Some(after.map_or("", |place| &place.tenant))), int(MAX_TENANTS)];
    let more = db.query(TENANTS, &more).await?;
    let all = more.len() < MAX_TENANTS;
    tenants.extend(more.iter().filter_map(|row| row.text(0)).map(str::to_owned));
    let Some(last) = tenants.last() else {
        return Ok(WaitingPage { found: Vec::new(), next: None, now: Timestamp::from_millis(0) });
    };
    let names = filter.operations.as_deref().unwrap_or_default();
    let values = [
        SqlValue::Int(Some(offset)),
        SqlValue::Int(Some(filter.phased.into())),
        SqlValue::Int(Some(filter.operations.is_some().into())),
        SqlValue::TextList(names.iter().map(|name| Some(name.as_str())).collect()),
        SqlValue::TextList(tenants.iter().map(|name| Some(name.as_str())).collect()),
        SqlValue::Int(Some(after.map_or(-1, |place| place.ready_at.as_millis()))),
        SqlValue::Bytes(Some(after.map_or(&[], |place| place.id.as_bytes()))),
        int(filter.share),
        int(filter.limit),
    ];
    let rows = db.query(WAITING, &values).await?;
    let next = match rows.last() {
        Some(row) if rows.len() >= filter.limit => Some(place(row)?),
        _ => (!all).then(|| WaitingPlace::end_of(last)),
    };
    let now = Timestamp::from_millis(rows.first().and_then(|row| row.int(6)).unwrap_or(0));
    Ok(WaitingPage { found: rows.into_iter().filter_map(waiting).collect(), next, now })
}

fn place(row: &SqlRow) -> Result<WaitingPlace, DbError> {
    let id = row.bytes(5).and_then(|id| id[..].try_into().ok());
    Ok(WaitingPlace {
        tenant: row.text(3).unwrap_or_default().to_owned(),
        ready_at: Timestamp::from_millis(row.int(4).unwrap_or(0)),
        id: id.map(RecordId::from_bytes).ok_or_else(|| DbError::unreadable("id", "not 32 bytes long"))?,
    })
}

fn waiting(row: SqlRow) -> Option<Waiting> {
    let request = StoredRequest {
        format: row.int(0).and_then(|format| u8::try_from(format).ok())?,
        encryption_key_id: row.text(1).map(str::to_owned),
        bytes: row.bytes(2)?.clone(),
    };
    Some(Waiting { record: record(row, 7).ok()?.record, request })
}

fn int(count: usize) -> SqlValue<'static> {
    SqlValue::Int(Some(i64::try_from(count).unwrap_or(i64::MAX)))
}
