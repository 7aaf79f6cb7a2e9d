//! Reading of the matrix for Semel: cells that cannot occur on a store, and cells judged by another code.
//!
//! Invariant: a reading never makes a judge milder; a cell that reads otherwise has another code, and the table says
//! why.

use crate::table::{Cell, Code, Fault, Store};

/// Expectation of a cell.
pub(crate) struct Reading {
    /// Code that judges the cell.
    pub(crate) code: Code,
    /// Notes: reasons for another code than the matrix has, and the way the fault is brought about.
    pub(crate) notes: Vec<&'static str>,
    /// Reason why the cell cannot occur on this store.
    pub(crate) not_applicable: Option<&'static str>,
}

const NO_SERVER: &str =
    "SQLite has no server: the database lives in the gateway's process, and dies with it as in column K.";
const NO_WIRE: &str =
    "SQLite has no network: a claim that was not committed does not arrive later, and no record exists.";
const STARTED_BY_CLAIM: &str = "The claim starts a synchronous command, as in row 3. Here a worker starts \
     an asynchronous one, and the answer to that is lost.";
const LEFT_EARLY: &str = "A client that leaves changes nothing: once the request has arrived whole, the \
     command runs. Over HTTP/1 a client that has closed its sending side may still want its answer.";
const PAST_THE_LEASE: &str = "A clock that goes back, or ahead within the lease, changes nothing. A jump \
     past the lease makes the command unknown, which is no reason to run it again; its executor's outcome \
     settles it.";
const GOES_ON: &str = "The executor lives: it goes on offering its outcome, which settles the unknown \
     record. The judge requires that as well.";
const NO_SECOND_STORE: &str = "Memory is no second store: a lost record stays lost, although a gateway's \
     memory may replay it for up to ten seconds.";
const RESTORED: &str = "SQLite has no failover: a copy from before the command is restored without a witness, which would fence it, and the gateways restart.";
const EARLIER: &str = "Connections end, and a copy from before the command replaces the database, like a \
     replica that received none of it. An operator has lifted the fence that a witness makes.";
const TOLD_SO: &str =
    "SQLite has no network: the COMMIT is made, and its caller gets an error, as from a failing disk.";
const OFFSET: &str = "The database's reported time is shifted; the machine's clock is not.";
const FULL_LOG: &str = "A server that cannot write its log ends; it recovers once there is room.";
const QUERY_ONLY: &str = "SQLite itself refuses the writes (`PRAGMA query_only`), as on a read-only medium.";
const HELD_FILE: &str = "SQLite has no pool: another writer holds the file for longer than Semel waits.";
const DEMOTED: &str = "A server that stops taking writes lets running transactions end. Here it also ends \
     their sessions, like a demoted server.";
const OWN_FILE: &str =
    "A transaction has the file to itself: another process writes it before the transaction begins.";
const STANDS_ON_FILE: &str = "No server can end the transaction of a stopped process: others are refused \
     until it resumes, and then it completes the command.";
const STANDS_BEFORE_FILE: &str =
    "The process stops right before its transaction, since no other could take over after that: see step 11.";
const SESSION_ENDED: &str = "A transaction has no lease: others wait until the server ends the session of \
     the stopped process, by `idle_in_transaction_session_timeout`, and then one of them takes over.";
const REFUSED_ON_FILE: &str =
    "In the same process a duplicate is told to wait; for another process the file is busy, which is 503.";
const OWN_PRAGMA: &str = "SQLite itself refuses the writes of the service's work (`PRAGMA query_only`), \
     from its row or its message on.";
const LATE: &str = "SQLite waits for another writer for up to two seconds: a file that is held for less \
     causes a delay and no error.";
const COMMIT_IN_DOUBT: &str = "A server that cannot write its log ends at the COMMIT, whose result is in \
     doubt until the server can be asked: a client that is answered before that is told so.";
const FULL_AT_COMMIT: &str = "A file has nothing of a transaction before its COMMIT, which fails on a full \
     disk. Its result is in doubt until the file can be written: a client that is answered before that is \
     told so.";
const NEXT_TRY: &str = "Messages have no client: the remaining worker, or the same one, delivers the \
     message under the same event id.";
const NOT_STARTED: &str = "A gateway that has not started has no clients: the client of the first command \
     after the migration leaves.";
const NO_CONNECTION: &str =
    "The migration of a file has no connection to lose: the process dies right after the commit.";
const NEWER_FORMAT: &str = "The file says that only a newer SQLite may write it, which makes it read-only.";

/// Returns the expectation of a cell.
pub(crate) fn of(cell: Cell) -> Reading {
    let not_applicable = match (cell.fault, cell.store) {
        (Fault::DatabaseKilled, Store::Sqlite) => Some(NO_SERVER),
        _ => None,
    };
    let (code, reason) = code(cell);
    let notes = reason
        .into_iter()
        .chain(service_note(cell).or_else(|| fault_note(cell)))
        .chain(settled_note(cell))
        .collect();
    Reading { code, notes, not_applicable }
}

/// Returns the code that judges a cell, with a note if it needs an explanation.
fn code(cell: Cell) -> (Code, Option<&'static str>) {
    match (cell.step, cell.fault, cell.store) {
        (1..=3, Fault::ClientGone, _) => (Code::Done, Some(LEFT_EARLY)),
        (11, Fault::Stopped, Store::Sqlite) => (Code::Done, Some(STANDS_ON_FILE)),
        (17, Fault::Failover, _) => (Code::Lost, Some(NO_SECOND_STORE)),
        (2, Fault::Kill | Fault::Stopped, Store::Sqlite) => (cell.code, Some(NO_WIRE)),
        (4, Fault::AnswerLost, _) => (cell.code, Some(STARTED_BY_CLAIM)),
        (19, Fault::ClientGone, _) => (cell.code, Some(NOT_STARTED)),
        (_, Fault::ClockJump, _) if cell.code == Code::Owned => (cell.code, Some(PAST_THE_LEASE)),
        _ => (cell.code, None),
    }
}

/// Returns a note about the way a fault is brought about, where that is not obvious.
fn fault_note(cell: Cell) -> Option<&'static str> {
    match (cell.fault, cell.store) {
        (Fault::AnswerLost, Store::Sqlite) if cell.step == 19 => Some(NO_CONNECTION),
        (Fault::ReadOnly, Store::Sqlite) if cell.step == 19 => Some(NEWER_FORMAT),
        (Fault::Failover, Store::Sqlite) => Some(RESTORED),
        (Fault::Failover, Store::Postgres) => Some(EARLIER),
        (Fault::DiskFull, Store::Postgres) => Some(FULL_LOG),
        (Fault::ReadOnly, Store::Sqlite) => Some(QUERY_ONLY),
        (Fault::PoolExhausted, Store::Sqlite) => Some(HELD_FILE),
        (Fault::AnswerLost, Store::Sqlite) => Some(TOLD_SO),
        (Fault::ClockJump, _) => Some(OFFSET),
        _ => None,
    }
}

/// Returns a note about the way a fault is brought about, for a service with records in its own database.
fn service_note(cell: Cell) -> Option<&'static str> {
    match (cell.step, cell.fault, cell.store) {
        (8, Fault::DiskFull, Store::Postgres) => Some(COMMIT_IN_DOUBT),
        (8 | 11, Fault::DiskFull, Store::Sqlite) => Some(FULL_AT_COMMIT),
        (8 | 11, Fault::PoolExhausted | Fault::Slow, Store::Sqlite) => Some(OWN_FILE),
        (8 | 11, Fault::ReadOnly, Store::Sqlite) => Some(OWN_PRAGMA),
        (8 | 11, Fault::ReadOnly, Store::Postgres) => Some(DEMOTED),
        (8, Fault::Stopped, Store::Sqlite) => Some(STANDS_BEFORE_FILE),
        (8 | 11, Fault::Stopped, Store::Postgres) => Some(SESSION_ENDED),
        (8 | 11, Fault::Duplicate, Store::Sqlite) => Some(REFUSED_ON_FILE),
        (12 | 13, Fault::Slow, Store::Sqlite) => Some(LATE),
        (
            12 | 13,
            Fault::DatabaseKilled | Fault::PoolExhausted | Fault::Slow | Fault::ReadOnly,
            Store::Postgres,
        ) => Some(NEXT_TRY),
        _ => None,
    }
}

/// Returns a note that says if, and by which process, an unknown outcome is settled in the end.
fn settled_note(cell: Cell) -> Option<&'static str> {
    let lives = !matches!(cell.fault, Fault::Kill | Fault::Poison);
    (cell.code == Code::Unknown && lives).then_some(GOES_ON)
}
