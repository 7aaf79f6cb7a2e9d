//! Examines a database without changing it.
//!
//! Invariant: no table is written or migrated. All queries run in read-only transactions, so that not even a
//! setting stays behind on a connection that a pool shares. One commit, of a few bytes in the server's log, shows
//! whether commits come back.

use std::time::Duration;

use semel_core::reseal::KeyUse;
use semel_core::{Clock, SystemClock, Tier, Timestamp};

use super::census::census;
use super::commit_probe::CommitProbe;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::fence;
use super::link::{Dialer, Link};
use super::schema;
use super::{DatabaseAddress, PostgresOpenError, PostgresOptions, connect, reseal, upkeep};
use crate::doctor::telling::{self, WaitingRecords};
use crate::doctor::{Check, Examination, UpkeepIntervals, in_bytes, in_words};
use crate::store_schema::{SchemaAge, StoreSchema};

/// Largest skew between the clocks of the database and this machine, beyond the duration of the query.
const MAX_SKEW: Duration = Duration::from_secs(2);
/// Largest size of the records up to which they are counted.
const COUNT_UP_TO_BYTES: u64 = 1 << 30;

const SERVER: &str = "SELECT current_setting('server_version'), pg_database_size(current_database())";

/// Selects the connected standbys with their lag. Roles outside of pg_monitor see that they are there, and no more.
const STANDBYS: &str = "
    SELECT application_name, state, sync_state, greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), 0)::bigint,
        (extract(epoch FROM flush_lag) * 1000)::bigint
    FROM pg_stat_replication ORDER BY 1";

/// Lag of a standby from which it is reported: of what it has on disk, in bytes and in time.
const MAX_LAG_BYTES: i64 = 64 << 20;
const MAX_LAG_MILLIS: i64 = 10_000;

/// Selects those of these names that belong to a table, a valid index or an enabled trigger.
const PARTS: &str = "
    SELECT relname::text FROM pg_class LEFT JOIN pg_index ON indexrelid = pg_class.oid
    WHERE relname = ANY($1) AND pg_table_is_visible(pg_class.oid) AND coalesce(indisvalid, true)
    UNION ALL
    SELECT tgname::text FROM pg_trigger
    WHERE tgname = ANY($1) AND tgrelid = to_regclass('semel_audit') AND tgenabled <> 'D'";

/// Privileges that a gateway needs, by table. A missing table needs none.
const NEEDED: [(&str, &[&str]); 14] = [
    ("semel_records", ALL),
    ("semel_references", ALL),
    ("semel_requests", ALL),
    ("semel_phases", ALL),
    ("semel_outbox", ALL),
    ("semel_evidence", ALL),
    ("semel_usage", ALL),
    ("semel_audit", &["SELECT", "INSERT"]),
    ("semel_holds", &["SELECT", "INSERT", "DELETE"]),
    ("semel_witnesses", ALL),
    ("semel_secrets", &["SELECT", "INSERT"]),
    ("semel_store", &["SELECT", "UPDATE"]),
    ("semel_api_keys", &["SELECT"]),
    ("semel_schema", &["SELECT"]),
];
const ALL: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];

/// Selects the role, with each privilege that it lacks, or with none.
const LACKED: &str = "
    SELECT current_user::text, lacked.name, lacked.privilege FROM (SELECT 1) AS one LEFT JOIN (
        SELECT need.name, need.privilege FROM unnest($1::text[], $2::text[]) AS need (name, privilege)
        WHERE to_regclass(need.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(need.name), need.privilege)
    ) AS lacked ON true";

const UNKNOWN: &str = "
    SELECT count(*), min(state_since) FROM semel_records WHERE reconcile_after IS NOT NULL AND state = 'unknown'";

const NOT_SWEPT: &str =
    "SELECT count(*), min(due_at) FROM semel_records WHERE due_at IS NOT NULL AND due_at < $1";

const NOT_REAPED: &str =
    "SELECT count(*), min(expires_at) FROM semel_records WHERE expires_at IS NOT NULL AND expires_at < $1";

const SIZE: &str = "SELECT pg_total_relation_size('semel_records')";

const API_KEYS: &str = "SELECT count(*) FROM semel_api_keys WHERE revoked_at IS NULL";

/// Examines the database. `options` are those it is used with, `upkeep` its configured maintenance intervals.
pub async fn examine(
    address: &DatabaseAddress,
    options: &PostgresOptions,
    upkeep: &UpkeepIntervals,
) -> Examination {
    let (dialer, mut db) = match connect(address, options).await {
        Ok((dialer, link)) => (dialer, ReadOnly(link)),
        Err(error) => {
            let reach = "check that the server runs, and admits this user from this machine: try the same \
                         address with psql";
            let encrypt = "see `sslmode` and `sslrootcert` in docs/src/how-to/postgresql.md: they mean what they mean to psql";
            let (found, advice) = match error {
                PostgresOpenError::Unreachable { address, why } => (format!("{address}: {why}"), reach),
                PostgresOpenError::Tls { address, why } => (format!("{address}: {why}"), encrypt),
                other => (other.to_string(), reach),
            };
            let checks = vec![Check::fail("store", found, advice)];
            return Examination { checks, ..Examination::default() };
        }
    };
    let schema = schema::found(&mut db).await;
    let found = *schema.as_ref().unwrap_or(&StoreSchema::NONE);
    let tier = upkeep::tier(&mut db).await.ok();
    let mut checks = vec![
        told("store", server(&mut db, address).await),
        told("durability", durability(&mut db).await),
        commits(&dialer).await,
        told("clock", clock(&mut db).await),
        told("schema", schema.map(|found| telling::schema(found, schema::known_version()))),
    ];
    if let Some(standbys) = standbys(&mut db).await.transpose() {
        checks.insert(3, told("standbys", standbys));
    }
    let age = found.age(schema::known_version());
    if age == SchemaAge::Unreadable {
        // This version does not interpret tables that it cannot read.
        return Examination { checks, tier, ..Examination::default() };
    }
    if found.version == 0 {
        return Examination { checks, tier, api_keys: Some(0), key_uses: None };
    }
    checks.extend([
        told("permissions", permissions(&mut db).await),
        told("indexes", parts(&mut db, found.version).await),
        told("records", records(&mut db).await),
        told("leases", leases(&mut db, upkeep).await),
        told("expiry", expiry(&mut db, upkeep).await),
    ]);
    let fence = if age == SchemaAge::Older { None } else { fence::found(&mut db).await.ok().flatten() };
    checks.extend(fence.map(|fence| telling::fence(&fence)));
    let api_keys = waiting(&mut db, API_KEYS, &[]).await.ok().map(|keys| keys.count);
    let key_uses = if age == SchemaAge::Older { None } else { key_uses(&mut db).await.ok().flatten() };
    Examination { checks, tier, api_keys, key_uses }
}

/// Returns the number of items under each encryption key, unless counting would take long.
async fn key_uses(db: &mut ReadOnly) -> Result<Option<Vec<KeyUse>>, DbError> {
    let size = db.query(SIZE, &[]).await?.first().and_then(|row| row.int(0));
    if size.and_then(|size| u64::try_from(size).ok()).is_none_or(|size| size > COUNT_UP_TO_BYTES) {
        return Ok(None);
    }
    reseal::key_uses(db).await.map(Some)
}

/// A connection that runs every statement in a read-only transaction of its own.
struct ReadOnly(Link);

impl Executor for ReadOnly {
    async fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, DbError> {
        if !self.0.is_usable() {
            return Err(DbError::Unconnected("the connection was lost".to_owned()));
        }
        self.0.run("BEGIN READ ONLY").await?;
        let rows = self.0.query(sql, values).await;
        self.0.run("ROLLBACK").await?;
        rows
    }

    async fn run(&mut self, _: &'static str) -> Result<(), DbError> {
        Err(DbError::Unconnected("nothing but questions is sent here".to_owned()))
    }
}

fn told(name: &'static str, check: Result<Check, DbError>) -> Check {
    check.unwrap_or_else(|error| {
        let advice = "look at the server's log, and at what this user may read";
        Check::fail(name, format!("cannot be read: {error}"), advice)
    })
}

/// Checks that the server answers.
async fn server(db: &mut ReadOnly, address: &DatabaseAddress) -> Result<Check, DbError> {
    let rows = db.query(SERVER, &[]).await?;
    let row = rows.first();
    let server = row.and_then(|row| row.text(0)).unwrap_or("of an unknown version");
    let size = row.and_then(|row| row.int(1)).and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
    Ok(Check::ok("store", format!("{}, PostgreSQL {server}, {}", address.describe(), in_bytes(size))))
}

/// Checks the server's treatment of a commit before it answers, and its standbys.
async fn durability(db: &mut ReadOnly) -> Result<Check, DbError> {
    let name = "durability";
    let rows = db.query(upkeep::DURABILITY, &[]).await?;
    let setting = |column| rows.first().and_then(|row| row.text(column)).unwrap_or_default();
    let standbys = rows.first().and_then(|row| row.int(4)).unwrap_or(0);
    let (fsync, pages, commit, names) = (setting(0), setting(1), setting(2), setting(3));
    let names = if names.is_empty() { "none" } else { names };
    let found = format!(
        "fsync={fsync}, full_page_writes={pages}, synchronous_commit={commit}, {standbys} standbys, synchronous: {names}"
    );
    if fsync != "on" || pages != "on" {
        let advice = "set fsync and full_page_writes to on: a crash of the server's machine can lose what it \
                      acknowledged, and those commands would run again";
        return Ok(Check::fail(name, found, advice));
    }
    Ok(match upkeep::tier(db).await? {
        Tier::One => Check::ok(name, found),
        Tier::Two | Tier::Three if commit == "off" => {
            let advice =
                "set synchronous_commit to on for this database: a crash loses what was acknowledged last";
            Check::warn(name, found, advice)
        }
        Tier::Two | Tier::Three => Check::warn(
            name,
            found,
            "name standbys in synchronous_standby_names, with synchronous_commit = on: a failover to one that lags \
             loses what was acknowledged last",
        ),
    })
}

/// Tries a durable commit.
async fn commits(dialer: &Dialer) -> Check {
    let name = "commits";
    match CommitProbe::new(dialer).commit().await {
        Ok(()) => Check::ok(name, "a commit is answered, and waits for standbys as each does"),
        Err(error) if error.is_not_offered() => {
            Check::ok(name, format!("not tried: this server has no message for its log ({error})"))
        }
        Err(error) => Check::fail(
            name,
            format!("a commit is not answered: {error}"),
            "commands get 503 meanwhile. With synchronous_standby_names, see whether its standbys run and stream:              a commit waits for them",
        ),
    }
}

/// Checks the standbys that are connected, or that have a slot. Returns `None` if there is none, and none is demanded.
async fn standbys(db: &mut ReadOnly) -> Result<Option<Check>, DbError> {
    let name = "standbys";
    let rows = db.query(STANDBYS, &[]).await?;
    let settings = db.query(upkeep::DURABILITY, &[]).await?;
    let text = |column| settings.first().and_then(|row| row.text(column)).unwrap_or_default();
    let demanded = !text(3).is_empty() && !matches!(text(2), "off" | "local");
    let away = settings.first().and_then(|row| row.int(5)).unwrap_or(0);
    if rows.is_empty() && away == 0 && !demanded {
        return Ok(None);
    }
    let is_hidden = rows.iter().any(|row| row.text(1).is_none());
    let mut found: Vec<String> = rows.iter().map(standby).collect();
    if away > 0 {
        found.push(format!("{away} away, with a replication slot"));
    }
    let found = if found.is_empty() { "none is connected".to_owned() } else { found.join("; ") };
    let is_synchronous = |row: &SqlRow| matches!(row.text(2), Some("sync" | "quorum"));
    let is_behind = |row: &SqlRow| {
        row.int(3).is_some_and(|bytes| bytes > MAX_LAG_BYTES)
            || row.int(4).is_some_and(|millis| millis > MAX_LAG_MILLIS)
    };
    Ok(Some(if demanded && !is_hidden && !rows.iter().any(is_synchronous) {
        let advice = "synchronous_standby_names demands a standby and none is synchronous: commits wait until one is \
                      connected";
        Check::fail(name, found, advice)
    } else if is_hidden {
        let advice =
            "their state and lag are shown to members of pg_monitor only: GRANT pg_monitor TO this user";
        Check::warn(name, found, advice)
    } else if rows.iter().any(is_behind) {
        let advice = "a standby is behind: see its log, its disk and the network to it";
        Check::warn(name, found, advice)
    } else if away > 0 {
        let advice =
            "start the standby, or drop its slot: a slot keeps the server's log until its disk is full";
        Check::warn(name, found, advice)
    } else {
        Check::ok(name, found)
    }))
}

/// Returns the state of one standby in words.
fn standby(row: &SqlRow) -> String {
    let who = row.text(0).filter(|name| !name.is_empty()).unwrap_or("a standby");
    let (Some(state), Some(sync)) = (row.text(1), row.text(2)) else { return who.to_owned() };
    let bytes = row.int(3).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
    let delay = row.int(4).map_or_else(String::new, |millis| format!(", {millis} ms"));
    format!("{who} {state}, {sync}, {} behind{delay}", in_bytes(bytes))
}

/// Compares the clock that decides about leases and expiry with this machine's.
async fn clock(db: &mut ReadOnly) -> Result<Check, DbError> {
    let before = SystemClock.now();
    let theirs = schema::clock(db).await?;
    Ok(skew(before, theirs, SystemClock.now()))
}

/// Checks the database's time, which was read between these two moments.
fn skew(before: Timestamp, theirs: Timestamp, after: Timestamp) -> Check {
    let name = "clock";
    let (ahead, behind) = (theirs.since(after), before.since(theirs));
    if ahead.max(behind) <= MAX_SKEW {
        return Check::ok(
            name,
            format!("the database's agrees with this machine's, within {}", in_words(MAX_SKEW)),
        );
    }
    let found = if ahead > behind {
        format!("the database's is {} ahead of this machine's", in_words(ahead))
    } else {
        format!("the database's is {} behind this machine's", in_words(behind))
    };
    let advice = "one of the two is wrong: look at `timedatectl` on both. Leases and expiry count by the database's, \
                  `max_request_age` by this one";
    Check::warn(name, found, advice)
}

/// Checks the privileges of this user for a gateway.
async fn permissions(db: &mut ReadOnly) -> Result<Check, DbError> {
    let name = "permissions";
    let needed =
        || NEEDED.iter().flat_map(|(table, privileges)| privileges.iter().map(move |p| (*table, *p)));
    let values = [
        SqlValue::TextList(needed().map(|(table, _)| Some(table)).collect()),
        SqlValue::TextList(needed().map(|(_, privilege)| Some(privilege)).collect()),
    ];
    let rows = db.query(LACKED, &values).await?;
    let user = rows.first().and_then(|row| row.text(0)).unwrap_or("this user");
    let lacked = |table: &str| {
        let of_table = rows.iter().filter(|row| row.text(1) == Some(table));
        of_table.filter_map(|row| row.text(2)).collect::<Vec<_>>().join(", ")
    };
    let lacked: Vec<String> = NEEDED
        .iter()
        .map(|(table, _)| (table, lacked(table)))
        .filter(|(_, privileges)| !privileges.is_empty())
        .map(|(table, privileges)| format!("{table} ({privileges})"))
        .collect();
    if lacked.is_empty() {
        return Ok(Check::ok(name, format!("{user} may read and write all that a gateway needs")));
    }
    Ok(Check::fail(
        name,
        format!("{user} lacks privileges on {}", lacked.join(", ")),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON the tables semel_… TO {user}, as their owner"),
    ))
}

/// Checks that every table, index and trigger exists and is in use.
async fn parts(db: &mut ReadOnly, version: u32) -> Result<Check, DbError> {
    let name = "indexes";
    let expected = schema::names(version);
    let values = [SqlValue::TextList(expected.iter().copied().map(Some).collect())];
    let found = db.query(PARTS, &values).await?;
    let is_there = |name: &str| found.iter().any(|row| row.text(0) == Some(name));
    let missing: Vec<&str> = expected.iter().copied().filter(|name| !is_there(name)).collect();
    if missing.is_empty() {
        return Ok(Check::ok(name, format!("all {} tables, indexes and triggers", expected.len())));
    }
    let advice = "the schema was changed by hand, or an index was not built to its end: make it again as \
                  the source of this version does, or restore a backup";
    Ok(Check::fail(name, format!("missing or not in use: {}", missing.join(", ")), advice))
}

async fn records(db: &mut ReadOnly) -> Result<Check, DbError> {
    let unknown = waiting(db, UNKNOWN, &[]).await?;
    let size = db.query(SIZE, &[]).await?.first().and_then(|row| row.int(0)).unwrap_or(0);
    let census = match u64::try_from(size) {
        Ok(0..=COUNT_UP_TO_BYTES) => Some(census(db).await?),
        _ => None,
    };
    Ok(telling::records(unknown, now(db).await?, census.as_ref()))
}

/// Returns the store's time.
async fn now(db: &mut ReadOnly) -> Result<Timestamp, DbError> {
    schema::now(db).await
}

async fn leases(db: &mut ReadOnly, upkeep: &UpkeepIntervals) -> Result<Check, DbError> {
    let now = now(db).await?;
    let before = telling::long_ago(now, upkeep.sweep_interval);
    Ok(telling::leases(waiting(db, NOT_SWEPT, &[SqlValue::Int(Some(before.as_millis()))]).await?, now))
}

async fn expiry(db: &mut ReadOnly, upkeep: &UpkeepIntervals) -> Result<Check, DbError> {
    let now = now(db).await?;
    let before = telling::long_ago(now, upkeep.reap_interval);
    Ok(telling::expiry(waiting(db, NOT_REAPED, &[SqlValue::Int(Some(before.as_millis()))]).await?, now))
}

async fn waiting(
    db: &mut ReadOnly,
    sql: &'static str,
    values: &[SqlValue<'_>],
) -> Result<WaitingRecords, DbError> {
    let rows = db.query(sql, values).await?;
    let int = |column| rows.first().and_then(|row| row.int(column));
    let count = int(0).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    Ok(WaitingRecords { count, since: int(1).map(Timestamp::from_millis) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn the_time_that_asking_takes_is_no_skew() {
        let at = Timestamp::from_millis;
        assert_eq!(skew(at(0), at(50_000), at(100_000)).health, Health::Ok);
        assert_eq!(skew(at(10_000), at(8_500), at(10_100)).health, Health::Ok);
        assert_eq!(
            skew(at(10_000), at(5_000), at(10_100)).found,
            "the database's is 5 s behind this machine's"
        );
        assert_eq!(
            skew(at(0), at(70_000), at(1000)).found,
            "the database's is 1 min 9 s ahead of this machine's"
        );
    }
}
