//! Rows of the matrix: runs each cell with the module of its step, and reports cells that cannot occur.

mod dispatch;
mod gateway;
mod migration;
mod rotation;
mod store;
mod stream;
mod tool;
mod transaction;
mod upkeep;
mod webhook;

use crate::judge;
use crate::lab::Lab;
use crate::reading;
use crate::table::{Cell, Fault};

/// Result of a cell.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The code holds. Describes the observations.
    Pass(String),
    /// The code is violated, or the cell could not be tried. Says why.
    Fail(String),
    /// The cell cannot occur on this store. Says why.
    NotApplicable(&'static str),
}

/// Runs one cell. With `broken`, a setting permits second effects.
pub(crate) async fn run(lab: &Lab, cell: Cell, broken: bool) -> Outcome {
    let expected = reading::of(cell);
    if let Some(why) = expected.not_applicable {
        return Outcome::NotApplicable(why);
    }
    let by_itself = match cell.step {
        _ if cell.fault == Fault::StreamCut => Some(stream::run(lab, cell, expected.code).await),
        step if transaction::STEPS.contains(&step) => Some(transaction::run(lab, cell).await),
        step if dispatch::STEPS.contains(&step) => Some(dispatch::run(lab, cell).await),
        step if webhook::STEPS.contains(&step) => Some(webhook::run(lab, cell).await),
        step if upkeep::STEPS.contains(&step) => Some(upkeep::run(lab, cell).await),
        step if migration::STEPS.contains(&step) => Some(migration::run(lab, cell).await),
        step if rotation::STEPS.contains(&step) => Some(rotation::run(lab, cell).await),
        _ => None,
    };
    match by_itself {
        Some(Ok(found)) if found.violated.is_empty() => return Outcome::Pass(found.seen.join("\n    ")),
        Some(Ok(found)) => return Outcome::Fail([found.violated, found.seen].concat().join("\n    ")),
        Some(Err(why)) => return Outcome::Fail(format!("it could not be tried: {why}")),
        None => {}
    }
    match gateway::run(lab, cell, broken).await {
        Ok(seen) => match judge::judge(expected.code, &seen) {
            violated if violated.is_empty() => Outcome::Pass(seen.tell()),
            violated => Outcome::Fail(format!("{}\n    {}", violated.join("; "), seen.tell())),
        },
        Err(why) => Outcome::Fail(format!("it could not be tried: {why}")),
    }
}
