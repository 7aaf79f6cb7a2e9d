//! `semel reconcile`: looks for evidence about commands in state `unknown`, and lists them. Its subcommand
//! `ledger` compares ledgers.

mod ledger;

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use semel_core::reconcile::is_dead_letter;
use semel_core::{Filter, OperationId, Record, Records, State, StateName, Timestamp};
use semel_flow::reconcile::{LookUpOutcome, LookUpResult, Reconciler};
use semel_operations::operate::looks::shown;
use semel_operations::operate::{operation_id, records};
use semel_operations::reconcile::{is_wanted, reconciler};
use semel_stores::Access;
use serde_json::{Value, json};

use super::{CommandResult, OutputFlags, StoreFlag, blocking, existing, load, printable, runtime, say};
use crate::gateway;
use ledger::LedgerArgs;

/// Number of records in one page of the store.
const PAGE: usize = 500;

/// Largest number of passes: further commands may become unknown meanwhile.
const MAX_PASSES: usize = 50;

/// The command line of `semel reconcile`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Resolve commands in state unknown by asking the provider, and compare ledgers",
    long_about = "Looks for evidence about commands in state unknown: events that providers have sent, and \
        their answers to the look-ups of `[operation.reconcile]`. An executed command is settled with the \
        answer that retries get. A command that provably was not executed is free for one retry. Any other \
        is looked up again later, and left to an operator after too many look-ups. A running gateway does \
        this by itself.\n\n\
        With an OPERATION_ID, one command is looked up now, even if it is not due or was given up. With \
        --list, no provider is asked: unknown commands are listed.",
    after_help = "Examples:\n  \
        semel reconcile --list\n  \
        semel reconcile --config /etc/semel.toml\n  \
        semel reconcile 01a1df32-caa3-786d-a196-45c465f24292\n\n\
        Exit codes: 0 no command is unknown (with OPERATION_ID: this one is not; with --list: listed), 1 a \
        command still is, 2 wrong use, or it cannot be done."
)]
pub(super) struct ReconcileArgs {
    #[command(subcommand)]
    command: Option<ReconcileCommand>,
    #[arg(value_name = "OPERATION_ID", conflicts_with = "list", help = "Look up this command only, and now")]
    id: Option<String>,
    #[arg(
        long,
        help = "List unknown commands: since when, number of look-ups, time of the next one (never, if no look-ups \
                are configured), and those given up"
    )]
    list: bool,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Debug, clap::Subcommand)]
enum ReconcileCommand {
    Ledger(Box<LedgerArgs>),
}

impl ReconcileArgs {
    /// Returns the first argument that cannot be combined with a subcommand.
    fn given(&self) -> Option<&'static str> {
        let given = [
            (self.id.is_some(), "OPERATION_ID"),
            (self.list, "--list"),
            (self.store.store.is_some(), "--store"),
            (self.output.json, "--json"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}

pub(super) fn run(args: &ReconcileArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    if let Some(ReconcileCommand::Ledger(below)) = &args.command {
        if let Some(name) = args.given() {
            bail!("{name} does not go with `ledger`: write options of the ledger after that word");
        }
        return ledger::run(below, config);
    }
    let json = args.output.json;
    let id = args.id.as_deref().map(operation_id).transpose().map_err(anyhow::Error::msg)?;
    let config = load(config, args.store.flags())?.config;
    existing(&config.store)?;
    let access = if args.list { Access::Read } else { Access::Write };
    let backend = runtime()?.block_on(gateway::open(&config, access))?;
    let store: Arc<dyn Records> = backend.clone();
    if args.list {
        return list(&store, is_wanted(&config), json);
    }
    if !is_wanted(&config) {
        bail!(
            "no evidence can be found: no `[operation.reconcile]` and no `[[webhook]]` is configured. Name \
             the gateway's configuration with `--config`; `semel reconcile --list` lists unknown commands"
        );
    }
    let reconciler = reconciler(&config, store.clone(), backend)?;
    match id {
        Some(id) => one(&reconciler, id, json),
        None => all(&reconciler, &store, json),
    }
}

/// Reconciles all commands that are due, and lists the unused evidence.
fn all(reconciler: &Reconciler, store: &Arc<dyn Records>, json: bool) -> anyhow::Result<CommandResult> {
    let mut looks: Vec<LookUpResult> = Vec::new();
    let mut by_evidence = 0;
    for _ in 0..MAX_PASSES {
        let report = runtime()?.block_on(reconciler.once());
        if let Some(why) = report.trouble {
            bail!("not every command could be looked up: {why}");
        }
        by_evidence += report.by_evidence;
        let failed = |look: &LookUpResult| matches!(look.outcome, LookUpOutcome::Failed { .. });
        let more = !report.looks.is_empty() && !report.looks.iter().any(failed);
        looks.extend(report.looks);
        if !more {
            break;
        }
    }
    let unknown = unknown(store)?;
    let dead = unknown.iter().filter(|record| is_dead_letter(&record.head.state)).count();
    if json {
        let looks: Vec<Value> = looks.iter().map(shown).collect();
        say(json!({
            "looks": looks, "resolvedByEvents": by_evidence, "unknown": unknown.len(), "deadLetters": dead,
        }));
    } else {
        say(format!("{:36}  {:24}  OUTCOME", "OPERATION ID", "OPERATION"));
        for look in &looks {
            let (id, operation) = (look.operation_id, look.operation.as_str());
            say(printable(&format!("{id}  {operation:24}  {}", told(&look.outcome))));
        }
        eprintln!(
            "{} looked up, {by_evidence} settled by events; {} unknown, {dead} of them given up",
            looks.len(),
            unknown.len()
        );
    }
    Ok(if unknown.is_empty() { CommandResult::Yes } else { CommandResult::No })
}

/// Reconciles one command now.
fn one(reconciler: &Reconciler, id: OperationId, json: bool) -> anyhow::Result<CommandResult> {
    let Some(look) = blocking(reconciler.look(id))? else {
        eprintln!("{}", records::absent(id));
        return Ok(CommandResult::No);
    };
    match json {
        true => say(shown(&look)),
        false => say(format!("{id}: {}", told(&look.outcome))),
    }
    if let LookUpOutcome::Failed { why } = &look.outcome {
        bail!("the store cannot be used: {why}");
    }
    Ok(if look.outcome.is_unknown() { CommandResult::No } else { CommandResult::Yes })
}

/// Returns the result of a look-up as text.
fn told(outcome: &LookUpOutcome) -> String {
    match outcome {
        LookUpOutcome::Resolved(verdict) => format!("settled: {}", verdict.as_str().replace('_', " ")),
        LookUpOutcome::Again { at, why } => format!("unknown, looked up again at {at}: {}", printable(why)),
        LookUpOutcome::GivenUp { why } => format!("unknown, and given up: {}", printable(why)),
        LookUpOutcome::Overtaken => "another process is looking it up".to_owned(),
        LookUpOutcome::NotUnknown(state) => format!("not unknown: {state}"),
        LookUpOutcome::Failed { why } => {
            format!("unknown, since the store cannot be used: {}", printable(why))
        }
    }
}

/// Returns every command in state `unknown`.
fn unknown(store: &Arc<dyn Records>) -> anyhow::Result<Vec<Record>> {
    let mut filter = Filter { state: Some(StateName::Unknown), limit: PAGE, ..Filter::default() };
    let mut all = Vec::new();
    loop {
        let page = blocking(store.list(&filter))?;
        all.extend(page.records);
        filter.after = page.next;
        if filter.after.is_none() {
            return Ok(all);
        }
    }
}

/// Lists unknown commands. Without a reconciler, nothing looks them up.
fn list(store: &Arc<dyn Records>, has_look_ups: bool, json: bool) -> anyhow::Result<CommandResult> {
    let records = unknown(store)?;
    let now = blocking(store.now())?;
    if json {
        say(Value::Array(records.iter().filter_map(|record| listed(record, has_look_ups)).collect()));
        return Ok(CommandResult::Yes);
    }
    super::show(format!(
        "{:36}  {:24}  {:24}  {:>5}  {:24}  QUARANTINE UNTIL",
        "OPERATION ID", "OPERATION", "SINCE", "LOOKS", "NEXT LOOK"
    ));
    for record in &records {
        let State::Unknown { since, reconcile_after, attempts, quarantine_until } = record.head.state else {
            continue;
        };
        let next = match is_dead_letter(&record.head.state) {
            true => "given up".to_owned(),
            false if !has_look_ups => "never".to_owned(),
            false => reconcile_after.to_string(),
        };
        let quarantine = match quarantine_until {
            over if over <= now => "over".to_owned(),
            Timestamp::MAX => "for ever: its message may still be sent".to_owned(),
            until => until.to_string(),
        };
        let (id, operation) = (record.operation_id, record.operation.as_str());
        super::show(printable(&format!(
            "{id}  {operation:24}  {since}  {attempts:>5}  {next:24}  {quarantine}"
        )));
    }
    let dead = records.iter().filter(|record| is_dead_letter(&record.head.state)).count();
    eprintln!("{} unknown, {dead} of them given up", records.len());
    Ok(CommandResult::Yes)
}

/// Returns an unknown command as a list shows it, as JSON. The names are stable.
fn listed(record: &Record, has_look_ups: bool) -> Option<Value> {
    let State::Unknown { since, reconcile_after, attempts, quarantine_until } = record.head.state else {
        return None;
    };
    let dead = is_dead_letter(&record.head.state);
    Some(json!({
        "operationId": record.operation_id.to_string(),
        "operation": record.operation.as_str(),
        "tenant": record.principal.tenant(),
        "caller": record.principal.caller(),
        "reason": record.head.reason.as_str(),
        "keyHashPrefix": record.key_hash_prefix,
        "unknownSince": since.to_rfc3339(),
        "reconcileAttempts": attempts,
        "nextLookAt": (has_look_ups && !dead).then(|| reconcile_after.to_rfc3339()),
        "deadLetter": dead,
        "quarantineUntil": quarantine_until.to_rfc3339(),
    }))
}
