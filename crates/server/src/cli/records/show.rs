//! `semel records show`: prints one record, with the notes of operators.

use std::sync::Arc;

use semel_core::{NoteTaken, Progress, Records, StateName, StepKind};
use semel_operations::operate::records::{FoundCommand, absent, find};

use super::{EXAMPLE, operation_id};
use crate::cli::{self, CommandResult, OutputFlags, StoreFlag, blocking, printable, say};

/// The command line of `semel records show`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Show one record, with the notes of operators",
    long_about = "Shows the record of one command, with the notes of operators. `records explain` tells the \
        same as a story, with the possible next steps.",
    after_help = format!(
                    "Example:\n  semel records show {EXAMPLE}\n\n\
        Exit codes: 0 shown, 1 there is no such record, 2 wrong use, or the store cannot be used."
                ),
)]
pub(super) struct ShowRecordArgs {
    #[arg(value_name = "OPERATION_ID", help = "The id that clients get in Idempotency-Operation-Id")]
    id: String,
    #[command(flatten)]
    pub(super) store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// Members in the order in which people read them. Others follow by name.
const ORDER: [&str; 13] = [
    "operationId",
    "operation",
    "tenant",
    "caller",
    "state",
    "stateSince",
    "traceId",
    "reason",
    "unknownSince",
    "quarantineUntil",
    "epoch",
    "createdAt",
    "updatedAt",
];

/// Lists that are printed line by line.
const LISTS: [&str; 3] = ["notes", "phases", "items"];

pub(super) fn run(store: &Arc<dyn Records>, args: &ShowRecordArgs) -> anyhow::Result<CommandResult> {
    let id = operation_id(&args.id)?;
    let Some(found) = blocking(find(&**store, id))? else {
        eprintln!("{}", absent(id));
        return Ok(CommandResult::No);
    };
    match args.output.json {
        true => say(found.to_json()),
        false => print(&found),
    }
    Ok(CommandResult::Yes)
}

/// Prints a command for people.
pub(super) fn print(found: &FoundCommand) {
    match found.to_json().as_object().filter(|_| found.record.is_some()) {
        Some(members) => {
            let mut members: Vec<_> =
                members.iter().filter(|(name, _)| !LISTS.contains(&name.as_str())).collect();
            // The sort is stable, and the members are in the order of their names.
            members
                .sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
            for (name, value) in members {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                cli::show(printable(&format!("{name:18} {value}")));
            }
        }
        None => say("its record has been deleted"),
    }
    for step in &found.steps {
        let (name, told) = line(step);
        cli::show(printable(&format!("{name:18} {told}")));
    }
    for NoteTaken { at, note } in &found.notes {
        let told = printable(&format!("{} by {}: {}", note.action, note.who, note.why));
        cli::show(format!("{:18} {at} {told}", "note"));
    }
}

/// Returns a step as one line. The output of a phase is private to the service, and not shown.
fn line(step: &Progress) -> (&'static str, String) {
    let Progress { name, what, began_at, done_at, .. } = step;
    let done = || done_at.map_or("not done".to_owned(), |at| format!("done at {at}"));
    match what {
        StepKind::Local { .. } | StepKind::External { .. } => {
            ("phase", format!("{began_at} {name} ({}), {}", what.as_str(), done()))
        }
        StepKind::Item { operation_id, state, status } => {
            let id = operation_id.map_or("not claimed".to_owned(), |id| id.to_string());
            let state = state.map_or("", StateName::as_str);
            let status = status.map_or(String::new(), |status| format!(" with {status}"));
            ("item", format!("{began_at} {name}: {id} {state}{status}"))
        }
    }
}
