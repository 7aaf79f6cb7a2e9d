//! `semel notes`: the audit log, which has every action of operators on commands, messages and holds.

use std::path::Path;

use anyhow::bail;
use semel_core::{AuditEntry, AuditId};
use semel_operations::operate::records::note_of;
use semel_stores::Access;
use serde_json::Value;

use super::table::show_table;
use super::{CommandResult, OutputFlags, StoreFlag, blocking, load, open_keyless, say};

/// Maximum number of notes in one page of the store.
const PAGE: usize = 500;

/// The command line of `semel notes`.
#[derive(Debug, clap::Args)]
#[command(
    about = "List what operators did, and why: the audit log, the newest first",
    long_about = "Lists the notes of the audit log, the newest first: time, author, action, the operation id of the \
        command, and the reason. A note about no command, such as a hold, has `-`. Nothing is ever deleted from the \
        log. `records explain` shows the notes about one command.",
    after_help = "Examples:\n  \
        semel notes --limit 20\n  \
        semel notes --json\n\n\
        Exit codes: 0 listed, even if there are none; 2 wrong use, or the store cannot be used."
)]
pub(super) struct NotesArgs {
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help = "At most so many notes"
    )]
    limit: u32,
    #[arg(long, value_name = "ID", help = "Only notes before this one, by its `id` in JSON")]
    before: Option<String>,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &NotesArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let mut before = match args.before.as_ref().map(|text| text.parse::<AuditId>()) {
        Some(Ok(id)) => Some(id),
        Some(Err(wrong)) => bail!("--before: {wrong}"),
        None => None,
    };
    let store = open_keyless(&load(config, args.store.flags())?.config.store, Access::Read)?;
    let mut left = args.limit as usize;
    let mut all = Vec::new();
    while left > 0 {
        let page = blocking(store.audit(before, left.min(PAGE)))?;
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        left -= page.len().min(left);
        all.extend(page);
    }
    match args.output.json {
        true => say(all.iter().map(note_of).collect::<Value>()),
        false => {
            let rows: Vec<_> = all.iter().map(row).collect();
            show_table(&["TIME", "BY", "ACTION", "OPERATION ID", "REASON"], &rows);
        }
    }
    Ok(CommandResult::Yes)
}

fn row(AuditEntry { operation_id, taken, .. }: &AuditEntry) -> Vec<String> {
    let id = operation_id.map_or("-".to_owned(), |id| id.to_string());
    let note = &taken.note;
    vec![taken.at.to_string(), note.who.clone(), note.action.clone(), id, note.why.clone()]
}
