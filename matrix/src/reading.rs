//! How the matrix is read for Semel: which cells cannot occur on a store, and where what must hold is written otherwise.
//!
//! Nothing here makes a judge milder: a cell that reads otherwise is judged by another code, and the table says why.

use crate::table::{Cell, Code, Fault, Store};

/// What is expected of a cell.
pub(crate) struct Reading {
    /// By which it is judged.
    pub(crate) code: Code,
    /// Why that is not what the matrix says, or how the fault is brought about.
    pub(crate) note: Option<&'static str>,
    /// Why the cell cannot occur on this store.
    pub(crate) not_applicable: Option<&'static str>,
}

const NO_SERVER: &str =
    "SQLite has no server: the database lives in the gateway's process, and dies with it as in column K.";
const NO_WIRE: &str =
    "SQLite has no wire: a claim that was not committed does not arrive later, and nothing is there.";
const STARTED_BY_CLAIM: &str = "A synchronous command is started by its claim: the answer that is lost is the claim's, and the handler runs after it.";
const LEFT_EARLY: &str =
    "A client that leaves changes nothing: once the claim is sent, the command is carried out.";
const PAST_THE_LEASE: &str = "A clock that goes back, or ahead within the lease, changes nothing. One that jumps past the lease's end makes the \
     command unknown, which is not a reason to run it again; its executor's word settles it.";
const GOES_ON: &str = "The executor lives: it goes on offering its word, which settles what was unknown meanwhile. Judged is that as well.";
const NO_SECOND_STORE: &str = "Memory is no second store: what the store lost is lost, although a gateway's memory may replay it for up to ten \
     seconds.";
const RESTORED: &str =
    "SQLite has no failover: a copy from before the command is restored, and the gateways start anew.";
const FULL_LOG: &str = "A server that cannot write its log ends; it recovers once there is room.";
const QUERY_ONLY: &str =
    "SQLite itself refuses the writes (`PRAGMA query_only`), as on a medium that cannot be written.";
const HELD_FILE: &str = "SQLite has no pool: another writer holds the file for longer than Semel waits.";

/// What is expected of a cell.
pub(crate) fn of(cell: Cell) -> Reading {
    let as_written = Reading { code: cell.code, note: None, not_applicable: None };
    let reads = |code, note| Reading { code, note: Some(note), not_applicable: None };
    let noted = |note| Reading { code: cell.code, note: Some(note), not_applicable: None };
    match (cell.step, cell.fault, cell.store) {
        (_, Fault::DatabaseKilled, Store::Sqlite) => {
            Reading { not_applicable: Some(NO_SERVER), ..as_written }
        }
        (2 | 3, Fault::ClientGone, _) => reads(Code::Done, LEFT_EARLY),
        (2, Fault::Kill | Fault::Stopped, Store::Sqlite) => noted(NO_WIRE),
        (17, Fault::Failover, _) => reads(Code::Lost, NO_SECOND_STORE),
        (4, Fault::AnswerLost, _) => noted(STARTED_BY_CLAIM),
        (_, Fault::ClockJump, _) if cell.code == Code::Owned => noted(PAST_THE_LEASE),
        (_, Fault::Failover, Store::Sqlite) => noted(RESTORED),
        (_, Fault::DiskFull, Store::Postgres) => noted(FULL_LOG),
        (_, Fault::ReadOnly, Store::Sqlite) => noted(QUERY_ONLY),
        (_, Fault::PoolExhausted, Store::Sqlite) => noted(HELD_FILE),
        (_, Fault::DatabaseKilled | Fault::PoolExhausted | Fault::Slow | Fault::ReadOnly, _)
            if cell.code == Code::Unknown =>
        {
            noted(GOES_ON)
        }
        _ => as_written,
    }
}
