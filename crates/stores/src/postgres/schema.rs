//! The tables, and their migrations. Forward only; the names carry a prefix and a version of their own, so
//! that they can live in a service's own database.

use semel_core::{Formats, Timestamp};

use super::clock::steady;
use super::errors::DbError;
use super::executor::{Executor, SqlValue};
use crate::store_schema::{Migration, SchemaAge, StoreSchema};

/// One script for each released version, each from the version before it. Never edit a released one.
///
/// A script only adds: programs from its `readable_from` on must be able to read and write the result, and the version before it
/// is one of them. A column is added with a constant default or NULL, so that no row is rewritten. A part that no program reads
/// any more is removed one version later, by a script that is readable from the version on that does without it.
const MIGRATIONS: [Migration; 1] = [Migration { script: VERSION_1, readable_from: 1 }];

/// Schema version that a release reads and writes.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

// A format has its version by the schema's.
const _: () = assert!(SCHEMA_VERSION == Formats::CURRENT.version());

/// Uses only features that every relative of PostgreSQL has: no sequences, triggers, foreign keys or
/// functions on the path of a request.
const VERSION_1: &str = "
CREATE TABLE semel_store (
    id         uuid   NOT NULL PRIMARY KEY, -- drawn here and never again: tells this store from any other
    skipped_ms bigint NOT NULL DEFAULT 0,   -- how far the database's clock jumped forward: this much does not count
    generation bigint NOT NULL DEFAULT 0    -- rises when a fence is lifted: what was lost before is accepted
);
INSERT INTO semel_store (id) VALUES (gen_random_uuid());

CREATE TABLE semel_records (
    id                   bytea  NOT NULL PRIMARY KEY, -- SHA-256 of the scope: unique for each, spreads evenly over any
                                                      -- number of machines, and puts no key into a dump
    operation_id         uuid   NOT NULL,             -- what clients and operators call it
    tenant               text   NOT NULL,             -- the scope in plain, for operators
    caller               text   NOT NULL,
    operation            text   NOT NULL,
    key_hash_prefix      text   NOT NULL,             -- finds the record of a log line
    fingerprint_version  bigint NOT NULL,             -- a fingerprint is compared in its own version
    fingerprint          bytea  NOT NULL,
    state                text   NOT NULL,
    reason               text   NOT NULL,             -- why it is in that state
    epoch                bigint NOT NULL,             -- fences late writes, together with the token
    token                bytea  NOT NULL,             -- kept after completion, to recognise a write sent twice
    revision             bigint NOT NULL,             -- rises with every write: a write counts only on the row it read
    lease_ms             bigint NOT NULL,             -- the terms it was claimed under
    ttl_ms               bigint NOT NULL,
    tombstone_ttl_ms     bigint,                      -- NULL: forgotten at once
    on_lease_expired     text   NOT NULL,
    quarantine_ms        bigint NOT NULL,
    keep_request         bigint NOT NULL DEFAULT 0,   -- 1: its request is kept until its outcome is known
    due_at               bigint,                      -- claimed: to be started by; processing: the lease's end
    start_by             bigint,                      -- processing: until when a worker may start it again
    ready_at             bigint,                      -- claimed: from when on a worker may start it
    expires_at           bigint,                      -- settled: may be forgotten from then on
    settled_by           text,                        -- succeeded, failed_final: executor or verdict
    state_since          bigint NOT NULL,             -- since when it is in that state
    reconcile_after      bigint,                      -- unknown: when it is looked up next
    attempts             bigint,
    quarantine_until     bigint,
    earlier_may_have_run bigint NOT NULL DEFAULT 0,   -- 1: an attempt before the last one may have had an effect
    partly_done          bigint NOT NULL DEFAULT 0,   -- 1: it is continued or settled, never taken back
    created_at           bigint NOT NULL,             -- milliseconds since 1970, by this database's clock, as all
    updated_at           bigint NOT NULL,
    history              text   NOT NULL,             -- its steps, one a line, for people
    trace                text,                        -- traceparent of the request that claimed it first
    status               bigint,                      -- of the stored response, readable without a key
    resource             text,                        -- what the command made
    response_format      bigint,
    encryption_key_id    text,
    response             bytea
);
CREATE UNIQUE INDEX semel_records_operation_id ON semel_records (operation_id);
CREATE INDEX semel_records_due ON semel_records (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX semel_records_turn ON semel_records (tenant, ready_at, id) WHERE ready_at IS NOT NULL;
CREATE INDEX semel_records_expiry ON semel_records (expires_at, id) WHERE expires_at IS NOT NULL;
CREATE INDEX semel_records_reconcile ON semel_records (reconcile_after, id) WHERE reconcile_after IS NOT NULL;
CREATE INDEX semel_records_unknown ON semel_records (operation_id) WHERE reconcile_after IS NOT NULL;

CREATE TABLE semel_references (
    tenant       text    NOT NULL,
    operation    text    NOT NULL,
    reference    text    NOT NULL,
    operation_id uuid    NOT NULL,               -- the command that holds it, which its record's end does not change
    caller       text    NOT NULL,               -- who may be told
    taken_at     bigint  NOT NULL,
    given_back   boolean NOT NULL DEFAULT false, -- free for others; remembered while its record is
    PRIMARY KEY (tenant, operation, reference, operation_id)
);
CREATE UNIQUE INDEX semel_references_held ON semel_references (tenant, operation, reference) WHERE NOT given_back;
CREATE INDEX semel_references_holder ON semel_references (operation_id);

CREATE TABLE semel_requests (
    operation_id      uuid   NOT NULL PRIMARY KEY, -- the command, while a worker may start it or its outcome is not known
    format            bigint NOT NULL,
    encryption_key_id text,
    kept_at           bigint NOT NULL,
    request           bytea  NOT NULL
);

CREATE TABLE semel_phases (
    operation_id uuid   NOT NULL,           -- the command
    position     bigint NOT NULL,           -- its place among the steps of its command
    name         text   NOT NULL,           -- a phase's name, or an item's clientItemId
    kind         text   NOT NULL,           -- local, external or item
    deduplicated bigint NOT NULL DEFAULT 0, -- external: 1 if it may be called again
    output       bytea,                     -- what it came to; external: NULL while unknown
    item_id      bytea,                     -- item: the id of its own record
    began_at     bigint NOT NULL,
    done_at      bigint,
    PRIMARY KEY (operation_id, name)
);

CREATE TABLE semel_outbox (
    event_id           text   NOT NULL PRIMARY KEY, -- operationId:kind, what the receiver may deduplicate on
    operation_id       uuid   NOT NULL,             -- the command that sends it
    position           bigint NOT NULL,             -- its place among the messages of its command
    kind               text   NOT NULL,
    payload            bytea  NOT NULL,
    state              text   NOT NULL,             -- pending, delivered or dead
    created_at         bigint NOT NULL,
    due_at             bigint NOT NULL DEFAULT 0,   -- pending: when it is tried next; while a worker has it, when that
                                                    -- worker's lease ends
    attempts           bigint NOT NULL DEFAULT 0,   -- how often it was taken: bounded, also for one that kills its
                                                    -- workers
    epoch              bigint NOT NULL DEFAULT 0,   -- rises when it is taken: fences late writes, with the token
    token              bytea,                       -- who has it, or had it last; NULL: it waits
    provider_reference text,                        -- what the receiver calls it: not sent again once it is here
    last_error         text,                        -- what the last try that failed came to, for people
    done_at            bigint,                      -- delivered or dead: since when
    blocked            bigint NOT NULL DEFAULT 0,   -- 1: the one before it is not delivered, and holds it; 0: a take
                                                    -- looks, and marks it if so
    holds              bigint NOT NULL DEFAULT 0    -- 1: the one behind it may be blocked, and is freed with its end
);
CREATE UNIQUE INDEX semel_outbox_order ON semel_outbox (operation_id, position);
CREATE INDEX semel_outbox_due ON semel_outbox (due_at, event_id) WHERE state = 'pending' AND blocked = 0;
CREATE INDEX semel_outbox_blocked ON semel_outbox (event_id) WHERE state = 'pending' AND blocked = 1;
CREATE INDEX semel_outbox_done ON semel_outbox (done_at, event_id) WHERE state = 'delivered';
CREATE INDEX semel_outbox_dead ON semel_outbox (event_id) WHERE state = 'dead';

CREATE TABLE semel_evidence (
    source            text   NOT NULL,      -- who said so
    event_id          text   NOT NULL,      -- by which name, so that it is heard once
    operation_id      uuid   NOT NULL,      -- the command it is about
    attempt           bigint,               -- the attempt of it; NULL: it names none
    content           bytea  NOT NULL,      -- digest of what it says: tells it from another one of its name
    verdict           text   NOT NULL,      -- succeeded, failed_final or not_executed
    proof             text,                 -- not_executed: why no call can still land
    why               text   NOT NULL,      -- what was seen, for people
    received_at       bigint NOT NULL,
    done_at           bigint,               -- when it was used, or turned out not to be needed
    outcome           text,                 -- which of these
    status            bigint,               -- the response that retries get, as in semel_records
    resource          text,
    response_format   bigint,
    encryption_key_id text,
    response          bytea,
    PRIMARY KEY (source, event_id)
);
CREATE INDEX semel_evidence_open ON semel_evidence (operation_id) WHERE done_at IS NULL;
CREATE INDEX semel_evidence_age ON semel_evidence (received_at);

CREATE TABLE semel_usage (
    tenant            text   NOT NULL,
    caller            text   NOT NULL,           -- empty: the tenant with all its callers
    new_keys          bigint NOT NULL,           -- ever, as far as it is remembered
    lookups           bigint NOT NULL,
    used_at           bigint NOT NULL,           -- when that last changed
    new_keys_whole_at bigint NOT NULL DEFAULT 0, -- when the quota is whole again, unless more of it is used
    lookups_whole_at  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, caller)
);

CREATE TABLE semel_audit (
    id           uuid   NOT NULL PRIMARY KEY,    -- in the order of time
    at           bigint NOT NULL,
    operation_id uuid,                           -- the command, or NULL: it is about the store
    who          text   NOT NULL,
    action       text   NOT NULL,
    why          text   NOT NULL
);
CREATE INDEX semel_audit_operation ON semel_audit (operation_id, id);

-- The audit log is append-only. Rules of the database and not of a role, so that they hold for everybody.
CREATE FUNCTION semel_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;
CREATE TRIGGER semel_audit_is_not_rewritten BEFORE UPDATE OR DELETE OR TRUNCATE ON semel_audit
    FOR EACH STATEMENT EXECUTE FUNCTION semel_audit_is_append_only();

CREATE TABLE semel_holds (
    kind  text   NOT NULL,                       -- operation, tenant, sink, reconciler, store or a choice under its fence
    name  text   NOT NULL,                       -- which one; empty where there is only one
    since bigint NOT NULL,
    who   text   NOT NULL,
    why   text   NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE semel_witnesses (
    id      uuid   NOT NULL PRIMARY KEY,         -- of a process or a file outside that remembers its beat
    beat    bigint NOT NULL,                     -- rises all the time: a lower one than remembered shows that writes were lost
    seen_at bigint NOT NULL
);

CREATE TABLE semel_api_keys (
    id         text   NOT NULL PRIMARY KEY,      -- what an operator calls it
    tenant     text   NOT NULL,
    caller     text   NOT NULL,
    mac        bytea  NOT NULL UNIQUE,           -- HMAC of the key, which is not kept
    created_at bigint NOT NULL,
    revoked_at bigint
);
CREATE TABLE semel_secrets (
    name  text  NOT NULL PRIMARY KEY,
    value bytea NOT NULL                         -- the HMAC key, drawn once
);
";

/// The version after the last one, in tests only: they migrate a database from one version to the next with
/// it.
const NEXT_VERSION: &str = "
CREATE TABLE semel_next (operation_id uuid NOT NULL PRIMARY KEY);
ALTER TABLE semel_records ADD COLUMN next bigint NOT NULL DEFAULT 0;
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

/// Returns the names of the tables, indexes and triggers of this version.
pub(super) fn names(version: u32) -> Vec<&'static str> {
    const MADE_BY: [&str; 4] = ["CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX ", "CREATE TRIGGER "];
    let migrations = migrations().iter().take(version as usize);
    let mut names = Vec::new();
    for line in migrations.flat_map(|migration| migration.script.lines()) {
        if let Some(dropped) = line.strip_prefix("DROP INDEX ") {
            names.retain(|name| *name != dropped.trim_end_matches(';'));
        }
        let made = MADE_BY.iter().find_map(|statement| line.strip_prefix(statement));
        names.extend(made.and_then(|rest| rest.split(' ').next()));
    }
    names
}

/// Reason why the schema of a database is not changed.
#[derive(Debug)]
pub(super) enum SchemaRefusal {
    /// This version cannot read the schema.
    Unreadable(StoreSchema),
    /// Programs that may open the database could not read the schema of this version, which is readable from version `needed` on.
    NotFinished { found: StoreSchema, needed: u32 },
    /// The schema is of another version than the program that is to finish the upgrade.
    NotFinishable(StoreSchema),
    /// The database refuses, or is away.
    Failed(DbError),
}

impl From<DbError> for SchemaRefusal {
    fn from(error: DbError) -> SchemaRefusal {
        SchemaRefusal::Failed(error)
    }
}

/// Returns the schema that the database has. Reads only.
pub(super) async fn found(db: &mut impl Executor) -> Result<StoreSchema, DbError> {
    let exists = db.query("SELECT (to_regclass('semel_schema') IS NOT NULL)::int::bigint", &[]).await?;
    if exists.first().and_then(|row| row.int(0)) != Some(1) {
        return Ok(StoreSchema::NONE);
    }
    let rows = db.query("SELECT max(version), max(readable_from) FROM semel_schema", &[]).await?;
    let number = |column| rows.first().and_then(|row| row.int(column)).unwrap_or(0);
    let number = |column| u32::try_from(number(column)).unwrap_or(u32::MAX);
    Ok(StoreSchema { version: number(0), readable_from: number(1) })
}

/// Migrates the database to this version's schema in one transaction. Safe if several processes start at
/// once. Waits for no lock longer than a few seconds, since later statements would queue behind it. Returns the schema that the
/// database has now.
pub(super) async fn migrate(db: &mut impl Executor) -> Result<StoreSchema, SchemaRefusal> {
    let found = found(db).await?;
    match found.age(known_version()) {
        SchemaAge::Current | SchemaAge::Ahead => return Ok(found),
        SchemaAge::Unreadable => return Err(SchemaRefusal::Unreadable(found)),
        SchemaAge::Older => {}
    }
    begin(db).await?;
    let migrated = migrate_within(db).await;
    end(db, migrated).await
}

async fn migrate_within(db: &mut impl Executor) -> Result<StoreSchema, SchemaRefusal> {
    lock(db).await?;
    db.run(
        "CREATE TABLE IF NOT EXISTS semel_schema (version bigint NOT NULL, readable_from bigint NOT NULL)",
    )
    .await?;
    let found = found(db).await?;
    match found.age(known_version()) {
        SchemaAge::Current | SchemaAge::Ahead => return Ok(found),
        SchemaAge::Unreadable => return Err(SchemaRefusal::Unreadable(found)),
        SchemaAge::Older => {}
    }
    let after = found.after(migrations()).map_err(|needed| SchemaRefusal::NotFinished { found, needed })?;
    for migration in &migrations()[found.version as usize..] {
        db.run(migration.script).await?;
    }
    db.run("DELETE FROM semel_schema").await?;
    let row = [after.version, after.readable_from].map(|number| SqlValue::Int(Some(number.into())));
    db.query("INSERT INTO semel_schema (version, readable_from) VALUES ($1, $2)", &row).await?;
    Ok(after)
}

/// Makes the database readable from this version on only. Refuses one of another version.
pub(super) async fn finish(db: &mut impl Executor) -> Result<StoreSchema, SchemaRefusal> {
    begin(db).await?;
    let finished = finish_within(db).await;
    end(db, finished).await
}

async fn finish_within(db: &mut impl Executor) -> Result<StoreSchema, SchemaRefusal> {
    lock(db).await?;
    let found = found(db).await?;
    if found.age(known_version()) != SchemaAge::Current {
        return Err(SchemaRefusal::NotFinishable(found));
    }
    db.run("UPDATE semel_schema SET readable_from = version").await?;
    Ok(StoreSchema { readable_from: found.version, ..found })
}

/// Begins a change of the schema. A process that waited for its turn has to see the changes of the one before it, whatever the
/// database's default isolation is.
async fn begin(db: &mut impl Executor) -> Result<(), DbError> {
    db.run(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'; \
         SET LOCAL client_min_messages = 'warning'",
    )
    .await
}

/// Waits for other changes of the schema: two that create the same table would fail each other.
async fn lock(db: &mut impl Executor) -> Result<(), DbError> {
    db.query("SELECT 1::bigint FROM (SELECT pg_advisory_xact_lock(7310579690142)) AS locked", &[])
        .await
        .map(drop)
}

/// Ends a change of the schema.
async fn end<T>(db: &mut impl Executor, changed: Result<T, SchemaRefusal>) -> Result<T, SchemaRefusal> {
    match &changed {
        Ok(_) => db.run("COMMIT").await?,
        Err(_) => {
            let _ = db.run("ROLLBACK").await;
        }
    }
    changed
}

/// Returns the database's clock.
pub(super) async fn clock(db: &mut impl Executor) -> Result<Timestamp, DbError> {
    time(db, "SELECT (extract(epoch FROM now()) * 1000)::bigint").await
}

/// Returns the store's time, which decides.
pub(super) async fn now(db: &mut impl Executor) -> Result<Timestamp, DbError> {
    time(db, concat!("SELECT ", steady!())).await
}

async fn time(db: &mut impl Executor, sql: &'static str) -> Result<Timestamp, DbError> {
    let rows = db.query(sql, &[]).await?;
    let now = rows.first().and_then(|row| row.int(0));
    now.map(Timestamp::from_millis).ok_or_else(|| DbError::unreadable("now", "there is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_schema_has_its_name() {
        let names = names(SCHEMA_VERSION);
        for name in [
            "semel_records",
            "semel_records_operation_id",
            "semel_records_due",
            "semel_audit_is_not_rewritten",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(names.iter().all(|name| name.starts_with("semel_")), "{names:?}");
        assert!(super::names(0).is_empty());
    }
}
