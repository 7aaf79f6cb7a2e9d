//! `semel records list|show|explain|resolve|release|purge`: what the store holds, and what a person may do to it. Every
//! action wants a reason, and is noted for good together with it.

mod explain;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::{
    Change, Epoch, Filter, Note, NoteTaken, OperationId, Progress, Record, StateName, StepKind, Store,
    Unreadable,
};
use semel_stores::access::Access;
use serde_json::Value;

use super::{Done, StoreFlag, blocking, load, open_store, printable, say};
use crate::operate::records::{FIRST_ATTEMPT, Said, Wanted, absent, done, find, is_an_answer, summary};
use crate::operate::{self, Acted, records};

/// How many records are read from the store at a time.
const PAGE: usize = 500;

/// An operation id as examples show it.
const EXAMPLE: &str = "01a1df32-caa3-786d-a196-45c465f24292";

/// The command line of `semel records`, read by the names of its arguments.
#[derive(Debug)]
pub(super) struct RecordsArgs(ArgMatches);

impl FromArgMatches for RecordsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RecordsArgs, clap::Error> {
        Ok(RecordsArgs(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl Args for RecordsArgs {
    fn augment_args(records: Command) -> Command {
        command(records)
    }

    fn augment_args_for_update(records: Command) -> Command {
        command(records)
    }
}

fn command(records: Command) -> Command {
    let id = || {
        Arg::new("id")
            .value_name("OPERATION_ID")
            .required(true)
            .help("The id that clients get in Idempotency-Operation-Id")
    };
    let reason = || {
        Arg::new("reason").long("reason").value_name("TEXT").required(true).help("Why; it is kept for good")
    };
    let common = || {
        [
            Arg::new("store")
                .long("store")
                .value_name("STORE")
                .help("Where records are kept, if not as configured: sqlite:PATH or postgres://…"),
            Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON"),
        ]
    };
    records
        .about("Look at records, and settle those that nobody else can settle")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list")
                .about("List records, the oldest first")
                .long_about(
                    "Lists records, the oldest first: operation id, state, operation, caller, and since when. Begin \
                     with `--state unknown`: these wait for somebody to say what happened. The other states are \
                     claimed, processing, succeeded, failed_final, failed_retryable and expired. Keys and bodies are not shown.",
                )
                .after_help(
                    "Examples:\n  \
                     semel records list --state unknown\n  \
                     semel records list --operation payments.create --older-than 5m --json\n\n\
                     Exit codes: 0 listed, even if there are none; 1 listed, and some cannot be read; 2 wrong use, or the store cannot be used.",
                )
                .arg(Arg::new("state").long("state").value_name("STATE").help("Only this state, such as unknown"))
                .arg(Arg::new("operation").long("operation").value_name("NAME").help("Only this operation"))
                .arg(Arg::new("tenant").long("tenant").value_name("NAME").help("Only this tenant"))
                .arg(
                    Arg::new("older-than")
                        .long("older-than")
                        .value_name("TIME")
                        .help("Only those that last changed longer ago than this, such as 5m"),
                )
                .args(common()),
        )
        .subcommand(
            Command::new("show")
                .about("Show one record, and what was noted about it")
                .long_about(
                    "Shows all that is known about one command, and what people noted about it. `records explain` \
                     tells the same as a story, with what can be done next.",
                )
                .after_help(format!(
                    "Example:\n  semel records show {EXAMPLE}\n\n\
                     Exit codes: 0 shown, 1 there is no such record, 2 wrong use, or the store cannot be used."
                ))
                .arg(id())
                .args(common()),
        )
        .subcommand(
            Command::new("explain")
                .about("Tell the story of one command: who ran it when, what became of it, who settled it and why")
                .long_about(
                    "Tells the story of one command, step by step: claims and their epochs, renewed leases, sweeps, \
                     answers, verdicts, and what was done by hand, by whom and why. Then it says what a retry gets \
                     now, and what can be done.\n\n\
                     Replays and refused duplicates change nothing and are not in it; they are in the log.",
                )
                .after_help(format!(
                    "Example:\n  semel records explain {EXAMPLE}\n\n\
                     Exit codes: 0 told, 1 there is no such record, 2 wrong use, or the store cannot be used."
                ))
                .arg(id())
                .args(common()),
        )
        .subcommand(
            Command::new("resolve")
                .about("Settle a record whose outcome is unknown, with evidence from elsewhere")
                .long_about(
                    "Settles a record whose outcome is unknown. Look first where the effect would be: in the \
                     service's own records, at the provider.\n\n\
                     `--verdict executed` says that it took place; give the response that retries are to get. Of its \
                     body as much is stored as the operation's `store_response` wants: with \"reference\", a Location is \
                     enough.\n\
                     `--verdict not-executed` says that it did not, and frees the key for one retry. It is refused \
                     while a call of the last attempt could still be in flight.\n\n\
                     A verdict is about the attempt that you looked at: `records explain` tells its number, the epoch. It is refused \
                     if the command was run again since, so that it cannot settle an attempt that nobody has looked at.\n\n\
                     Of a command in phases, the verdict is about its open call, which `records show` names: give its \
                     `--phase` and the `--attempt` that you looked at. The command is then resumed: after the call with \
                     the `--output` that the phase's code would have returned, or by making the call anew. `--verdict \
                     resume` resumes a command that was given up with no call open.\n\n\
                     Who did it and why is kept for good, with the record's story.",
                )
                .after_help(format!(
                    "Examples:\n  \
                     semel records resolve {EXAMPLE} --verdict executed \\\n      \
                     --status 201 --body answer.json --reason 'found in the ledger'\n  \
                     semel records resolve {EXAMPLE} --verdict not-executed \\\n      \
                     --reason 'not in the ledger an hour later'\n  \
                     semel records resolve {EXAMPLE} --attempt 3 --phase charge \\\n      \
                     --verdict executed --output charge.json --reason 'captured'\n\n\
                     Exit codes: 0 settled, 1 it cannot be settled like this (it is not unknown, at another attempt, or too early), 2 \
                     wrong use, or the store cannot be used."
                ))
                .arg(id())
                .arg(
                    Arg::new("verdict")
                        .long("verdict")
                        .value_name("VERDICT")
                        .required(true)
                        .value_parser(["executed", "not-executed", "resume"])
                        .help("What the evidence says"),
                )
                .arg(
                    Arg::new("attempt")
                        .long("attempt")
                        .value_name("NUMBER")
                        .help("The attempt that you looked at, which `records explain` tells as its epoch; without it, the first"),
                )
                .arg(Arg::new("phase").long("phase").value_name("NAME").help("In phases: the phase whose call is open"))
                .arg(
                    Arg::new("output")
                        .long("output")
                        .value_name("FILE")
                        .help("In phases, executed: what the call came to, in JSON, as the phase's code returns it"),
                )
                .arg(Arg::new("status").long("status").value_name("CODE").help("Executed: the status that retries get"))
                .arg(Arg::new("body").long("body").value_name("FILE").help("Executed: the body that retries get"))
                .arg(
                    Arg::new("header")
                        .long("header")
                        .value_name("NAME: VALUE")
                        .action(ArgAction::Append)
                        .help("Executed: a header field that retries get; may be repeated"),
                )
                .arg(reason())
                .args(common()),
        )
        .subcommand(
            Command::new("release")
                .about("Give up a command that has not run: its key is as good as new")
                .long_about(
                    "Gives up a command that waits and has not begun, or that provably did nothing: its record goes, \
                     and its key is as good as new. What runs, what is unknown and what is settled is refused; for an \
                     unknown there is `records resolve`.",
                )
                .after_help(format!(
                    "Example:\n  semel records release {EXAMPLE} --reason 'sent by mistake'\n\n\
                     Exit codes: 0 released, 1 it cannot be released, 2 wrong use, or the store cannot be used."
                ))
                .arg(id())
                .arg(reason())
                .args(common()),
        )
        .subcommand(
            Command::new("purge")
                .about("Forget a settled command: its response at once, its key a little later")
                .long_about(
                    "Forgets a settled command, as when a customer asks for it: the stored response at once, and the \
                     key once no gateway can have it in memory any more. After that, the same key runs the command \
                     again. What runs or is unknown is refused.",
                )
                .after_help(format!(
                    "Example:\n  semel records purge {EXAMPLE} --reason 'asked to forget'\n\n\
                     Exit codes: 0 purged, 1 it cannot be purged, 2 wrong use, or the store cannot be used."
                ))
                .arg(id())
                .arg(reason())
                .args(common()),
        )
}

pub(super) fn run(RecordsArgs(matches): &RecordsArgs, config: Option<&Path>) -> anyhow::Result<Done> {
    let (name, matches) = matches.subcommand().context("a subcommand is required")?;
    let flag = StoreFlag::from_arg_matches(matches)?;
    let store = open_store(config, &flag, access_of(name))?;
    let json = matches.get_flag("json");
    match name {
        "list" => list(&store, matches, json),
        "show" => show(&store, matches, json),
        "explain" => explain::run(&store, operation_id(matches)?, &explain::same_store(config, &flag)?, json),
        "resolve" => {
            let (said, attempt, config) =
                (said(matches)?, attempt(matches)?, load(config, flag.flags())?.config);
            let change = |record: &Record| {
                let policy = config.policy_of(&record.operation);
                if said.loses_its_body(policy) {
                    eprintln!("the body is not stored: the operation's `store_response` does not want it");
                }
                said.change(policy, attempt)
            };
            act(&store, matches, "resolve", change, json)
        }
        "release" => act(&store, matches, "release", |_| Change::free(), json),
        _ => act(&store, matches, "purge", |_| Change::purge(), json),
    }
}

/// Returns the access that a command needs: a command that only reads changes nothing, not even an older schema.
fn access_of(name: &str) -> Access {
    match name {
        "list" | "show" | "explain" => Access::Read,
        _ => Access::Write,
    }
}

fn list(store: &Arc<dyn Store>, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let wanted = Wanted::read(|name| matches.get_one::<String>(name).cloned()).map_err(anyhow::Error::msg)?;
    let mut filter = wanted.page(blocking(store.now())?, None, PAGE);
    let mut shown = 0;
    if json {
        let (mut all, mut bad) = (Vec::new(), 0);
        while let Some((page, unreadable)) = next_page(store, &mut filter)? {
            all.extend(page.iter().map(summary));
            all.extend(unreadable.iter().map(records::unreadable));
            bad += unreadable.len();
        }
        say(Value::Array(all));
        return Ok(told_of(bad));
    }
    super::show(format!(
        "{:36}  {:16}  {:24}  {:20}  {:24}",
        "OPERATION ID", "STATE", "OPERATION", "TENANT/CALLER", "CHANGED"
    ));
    let mut bad = 0;
    while let Some((page, unreadable)) = next_page(store, &mut filter)? {
        for Unreadable { operation_id, why } in &unreadable {
            super::show(printable(&format!("{operation_id}  {:16}  {why}", "unreadable")));
        }
        bad += unreadable.len();
        for record in &page {
            let who = format!("{}/{}", record.principal.tenant(), record.principal.caller());
            let (id, state) = (record.operation_id, record.head.state.name().as_str());
            super::show(format!(
                "{id}  {state:16}  {:24}  {who:20}  {}",
                record.operation.as_str(),
                record.updated_at
            ));
        }
        shown += page.len();
    }
    eprintln!("{shown} record{}", if shown == 1 { "" } else { "s" });
    Ok(told_of(bad))
}

/// What a list comes to in which so many records could not be read.
fn told_of(unreadable: usize) -> Done {
    if unreadable == 0 {
        return Done::Yes;
    }
    eprintln!("{unreadable} of them cannot be read: see `semel doctor`");
    Done::No
}

/// The next records of a list, and those among them that cannot be read.
type ListPage = (Vec<Record>, Vec<Unreadable>);

fn next_page(store: &Arc<dyn Store>, filter: &mut Filter) -> anyhow::Result<Option<ListPage>> {
    let (page, unreadable) = (blocking(store.list(filter))?, blocking(store.unreadable(filter))?);
    let last = page.last().map(|record| record.operation_id);
    let last = last.max(unreadable.last().map(|bad| bad.operation_id));
    // A row that does not even say its id is the last that is looked at.
    let goes_on = last.is_some() && last > filter.after;
    filter.after = last.or(filter.after);
    Ok(goes_on.then_some((page, unreadable)))
}

fn show(store: &Arc<dyn Store>, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let id = operation_id(matches)?;
    let Some(found) = blocking(find(&**store, id))? else {
        eprintln!("{}", absent(id));
        return Ok(Done::No);
    };
    let shown = found.to_json();
    if json {
        say(shown);
        return Ok(Done::Yes);
    }
    match shown.as_object() {
        Some(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !LISTS.contains(&name.as_str())) {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                super::show(printable(&format!("{name:18} {value}")));
            }
        }
        None => say("its record has been forgotten"),
    }
    for step in &found.steps {
        let (name, told) = line(step);
        super::show(printable(&format!("{name:18} {told}")));
    }
    for NoteTaken { at, note } in &found.notes {
        let told = printable(&format!("{} by {}: {}", note.action, note.who, note.why));
        super::show(format!("{:18} {at} {told}", "note"));
    }
    Ok(Done::Yes)
}

/// What `show` tells line by line.
const LISTS: [&str; 3] = ["notes", "phases", "items"];

/// A step in one line. What a phase came to is the service's own affair, and not shown.
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

/// The attempt that the person looked at.
fn attempt(matches: &ArgMatches) -> anyhow::Result<Epoch> {
    let Some(text) = matches.get_one::<String>("attempt") else { return Ok(FIRST_ATTEMPT) };
    let attempt = text.parse().ok().filter(|attempt| *attempt >= FIRST_ATTEMPT);
    attempt
        .with_context(|| format!("--attempt is a number from 1 on, as `records explain` shows it: {text:?}"))
}

/// What a person says about an unknown.
fn said(matches: &ArgMatches) -> anyhow::Result<Said> {
    let text = |name: &str| matches.get_one::<String>(name);
    let given = ["status", "body", "header"].iter().any(|name| matches.contains_id(name));
    let verdict = text("verdict").map_or("", String::as_str);
    if verdict == "resume" || text("phase").is_some() || text("output").is_some() {
        if given {
            bail!("--status, --body and --header settle a whole command, not the open call of one in phases");
        }
        let output =
            text("output").map(|file| std::fs::read(file).with_context(|| format!("cannot read {file}")));
        let phase = text("phase").map(String::as_str);
        return Said::of_call(attempt(matches)?, phase, verdict, output.transpose()?.map(Bytes::from))
            .map_err(anyhow::Error::msg);
    }
    if verdict == "not-executed" {
        if given {
            bail!("--status, --body and --header go with --verdict executed");
        }
        return Ok(Said::NotExecuted);
    }
    let status = text("status").context("--verdict executed needs the --status that retries are to get")?;
    let status: StatusCode = status.parse().with_context(|| format!("{status:?} is not a status code"))?;
    if !is_an_answer(status) {
        bail!("{status} cannot be an answer: --status is from 200 to 599");
    }
    let body = match text("body") {
        Some(file) => Some(Bytes::from(std::fs::read(file).with_context(|| format!("cannot read {file}"))?)),
        None => None,
    };
    let mut headers = HeaderMap::new();
    for line in matches.get_many::<String>("header").unwrap_or_default() {
        let (name, value) =
            line.split_once(':').with_context(|| format!("{line:?} is not \"Name: value\""))?;
        let name: HeaderName =
            name.trim().parse().with_context(|| format!("{name:?} is not a header name"))?;
        let value =
            HeaderValue::from_str(value.trim()).with_context(|| format!("{line:?}: not a header value"))?;
        headers.append(name, value);
    }
    Ok(Said::executed(status, headers, body))
}

/// Does it, and notes who did and why.
fn act(
    store: &Arc<dyn Store>,
    matches: &ArgMatches,
    action: &str,
    change: impl FnOnce(&Record) -> Change + Send,
    json: bool,
) -> anyhow::Result<Done> {
    let id = operation_id(matches)?;
    let why = reason(matches.get_one::<String>("reason").map_or("", String::as_str))?;
    let note = Note { who: who(), action: action.to_owned(), why };
    match blocking(records::act(&**store, id, change, note))? {
        Acted::Done(state) if json => say(done(id, state)),
        Acted::Done(Some(state)) => say(format!("{id} is {state} now")),
        Acted::Done(None) => say(format!("{id} is free now")),
        Acted::Refused(why) | Acted::Absent(why) => {
            eprintln!("{why}");
            return Ok(Done::No);
        }
    }
    Ok(Done::Yes)
}

/// Reads the reason for an action.
pub(super) fn reason(text: &str) -> anyhow::Result<String> {
    operate::reason(text).map_err(|wrong| anyhow::anyhow!("--reason {wrong}"))
}

/// The person at the keyboard, as far as the system knows.
pub(super) fn who() -> String {
    ["SUDO_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()))
        .unwrap_or_else(|| format!("the user with id {}", rustix::process::getuid().as_raw()))
}

fn operation_id(matches: &ArgMatches) -> anyhow::Result<OperationId> {
    let id = matches.get_one::<String>("id").map_or("", String::as_str);
    operate::operation_id(id).map_err(anyhow::Error::msg)
}
