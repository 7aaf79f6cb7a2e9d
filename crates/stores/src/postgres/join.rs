//! The store's part in a transaction of a service's own: how it begins, and a first claim with everything about it in
//! one statement.

use std::time::Duration;

use semel_core::{Answer, Claim, Timestamp};

use super::errors::DbError;
use super::executor::{Executor, Value};
use super::queries::{first, first_values, fresh, now};
use crate::columns::Columns;

/// Gives the transaction back the `lock_timeout` that its session had before it began.
///
/// Where the setting is missing, the transaction has been ended by somebody else.
macro_rules! reset_lock_timeout {
    () => {
        "set_config('lock_timeout', current_setting('semel.lock_timeout'), true)"
    };
}
pub(super) use reset_lock_timeout;

/// Whether the transaction is the one that [`begin`] began.
macro_rules! is_joined {
    () => {
        "current_setting('semel.lock_timeout', true) <> ''"
    };
}
pub(super) use is_joined;

/// Inserts the record unless there is one under any name of its operation, and takes its business reference unless
/// another command holds it.
const FIRST: &str = concat!(
    "WITH record AS (
         INSERT INTO semel_records (
             id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state,
             reason, epoch, token, revision, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms,
             due_at, created_at, updated_at, history)
         SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 1, $14, $15, $16, $17, $18, n.now + $19, n.now,
             n.now, n.now::text || $20
         FROM ",
    now!(),
    "    WHERE NOT EXISTS (SELECT 1 FROM semel_records WHERE id = ANY($21))
             AND NOT EXISTS (
                 SELECT 1 FROM semel_references
                 WHERE tenant = $4 AND operation = ANY($22) AND reference = $23 AND NOT given_back)
         ON CONFLICT DO NOTHING
         RETURNING created_at
     ), reference AS (
         INSERT INTO semel_references (tenant, operation, reference, operation_id, caller, taken_at)
         SELECT $4, $6, $23, $3, $5, created_at FROM record WHERE $23 IS NOT NULL
         ON CONFLICT DO NOTHING
         RETURNING taken_at
     )
     SELECT record.created_at, taken.count, ",
    reset_lock_timeout!(),
    " FROM record CROSS JOIN (SELECT count(*) FROM reference) AS taken"
);

/// Everything of a session that work may change and that outlives a transaction, as one text.
macro_rules! session {
    () => {
        "concat_ws('|', session_user, pg_my_temp_schema(), (SELECT count(*) FROM pg_cursors WHERE is_holdable),
         (SELECT string_agg(channel, ',' ORDER BY channel) FROM pg_listening_channels() AS channel),
         current_setting('role'), current_setting('search_path'), current_setting('synchronous_commit'),
         current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only'),
         current_setting('default_transaction_deferrable'), current_setting('session_replication_role'),
         current_setting('row_security'), current_setting('lock_timeout'), current_setting('statement_timeout'),
         current_setting('idle_in_transaction_session_timeout'), current_setting('client_min_messages'),
         current_setting('client_encoding'), current_setting('standard_conforming_strings'),
         current_setting('TimeZone'), current_setting('DateStyle'), current_setting('IntervalStyle'),
         current_setting('bytea_output'), current_setting('extra_float_digits'),
         current_setting('default_tablespace'), current_setting('temp_tablespaces'))"
    };
}

/// Begins a transaction of a service's own. Remembers the session as it is, and how it commits.
pub(super) const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('semel.session', ",
    session!(),
    ", false), set_config('semel.synchronous_commit', current_setting('synchronous_commit'), true), \
     set_config('semel.lock_timeout', current_setting('lock_timeout'), true)"
);

/// Whether the session is as it was when the last transaction began that [`begin`] or
/// [`begin_phase`](super::begin_phase) began. Gives its advisory locks back.
pub const IS_SESSION_UNCHANGED: &str = concat!(
    "SELECT coalesce(current_setting('semel.session', true) = ",
    session!(),
    ", true) FROM pg_advisory_unlock_all()"
);

/// Gives advisory locks back that outlive a transaction.
pub const GIVE_LOCKS_BACK: &str = "SELECT FROM pg_advisory_unlock_all()";

/// The transaction commits as its session did before it, whatever the work has set. Says whether it waits for standbys.
macro_rules! commit_as_begun {
    () => {
        "(set_config('synchronous_commit', current_setting('semel.synchronous_commit'), true) NOT IN ('off', 'local')
          AND current_setting('synchronous_standby_names') <> '')::int::bigint"
    };
}
pub(super) use commit_as_begun;

/// Begins a transaction that a command joins. Its claim waits for others no longer than `wait`; from then on it waits
/// for locks as its session does.
pub fn begin(wait: Duration) -> String {
    let wait = wait.as_millis().clamp(1, 86_400_000);
    format!("{BEGIN}, set_config('lock_timeout', '{wait}ms', true)")
}

/// From now on, the transaction waits for locks as its session does. A first claim that is made in one statement has
/// seen to that itself.
pub const RESET_LOCK_TIMEOUT: &str = concat!("SELECT ", reset_lock_timeout!());

/// What came of trying to be the first.
pub(super) enum Tried {
    /// It is the first.
    First(Box<Answer>),
    /// It was, until its reference went to somebody else: what was written must be taken back.
    Beaten,
    /// There is something already, and nothing was written.
    NotFirst,
}

/// Claims a command that has a business reference, or former names, if nobody did before.
pub(super) async fn try_first(db: &mut impl Executor, claim: &Claim, offset: i64) -> Result<Tried, DbError> {
    let Some(fresh) = fresh(claim, Timestamp::from_millis(0)) else {
        return Ok(Tried::NotFirst);
    };
    let row = Columns::of(&fresh);
    let ids: Vec<_> = claim.record_ids().collect();
    let mut values = first_values(&row, offset);
    values.extend([
        Value::BytesList(ids.iter().map(|id| Some(&id.as_bytes()[..])).collect()),
        Value::TextList(claim.reference_operations().map(|name| Some(name.as_str())).collect()),
        Value::Text(claim.business_reference.as_deref()),
    ]);
    let rows = db.query(FIRST, &values).await?;
    let Some(written) = rows.first() else { return Ok(Tried::NotFirst) };
    let taken = written.int(1) == Some(i64::from(claim.business_reference.is_some()));
    let at = written.int(0).map(Timestamp::from_millis);
    Ok(match at.filter(|_| taken) {
        Some(at) => Tried::First(Box::new(first(claim, at))),
        None => Tried::Beaten,
    })
}
