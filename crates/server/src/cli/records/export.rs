//! `semel records export`: records that match a filter, as JSON Lines.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use semel_core::{Filter, RecordPage, Records};
use semel_operations::operate::records::{exported, unreadable};
use semel_stores::Access;

use super::list::{FilterArgs, told_of};
use crate::cli::{CommandResult, StoreFlag, blocking, files, open_store};

/// Number of records in one page of the store.
const PAGE: usize = 500;
/// Number of records after which the progress is printed.
const TELL_EVERY: usize = 10_000;

/// The command line of `semel records export`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Export records as JSON Lines, such as the unknown ones of an incident",
    long_about = "Writes records as JSON Lines: one object on each line, with what `records list --json` shows, the \
        steps of the record and, for an unknown outcome, `unknownSince`, `quarantineUntil` and `lookFor`, the \
        identifiers to look for at the provider. Keys, requests and responses are not exported.\n\n\
        A file is new and for its owner only; an existing one is never overwritten, and an incomplete one is removed. \
        Records that change meanwhile are exported as they were before or after.",
    after_help = "Examples:\n  \
        semel records export --state unknown --output unknown.jsonl\n  \
        semel records export --state unknown --since 2026-11-19T08:00:00Z --until 2026-11-19T09:30:00Z\n\n\
        Exit codes: 0 exported, even if there are none; 1 exported, and some cannot be read; 2 wrong use, or the store or \
        the file cannot be used."
)]
pub(super) struct ExportRecordsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[arg(long, value_name = "FILE", help = "New file for the records, instead of the standard output")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) store: StoreFlag,
}

pub(super) fn run(args: &ExportRecordsArgs, file: Option<&Path>) -> anyhow::Result<CommandResult> {
    let wanted = args.filter.wanted()?;
    let store = &open_store(file, &args.store, Access::Read)?;
    let filter = wanted.page(blocking(store.now())?, None, PAGE);
    let Some(path) = &args.output else {
        return match write(store, filter, std::io::stdout().lock()) {
            // A reader that closes the pipe early, such as `head`, is no failure.
            Err(error) if is_closed(&error) => Ok(CommandResult::Yes),
            counted => counted.map(told),
        };
    };
    let file = files::create(path)?;
    let counted = write(store, filter, &file).and_then(|counted| {
        file.sync_all().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(counted)
    });
    if counted.is_err() {
        remove(path);
    }
    counted.map(told)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        eprintln!("{} is incomplete, and cannot be removed: {error}", path.display());
    }
}

fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Numbers of the exported records.
#[derive(Clone, Copy)]
struct ExportCounts {
    records: usize,
    unreadable: usize,
}

fn told(counts: ExportCounts) -> CommandResult {
    let all = counts.records + counts.unreadable;
    eprintln!("{all} record{}", if all == 1 { "" } else { "s" });
    told_of(counts.unreadable)
}

/// Writes every page of a list as it is read.
fn write(store: &Arc<dyn Records>, mut filter: Filter, out: impl Write) -> anyhow::Result<ExportCounts> {
    let (mut out, mut counts) = (BufWriter::new(out), ExportCounts { records: 0, unreadable: 0 });
    let mut told = 0;
    loop {
        let page: RecordPage = blocking(store.list(&filter))?;
        for line in page.records.iter().map(exported).chain(page.unreadable.iter().map(unreadable)) {
            writeln!(out, "{line}")?;
        }
        counts.records += page.records.len();
        counts.unreadable += page.unreadable.len();
        if counts.records / TELL_EVERY > told {
            told = counts.records / TELL_EVERY;
            eprintln!("{} records so far", counts.records);
        }
        filter.after = page.next;
        if filter.after.is_none() {
            out.flush()?;
            return Ok(counts);
        }
    }
}
