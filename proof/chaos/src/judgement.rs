//! Judgement of a run: its history as the checker reads it.

use std::io::BufReader;
use std::path::Path;

use semel_checker::{Event, Tally};

/// Result of a run.
pub struct Outcome {
    /// Counts of the history.
    pub tally: Tally,
    /// Stories of the violations.
    pub stories: String,
    /// Numbers of the violated invariants.
    pub violated: Vec<u8>,
    /// Commands and messages that were not settled.
    pub unfinished: Vec<String>,
}

/// Reads the history of a run.
///
/// # Errors
/// If the file is no history.
pub fn read(history: &Path) -> Result<Vec<Event>, String> {
    let file = std::fs::File::open(history).map_err(|error| error.to_string())?;
    semel_checker::read(BufReader::new(file)).map_err(|error| error.to_string())
}

/// Judges the history of a run that left these commands unfinished.
///
/// # Errors
/// If it is not a whole history.
pub fn judge(events: &[Event], unfinished: Vec<String>) -> Result<Outcome, String> {
    let report = semel_checker::check(events).map_err(|error| error.to_string())?;
    let mut violated: Vec<u8> = report.violations.iter().map(|violation| violation.invariant).collect();
    violated.dedup();
    Ok(Outcome { tally: Tally::of(events), stories: report.to_string(), violated, unfinished })
}
