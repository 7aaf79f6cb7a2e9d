//! `semel outbox list|show|retry|discard`: pending, delivered and dead messages. Every action requires a
//! reason, and is noted permanently with it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use semel_core::outbox::{Intervention, Message, MessageFilter, MessageState, Outbox};
use semel_operations::operate::Acted;
use semel_operations::operate::filters::FilterSpelling;
use semel_operations::operate::messages::{self, WantedMessages, summary};
use semel_stores::Access;
use serde_json::Value;

use super::records::{reason, who};
use super::{CommandResult, OutputFlags, StoreFlag, blocking, load, open_keyless, printable, say};

/// Number of messages in one page of the store.
const PAGE: usize = 500;

/// Event id of the examples.
const EXAMPLE: &str = "01a1df32-caa3-786d-a196-45c465f24292:payment.created";

/// The command line of `semel outbox`.
#[derive(Debug, clap::Args)]
#[command(about = "List and show outbox messages, and retry or discard dead ones")]
pub(super) struct OutboxArgs {
    #[command(subcommand)]
    command: OutboxCommand,
}

#[derive(Debug, clap::Subcommand)]
enum OutboxCommand {
    List(ListMessagesArgs),
    Show(ShowMessageArgs),
    Retry(RetryArgs),
    Discard(DiscardArgs),
}

/// The command line of `semel outbox list`.
#[derive(Debug, clap::Args)]
#[command(
    about = "List messages, roughly the oldest first",
    long_about = "Lists messages that commands have sent: event id, state, tries, creation time and last \
        error. Begin with `--state dead`: these wait for an operator, and hold back later messages of the \
        same command. Payloads are not shown.",
    after_help = "Examples:\n  \
        semel outbox list --state dead\n  \
        semel outbox list --state pending --kind payment.created --older-than 5m --json\n\n\
        Exit codes: 0 listed, even if there are none; 2 wrong use, or the store cannot be used."
)]
struct ListMessagesArgs {
    #[arg(
        long,
        value_name = "STATE",
        value_parser = MessageState::ALL.map(MessageState::as_str),
        help = "Only this state"
    )]
    state: Option<String>,
    #[arg(long, value_name = "KIND", help = "Only this kind, such as payment.created")]
    kind: Option<String>,
    #[arg(long, value_name = "TIME", help = "Only messages that are older than this, such as 5m")]
    older_than: Option<String>,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel outbox show`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Show one message, without its payload",
    long_about = "Shows one message: its state, its tries, the time of its next try or the worker that \
        holds it and until when, its last error, and the receiver's reference. Its payload is not shown, \
        only its length. Actions of operators are in `semel records show OPERATION_ID`.",
    after_help = format!(
                    "Example:\n  semel outbox show {EXAMPLE}\n\n\
        Exit codes: 0 shown, 1 there is no such message, 2 wrong use, or the store cannot be used."
                ),
)]
struct ShowMessageArgs {
    #[arg(value_name = "EVENT_ID", help = "The id that receivers get: operationId:kind")]
    id: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel outbox retry`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Retry a dead or waiting message now",
    long_about = "Makes a dead message pending again, due now and with its full number of tries; the next \
        worker sends it, under the same event id. A message that waits for its next try is tried now. It is \
        refused for a delivered message, and while a worker holds it.\n\n\
        The operator and the reason are kept for good.",
    after_help = format!(
                    "Example:\n  \
        semel outbox retry {EXAMPLE} \\\n      \
        --reason 'the receiver is repaired'\n\n\
        Exit codes: 0 the message is retried, 1 it cannot be, 2 wrong use, or the store cannot be used."
                ),
)]
struct RetryArgs {
    #[command(flatten)]
    act: ActOnMessageArgs,
}

/// The command line of `semel outbox discard`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Delete a message for good; later messages of its command go out",
    long_about = "Deletes a dead or waiting message. It is never sent again, and messages of the same \
        command that waited for it go out. A try that failed may have reached the receiver all the same. It \
        is refused for a delivered message, and while a worker holds it.\n\n\
        The operator and the reason are kept for good.",
    after_help = format!(
                    "Example:\n  semel outbox discard {EXAMPLE} \\\n      --reason 'the receiver is gone'\n\n\
        Exit codes: 0 discarded, 1 it cannot be, 2 wrong use, or the store cannot be used."
                ),
)]
struct DiscardArgs {
    #[command(flatten)]
    act: ActOnMessageArgs,
}

/// The arguments of an action on a message.
#[derive(Debug, clap::Args)]
struct ActOnMessageArgs {
    #[arg(value_name = "EVENT_ID", help = "The id that receivers get: operationId:kind")]
    id: String,
    #[arg(long, value_name = "TEXT", help = "Reason for the action, which is kept for good")]
    reason: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &OutboxArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    match &args.command {
        OutboxCommand::List(args) => list(args, config),
        OutboxCommand::Show(args) => show(args, config),
        OutboxCommand::Retry(RetryArgs { act: args }) => act(args, config, Intervention::Retry),
        OutboxCommand::Discard(DiscardArgs { act: args }) => act(args, config, Intervention::Discard),
    }
}

/// Opens the messages of the configured store, which must exist.
fn open_outbox(config: Option<&Path>, flag: &StoreFlag, access: Access) -> anyhow::Result<Arc<dyn Outbox>> {
    let backend = open_keyless(&load(config, flag.flags())?.config.store, access)?;
    backend.outbox().context("a store in memory has no messages")
}

fn list(args: &ListMessagesArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let outbox = &open_outbox(config, &args.store, Access::Read)?;
    let json = args.output.json;
    let given = |name: &str| match name {
        "state" => args.state.clone(),
        "kind" => args.kind.clone(),
        "older-than" => args.older_than.clone(),
        _ => None,
    };
    let wanted = WantedMessages::read(FilterSpelling::Flags, given).map_err(anyhow::Error::msg)?;
    let mut filter = blocking(wanted.page(&**outbox, None, PAGE))?;
    if json {
        let mut all = Vec::new();
        while let Some(page) = next_page(outbox, &mut filter)? {
            all.extend(page.iter().map(summary));
        }
        say(Value::Array(all));
        return Ok(CommandResult::Yes);
    }
    let mut shown = 0;
    super::show(format!("{:60}  {:9}  {:>5}  {:24}  LAST ERROR", "EVENT ID", "STATE", "TRIES", "CREATED"));
    while let Some(page) = next_page(outbox, &mut filter)? {
        for message in &page {
            super::show(printable(&format!(
                "{:60}  {:9}  {:>5}  {}  {}",
                message.event_id,
                message.state.as_str(),
                message.attempts,
                message.created_at,
                message.last_error.as_deref().unwrap_or("-"),
            )));
        }
        shown += page.len();
    }
    eprintln!("{shown} message{}", if shown == 1 { "" } else { "s" });
    Ok(CommandResult::Yes)
}

fn next_page(outbox: &Arc<dyn Outbox>, filter: &mut MessageFilter) -> anyhow::Result<Option<Vec<Message>>> {
    let page = blocking(outbox.messages(filter))?;
    if let Some(last) = page.last() {
        filter.after = Some(last.event_id.clone());
    }
    Ok((!page.is_empty()).then_some(page))
}

fn show(args: &ShowMessageArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let outbox = open_outbox(config, &args.store, Access::Read)?;
    let id = args.id.as_str();
    let (Some(message), now) = blocking(outbox.message(id))? else {
        eprintln!("{}", printable(&messages::absent(id)));
        return Ok(CommandResult::No);
    };
    let shown = messages::full(&message, now);
    if args.output.json {
        say(shown);
        return Ok(CommandResult::Yes);
    }
    for (name, value) in shown.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        say(printable(&format!("{name:18} {value}")));
    }
    Ok(CommandResult::Yes)
}

/// Acts on a message, and notes the operator and the reason.
fn act(
    args: &ActOnMessageArgs,
    config: Option<&Path>,
    intervention: Intervention,
) -> anyhow::Result<CommandResult> {
    let outbox = open_outbox(config, &args.store, Access::Write)?;
    let (id, json) = (args.id.as_str(), args.output.json);
    let why = reason(&args.reason)?;
    match (blocking(messages::act(&*outbox, id, intervention, who(), why))?, intervention) {
        (Acted::Done(state), _) if json => say(messages::done(id, state)),
        (Acted::Done(_), Intervention::Retry) => say(printable(&format!("{id} is pending now, and due"))),
        (Acted::Done(_), Intervention::Discard) => say(printable(&format!("{id} is discarded"))),
        (Acted::Refused(why) | Acted::Absent(why), _) => {
            eprintln!("{}", printable(&why));
            return Ok(CommandResult::No);
        }
    }
    Ok(CommandResult::Yes)
}
