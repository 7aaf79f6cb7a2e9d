//! A store full of records, messages, notes and holds, which are copied by SQL.

use std::time::Duration;

use serde_json::json;

use super::stage::ConsoleStage;

/// Smallest number of unknown outcomes, and the part of all records that they are.
const LEAST_UNKNOWN: u32 = 1_200;
const UNKNOWN_PART: u32 = 100;
/// Numbers of running commands, messages, notes and holds.
const PROCESSING: u32 = 300;
const MESSAGES: u32 = 1_200;
const NOTES: u32 = 1_200;
const HOLDS: u32 = 1_000;

/// Text that would change the title of a page if it were no text, and is longer than a narrow window.
const HOSTILE: &str = "\"><img src=x onerror=document.title=`taken`><form data-action=holds>WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW";

/// Columns that every copy takes over from a real record.
const COPIED: &str = "caller, key_hash_prefix, fingerprint_version, fingerprint, epoch, token, lease_ms, ttl_ms, \
                      tombstone_ttl_ms, on_lease_expired, quarantine_ms, keep_request, history, trace";
/// Columns that a copy of a settled record takes over, too.
const SETTLED: &str = "reason, settled_by, status, resource, response_format, response, expires_at";

/// Statements in the spelling of one of the stores.
struct Spelling {
    /// Operation id of the copy `i`, in the order of time.
    id: &'static str,
    /// Random id of a record.
    random: &'static str,
    /// Text of an operation id.
    id_text: &'static str,
    /// Current time in milliseconds.
    now: &'static str,
    /// Column of a record that only one of the stores has, and its value.
    revision: (&'static str, &'static str),
    /// Column of a note that only one of the stores fills in, and its value.
    note: (&'static str, &'static str),
    is_postgres: bool,
}

const SQLITE: Spelling = Spelling {
    id: "unhex(printf('%012x%020x', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - 86400000 + i, i))",
    random: "randomblob(32)",
    id_text: "lower(substr(hex(operation_id), 1, 8) || '-' || substr(hex(operation_id), 9, 4) || '-' || \
              substr(hex(operation_id), 13, 4) || '-' || substr(hex(operation_id), 17, 4) || '-' || \
              substr(hex(operation_id), 21, 12))",
    now: "CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)",
    revision: ("", ""),
    note: ("", ""),
    is_postgres: false,
};

const POSTGRES: Spelling = Spelling {
    id: "(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 86400000 + i), 12, '0') || \
         lpad(to_hex(i), 20, '0'))::uuid",
    random: "sha256(uuid_send(gen_random_uuid()))",
    id_text: "operation_id::text",
    now: "(extract(epoch FROM now()) * 1000)::bigint",
    revision: ("revision, ", "2, "),
    note: (
        "id, ",
        "(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || lpad(to_hex(i), 20, '0'))::uuid, ",
    ),
    is_postgres: true,
};

impl Spelling {
    /// Returns the rows `i` from `first` on.
    fn series(&self, first: u32, count: u32) -> String {
        let last = first + count - 1;
        match self.is_postgres {
            true => format!("generate_series({first}, {last}) AS n(i)"),
            false => format!(
                "(WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) \
                 SELECT i FROM n) AS n"
            ),
        }
    }

    /// Returns a statement that copies the only record in the state `from`, with these columns of their own.
    fn copies(&self, from: &str, columns: &str, values: &str, rows: &str) -> String {
        let Spelling { id, random, now, revision, .. } = self;
        let (column, value) = revision;
        format!(
            "INSERT INTO semel_records (id, operation_id, tenant, operation, created_at, updated_at, state_since, \
             {column}{COPIED}, {columns}) \
             SELECT {random}, {id}, 'tenant-' || (i % 50), \
             CASE i % 3 WHEN 0 THEN 'refunds.create' ELSE 'payments.create' END, {now} - 86400000 + i, \
             {now} - 86400000 + i, {now} - 86400000 + i, {value}{COPIED}, {values} \
             FROM (SELECT * FROM semel_records WHERE state = '{from}' LIMIT 1) AS one, {rows}"
        )
    }
}

impl ConsoleStage {
    /// Fills the store with this many records, and with a thousand messages, notes and holds.
    pub(super) async fn fill(&self, records: u32) {
        let open = json!({ "status": 200, "outcome": "unknown" });
        self.command("the-original-of-unknown-ones", &open).await;
        self.command("the-original-of-settled-ones", &json!({})).await;
        let unknown = (records / UNKNOWN_PART).max(LEAST_UNKNOWN);
        let settled = records.saturating_sub(unknown + PROCESSING);
        let spelling = if self.site.is_postgres() { &POSTGRES } else { &SQLITE };
        let Spelling { id_text, now, note, .. } = spelling;
        let waiting = format!(
            "'unknown', reason, {now} + 1800000 + i * 1000, i % 20, \
             CASE i % 10 WHEN 0 THEN {now} + 3600000 ELSE {now} - 1000 END"
        );
        let running = format!("'processing', 'claimed', {now} + 36000000");
        let same = format!("state, {SETTLED}");
        let (all_notes, all_holds) = (spelling.series(1, NOTES), spelling.series(1, HOLDS));
        let (column, value) = note;
        let statements = [
            spelling.copies(
                "unknown",
                "state, reason, reconcile_after, attempts, quarantine_until",
                &waiting,
                &spelling.series(1, unknown),
            ),
            spelling.copies("succeeded", &same, &same, &spelling.series(1_000_000, settled)),
            spelling.copies(
                "succeeded",
                "state, reason, due_at",
                &running,
                &spelling.series(9_000_000, PROCESSING),
            ),
            format!(
                "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at, due_at, \
                 attempts, last_error, done_at) \
                 SELECT {id_text} || ':payment.made', operation_id, 0, 'payment.made', response, \
                 CASE created_at % 3 WHEN 1 THEN 'dead' ELSE 'pending' END, created_at, {now} + 36000000, 12, \
                 'answered with 503 Service Unavailable', \
                 CASE created_at % 3 WHEN 1 THEN created_at + 60000 END \
                 FROM semel_records WHERE state = 'succeeded' LIMIT {MESSAGES}"
            ),
            format!(
                "INSERT INTO semel_audit ({column}at, operation_id, who, action, why) \
                 SELECT {value}{now} - 1000 * i, NULL, 'token:otto', 'log level', 'ticket ' || i FROM {all_notes}"
            ),
            format!(
                "INSERT INTO semel_holds (kind, name, since, who, why) \
                 SELECT 'tenant', 'held-' || i, {now} - 1000 * i, 'token:otto', 'incident ' || i FROM {all_holds}"
            ),
        ];
        statements.iter().for_each(|statement| self.sql(statement));
        if self.site.is_postgres() {
            self.sql("ANALYZE semel_records");
        }
    }

    /// Writes a hostile text into every column of a record, a message and a note that a person reads, as only somebody with
    /// access to the store can.
    pub(super) async fn disfigure(&self) {
        self.command("the-record-that-is-changed", &json!({ "status": 200, "outcome": "unknown" })).await;
        let spelling = if self.site.is_postgres() { &POSTGRES } else { &SQLITE };
        let Spelling { id_text, now, note: (column, value), .. } = spelling;
        let row = spelling.series(1, 1);
        self.sql(&format!(
            "UPDATE semel_records SET operation = '{HOSTILE}', tenant = '{HOSTILE}', caller = '{HOSTILE}'"
        ));
        self.sql(&format!(
            "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at, last_error) \
             SELECT {id_text} || ':{HOSTILE}', operation_id, 0, '{HOSTILE}', fingerprint, 'dead', {now}, '{HOSTILE}' \
             FROM semel_records"
        ));
        self.sql(&format!(
            "INSERT INTO semel_audit ({column}at, operation_id, who, action, why) \
             SELECT {value}{now}, NULL, '{HOSTILE}', '{HOSTILE}', '{HOSTILE}' FROM {row}"
        ));
        self.sql(&format!(
            "INSERT INTO semel_holds (kind, name, since, who, why) \
             SELECT 'operation', '{HOSTILE}', {now}, '{HOSTILE}', '{HOSTILE}' FROM {row}"
        ));
    }

    fn sql(&self, statement: &str) {
        if self.site.is_postgres() {
            self.site.postgres().sql(statement).expect("the server takes it");
            return;
        }
        let file = rusqlite::Connection::open(self.site.database()).expect("the file opens");
        file.busy_timeout(Duration::from_secs(60)).expect("it can wait");
        file.execute_batch(statement).unwrap_or_else(|error| panic!("{error}: {statement}"));
    }
}
