//! `semel records explain`: prints the timeline of one command, and the actions that are possible now.

use std::path::Path;
use std::sync::Arc;

use semel_core::{OperationId, Records};
use semel_operations::operate::records::{absent, find};
use semel_operations::operate::story::{Around, next, timeline, to_json};

use crate::cli::{CommandResult, StoreFlag, blocking, load, printable, say, show};

/// Prints the story of a command.
pub(super) fn run(
    store: &Arc<dyn Records>,
    id: OperationId,
    around: &Around<'_>,
    json: bool,
) -> anyhow::Result<CommandResult> {
    let Some(found) = blocking(find(&**store, id))? else {
        eprintln!("{}", absent(id));
        return Ok(CommandResult::No);
    };
    if json {
        say(to_json(id, &found, around));
        return Ok(CommandResult::Yes);
    }
    if let Some(record) = &found.record {
        let (tenant, caller) = (record.principal.tenant(), record.principal.caller());
        let whose = format!("{} of {tenant}/{caller}, key {}…", record.operation, record.key_hash_prefix);
        show(printable(&whose));
        let trace = record.trace.map_or(String::new(), |trace| format!(", trace {}", trace.trace_id_text()));
        show(format!("{} since {}{trace}", record.head.state.name(), record.state_since));
    }
    for entry in timeline(&found) {
        show(format!("{}  {}", entry.at(), entry.tell()));
    }
    show(next(found.record.as_ref(), found.now, around));
    Ok(CommandResult::Yes)
}

/// Returns the flags that name the same store in another command, without passwords, if this command needed
/// them.
pub(super) fn same_store(config: Option<&Path>, flag: &StoreFlag) -> anyhow::Result<String> {
    let file = config.map(|file| format!(" --config {}", file.display()));
    let store = match flag.store {
        Some(_) => Some(format!(" --store {}", load(config, flag.flags())?.config.store)),
        None => None,
    };
    Ok(file.into_iter().chain(store).collect())
}
