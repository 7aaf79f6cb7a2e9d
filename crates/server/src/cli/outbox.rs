//! `semel outbox list|show|retry|discard`: messages that wait, that arrived, and that nobody wanted. Every action wants a
//! reason, and is noted for good together with it.

use std::sync::Arc;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};
use semel_core::outbox::{Intervention, Message, MessageFilter, MessageState, Outbox};
use serde_json::Value;

use super::records::{reason, who};
use super::{Done, access_of, blocking, open_outbox, printable, say};
use crate::operate::Acted;
use crate::operate::messages::{self, Wanted, summary};

/// How many messages are read from the store at a time.
const PAGE: usize = 500;

/// An event id as examples show it.
const EXAMPLE: &str = "01a1df32-caa3-786d-a196-45c465f24292:payment.created";

pub(super) fn command() -> Command {
    let id = || {
        Arg::new("id")
            .value_name("EVENT_ID")
            .required(true)
            .help("The id that receivers get: operationId:kind")
    };
    let reason = || {
        Arg::new("reason").long("reason").value_name("TEXT").required(true).help("Why; it is kept for good")
    };
    let common = || [super::store_flag(), super::json_flag()];
    Command::new("outbox")
        .about("Look at messages to others, and retry or discard those that are dead")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list")
                .about("List messages, roughly the oldest first")
                .long_about(
                    "Lists messages that commands have sent: event id, state, tries, since when, and what went wrong \
                     last. Begin with `--state dead`: these wait for somebody, and hold back later messages of the same \
                     command. Payloads are not shown.",
                )
                .after_help(
                    "Examples:\n  \
                     semel outbox list --state dead\n  \
                     semel outbox list --state pending --kind payment.created --older-than 5m --json\n\n\
                     Exit codes: 0 listed, even if there are none; 2 wrong use, or the store cannot be used.",
                )
                .arg(
                    Arg::new("state")
                        .long("state")
                        .value_name("STATE")
                        .value_parser(MessageState::ALL.map(MessageState::as_str))
                        .help("Only this state"),
                )
                .arg(Arg::new("kind").long("kind").value_name("KIND").help("Only this kind, such as payment.created"))
                .arg(
                    Arg::new("older-than")
                        .long("older-than")
                        .value_name("TIME")
                        .help("Only those that were made longer ago than this, such as 5m"),
                )
                .args(common()),
        )
        .subcommand(
            Command::new("show")
                .about("Show one message, without what it says")
                .long_about(
                    "Shows all that is known about one message: where it is, how often it was tried, when it is tried \
                     next or who has it until when, what went wrong last, and what the receiver calls it. Its payload \
                     is not shown, only how long it is. What was done by hand is in `semel records show OPERATION_ID`.",
                )
                .after_help(format!(
                    "Example:\n  semel outbox show {EXAMPLE}\n\n\
                     Exit codes: 0 shown, 1 there is no such message, 2 wrong use, or the store cannot be used."
                ))
                .arg(id())
                .args(common()),
        )
        .subcommand(
            Command::new("retry")
                .about("Try a dead message again now, or one that waits")
                .long_about(
                    "Makes a dead message pending again, due now and with all its tries before it; the next worker \
                     sends it, under the same event id. A message that waits for its next try is tried now. It is \
                     refused for one that is delivered, and while a worker has it in hand.\n\n\
                     Who did it and why is kept for good.",
                )
                .after_help(format!(
                    "Example:\n  semel outbox retry {EXAMPLE} \\\n      --reason 'the receiver is repaired'\n\n\
                     Exit codes: 0 it is tried again, 1 it cannot be, 2 wrong use, or the store cannot be used."
                ))
                .arg(id())
                .arg(reason())
                .args(common()),
        )
        .subcommand(
            Command::new("discard")
                .about("Give up a message for good: later ones of its command wait no longer")
                .long_about(
                    "Deletes a message that is dead, or that waits. It is never sent again, and messages of the same \
                     command that waited for it go out. A try that failed may have reached the receiver all the same. \
                     It is refused for one that is delivered, and while a worker has it in hand.\n\n\
                     Who did it and why is kept for good.",
                )
                .after_help(format!(
                    "Example:\n  semel outbox discard {EXAMPLE} \\\n      --reason 'the receiver is gone'\n\n\
                     Exit codes: 0 discarded, 1 it cannot be, 2 wrong use, or the store cannot be used."
                ))
                .arg(id())
                .arg(reason())
                .args(common()),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let (name, matches) = matches.subcommand().context("a subcommand is required")?;
    let outbox = open_outbox(matches, access_of(name))?;
    let json = matches.get_flag("json");
    match name {
        "list" => list(&outbox, matches, json),
        "show" => show(&outbox, matches, json),
        "retry" => act(&outbox, matches, Intervention::Retry, json),
        _ => act(&outbox, matches, Intervention::Discard, json),
    }
}

fn list(outbox: &Arc<dyn Outbox>, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let wanted = Wanted::read(|name| matches.get_one::<String>(name).cloned()).map_err(anyhow::Error::msg)?;
    let mut filter = blocking(wanted.page(&**outbox, None, PAGE))?;
    if json {
        let mut all = Vec::new();
        while let Some(page) = next_page(outbox, &mut filter)? {
            all.extend(page.iter().map(summary));
        }
        say(Value::Array(all));
        return Ok(Done::Yes);
    }
    let mut shown = 0;
    super::show(format!("{:60}  {:9}  {:>5}  {:24}  LAST ERROR", "EVENT ID", "STATE", "TRIES", "CREATED"));
    while let Some(page) = next_page(outbox, &mut filter)? {
        for message in &page {
            super::show(format!(
                "{:60}  {:9}  {:>5}  {}  {}",
                message.event_id,
                message.state.as_str(),
                message.attempts,
                message.created_at,
                printable(message.last_error.as_deref().unwrap_or("-")),
            ));
        }
        shown += page.len();
    }
    eprintln!("{shown} message{}", if shown == 1 { "" } else { "s" });
    Ok(Done::Yes)
}

fn next_page(outbox: &Arc<dyn Outbox>, filter: &mut MessageFilter) -> anyhow::Result<Option<Vec<Message>>> {
    let page = blocking(outbox.messages(filter))?;
    if let Some(last) = page.last() {
        filter.after = Some(last.event_id.clone());
    }
    Ok((!page.is_empty()).then_some(page))
}

fn show(outbox: &Arc<dyn Outbox>, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let id = event_id(matches);
    let (Some(message), now) = blocking(outbox.message(id))? else {
        eprintln!("{}", messages::absent(id));
        return Ok(Done::No);
    };
    let shown = messages::full(&message, now);
    if json {
        say(shown);
        return Ok(Done::Yes);
    }
    for (name, value) in shown.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        say(printable(&format!("{name:18} {value}")));
    }
    Ok(Done::Yes)
}

/// Does it, and notes who did and why.
fn act(
    outbox: &Arc<dyn Outbox>,
    matches: &ArgMatches,
    intervention: Intervention,
    json: bool,
) -> anyhow::Result<Done> {
    let id = event_id(matches);
    let why = reason(matches)?;
    match (blocking(messages::act(&**outbox, id, intervention, who(), why))?, intervention) {
        (Acted::Done(state), _) if json => say(messages::done(id, state)),
        (Acted::Done(_), Intervention::Retry) => say(format!("{id} is pending now, and due")),
        (Acted::Done(_), Intervention::Discard) => say(format!("{id} is discarded")),
        (Acted::Refused(why) | Acted::Absent(why), _) => {
            eprintln!("{why}");
            return Ok(Done::No);
        }
    }
    Ok(Done::Yes)
}

fn event_id(matches: &ArgMatches) -> &str {
    matches.get_one::<String>("id").map_or("", String::as_str)
}
