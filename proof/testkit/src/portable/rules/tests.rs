//! Statements within the subset, and one for each departure from it.

use super::*;

fn names() -> Names {
    let columns = ["id", "token", "revision", "epoch", "state", "due_at", "tenant", "operation_id"];
    Names::of(
        columns.map(|column| ("semel_records", column)).into_iter().chain([("semel_outbox", "event_id")]),
    )
}

fn departures(sql: &str) -> Vec<String> {
    outside(sql, &names()).into_iter().collect()
}

#[test]
fn the_subset_itself_has_no_departures() {
    for sql in [
        "INSERT INTO semel_records (id, tenant) SELECT $2, $3 FROM (SELECT now() AS now) AS n ON CONFLICT DO NOTHING \
         RETURNING due_at",
        "SELECT n.now, id FROM (SELECT (extract(epoch FROM now()) * 1000)::bigint + $1 AS now) AS n \
         LEFT JOIN semel_records ON id = $2",
        "UPDATE semel_records SET state = $4, revision = revision + 1 WHERE id = $1 AND token = $2 AND revision = $3",
        "DELETE FROM semel_records WHERE id = $1 AND token = $2 AND epoch = $3",
        "DELETE FROM semel_outbox WHERE event_id = $1",
        "BEGIN ISOLATION LEVEL READ COMMITTED; COMMIT",
        "CREATE TABLE semel_new (id bytea NOT NULL PRIMARY KEY, at bigint NOT NULL DEFAULT 0)",
    ] {
        assert!(departures(sql).is_empty(), "{sql}: {:?}", departures(sql));
    }
}

#[test]
fn every_departure_is_named() {
    for (sql, departure) in [
        ("INSERT INTO semel_records (id) VALUES ($1) ON CONFLICT (id) DO NOTHING", "conflict target"),
        (
            "INSERT INTO semel_records (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET id = $1",
            "conflict update",
        ),
        ("SELECT pg_advisory_lock(1)", "function pg_advisory_lock"),
        ("SELECT nextval('s')", "function nextval"),
        ("SELECT id FROM semel_records WHERE ctid = $1", "word ctid"),
        ("SELECT id FROM semel_records WHERE id = ANY($1)", "array"),
        ("SELECT i FROM unnest($1::bytea[]) AS i", "array"),
        ("SELECT id FROM semel_records FOR UPDATE OF semel_records SKIP LOCKED", "skip locked"),
        ("SELECT id FROM semel_records FOR UPDATE", "row lock"),
        ("UPDATE semel_records SET state = $2 WHERE id = $1", "unguarded update"),
        (
            "UPDATE semel_records SET state = $2 WHERE id = $1 AND token = token AND (revision = $3)",
            "unguarded update",
        ),
        ("UPDATE semel_outbox SET event_id = $1", "unbounded update"),
        ("DELETE FROM semel_records WHERE due_at < $1", "unbounded delete"),
        ("WITH a AS (DELETE FROM semel_records WHERE id = $1) SELECT 1", "unguarded delete"),
        ("UPDATE semel_records SET due_at = clock_timestamp() WHERE id = $1", "clock_timestamp in an update"),
        (
            "UPDATE semel_outbox SET event_id = i.id FROM (SELECT $1 AS id) AS i WHERE event_id = i.id",
            "update from",
        ),
        ("DELETE FROM semel_outbox USING old WHERE event_id = $1", "delete using"),
        ("SELECT id::jsonb FROM semel_records", "type jsonb"),
        ("SELECT id FROM pg_class", "word pg_class"),
        ("SELECT id FROM semel_records TABLESAMPLE bernoulli (1)", "word tablesample"),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM semel_records", "over"),
        ("LISTEN semel", "statement listen"),
        ("SET LOCAL lock_timeout = '5s'", "statement set"),
        ("BEGIN; NOTIFY semel", "statement notify"),
        ("BEGIN READ ONLY", "statement begin"),
        ("TRUNCATE semel_records", "statement truncate"),
        ("CREATE TRIGGER t BEFORE UPDATE ON semel_records", "statement create trigger"),
        ("CREATE SEQUENCE s", "statement create sequence"),
        ("CREATE UNIQUE INDEX u ON semel_records (operation_id)", "second unique index"),
        ("CREATE INDEX CONCURRENTLY u ON semel_records (tenant)", "concurrently"),
        ("CREATE TABLE t (id bigserial PRIMARY KEY)", "word bigserial in a table"),
        ("CREATE TABLE t (id bytea PRIMARY KEY REFERENCES semel_records)", "word references in a table"),
        ("WITH RECURSIVE own(a) AS (SELECT 1) SELECT a FROM own", "recursive"),
    ] {
        assert!(departures(sql).iter().any(|found| found == departure), "{sql}: {:?}", departures(sql));
    }
}
