//! Statements of the store that depart from the portable subset, each with its reason. Those with `ANYTHING` are sent at
//! the start, by sweeps in the background, or for operators; the others belong to requests and workers.

use semel_testkit::portable::{ANYTHING, Exception};

/// Departures of a statement for many rows, whose parameters are arrays.
const GROUP: &[&str] = &["array", "function unnest"];
/// Reason for groups of records.
const GROUPED: &str = "an optimisation: `groups=false` sends one statement for each record instead";
/// Reason for deletes beside a record.
const BESIDE: &str = "the same statement serves single commands and groups; it needs an engine with arrays";
/// Reason for locks of a background task.
const SKIPS: &str = "the guarded write decides; the lock only keeps two processes from the same work";
/// Reason for `ANYTHING`.
const START: &str =
    "sent when a connection or a store is opened; what the server refuses there is tolerated or told";
/// Reason for `ANYTHING`.
const SCHEMA: &str = "part of a migration, which runs once";
/// Reason for `ANYTHING`.
const OPERATOR: &str = "answers an operator, or a metric";

const fn group(statement: &'static str, departures: &'static [&'static str]) -> Exception {
    Exception { statement, departures, reason: GROUPED }
}

const fn beside(statement: &'static str, departures: &'static [&'static str]) -> Exception {
    Exception { statement, departures, reason: BESIDE }
}

const fn background(statement: &'static str, departures: &'static [&'static str]) -> Exception {
    Exception { statement, departures, reason: SKIPS }
}

const fn anything(statement: &'static str, reason: &'static str) -> Exception {
    Exception { statement, departures: ANYTHING, reason }
}

pub(super) const EXCEPTIONS: &[Exception] = &[
    // Groups of records.
    group("SELECT i.id, i.operation_id, i.tenant", &["array", "function unnest", "type uuid"]),
    group("LEFT JOIN semel_records ON id = ANY($2)", &["array"]),
    group(
        "UPDATE semel_records AS r SET operation_id",
        &["array", "function unnest", "type uuid", "update from"],
    ),
    group("UPDATE semel_records AS r SET state = i.state", &["array", "function unnest", "update from"]),
    group("DELETE FROM semel_records AS r USING", &["array", "function unnest", "delete using"]),
    // Beside a record.
    Exception {
        statement: "UPDATE semel_records SET revision = revision + 1 WHERE id = $1 AND token = $2 RETURNING",
        departures: &["unguarded update"],
        reason: "confirms a write whose answer was lost: it changes nothing that the token does not own",
    },
    Exception {
        statement: "INTO semel_requests",
        departures: &["conflict target", "conflict update"],
        reason: "a new attempt brings its own request; `postgres_fdw` would refuse it, the relatives know it",
    },
    beside("DELETE FROM semel_requests WHERE operation_id = ANY($1)", &["array"]),
    beside("DELETE FROM semel_phases WHERE operation_id = ANY($1)", &["array"]),
    beside("DELETE FROM semel_references WHERE operation_id = ANY($1) AND given_back", &["array"]),
    beside("UPDATE semel_references SET given_back = true WHERE operation_id = ANY($1)", &["array"]),
    beside("SELECT operation_id, caller FROM semel_references", &["array"]),
    beside("WITH wanted AS MATERIALIZED", &["array", "materialized", "update from", "with"]),
    beside("INTO semel_phases (operation_id, position, name, kind, item_id", GROUP),
    Exception {
        statement: "FOR UPDATE OF semel_records",
        departures: &["row lock"],
        reason: "a message's end changes its command, or a sweep reads it: the guarded write decides as well",
    },
    // Quotas, reported together every few seconds.
    background("INTO semel_usage", GROUP),
    background("FOR UPDATE OF semel_usage", &["array", "function unnest", "row lock"]),
    background("UPDATE semel_usage AS total", &["array", "function unnest", "update from"]),
    // Sweeps, reaps, workers.
    background("ORDER BY due_at, id LIMIT $4 FOR UPDATE OF semel_records SKIP LOCKED", &["skip locked"]),
    background("ORDER BY expires_at, id LIMIT $4 FOR UPDATE OF semel_records SKIP LOCKED", &["skip locked"]),
    anything("WITH idle AS MATERIALIZED", SKIPS),
    anything("WITH old AS MATERIALIZED", SKIPS),
    background("WITH RECURSIVE own(tenant, place)", &["recursive", "with"]),
    background("SELECT q.format", &["array", "function unnest", "lateral", "ordinality", "type int"]),
    background("UPDATE semel_evidence SET done_at", &["update from"]),
    // The start of a store or of a connection.
    anything("SELECT set_config('client_min_messages'", START),
    anything("pg_control_system()", START),
    anything("SELECT current_setting('fsync')", START),
    anything("SHOW transaction_read_only", START),
    anything("pg_walfile_name", START),
    Exception {
        statement: "BEGIN; SET LOCAL lock_timeout",
        departures: &["statement set"],
        reason: "bounds waits for locks where a pooler drops options, and for a record that is known to be locked",
    },
    Exception {
        statement: "pg_logical_emit_message",
        departures: &["function pg_logical_emit_message"],
        reason: "a commit that no table has: `/readyz` and doctor do without it, only waits for standbys need it",
    },
    // The schema.
    anything("CREATE TABLE semel_store", SCHEMA),
    anything("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'", SCHEMA),
    anything("pg_advisory_xact_lock", SCHEMA),
    anything("to_regclass('semel_schema')", SCHEMA),
    anything("DELETE FROM semel_schema", SCHEMA),
    anything("UPDATE semel_schema SET readable_from", OPERATOR),
    anything("CREATE INDEX CONCURRENTLY", "made once, if quotas of stored keys are configured"),
    anything("to_regclass('semel_records_usage')", "asked once, before that index is made"),
    // Holds: an operator's change, and the read of every gateway.
    Exception {
        statement: "FROM semel_holds ORDER BY kind COLLATE",
        departures: &["collate"],
        reason: "every gateway reads holds every two seconds: the order of bytes, whatever the collation",
    },
    anything("LOCK TABLE semel_holds", OPERATOR),
    anything("INSERT INTO semel_holds", OPERATOR),
    anything("DELETE FROM semel_holds", OPERATOR),
    // Operators, doctor, metrics.
    anything("BEGIN READ ONLY", OPERATOR),
    anything("WITH due AS MATERIALIZED ( SELECT operation_id", OPERATOR),
    anything("WITH kept AS", OPERATOR),
    anything("given_back::int::bigint", OPERATOR),
    anything("FROM semel_usage, (SELECT", OPERATOR),
    anything("LEFT JOIN LATERAL ( SELECT * FROM semel_usage", OPERATOR),
    anything("octet_length(response)", "counts stored bytes, if such a quota is configured"),
    anything("pg_total_relation_size", OPERATOR),
    anything("TABLESAMPLE", OPERATOR),
    anything("pg_database_size", OPERATOR),
    anything("has_table_privilege", OPERATOR),
    anything("FROM pg_stat_replication ORDER BY", OPERATOR),
    anything("pg_table_is_visible", OPERATOR),
    // Rotation of keys.
    anything("SELECT 'response', encryption_key_id", "counts values by their key, for an operator"),
    anything("encryption_key_id = i.key_id", "`semel keys rotate`, an operator's command"),
    anything("substring(output FROM 1", "reads for that rotation"),
    // Messages, judged by `flow`, which sends all of them.
    anything("semel_outbox", "see the exceptions of `flow`"),
];

/// Statements that no test here sends, each with its reason.
pub(super) const UNSENT: &[(&str, &str)] = &[
    ("schema.rs NEXT_VERSION", "a schema of tests only"),
    ("schema.rs", "words that are looked for in the scripts"),
];
