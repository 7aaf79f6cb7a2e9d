//! `semel records list`: records that match a filter.

use std::path::Path;
use std::sync::Arc;

use semel_core::{Filter, RecordPage, Records, StateName, UnreadableRecord};
use semel_operations::operate::filters::{FilterSpelling, WantedRecords};
use semel_operations::operate::names::unknown_operation;
use semel_operations::operate::records::{summary, unreadable};
use semel_stores::Access;
use serde_json::Value;

use crate::cli::{CommandResult, OutputFlags, StoreFlag, blocking, load, open_store, printable, say, show};

/// Number of records in one page of the store.
const PAGE: usize = 500;

/// The command line of `semel records list`.
#[derive(Debug, clap::Args)]
#[command(
    about = "List records, the oldest first",
    long_about = "Lists records, the oldest first: operation id, state, operation, caller, and the time since which \
        the record is in its state. Begin with `--state unknown`: these wait for evidence, and are listed with the \
        reason why they are unknown. The other states are \
        claimed, processing, succeeded, failed_final, failed_retryable and expired. Keys and bodies are not shown.\n\n\
        Claimed, processing and unknown records are found in milliseconds. A list of the others reads the whole \
        store.",
    after_help = "Examples:\n  \
        semel records list --state unknown\n  \
        semel records list --operation payments.create --older-than 5m --json\n  \
        semel records list --state unknown --since 2026-11-19T08:00:00Z --until 2026-11-19T09:30:00Z\n\n\
        Exit codes: 0 listed, even if there are none; 1 listed, and some cannot be read; 2 wrong use, or the store cannot be used."
)]
pub(super) struct ListRecordsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    pub(super) store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// Flags that select records.
#[derive(Debug, clap::Args)]
pub(super) struct FilterArgs {
    #[arg(long, value_name = "STATE", help = "Only this state, such as unknown")]
    state: Option<String>,
    #[arg(long, value_name = "NAME", help = "Only this operation")]
    operation: Option<String>,
    #[arg(long, value_name = "NAME", help = "Only this tenant")]
    tenant: Option<String>,
    #[arg(long, value_name = "NAME", help = "Only this caller")]
    caller: Option<String>,
    #[arg(
        long,
        value_name = "TIME",
        help = "Only records that entered their state longer ago than this, such as 5m"
    )]
    older_than: Option<String>,
    #[arg(
        long,
        value_name = "MOMENT",
        help = "Only records that entered their state then or later, such as 2026-11-19T08:30:00Z"
    )]
    since: Option<String>,
    #[arg(long, value_name = "MOMENT", help = "Only records that entered their state before then")]
    until: Option<String>,
}

impl FilterArgs {
    /// Parses the filter.
    pub(super) fn wanted(&self) -> anyhow::Result<WantedRecords> {
        let given = |name: &str| match name {
            "state" => self.state.clone(),
            "operation" => self.operation.clone(),
            "tenant" => self.tenant.clone(),
            "caller" => self.caller.clone(),
            "older-than" => self.older_than.clone(),
            "since" => self.since.clone(),
            "until" => self.until.clone(),
            _ => None,
        };
        WantedRecords::read(FilterSpelling::Flags, given).map_err(anyhow::Error::msg)
    }
}

pub(super) fn run(args: &ListRecordsArgs, file: Option<&Path>) -> anyhow::Result<CommandResult> {
    let wanted = args.filter.wanted()?;
    let store = open_store(file, &args.store, Access::Read)?;
    let mut filter = wanted.page(blocking(store.now())?, None, PAGE);
    let (mut shown, mut bad) = (0_usize, 0_usize);
    if args.output.json {
        let mut all: Vec<Value> = Vec::new();
        each_page(&store, &mut filter, |page| {
            all.extend(page.records.iter().map(summary));
            all.extend(page.unreadable.iter().map(unreadable));
            bad += page.unreadable.len();
        })?;
        if all.is_empty() {
            hint(&store, args, file)?;
        }
        say(Value::Array(all));
        return Ok(told_of(bad));
    }
    let with_reasons = filter.state == Some(StateName::Unknown);
    show(format!(
        "{:36}  {:16}  {:24}  {:20}  {:24}{}",
        "OPERATION ID",
        "STATE",
        "OPERATION",
        "TENANT/CALLER",
        "SINCE",
        if with_reasons { "  REASON" } else { "" }
    ));
    each_page(&store, &mut filter, |page| {
        for UnreadableRecord { operation_id, why } in &page.unreadable {
            show(printable(&format!("{operation_id}  {:16}  {why}", "unreadable")));
        }
        for record in &page.records {
            let who = format!("{}/{}", record.principal.tenant(), record.principal.caller());
            let (id, state) = (record.operation_id, record.head.state.name().as_str());
            let reason =
                if with_reasons { format!("  {}", record.head.reason.as_str()) } else { String::new() };
            show(printable(&format!(
                "{id}  {state:16}  {:24}  {who:20}  {}{reason}",
                record.operation.as_str(),
                record.state_since
            )));
        }
        bad += page.unreadable.len();
        shown += page.records.len();
    })?;
    eprintln!("{shown} record{}", if shown == 1 { "" } else { "s" });
    if shown == 0 {
        hint(&store, args, file)?;
    }
    Ok(told_of(bad))
}

/// Says why a list of an operation is empty, if nothing has that name.
fn hint(store: &Arc<dyn Records>, args: &ListRecordsArgs, file: Option<&Path>) -> anyhow::Result<()> {
    if let Some(name) = &args.filter.operation {
        let config = load(file, args.store.flags())?.config;
        if let Some(hint) = blocking(unknown_operation(name, &config, &**store))? {
            eprintln!("{}", printable(&hint));
        }
    }
    Ok(())
}

/// Returns the result of a list with this many unreadable records.
pub(super) fn told_of(unreadable: usize) -> CommandResult {
    if unreadable == 0 {
        return CommandResult::Yes;
    }
    eprintln!("{unreadable} of them cannot be read: see `semel doctor`");
    CommandResult::No
}

/// Reads every page of a list.
pub(super) fn each_page(
    store: &Arc<dyn Records>,
    filter: &mut Filter,
    mut read: impl FnMut(RecordPage),
) -> anyhow::Result<()> {
    loop {
        let page = blocking(store.list(filter))?;
        filter.after = page.next;
        read(page);
        if filter.after.is_none() {
            return Ok(());
        }
    }
}
