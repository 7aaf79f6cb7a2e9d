//! Search for one command: its form is in the page of lists, and its result here.

use askama::Template;
use semel_core::{Problem, Store};

use super::lists::RecordRow;
use super::view::{exact, fragment};
use crate::admin::call::{AdminAnswer, AdminCall};
use crate::admin::{search, unavailable};
use crate::operate::find::CommandMatch;

/// Command that was found. Its record may be gone.
struct FoundRow {
    id: String,
    row: Option<RecordRow>,
    holds_reference: Option<bool>,
}

#[derive(Template)]
#[template(path = "find.html")]
struct Found {
    rows: Vec<FoundRow>,
    omitted: Option<String>,
    /// The only command, which the script opens at once.
    only: Option<String>,
}

/// Shows the commands that the terms describe.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let found = search::found(&call).await?;
    let now = call.admin.store.now().await.map_err(unavailable)?;
    let row = |found: &CommandMatch| FoundRow {
        id: found.operation_id.to_string(),
        row: found.command.record.as_ref().map(|record| RecordRow::of(record, now)),
        holds_reference: found.holds_reference,
    };
    let rows: Vec<FoundRow> = found.commands.iter().map(row).collect();
    let only = match &*rows {
        [row] => Some(row.id.clone()),
        _ => None,
    };
    let omitted = Some(found.omitted).filter(|omitted| *omitted > 0);
    fragment(&Found { rows, omitted: omitted.map(|omitted| exact(omitted as u64)), only })
}
