//! The outcome of a command that its handler carries out in one transaction of the service's own database. Data only: `flow`
//! carries such commands out, `http` answers them.

use crate::problem::Problem;
use crate::record::{Holder, Record};
use crate::response::Response;
use crate::time::Timestamp;
use crate::transition::Decision;

/// What became of a command that was to be carried out in one transaction.
#[derive(Clone, Debug)]
pub enum Transacted {
    /// It ran, and its effect, its record and its response are committed together.
    Executed {
        /// The record.
        record: Box<Record>,
        /// The response, as the one who asked gets it.
        response: Box<Response>,
        /// The store's time.
        now: Timestamp,
    },
    /// It ran, and is committed, and what it comes to is left to a message that is committed with it.
    Deferred {
        /// The record, which is open.
        record: Box<Record>,
        /// What the one who asked is told for now.
        response: Box<Response>,
    },
    /// It did not run: the record says why, or somebody else has it in hand.
    Decided {
        /// What the protocol decided.
        decision: Decision,
        /// The record, if there is one that can be seen.
        record: Option<Box<Record>>,
        /// Who holds its business reference, if the decision is `Duplicate`.
        holder: Option<Box<Holder>>,
        /// The store's time, if it was asked.
        now: Option<Timestamp>,
    },
    /// It ran and took itself back: nothing happened, and the same key may be sent again.
    RolledBack {
        /// What the one who asked is told.
        response: Box<Response>,
        /// The problem that the response tells, where the work had no answer of its own: the layer writes it in the profile of
        /// the operation.
        problem: Option<Box<Problem>>,
    },
    /// The database could not be used: nothing happened.
    Unavailable,
    /// It was to be committed, and nobody could find out whether it was; or its session was lost, and nobody could find out
    /// whether others have carried it out since. Sending the same request again tells.
    InDoubt,
}
