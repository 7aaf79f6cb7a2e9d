//! The tables, and the migration of a file of any released version to this one. Forward only.
//!
//! The tables carry a prefix and a version of their own, so that they can live in a service's own database.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use semel_faults::{Point, reached_by_thread};

use super::Trouble;
use crate::store_schema::{Migration, SchemaAge, StoreSchema};
use semel_core::Formats;
use semel_core::identity::StoreId;

/// One script for each released version, each from the version before it. Never edit a released one.
///
/// A script only adds: programs from its `readable_from` on must be able to read and write the result, and the version before it
/// is one of them. A column is added with a constant default or NULL. A part that no program reads any more is removed one version
/// later, by a script that is readable from the version on that does without it.
const MIGRATIONS: [Migration; 1] = [Migration { script: VERSION_1, readable_from: 1 }];

/// Schema version that a release reads and writes.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

// A format has its version by the schema's.
const _: () = assert!(SCHEMA_VERSION == Formats::CURRENT.version());

const VERSION_1: &str = "
CREATE TABLE semel_store (
    id              BLOB    NOT NULL,           -- drawn here and never again: tells this store from any other
    skipped_ms      INTEGER NOT NULL DEFAULT 0, -- how far the machine's clock jumped forward: this much does not count
    clock           TEXT,                       -- the boot of the machine whose clock was last seen
    clock_offset_ms INTEGER,                    -- how far that clock was ahead of the time since that boot
    generation      INTEGER NOT NULL DEFAULT 0  -- rises when a fence is lifted: what was lost before is accepted
) STRICT;
INSERT INTO semel_store (id) VALUES (randomblob(16));

CREATE TABLE semel_records (
    id                   BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the scope: unique for each, and no key in a dump
    operation_id         BLOB    NOT NULL UNIQUE,      -- what clients and operators call it
    tenant               TEXT    NOT NULL,             -- the scope in plain, for operators
    caller               TEXT    NOT NULL,
    operation            TEXT    NOT NULL,
    key_hash_prefix      TEXT    NOT NULL,             -- finds the record of a log line
    fingerprint_version  INTEGER NOT NULL,             -- a fingerprint is compared in its own version
    fingerprint          BLOB    NOT NULL,
    state                TEXT    NOT NULL,
    reason               TEXT    NOT NULL,             -- why it is in that state
    epoch                INTEGER NOT NULL,             -- fences late writes, together with the token
    token                BLOB    NOT NULL,             -- kept after completion, to recognise a write sent twice
    lease_ms             INTEGER NOT NULL,             -- the terms it was claimed under
    ttl_ms               INTEGER NOT NULL,
    tombstone_ttl_ms     INTEGER,                      -- NULL: forgotten at once
    on_lease_expired     TEXT    NOT NULL,
    quarantine_ms        INTEGER NOT NULL,
    keep_request         INTEGER NOT NULL DEFAULT 0,   -- 1: its request is kept until its outcome is known
    due_at               INTEGER,                      -- claimed: to be started by; processing: the lease's end
    start_by             INTEGER,                      -- processing: until when a worker may start it again
    ready_at             INTEGER,                      -- claimed: from when on a worker may start it
    expires_at           INTEGER,                      -- settled: may be forgotten from then on
    settled_by           TEXT,                         -- succeeded, failed_final: executor or verdict
    state_since          INTEGER NOT NULL,             -- since when it is in that state
    reconcile_after      INTEGER,                      -- unknown: when it is looked up next
    attempts             INTEGER,
    quarantine_until     INTEGER,
    earlier_may_have_run INTEGER NOT NULL DEFAULT 0,   -- 1: an attempt before the last one may have had an effect
    partly_done          INTEGER NOT NULL DEFAULT 0,   -- 1: it is continued or settled, never taken back
    created_at           INTEGER NOT NULL,             -- milliseconds since 1970, by this database's clock, as all
    updated_at           INTEGER NOT NULL,
    history              TEXT    NOT NULL,             -- its steps, one a line, for people
    trace                TEXT,                         -- traceparent of the request that claimed it first
    status               INTEGER,                      -- of the stored response, readable without a key
    resource             TEXT,                         -- what the command made
    response_format      INTEGER,
    encryption_key_id    TEXT,
    response             BLOB                          -- last, so that no other column lies behind its pages
) STRICT;
CREATE INDEX semel_records_due ON semel_records (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX semel_records_turn ON semel_records (tenant, ready_at, id) WHERE ready_at IS NOT NULL;
CREATE INDEX semel_records_expiry ON semel_records (expires_at, id) WHERE expires_at IS NOT NULL;
CREATE INDEX semel_records_reconcile ON semel_records (reconcile_after) WHERE reconcile_after IS NOT NULL;
CREATE INDEX semel_records_unknown ON semel_records (operation_id) WHERE reconcile_after IS NOT NULL;

CREATE TABLE semel_references (
    tenant       TEXT NOT NULL,
    operation    TEXT NOT NULL,
    reference    TEXT NOT NULL,
    operation_id BLOB NOT NULL, -- the command that holds it, which its record's end does not change
    caller       TEXT NOT NULL, -- who may be told
    taken_at     INTEGER NOT NULL,
    given_back   INTEGER NOT NULL DEFAULT 0, -- free for others; remembered while its record is
    PRIMARY KEY (tenant, operation, reference, operation_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX semel_references_held ON semel_references (tenant, operation, reference) WHERE given_back = 0;
CREATE INDEX semel_references_holder ON semel_references (operation_id);

CREATE TABLE semel_requests (
    operation_id      BLOB    NOT NULL PRIMARY KEY, -- the command, while a worker may start it or its outcome is not known
    format            INTEGER NOT NULL,
    encryption_key_id TEXT,
    kept_at           INTEGER NOT NULL,
    request           BLOB    NOT NULL
) STRICT;

CREATE TABLE semel_phases (
    operation_id BLOB    NOT NULL,          -- the command
    position     INTEGER NOT NULL,          -- its place among the steps of its command
    name         TEXT    NOT NULL,          -- a phase's name, or an item's clientItemId
    kind         TEXT    NOT NULL,          -- local, external or item
    deduplicated INTEGER NOT NULL DEFAULT 0,-- external: whether it may be called again
    output       BLOB,                      -- what it came to; external: NULL while unknown
    item_id      BLOB,                      -- item: the id of its own record
    began_at     INTEGER NOT NULL,
    done_at      INTEGER,
    PRIMARY KEY (operation_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_outbox (
    event_id           TEXT    NOT NULL PRIMARY KEY, -- operationId:kind, what the receiver may deduplicate on
    operation_id       BLOB    NOT NULL,             -- the command that sends it
    position           INTEGER NOT NULL,             -- its place among the messages of its command
    kind               TEXT    NOT NULL,
    payload            BLOB    NOT NULL,
    state              TEXT    NOT NULL,             -- pending, delivered or dead
    created_at         INTEGER NOT NULL,
    due_at             INTEGER NOT NULL DEFAULT 0,   -- pending: when it is tried next; while a worker has it, when its
                                                     -- lease ends
    attempts           INTEGER NOT NULL DEFAULT 0,   -- how often it was taken: bounded, also for one that kills its
                                                     -- workers
    epoch              INTEGER NOT NULL DEFAULT 0,   -- rises when it is taken: fences late writes
    token              BLOB,                         -- who has it, or had it last; NULL: it waits
    provider_reference TEXT,                         -- what the receiver calls it: not sent again once it is here
    last_error         TEXT,                         -- what the last try that failed came to
    done_at            INTEGER,                      -- delivered or dead: since when
    blocked            INTEGER NOT NULL DEFAULT 0    -- 1: an earlier one of its command is not delivered; 0: a take
                                                     -- looks, and marks it if so
) STRICT;
CREATE UNIQUE INDEX semel_outbox_order ON semel_outbox (operation_id, position);
CREATE INDEX semel_outbox_due ON semel_outbox (due_at, event_id) WHERE state = 'pending' AND blocked = 0;
CREATE INDEX semel_outbox_blocked ON semel_outbox (event_id) WHERE state = 'pending' AND blocked = 1;
CREATE INDEX semel_outbox_done ON semel_outbox (done_at, event_id) WHERE state = 'delivered';
CREATE INDEX semel_outbox_dead ON semel_outbox (event_id) WHERE state = 'dead';

CREATE TABLE semel_evidence (
    source            TEXT    NOT NULL,     -- who said so
    event_id          TEXT    NOT NULL,     -- by which name, so that it is heard once
    operation_id      BLOB    NOT NULL,     -- the command it is about
    attempt           INTEGER,              -- the attempt of it; NULL: it names none
    content           BLOB    NOT NULL,     -- digest of what it says: tells it from another one of its name
    verdict           TEXT    NOT NULL,     -- succeeded, failed_final or not_executed
    proof             TEXT,                 -- not_executed: why no call can still land
    why               TEXT    NOT NULL,     -- what was seen, for people
    received_at       INTEGER NOT NULL,
    done_at           INTEGER,              -- when it was used, or turned out not to be needed
    outcome           TEXT,                 -- which of these
    status            INTEGER,              -- the response that retries get, as in semel_records
    resource          TEXT,
    response_format   INTEGER,
    encryption_key_id TEXT,
    response          BLOB,
    PRIMARY KEY (source, event_id)
) STRICT;
CREATE INDEX semel_evidence_open ON semel_evidence (operation_id) WHERE done_at IS NULL;
CREATE INDEX semel_evidence_age ON semel_evidence (received_at);

CREATE TABLE semel_usage (
    tenant            TEXT    NOT NULL,
    caller            TEXT    NOT NULL,           -- empty: the tenant with all its callers
    new_keys          INTEGER NOT NULL,           -- ever, as far as it is remembered
    lookups           INTEGER NOT NULL,
    used_at           INTEGER NOT NULL,           -- when that last changed
    new_keys_whole_at INTEGER NOT NULL DEFAULT 0, -- when the quota is whole again, unless more of it is used
    lookups_whole_at  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, caller)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_audit (
    id           INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, -- a gap would show
    at           INTEGER NOT NULL,
    operation_id BLOB,                                       -- the command, or NULL: it is about the store
    who          TEXT    NOT NULL,
    action       TEXT    NOT NULL,
    why          TEXT    NOT NULL
) STRICT;
CREATE INDEX semel_audit_operation ON semel_audit (operation_id, id);
CREATE TRIGGER semel_audit_is_not_rewritten BEFORE UPDATE ON semel_audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER semel_audit_is_not_shortened BEFORE DELETE ON semel_audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TABLE semel_holds (
    kind  TEXT    NOT NULL,                  -- operation, tenant, sink, reconciler, store or a choice under its fence
    name  TEXT    NOT NULL,                  -- which one; empty where there is only one
    since INTEGER NOT NULL,
    who   TEXT    NOT NULL,
    why   TEXT    NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_witnesses (
    id      BLOB    NOT NULL PRIMARY KEY,    -- of a process or a file outside that remembers its beat
    beat    INTEGER NOT NULL,                -- rises all the time: a lower one than remembered shows that writes were lost
    seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_api_keys (
    id         TEXT    NOT NULL PRIMARY KEY, -- what an operator calls it
    tenant     TEXT    NOT NULL,
    caller     TEXT    NOT NULL,
    mac        BLOB    NOT NULL UNIQUE,      -- HMAC of the key, which is not kept
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT;
CREATE TABLE semel_secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL                      -- the HMAC key, drawn once
) STRICT;
";

/// The version after the last one, in tests only: they migrate a store from one version to the next with it.
const NEXT_VERSION: &str = "
CREATE TABLE semel_next (operation_id BLOB NOT NULL PRIMARY KEY) STRICT;
ALTER TABLE semel_records ADD COLUMN next INTEGER NOT NULL DEFAULT 0;
";

/// The scripts up to the next version.
const WITH_NEXT: [Migration; 2] = [MIGRATIONS[0], Migration { script: NEXT_VERSION, readable_from: 1 }];

/// Returns the migrations that this process knows: those of the releases, and one more if a test asks for it.
fn migrations() -> &'static [Migration] {
    if semel_faults::is_next_version() {
        return &WITH_NEXT;
    }
    &MIGRATIONS
}

/// Returns the version that this process reads and writes: [`SCHEMA_VERSION`], except in tests.
pub fn known_version() -> u32 {
    u32::try_from(migrations().len()).unwrap_or(u32::MAX)
}

/// Migrates the file to this version's schema; refuses one that this version cannot read. Safe if several processes open at once.
/// Returns the schema that the file has now.
pub(super) fn migrate(connection: &mut Connection) -> Result<StoreSchema, Trouble> {
    migrate_by(connection, migrations())
}

fn migrate_by(connection: &mut Connection, migrations: &[Migration]) -> Result<StoreSchema, Trouble> {
    let known = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    if let Some(found) = usable(found(connection)?, known)? {
        return Ok(found);
    }
    reached_by_thread(Point::MigrationSent);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS semel_schema (version INTEGER NOT NULL, readable_from INTEGER NOT NULL) STRICT",
    )?;
    let found = found(&transaction)?;
    if let Some(found) = usable(found, known)? {
        return Ok(found);
    }
    let after = found.after(migrations).map_err(|needed| Trouble::NotFinished { found, needed })?;
    for migration in &migrations[found.version as usize..] {
        transaction.execute_batch(migration.script)?;
    }
    transaction.execute("DELETE FROM semel_schema", [])?;
    let row = [after.version, after.readable_from];
    transaction.execute("INSERT INTO semel_schema (version, readable_from) VALUES (?1, ?2)", row)?;
    reached_by_thread(Point::MigrationWritten);
    transaction.commit()?;
    reached_by_thread(Point::MigrationCommitted);
    Ok(after)
}

/// Returns the schema if there is nothing to migrate; `None` if it is older.
fn usable(found: StoreSchema, known: u32) -> Result<Option<StoreSchema>, Trouble> {
    match found.age(known) {
        SchemaAge::Current | SchemaAge::Ahead => Ok(Some(found)),
        SchemaAge::Older => Ok(None),
        SchemaAge::Unreadable => Err(Trouble::NewerSchema(found)),
    }
}

/// Makes the file readable from this version on only. Refuses one of another version.
pub(super) fn finish(connection: &mut Connection) -> Result<StoreSchema, Trouble> {
    finish_by(connection, known_version())
}

fn finish_by(connection: &mut Connection, known: u32) -> Result<StoreSchema, Trouble> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = found(&transaction)?;
    if found.age(known) != SchemaAge::Current {
        return Err(Trouble::NotFinishable(found));
    }
    let finished = StoreSchema { readable_from: found.version, ..found };
    transaction.execute("UPDATE semel_schema SET readable_from = ?1", [finished.readable_from])?;
    transaction.commit()?;
    Ok(finished)
}

/// Returns the file's schema.
pub(super) fn found(connection: &Connection) -> rusqlite::Result<StoreSchema> {
    if version(connection)?.is_none() {
        return Ok(StoreSchema::NONE);
    }
    let sql = "SELECT max(version), max(readable_from) FROM semel_schema";
    connection.query_row(sql, [], |row| Ok(StoreSchema { version: row.get(0)?, readable_from: row.get(1)? }))
}

/// Returns the file's schema version; `None` if it has no schema yet.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    let exists = connection
        .query_row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'semel_schema'", [], |_| {
            Ok(())
        })
        .optional()?;
    match exists {
        Some(()) => connection.query_row("SELECT max(version) FROM semel_schema", [], |row| row.get(0)),
        None => Ok(None),
    }
}

/// Returns the store's id; `None` if it has none yet.
pub(super) fn store_id(connection: &Connection) -> Result<Option<StoreId>, Trouble> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'semel_store'";
    if connection.query_row(sql, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    let id = connection.query_row("SELECT id FROM semel_store", [], |row| row.get(0)).optional()?;
    let damaged = || Trouble::Damaged("semel_store has no id".to_owned());
    id.map(StoreId::from_bytes).ok_or_else(damaged).map(Some)
}

/// A table, column, index or trigger of ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SchemaPart {
    /// `table`, `column`, `index` or `trigger`.
    pub(super) kind: String,
    pub(super) name: String,
    /// For an index or a trigger: the statement that creates it, with single spaces.
    pub(super) sql: String,
}

/// Returns the parts that an unchanged file of this version has.
pub(super) fn expected_parts(version: u32) -> rusqlite::Result<Vec<SchemaPart>> {
    let connection = Connection::open_in_memory()?;
    for migration in migrations().iter().take(version as usize) {
        connection.execute_batch(migration.script)?;
    }
    parts(&connection)
}

/// Returns the existing parts. Parts that SQLite creates by itself for a constraint cannot be lost, and are
/// left out.
pub(super) fn parts(connection: &Connection) -> rusqlite::Result<Vec<SchemaPart>> {
    let sql = "
        SELECT type, name, CASE type WHEN 'table' THEN '' ELSE coalesce(sql, '') END FROM sqlite_schema
        WHERE name LIKE 'semel!_%' ESCAPE '!' AND name <> 'semel_schema'
        UNION ALL
        SELECT 'column', tables.name || '.' || columns.name, ''
        FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
        WHERE tables.type = 'table' AND tables.name LIKE 'semel!_%' ESCAPE '!' AND tables.name <> 'semel_schema'";
    let read = |row: &rusqlite::Row<'_>| {
        let sql: String = row.get(2)?;
        let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(SchemaPart { kind: row.get(0)?, name: row.get(1)?, sql })
    };
    connection.prepare(sql)?.query_map([], read)?.collect()
}

#[cfg(test)]
mod tests {
    use semel_core::{Event, Record, Timestamp, transition};

    use super::super::queries;
    use super::*;

    fn opened() -> Connection {
        Connection::open_in_memory().expect("memory can be opened")
    }

    #[test]
    fn a_file_of_every_version_comes_forward_and_keeps_its_rows() {
        let key = "INSERT INTO semel_secrets VALUES ('key', x'01')";
        for start in 0..=WITH_NEXT.len() {
            let mut connection = opened();
            if start > 0 {
                assert!(migrate_by(&mut connection, &WITH_NEXT[..start]).is_ok(), "it is new");
                connection.execute(key, []).expect("the table is there");
            }
            assert!(migrate_by(&mut connection, &WITH_NEXT).is_ok(), "from {start}");
            let schema = found(&connection).expect("it has a schema");
            assert_eq!(schema, StoreSchema { version: 2, readable_from: if start == 1 { 1 } else { 2 } });
            let parts = parts(&connection).expect("they can be read");
            assert!(parts.iter().any(|part| part.name == "semel_records.next"), "from {start}");
            let rows = connection.query_row("SELECT count(*) FROM semel_secrets", [], |row| row.get(0));
            assert_eq!(rows, Ok(i64::from(start > 0)), "from {start}");
            assert!(migrate_by(&mut connection, &WITH_NEXT).is_ok(), "a second time changes nothing");
        }
    }

    #[test]
    fn a_script_that_fails_leaves_the_version_before_it() {
        let mut connection = opened();
        assert!(migrate_by(&mut connection, &MIGRATIONS).is_ok(), "it is new");
        let before = parts(&connection).expect("they can be read");
        let broken =
            "CREATE TABLE semel_next (a INTEGER) STRICT; ALTER TABLE semel_nowhere ADD COLUMN next INTEGER;";
        let broken = [MIGRATIONS[0], Migration { script: broken, readable_from: 1 }];
        assert!(migrate_by(&mut connection, &broken).is_err(), "there is no such table");
        assert_eq!(version(&connection).expect("it has a version"), Some(1));
        assert_eq!(parts(&connection).expect("they can be read"), before);
    }

    #[test]
    fn schema_of_the_next_version_takes_writes_of_this_one() {
        let mut connection = opened();
        assert!(migrate_by(&mut connection, &WITH_NEXT).is_ok(), "it is new");
        let claim = semel_testkit::sample::claim("k");
        let now = Timestamp::from_millis(1);
        let step = transition(None, &Event::Claim(claim.attempt), now);
        let record = Record::after(None, step.write, Some(&claim), None, now);
        let record = record.expect("it is a first claim");
        assert_eq!(queries::insert(&connection, &record), Ok(true));
    }

    /// Migrates as the version before the next one does.
    fn migrate_as_before(connection: &mut Connection) -> Result<StoreSchema, Trouble> {
        migrate_by(connection, &MIGRATIONS)
    }

    #[test]
    fn a_program_goes_forward_and_back_until_the_upgrade_is_finished() {
        let mut connection = opened();
        let both = StoreSchema { version: 2, readable_from: 1 };
        assert_eq!(
            migrate_as_before(&mut connection).ok(),
            Some(StoreSchema { version: 1, readable_from: 1 }),
            "a new file is finished"
        );
        for round in 0..2 {
            assert_eq!(migrate_by(&mut connection, &WITH_NEXT).ok(), Some(both), "{round}");
            assert_eq!(migrate_as_before(&mut connection).ok(), Some(both), "{round}: going back");
        }
        let next = StoreSchema { version: 2, readable_from: 2 };
        for time in 0..2 {
            assert_eq!(finish_by(&mut connection, 2).ok(), Some(next), "{time}");
        }
        assert_eq!(migrate_by(&mut connection, &WITH_NEXT).ok(), Some(next));
        assert!(
            matches!(migrate_as_before(&mut connection), Err(Trouble::NewerSchema(found)) if found == next)
        );
    }

    #[test]
    fn only_a_program_of_the_version_of_the_file_finishes_it() {
        let mut connection = opened();
        assert!(matches!(finish_by(&mut connection, 1), Err(Trouble::NotFinishable(StoreSchema::NONE))));
        assert!(migrate_as_before(&mut connection).is_ok(), "it is new");
        let one = StoreSchema { version: 1, readable_from: 1 };
        assert!(matches!(finish_by(&mut connection, 2), Err(Trouble::NotFinishable(found)) if found == one));
        let both = migrate_by(&mut connection, &WITH_NEXT).ok();
        assert!(
            matches!(finish_by(&mut connection, 1), Err(Trouble::NotFinishable(found)) if Some(found) == both)
        );
        assert_eq!(found(&connection).ok(), both, "nothing was changed");
    }

    #[test]
    fn a_script_that_running_programs_could_not_live_with_is_not_run() {
        let mut connection = opened();
        let third = Migration { script: "ALTER TABLE semel_records DROP COLUMN next", readable_from: 2 };
        let three = [WITH_NEXT[0], WITH_NEXT[1], third];
        assert!(migrate_as_before(&mut connection).is_ok(), "it is new");
        for _ in 0..2 {
            let before = found(&connection).ok();
            let refused = migrate_by(&mut connection, &three);
            assert!(matches!(refused, Err(Trouble::NotFinished { needed: 2, .. })));
            assert_eq!(found(&connection).ok(), before, "nothing was changed");
            assert!(migrate_by(&mut connection, &WITH_NEXT).is_ok(), "the version in between does");
        }
        assert!(finish_by(&mut connection, 2).is_ok(), "it is of this version");
        let third = StoreSchema { version: 3, readable_from: 2 };
        assert_eq!(migrate_by(&mut connection, &three).ok(), Some(third));
    }

    #[test]
    fn a_newer_schema_is_refused_and_left_alone() {
        let mut connection = opened();
        assert!(migrate(&mut connection).is_ok(), "it is new");
        connection
            .execute("UPDATE semel_schema SET version = 99, readable_from = 98", [])
            .expect("the table is there");
        let expected = StoreSchema { version: 99, readable_from: 98 };
        assert!(matches!(migrate(&mut connection), Err(Trouble::NewerSchema(found)) if found == expected));
        assert_eq!(version(&connection).expect("it has a version"), Some(99));
    }

    #[test]
    fn a_file_has_the_parts_that_are_expected_of_it() {
        let mut connection = opened();
        assert!(migrate(&mut connection).is_ok(), "it is new");
        let found = parts(&connection).expect("they can be read");
        assert_eq!(found, expected_parts(SCHEMA_VERSION).expect("the scripts run"));
        for (kind, name) in [
            ("table", "semel_records"),
            ("column", "semel_records.due_at"),
            ("index", "semel_records_due"),
            ("trigger", "semel_audit_is_not_shortened"),
        ] {
            assert!(found.iter().any(|part| part.kind == kind && part.name == name), "{kind} {name}");
        }
        assert_eq!(expected_parts(0).expect("there is nothing to run"), []);
    }
}
