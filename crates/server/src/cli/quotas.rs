//! `semel quotas list`: shows the remaining quotas of tenants and callers, and when they are full again.

use std::path::Path;
use std::sync::Arc;

use semel_core::quota::{Limits, Usage, UsageFilter};
use semel_operations::operate::quotas::{RateLeft, SubjectQuotas};
use semel_stores::Access;
use serde_json::Value;

use super::{CommandResult, OutputFlags, StoreFlag, blocking, load, open_keyless, printable, say};

/// Number of subjects in one page of the store.
const PAGE: usize = 500;

/// The command line of `semel quotas`.
#[derive(Debug, clap::Args)]
#[command(about = "Show how much tenants and callers have used of their quotas")]
pub(super) struct QuotasArgs {
    #[command(subcommand)]
    command: QuotasCommand,
}

#[derive(Debug, clap::Subcommand)]
enum QuotasCommand {
    List(ListQuotasArgs),
}

/// The command line of `semel quotas list`.
#[derive(Debug, clap::Args)]
#[command(
    about = "List tenants and callers with their remaining quotas, by name",
    long_about = "Lists the tenants and callers with recent use: the new keys and look-ups that are left, \
        the stored records and bytes, and the time at which the rates are whole again without further use. \
        A tenant with all its callers has the caller `*`. A quota that neither `[limits]` nor `[[limit]]` \
        sets is shown as `-`.\n\n\
        Gateways report their use once a second, so the list is a moment old. A tenant or caller is not \
        listed after a day without use, if all of its quota is left.",
    after_help = "Examples:\n  \
        semel quotas list\n  \
        semel quotas list --tenant acme --json\n\n\
        Exit codes: 0 listed, even if there are none; 2 wrong use, or the store cannot be used."
)]
struct ListQuotasArgs {
    #[arg(long, value_name = "TENANT", help = "Only this tenant and its callers")]
    tenant: Option<String>,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &QuotasArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let QuotasCommand::List(args) = &args.command;
    let config = load(config, args.store.flags())?.config;
    let tenant = args.tenant.clone();
    let pages = Pages {
        usage: open_keyless(&config.store, Access::Read)?,
        limits: config.limits,
        filter: UsageFilter { tenant, after: None, limit: PAGE },
    };
    list(pages, args.output.json)
}

/// Subjects, one page at a time.
struct Pages {
    usage: Arc<dyn Usage>,
    limits: Limits,
    filter: UsageFilter,
}

impl Pages {
    fn next(&mut self) -> anyhow::Result<Option<Vec<SubjectQuotas>>> {
        let (entries, now) = blocking(self.usage.list_usage(&self.filter))?;
        let Some((last, _)) = entries.last() else { return Ok(None) };
        self.filter.after = Some(last.clone());
        let read = |entry| blocking(SubjectQuotas::read(&*self.usage, &self.limits, entry, now));
        entries.into_iter().map(read).collect::<Result<_, _>>().map(Some)
    }
}

fn list(mut pages: Pages, json: bool) -> anyhow::Result<CommandResult> {
    if json {
        let mut all = Vec::new();
        while let Some(page) = pages.next()? {
            all.extend(page.iter().map(SubjectQuotas::summary));
        }
        say(Value::Array(all));
        return Ok(CommandResult::Yes);
    }
    super::show(format!(
        "{:24}  {:24}  {:>19}  {:>19}  {:>19}  {:>25}  WHOLE AGAIN",
        "TENANT", "CALLER", "NEW KEYS LEFT", "LOOK-UPS LEFT", "ACTIVE KEYS", "STORED BYTES"
    ));
    let mut shown = 0;
    while let Some(page) = pages.next()? {
        for quotas in &page {
            super::show(line(quotas));
        }
        shown += page.len();
    }
    eprintln!("{shown} tenant{} and callers", if shown == 1 { "" } else { "s" });
    Ok(CommandResult::Yes)
}

fn line(quotas: &SubjectQuotas) -> String {
    let none = || "-".to_owned();
    let rate = |rate: &Option<RateLeft>| {
        rate.as_ref().map_or_else(none, |left| format!("{} of {}", left.left, left.rate.count()))
    };
    let cap = |cap: Option<(u64, u64)>| cap.map_or_else(none, |(cap, kept)| format!("{kept} of {cap}"));
    let rates = [&quotas.new_keys, &quotas.lookups];
    let whole_at = rates.into_iter().flatten().filter_map(|left| left.whole_at).max();
    format!(
        "{:24}  {:24}  {:>19}  {:>19}  {:>19}  {:>25}  {}",
        printable(quotas.subject.tenant()),
        printable(quotas.subject.caller().unwrap_or("*")),
        rate(&quotas.new_keys),
        rate(&quotas.lookups),
        cap(quotas.active_keys),
        cap(quotas.stored_bytes),
        whole_at.map_or_else(|| "now".to_owned(), |at| at.to_string()),
    )
}
