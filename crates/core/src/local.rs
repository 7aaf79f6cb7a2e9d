//! The outcome of a command whose handler runs in one transaction of the service's own database. Data only:
//! `flow` runs such commands, `http` answers them.

use crate::problem::Problem;
use crate::record::{Holder, Record};
use crate::response::Response;
use crate::time::Timestamp;
use crate::transition::Decision;

/// Outcome of a command that runs in one transaction.
#[derive(Clone, Debug)]
pub enum Transacted {
    /// The command ran; its effect, record and response are committed together.
    Executed {
        /// The record.
        record: Box<Record>,
        /// The response as the client gets it.
        response: Box<Response>,
        /// The store's time.
        now: Timestamp,
    },
    /// The command ran and is committed; a message that is committed with it decides the outcome.
    Deferred {
        /// The open record.
        record: Box<Record>,
        /// Interim response for the client.
        response: Box<Response>,
    },
    /// The command did not run: the record says why, or another executor holds it.
    Decided {
        /// Decision of the protocol.
        decision: Decision,
        /// The record, if there is a visible one.
        record: Option<Box<Record>>,
        /// Command that holds the business reference, if the decision is `Duplicate`.
        holder: Option<Box<Holder>>,
        /// The store's time, if the store was called.
        now: Option<Timestamp>,
    },
    /// The command ran and was rolled back: nothing happened, and the client may retry with the same key.
    RolledBack {
        /// Response for the client.
        response: Box<Response>,
        /// Problem that the response describes, if the handler had no response of its own. The layer writes
        /// it in the profile of the operation.
        problem: Option<Box<Problem>>,
    },
    /// The database could not be used: nothing happened.
    Unavailable,
    /// The result of the commit is unknown; or the session was lost, and another executor may have run the
    /// command since. A retry of the same request finds out.
    InDoubt,
}
