//! Output of a driver: a line of JSON for each command, and one with what its journal still has.
//!
//! The run reads it, and the judge compares it with the book.

use serde::Deserialize;

use crate::book::Number;

/// Line about one command.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Line {
    pub(crate) n: Number,
    /// `final`, `unknown`, `accepted`, `unresolved` or `error:KIND`.
    pub(crate) outcome: String,
    pub(crate) status: Option<u16>,
    pub(crate) replayed: Option<bool>,
    pub(crate) attempts: Option<u64>,
    pub(crate) stopped: Option<String>,
    pub(crate) body: Option<String>,
}

/// Everything that a driver printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Printed {
    pub(crate) lines: Vec<Line>,
    /// Intents of the last line.
    pub(crate) pending: Vec<String>,
}

#[derive(Deserialize)]
struct Last {
    pending: Vec<String>,
}

impl Printed {
    /// Reads the output.
    ///
    /// # Errors
    /// Names a line that is none of a driver, or says that the last one is missing.
    pub(crate) fn read(text: &str) -> Result<Printed, String> {
        let mut lines: Vec<&str> = text.lines().collect();
        let last = lines.pop().ok_or("the driver printed nothing")?;
        let Last { pending } = serde_json::from_str(last)
            .map_err(|error| format!("the driver's last line is not about its journal: {error}: {last:?}"))?;
        let lines = lines.into_iter().map(|line| {
            serde_json::from_str(line).map_err(|error| format!("no line of a driver: {error}: {line:?}"))
        });
        Ok(Printed { lines: lines.collect::<Result<_, _>>()?, pending })
    }
}

/// Returns the intent of a command.
pub(crate) fn intent(number: Number) -> String {
    format!("command {number}")
}
