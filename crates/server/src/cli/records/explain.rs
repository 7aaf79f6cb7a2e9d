//! `semel records explain`: one command's life as a story, and what can be done about it now.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ArgMatches;
use semel_core::Store;

use super::operation_id;
use crate::cli::{Done, blocking, load, say, show};
use crate::operate::records::{absent, find};
use crate::operate::story::{next, timeline, to_json};

pub(super) fn run(store: &Arc<dyn Store>, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let id = operation_id(matches)?;
    let Some(found) = blocking(find(&**store, id))? else {
        eprintln!("{}", absent(id));
        return Ok(Done::No);
    };
    let same_store = same_store(matches)?;
    if json {
        say(to_json(id, &found, &same_store));
        return Ok(Done::Yes);
    }
    if let Some(record) = &found.record {
        let (tenant, caller) = (record.principal.tenant(), record.principal.caller());
        show(format!("{} of {tenant}/{caller}, key {}…", record.operation, record.key_hash_prefix));
    }
    for entry in timeline(&found) {
        show(format!("{}  {}", entry.at(), entry.tell()));
    }
    show(next(found.record.as_ref(), found.now, &same_store));
    Ok(Done::Yes)
}

/// What names the same store in another command, if this one had to name it. Passwords stay out of it.
fn same_store(matches: &ArgMatches) -> anyhow::Result<String> {
    let config = matches.get_one::<PathBuf>("config").map(|file| format!(" --config {}", file.display()));
    let store = match matches.contains_id("store") {
        true => Some(format!(" --store {}", load(matches)?.config.store)),
        false => None,
    };
    Ok(config.into_iter().chain(store).collect())
}
