//! `semel records list|find|show|explain|export|request|resolve|settle|release|purge`: views of the store's records,
//! and actions on them. Every action requires a reason, and is noted permanently with it.

mod explain;
mod export;
mod find;
mod list;
mod settle;
mod show;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::{Change, Epoch, Note, OperationId, Record, Records};
use semel_operations::operate::records::{FIRST_ATTEMPT, Said, done, is_an_answer};
use semel_operations::operate::requests::{self, RequestLookup};
use semel_operations::operate::story::Around;
use semel_operations::operate::{self, Acted, records};
use semel_stores::Access;

use super::{CommandResult, OutputFlags, StoreFlag, blocking, load, open_store, printable, say};

/// Operation id of the examples.
const EXAMPLE: &str = "01a1df32-caa3-786d-a196-45c465f24292";

/// The command line of `semel records`.
#[derive(Debug, clap::Args)]
#[command(about = "List and show records, and settle those that need an operator")]
pub(super) struct RecordsArgs {
    #[command(subcommand)]
    command: RecordsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RecordsCommand {
    List(list::ListRecordsArgs),
    Find(find::FindRecordsArgs),
    Show(show::ShowRecordArgs),
    Explain(ExplainArgs),
    Export(export::ExportRecordsArgs),
    Request(RequestArgs),
    Resolve(ResolveArgs),
    Settle(settle::SettleArgs),
    Release(ReleaseArgs),
    Purge(PurgeArgs),
}

/// The command line of `semel records explain`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Tell the story of one command: its attempts, its outcome, and who settled it and why",
    long_about = "Tells the story of one command, step by step: claims and their epochs, renewed leases, \
        sweeps, answers, verdicts, and the actions of operators with their reasons. Then it shows the \
        answer that a retry gets now, and the possible next steps.\n\n\
        Replays and refused duplicates change nothing: they are in the log only.",
    after_help = format!(
                    "Example:\n  semel records explain {EXAMPLE}\n\n\
        Exit codes: 0 told, 1 there is no such record, 2 wrong use, or the store cannot be used."
                ),
)]
struct ExplainArgs {
    #[arg(value_name = "OPERATION_ID", help = "The id that clients get in Idempotency-Operation-Id")]
    id: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel records request`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Show the kept request of a command whose outcome is not known",
    long_about = "Shows the kept request of one command: method, target, header fields and body. Operations \
        with `keep_request = \"while-unknown\"` keep it from the claim until the outcome is known, those \
        with `mode = \"async\"` until it is executed. Credentials are left out, unless the operation has \
        `store_credentials`.\n\n\
        The reader and the reason are kept for good, with the record's story. On a terminal, control \
        characters are escaped; `--json` shows a body that is no text in base64.",
    after_help = format!(
        "Example:\n  \
         semel records request {EXAMPLE} --reason 'to find the payment'\n\n\
         Exit codes: 0 shown, 1 no request is kept, for the printed reason, 2 wrong use, or the store \
         cannot be used."
    ),
)]
struct RequestArgs {
    #[command(flatten)]
    act: ActOnRecordArgs,
}

/// The command line of `semel records resolve`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Settle a record in state unknown, with evidence from outside",
    long_about = "Settles a record in state unknown. Look first where the effect would be: in the service's \
        own records, at the provider.\n\n\
        `--verdict executed` means that the effect took place; give the response for retries. The \
        operation's `store_response` decides which part of it is stored: with \"reference\", a Location is \
        enough.\n\
        `--verdict not-executed` means that it did not, and frees the key for one retry. It is refused \
        while a call of the last attempt could still be in flight.\n\n\
        A verdict is about the attempt that you looked at: `records explain` shows its number, the epoch. \
        It is refused if the command was run again since, so that it cannot settle an attempt that you did \
        not look at.\n\n\
        Of a command in phases, the verdict is about its open call, which `records show` names: give its \
        `--phase` and the `--attempt` that you looked at. The command is then resumed: after the call with \
        the `--output` that the phase's code would have returned, or by making the call anew. `--verdict \
        resume` resumes a command that was given up with no call open.\n\n\
        The operator and the reason are kept for good, with the record's story.",
    after_help = format!(
                    "Examples:\n  \
        semel records resolve {EXAMPLE} --verdict executed \\\n      \
        --status 201 --body answer.json --reason 'found in the ledger'\n  \
        semel records resolve {EXAMPLE} --verdict not-executed \\\n      \
        --reason 'not in the ledger an hour later'\n  \
        semel records resolve {EXAMPLE} --attempt 3 --phase charge \\\n      \
        --verdict executed --output charge.json --reason 'captured'\n\n\
        Exit codes: 0 settled, 1 it cannot be settled like this (it is not unknown, at another attempt, or too early), 2 \
        wrong use, or the store cannot be used."
                ),
)]
struct ResolveArgs {
    #[arg(value_name = "OPERATION_ID", help = "The id that clients get in Idempotency-Operation-Id")]
    id: String,
    #[arg(
        long,
        value_name = "VERDICT",
        value_parser = ["executed", "not-executed", "resume"],
        help = "Conclusion from the evidence"
    )]
    verdict: String,
    #[arg(
        long,
        value_name = "NUMBER",
        help = "Attempt that you looked at, the epoch in `records explain`; without it, the first"
    )]
    attempt: Option<String>,
    #[arg(long, value_name = "NAME", help = "In phases: the phase whose call is open")]
    phase: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        help = "In phases, executed: the result of the call, in JSON, as the phase's code returns it"
    )]
    output: Option<String>,
    #[arg(long, value_name = "CODE", help = "Executed: the status that retries get")]
    status: Option<String>,
    #[arg(long, value_name = "FILE", help = "Executed: the body that retries get")]
    body: Option<String>,
    #[arg(
        long,
        value_name = "NAME: VALUE",
        help = "Executed: a header field that retries get; may be repeated"
    )]
    header: Vec<String>,
    #[arg(long, value_name = "TEXT", help = "Reason for the action, which is kept for good")]
    reason: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    shown: OutputFlags,
}

/// The command line of `semel records release`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Delete the record of a command that has not run, so that its key counts as new",
    long_about = "Gives up a command that waits and has not begun, or that provably did nothing: its record \
        is deleted, and its key counts as new. It is refused for a running, unknown or settled command; for \
        an unknown one there is `records resolve`.",
    after_help = format!(
                    "Example:\n  semel records release {EXAMPLE} --reason 'sent by mistake'\n\n\
        Exit codes: 0 released, 1 it cannot be released, 2 wrong use, or the store cannot be used."
                ),
)]
struct ReleaseArgs {
    #[command(flatten)]
    act: ActOnRecordArgs,
}

/// The command line of `semel records purge`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Delete a settled command: its response at once, its key a little later",
    long_about = "Deletes a settled command, as when a customer asks for it: the stored response at once, \
        and the key once no gateway can have it in memory any more. After that, the same key runs the \
        command again. It is refused for a running or unknown command.",
    after_help = format!(
                    "Example:\n  semel records purge {EXAMPLE} --reason 'asked to forget'\n\n\
        Exit codes: 0 purged, 1 it cannot be purged, 2 wrong use, or the store cannot be used."
                ),
)]
struct PurgeArgs {
    #[command(flatten)]
    act: ActOnRecordArgs,
}

/// The arguments of an action that needs a reason only.
#[derive(Debug, clap::Args)]
struct ActOnRecordArgs {
    #[arg(value_name = "OPERATION_ID", help = "The id that clients get in Idempotency-Operation-Id")]
    id: String,
    #[arg(long, value_name = "TEXT", help = "Reason for the action, which is kept for good")]
    reason: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &RecordsArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    // A reading command changes nothing, not even an older schema.
    let open = |flag, access| open_store(config, flag, access);
    match &args.command {
        RecordsCommand::List(args) => list::run(args, config),
        RecordsCommand::Find(args) => find::run(args, config),
        RecordsCommand::Show(args) => show::run(&open(&args.store, Access::Read)?, args),
        RecordsCommand::Explain(ExplainArgs { id, store: flag, output }) => {
            let store = open(flag, Access::Read)?;
            let same_store = explain::same_store(config, flag)?;
            let config = load(config, flag.flags())?.config;
            let around = Around { same_store: &same_store, config: &config };
            explain::run(&store, operation_id(id)?, &around, output.json)
        }
        RecordsCommand::Export(args) => export::run(args, config),
        RecordsCommand::Settle(args) => settle::run(args, config),
        RecordsCommand::Request(RequestArgs { act: args }) => {
            let store = open(&args.store, Access::Write)?;
            request(&store, (&args.id, &args.reason), args.output.json)
        }
        RecordsCommand::Resolve(args) => {
            let store = open(&args.store, Access::Write)?;
            let (said, attempt) = (said(args)?, attempt(args)?);
            let config = load(config, args.store.flags())?.config;
            let change = |record: &Record| {
                let policy = config.policy_of(&record.operation);
                if said.loses_its_body(policy) {
                    eprintln!("the body is not stored: the operation's `store_response` excludes it");
                }
                said.change(policy, attempt)
            };
            act(&store, (&args.id, &args.reason), "resolve", change, args.shown.json)
        }
        RecordsCommand::Release(ReleaseArgs { act: args }) => {
            let store = open(&args.store, Access::Write)?;
            act(&store, (&args.id, &args.reason), "release", |_| Change::free(), args.output.json)
        }
        RecordsCommand::Purge(PurgeArgs { act: args }) => {
            let store = open(&args.store, Access::Write)?;
            act(&store, (&args.id, &args.reason), "purge", |_| Change::purge(), args.output.json)
        }
    }
}

/// Shows the request of a command, and notes the reader and the reason.
fn request(store: &Arc<dyn Records>, (id, why): (&str, &str), json: bool) -> anyhow::Result<CommandResult> {
    let id = operation_id(id)?;
    let note = Note { who: who(), action: requests::ACTION.to_owned(), why: reason(why)? };
    match blocking(requests::read(&**store, id, &note))? {
        RequestLookup::Kept(request) if json => say(requests::to_json(id, &request)),
        RequestLookup::Kept(request) => requests::to_text(&request).into_iter().for_each(super::show),
        RequestLookup::Absent(why) | RequestLookup::NotKept(why) | RequestLookup::Unreadable(why) => {
            eprintln!("{}", printable(&why));
            return Ok(CommandResult::No);
        }
    }
    Ok(CommandResult::Yes)
}

/// Returns the attempt that the operator names.
fn attempt(args: &ResolveArgs) -> anyhow::Result<Epoch> {
    let Some(text) = &args.attempt else { return Ok(FIRST_ATTEMPT) };
    let attempt = text.parse().ok().filter(|attempt| *attempt >= FIRST_ATTEMPT);
    attempt
        .with_context(|| format!("--attempt is a number from 1 on, as `records explain` shows it: {text:?}"))
}

/// Returns the operator's verdict on an unknown outcome.
fn said(args: &ResolveArgs) -> anyhow::Result<Said> {
    let given = args.status.is_some() || args.body.is_some() || !args.header.is_empty();
    let verdict = args.verdict.as_str();
    if verdict == "resume" || args.phase.is_some() || args.output.is_some() {
        if given {
            bail!("--status, --body and --header settle a whole command, not the open call of one in phases");
        }
        let output = args
            .output
            .as_ref()
            .map(|file| std::fs::read(file).with_context(|| format!("cannot read {file}")));
        let phase = args.phase.as_deref();
        return Said::of_call(attempt(args)?, phase, verdict, output.transpose()?.map(Bytes::from))
            .map_err(anyhow::Error::msg);
    }
    if verdict == "not-executed" {
        if given {
            bail!("--status, --body and --header go with --verdict executed");
        }
        return Ok(Said::NotExecuted);
    }
    let status =
        args.status.as_ref().context("--verdict executed needs the --status that retries are to get")?;
    let status: StatusCode = status.parse().with_context(|| format!("{status:?} is not a status code"))?;
    if !is_an_answer(status) {
        bail!("{status} cannot be an answer: --status is from 200 to 599");
    }
    let body = match &args.body {
        Some(file) => Some(Bytes::from(std::fs::read(file).with_context(|| format!("cannot read {file}"))?)),
        None => None,
    };
    let mut headers = HeaderMap::new();
    for line in &args.header {
        let (name, value) =
            line.split_once(':').with_context(|| format!("{line:?} is not \"Name: value\""))?;
        let name: HeaderName =
            name.trim().parse().with_context(|| format!("{name:?} is not a header name"))?;
        let value =
            HeaderValue::from_str(value.trim()).with_context(|| format!("{line:?}: not a header value"))?;
        headers.append(name, value);
    }
    Said::executed(status, headers, body).map_err(|wrong| anyhow::anyhow!("the body {wrong}"))
}

/// Performs the action, and notes the operator and the reason.
fn act(
    store: &Arc<dyn Records>,
    (id, why): (&str, &str),
    action: &str,
    change: impl FnOnce(&Record) -> Change + Send,
    json: bool,
) -> anyhow::Result<CommandResult> {
    let id = operation_id(id)?;
    let why = reason(why)?;
    let note = Note { who: who(), action: action.to_owned(), why };
    match blocking(records::act(&**store, id, change, note))? {
        Acted::Done(state) if json => say(done(id, state)),
        Acted::Done(Some(state)) => say(format!("{id} is {state} now")),
        Acted::Done(None) => say(format!("{id} is free now")),
        Acted::Refused(why) | Acted::Absent(why) => {
            eprintln!("{why}");
            return Ok(CommandResult::No);
        }
    }
    Ok(CommandResult::Yes)
}

/// Reads the reason for an action.
pub(super) fn reason(text: &str) -> anyhow::Result<String> {
    operate::reason(text).map_err(|wrong| anyhow::anyhow!("--reason {wrong}"))
}

/// Returns the user at the keyboard, as far as the system knows.
pub(super) fn who() -> String {
    ["SUDO_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()))
        .unwrap_or_else(|| {
            let id = rustix::process::getuid().as_raw();
            user_name(id).unwrap_or_else(|| format!("the user with id {id}"))
        })
}

/// Returns the name of a user in the system's list of users.
fn user_name(id: u32) -> Option<String> {
    name_in(&std::fs::read_to_string("/etc/passwd").ok()?, id)
}

fn name_in(users: &str, id: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, user) = (fields.next()?, fields.nth(1)?);
        (!name.is_empty() && user.parse() == Ok(id)).then(|| name.to_owned())
    })
}

fn operation_id(id: &str) -> anyhow::Result<OperationId> {
    operate::operation_id(id).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_name_in_the_environment_is_looked_up_by_its_id() {
        let users = "root:x:0:0:root:/root:/bin/sh\n# a comment\n:x:7::\nsemel:x:991:991::/:/sbin/nologin\n";
        assert_eq!(name_in(users, 991).as_deref(), Some("semel"));
        assert_eq!(name_in(users, 0).as_deref(), Some("root"));
        assert_eq!((name_in(users, 7), name_in(users, 99)), (None, None));
    }
}
