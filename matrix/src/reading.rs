//! How the matrix is read for Semel: which cells cannot occur on a store, and where what must hold is written otherwise.
//!
//! Nothing here makes a judge milder: a cell that reads otherwise is judged by another code, and the table says why.

use crate::table::{Cell, Code, Fault, Store};

/// What is expected of a cell.
pub(crate) struct Reading {
    /// By which it is judged.
    pub(crate) code: Code,
    /// Why that is not what the matrix says, or how the fault is brought about.
    pub(crate) notes: Vec<&'static str>,
    /// Why the cell cannot occur on this store.
    pub(crate) not_applicable: Option<&'static str>,
}

const NO_SERVER: &str =
    "SQLite has no server: the database lives in the gateway's process, and dies with it as in column K.";
const NO_WIRE: &str =
    "SQLite has no wire: a claim that was not committed does not arrive later, and nothing is there.";
const STARTED_BY_CLAIM: &str = "A synchronous command is started by its claim, as in row 3. Here a worker starts an asynchronous one, and the answer to \
     that is lost.";
const LEFT_EARLY: &str =
    "A client that leaves changes nothing: once the claim is sent, the command is carried out.";
const PAST_THE_LEASE: &str = "A clock that goes back, or ahead within the lease, changes nothing. One that jumps past the lease's end makes the \
     command unknown, which is not a reason to run it again; its executor's word settles it.";
const GOES_ON: &str = "The executor lives: it goes on offering its word, which settles what was unknown meanwhile. Judged is that as well.";
const NO_SECOND_STORE: &str = "Memory is no second store: what the store lost is lost, although a gateway's memory may replay it for up to ten \
     seconds.";
const RESTORED: &str =
    "SQLite has no failover: a copy from before the command is restored, and the gateways start anew.";
const EARLIER: &str = "Connections end, and the database that is there afterwards is a copy from before the command, as on a replica that had \
     none of it.";
const TOLD_SO: &str = "SQLite has no wire: the COMMIT is made, and its caller is told that it failed, as a failing disk may do.";
const OFFSET: &str = "The time that the database tells is shifted; nothing of the machine is.";
const FULL_LOG: &str = "A server that cannot write its log ends; it recovers once there is room.";
const QUERY_ONLY: &str =
    "SQLite itself refuses the writes (`PRAGMA query_only`), as on a medium that cannot be written.";
const HELD_FILE: &str = "SQLite has no pool: another writer holds the file for longer than Semel waits.";

/// What is expected of a cell.
pub(crate) fn of(cell: Cell) -> Reading {
    let not_applicable = match (cell.fault, cell.store) {
        (Fault::DatabaseKilled, Store::Sqlite) => Some(NO_SERVER),
        _ => None,
    };
    let (code, reason) = code(cell);
    let notes = reason.into_iter().chain(fault_note(cell)).chain(settled_note(cell)).collect();
    Reading { code, notes, not_applicable }
}

/// By which code a cell is judged, and why if that is to be explained.
fn code(cell: Cell) -> (Code, Option<&'static str>) {
    match (cell.step, cell.fault, cell.store) {
        (2 | 3, Fault::ClientGone, _) => (Code::Done, Some(LEFT_EARLY)),
        (17, Fault::Failover, _) => (Code::Lost, Some(NO_SECOND_STORE)),
        (2, Fault::Kill | Fault::Stopped, Store::Sqlite) => (cell.code, Some(NO_WIRE)),
        (4, Fault::AnswerLost, _) => (cell.code, Some(STARTED_BY_CLAIM)),
        (_, Fault::ClockJump, _) if cell.code == Code::Owned => (cell.code, Some(PAST_THE_LEASE)),
        _ => (cell.code, None),
    }
}

/// How a fault is brought about where that is not plain.
fn fault_note(cell: Cell) -> Option<&'static str> {
    match (cell.fault, cell.store) {
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

/// Whether what was unknown is settled in the end, and by whom.
fn settled_note(cell: Cell) -> Option<&'static str> {
    let lives = !matches!(cell.fault, Fault::Kill | Fault::Poison);
    (cell.code == Code::Unknown && lives).then_some(GOES_ON)
}
