//! How a row and a [`Record`] become each other.

use std::time::Duration;

use rusqlite::Row;
use rusqlite::types::Type;
use semel_core::fingerprint::FingerprintVersion;
use semel_core::policy::OnLeaseExpired;
use semel_core::state::SettledBy;
use semel_core::{
    AttemptToken, Fingerprint, Head, History, OperationId, OperationName, Principal, Reason, Record,
    RecordId, State, StateName, StoredResponse, StoredResult, Terms, Timestamp,
};

/// A head's terms and state, spread over their columns.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) state: &'static str,
    pub(super) lease_ms: i64,
    pub(super) ttl_ms: i64,
    pub(super) tombstone_ttl_ms: Option<i64>,
    pub(super) on_lease_expired: &'static str,
    pub(super) quarantine_ms: i64,
    pub(super) due_at: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) settled_by: Option<&'static str>,
    pub(super) unknown_since: Option<i64>,
    pub(super) reconcile_after: Option<i64>,
    pub(super) attempts: Option<u32>,
    pub(super) quarantine_until: Option<i64>,
}

impl Columns {
    pub(super) fn of(record: &Record) -> Columns {
        let Head { terms, state, .. } = record.head;
        let common = Columns {
            state: state.name().as_str(),
            lease_ms: millis(terms.lease),
            ttl_ms: millis(terms.ttl),
            tombstone_ttl_ms: terms.tombstone_ttl.map(millis),
            on_lease_expired: match terms.on_lease_expired {
                OnLeaseExpired::Unknown => "unknown",
                OnLeaseExpired::Resume => "resume",
                OnLeaseExpired::Rerun => "rerun",
            },
            quarantine_ms: millis(terms.quarantine),
            due_at: state.due_to_sweep().map(Timestamp::as_millis),
            expires_at: state.expires_at().map(Timestamp::as_millis),
            ..Columns::default()
        };
        match state {
            State::Succeeded { settled_by, .. } | State::FailedFinal { settled_by, .. } => Columns {
                settled_by: Some(match settled_by {
                    SettledBy::Executor => "executor",
                    SettledBy::Verdict => "verdict",
                }),
                ..common
            },
            State::Unknown { since, reconcile_after, attempts, quarantine_until } => Columns {
                unknown_since: Some(since.as_millis()),
                reconcile_after: Some(reconcile_after.as_millis()),
                attempts: Some(attempts),
                quarantine_until: Some(quarantine_until.as_millis()),
                ..common
            },
            State::Claimed { .. }
            | State::Processing { .. }
            | State::FailedRetryable { .. }
            | State::Expired { .. } => common,
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Reads a row. What no version of Semel wrote is damage, and says in which column.
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let principal = Principal::new(&row.get::<_, String>("tenant")?, &row.get::<_, String>("caller")?)
        .map_err(|error| damaged("tenant, caller", error))?;
    let operation = OperationName::new(&row.get::<_, String>("operation")?)
        .map_err(|error| damaged("operation", error))?;
    Ok(Record {
        id: RecordId::from_bytes(row.get("id")?),
        operation_id: OperationId::from_bytes(row.get("operation_id")?),
        principal,
        operation,
        key_hash_prefix: row.get("key_hash_prefix")?,
        created_at: Timestamp::from_millis(row.get("created_at")?),
        updated_at: Timestamp::from_millis(row.get("updated_at")?),
        head: head(row)?,
        result: result(row)?,
        history: History::from_text(row.get("history")?),
    })
}

fn head(row: &Row<'_>) -> rusqlite::Result<Head> {
    let version: u8 = row.get("fingerprint_version")?;
    let version = FingerprintVersion::from_number(version)
        .ok_or_else(|| damaged("fingerprint_version", format!("version {version} is not known here")))?;
    let tombstone_ttl: Option<i64> = row.get("tombstone_ttl_ms")?;
    Ok(Head {
        fingerprint: Fingerprint::from_parts(version, row.get("fingerprint")?),
        epoch: row.get("epoch")?,
        token: AttemptToken::from_bytes(row.get("token")?),
        terms: Terms {
            lease: duration(row.get("lease_ms")?),
            ttl: duration(row.get("ttl_ms")?),
            tombstone_ttl: tombstone_ttl.map(duration),
            on_lease_expired: match row.get::<_, String>("on_lease_expired")?.as_str() {
                "unknown" => OnLeaseExpired::Unknown,
                "resume" => OnLeaseExpired::Resume,
                "rerun" => OnLeaseExpired::Rerun,
                other => return Err(damaged("on_lease_expired", format!("{other:?} is not a choice"))),
            },
            quarantine: duration(row.get("quarantine_ms")?),
        },
        state: state(row)?,
        reason: {
            let text: String = row.get("reason")?;
            Reason::parse(&text).ok_or_else(|| damaged("reason", format!("{text:?} is not a reason")))?
        },
    })
}

fn state(row: &Row<'_>) -> rusqlite::Result<State> {
    let moment = |column: &str| row.get(column).map(Timestamp::from_millis);
    let settled_by = || match row.get::<_, String>("settled_by")?.as_str() {
        "executor" => Ok(SettledBy::Executor),
        "verdict" => Ok(SettledBy::Verdict),
        other => Err(damaged("settled_by", format!("{other:?} is nobody"))),
    };
    let name: String = row.get("state")?;
    let name = StateName::parse(&name).ok_or_else(|| damaged("state", format!("{name:?} is not a state")))?;
    Ok(match name {
        StateName::Claimed => State::Claimed { start_by: moment("due_at")? },
        StateName::Processing => State::Processing { lease_until: moment("due_at")? },
        StateName::Succeeded => {
            State::Succeeded { expires_at: moment("expires_at")?, settled_by: settled_by()? }
        }
        StateName::FailedFinal => {
            State::FailedFinal { expires_at: moment("expires_at")?, settled_by: settled_by()? }
        }
        StateName::FailedRetryable => State::FailedRetryable { expires_at: moment("expires_at")? },
        StateName::Unknown => State::Unknown {
            since: moment("unknown_since")?,
            reconcile_after: moment("reconcile_after")?,
            attempts: row.get("attempts")?,
            quarantine_until: moment("quarantine_until")?,
        },
        StateName::Expired => State::Expired { forget_at: moment("expires_at")? },
    })
}

fn result(row: &Row<'_>) -> rusqlite::Result<Option<StoredResult>> {
    let Some(format) = row.get("response_format")? else { return Ok(None) };
    let bytes: Vec<u8> = row.get("response")?;
    Ok(Some(StoredResult {
        response: StoredResponse {
            format,
            encryption_key_id: row.get("encryption_key_id")?,
            bytes: bytes.into(),
        },
        status: row.get("status")?,
        resource: row.get("resource")?,
    }))
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(super) fn damaged(
    column: &'static str,
    what: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    let what = format!("semel_records.{column}: {}", what.into());
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, what.into())
}
