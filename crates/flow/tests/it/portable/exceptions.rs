//! Statements of transactions, phases and messages that depart from the portable subset, each with its reason.

use semel_testkit::portable::{ANYTHING, Exception};

/// Reason for statements about the session.
const SESSION: &str = "the service's own code shares the session, which is given back as it was";
/// Reason for messages.
const MESSAGES: &str = "keeps workers from the same message; writes are guarded by epoch and token";
/// Reason for a rotation of encryption keys.
const ROTATION: &str = "`semel keys rotate`, an operator's command";

const fn message(statement: &'static str, departures: &'static [&'static str]) -> Exception {
    Exception { statement, departures, reason: MESSAGES }
}

const fn anything(statement: &'static str, reason: &'static str) -> Exception {
    Exception { statement, departures: ANYTHING, reason }
}

pub(super) const EXCEPTIONS: &[Exception] = &[
    // The session of a transaction.
    anything("SELECT set_config('semel.session'", SESSION),
    anything("pg_advisory_unlock_all()", SESSION),
    Exception {
        statement: "set_config('lock_timeout', current_setting('semel.lock_timeout'), true)",
        departures: &["function current_setting", "function set_config"],
        reason: SESSION,
    },
    Exception {
        statement: "set_config('synchronous_commit', current_setting('semel.synchronous_commit'), true)",
        departures: &["function current_setting", "function set_config", "type int"],
        reason: SESSION,
    },
    anything("ROLLBACK TO SAVEPOINT", SESSION),
    // Records within it.
    Exception {
        statement: "SET revision = revision + 1 WHERE id = $1 AND token = $2",
        departures: &["unguarded update"],
        reason: "confirms a write whose answer was lost: it changes nothing that the token does not own",
    },
    Exception {
        statement: "WITH record AS",
        departures: &["array", "with", "word count"],
        reason: "claim and business reference in one round trip; without it, one statement for each",
    },
    Exception {
        statement: "state = 'processing' FOR UPDATE",
        departures: &["row lock"],
        reason: "holds the record from a phase's write to its COMMIT, so that no other executor acquires it",
    },
    Exception {
        statement: "SELECT epoch FROM semel_records WHERE id = ANY($1)",
        departures: &["array"],
        reason: "asks about a lost COMMIT under all names of the operation",
    },
    // Phases.
    Exception {
        statement: "kind, deduplicated, began_at)",
        departures: &["conflict target", "conflict update"],
        reason: "a repeated mark changes nothing, and must not be taken for a lost one",
    },
    Exception {
        statement: "SELECT $1, $2, $3, 'local'",
        departures: &["function clock_timestamp"],
        reason: "an insert: shows how long the phase took, and decides nothing",
    },
    // Messages.
    Exception {
        statement: "INSERT INTO semel_outbox",
        departures: &["conflict target"],
        reason: "a second unique index must fail loudly, and only the message's own id may be there before",
    },
    message(
        "free AS MATERIALIZED",
        &["array", "materialized", "row lock", "skip locked", "update from", "with"],
    ),
    message(
        "pairs AS MATERIALIZED",
        &["array", "lateral", "materialized", "row lock", "skip locked", "with"],
    ),
    message("UPDATE semel_outbox SET holds", &["array"]),
    message("UPDATE semel_outbox SET blocked = 1", &["array"]),
    message("UPDATE semel_outbox SET state", &["update from", "with"]),
    message("WITH changed AS (DELETE FROM semel_outbox", &["with"]),
    anything("WITH old AS MATERIALIZED", "deletes delivered messages in the background"),
    anything("WITH closed AS", "closes evidence and writes its note, once for each contradiction"),
    anything("CREATE TABLE semel_store", "the schema: see the exceptions of `stores`"),
    // Rotation of keys.
    anything("SELECT 'response', encryption_key_id", ROTATION),
    anything("substring(payload FROM 1", ROTATION),
    anything("UPDATE semel_phases AS p SET output", ROTATION),
    anything("UPDATE semel_outbox AS m SET payload", ROTATION),
];
