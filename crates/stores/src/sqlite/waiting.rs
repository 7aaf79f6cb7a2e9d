//! Commands that wait for a worker, tenant by tenant: all SQL about listing them.

use rusqlite::{Connection, OptionalExtension, Row, params};
use semel_core::{RecordId, StoredRequest, Timestamp, Waiting, WaitingFilter, WaitingPage, WaitingPlace};

use super::errors::is_unreadable;
use super::holds;
use super::rows::{WITHOUT_RESPONSE, record};

/// Number of tenants that one page looks at, with or without commands.
const MAX_TENANTS: usize = 256;

/// Selects the next tenant with waiting commands, by the index alone.
const NEXT_TENANT: &str =
    "SELECT tenant FROM semel_records WHERE ready_at IS NOT NULL AND tenant > ?1 ORDER BY tenant LIMIT 1";

/// Returns a page of the commands that wait for a worker and are ready to start, without unreadable ones. Under a fence
/// there are none.
pub(super) fn page(
    connection: &Connection,
    filter: &WaitingFilter,
    now: Timestamp,
) -> rusqlite::Result<WaitingPage> {
    let mut page = WaitingPage { found: Vec::new(), next: None, now };
    if holds::is_fenced(connection)? {
        return Ok(page);
    }
    let mut room = filter.limit;
    let mut from = match &filter.after {
        Some(place) => Some(place.clone()),
        None => next_tenant(connection, None)?,
    };
    for _ in 0..MAX_TENANTS {
        let Some(place) = from else { return Ok(page) };
        let share = filter.share.min(room);
        let (count, last) = of_tenant(connection, filter, &place, share, now, &mut page.found)?;
        room -= count;
        if room == 0 {
            page.next = last.or(Some(place));
            return Ok(page);
        }
        from = next_tenant(connection, Some(&place.tenant))?;
    }
    page.next = from;
    Ok(page)
}

/// Returns the position before all commands of the next tenant.
fn next_tenant(connection: &Connection, after: Option<&str>) -> rusqlite::Result<Option<WaitingPlace>> {
    // No tenant has an empty name.
    let after = after.unwrap_or_default();
    let tenant = connection.prepare_cached(NEXT_TENANT)?.query_row([after], |row| row.get(0)).optional()?;
    Ok(tenant.map(|tenant| WaitingPlace {
        tenant,
        ready_at: Timestamp::from_millis(i64::MIN),
        id: RecordId::from_bytes([0; 32]),
    }))
}

/// Adds the commands of one tenant behind a position. Returns the number of rows, readable or not, and the
/// position of the last.
fn of_tenant(
    connection: &Connection,
    filter: &WaitingFilter,
    from: &WaitingPlace,
    share: usize,
    now: Timestamp,
    found: &mut Vec<Waiting>,
) -> rusqlite::Result<(usize, Option<WaitingPlace>)> {
    // The names as one text, each between separators that no name contains.
    let operations = filter.operations.as_ref().map(|names| format!("\u{1f}{}\u{1f}", names.join("\u{1f}")));
    let sql = format!(
        "SELECT {WITHOUT_RESPONSE}, format AS request_format, request_key_id, request
         FROM semel_records JOIN (
             SELECT operation_id AS request_of, format, encryption_key_id AS request_key_id, request FROM semel_requests
         ) ON request_of = operation_id
         WHERE ready_at IS NOT NULL AND tenant = ?1 AND (ready_at, id) > (?2, ?3) AND ready_at <= ?4
           AND state = 'claimed' AND due_at > ?4 AND (on_lease_expired = 'resume') = ?5
           AND (?6 IS NULL OR instr(?6, char(31) || operation || char(31)) > 0)
         ORDER BY ready_at, id LIMIT ?7"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![
        from.tenant,
        from.ready_at.as_millis(),
        from.id.as_bytes(),
        now.as_millis(),
        filter.phased,
        operations,
        i64::try_from(share).unwrap_or(i64::MAX),
    ])?;
    let (mut count, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        count += 1;
        last = place(row, &from.tenant).ok().or(last);
        match waiting(row) {
            Ok(waiting) => found.push(waiting),
            Err(error) if is_unreadable(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((count, last))
}

fn place(row: &Row<'_>, tenant: &str) -> rusqlite::Result<WaitingPlace> {
    let ready_at = Timestamp::from_millis(row.get("ready_at")?);
    Ok(WaitingPlace { tenant: tenant.to_owned(), ready_at, id: RecordId::from_bytes(row.get("id")?) })
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<Waiting> {
    let request = StoredRequest {
        format: row.get("request_format")?,
        encryption_key_id: row.get("request_key_id")?,
        bytes: row.get::<_, Vec<u8>>("request")?.into(),
    };
    Ok(Waiting { record: record(row)?, request })
}
