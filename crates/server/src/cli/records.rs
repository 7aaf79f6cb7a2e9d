//! `semel records list|show|explain|resolve|release|purge`: what the store holds, and what a person may do to it. Every
//! action wants a reason, and is noted for good together with it.

mod explain;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::{Arg, ArgAction, ArgMatches, Command};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::policy::{Policy, StoreResponse};
use semel_core::response::reference;
use semel_core::transition::{Proof, Refusal};
use semel_core::{
    Change, Decision, Filter, Note, NoteTaken, OperationId, Progress, Record, StateName, StepKind, Store,
    StoredResult, Timestamp,
};
use serde_json::{Value, json};

use super::{Done, blocking, load, open_store, printable, say};

/// How many records are read from the store at a time.
const PAGE: usize = 500;

/// An operation id as examples show it.
const EXAMPLE: &str = "01a1df32-caa3-786d-a196-45c465f24292";

pub(super) fn command() -> Command {
    let id = || {
        Arg::new("id")
            .value_name("OPERATION_ID")
            .required(true)
            .help("The id that clients get in Idempotency-Operation-Id")
    };
    let reason = || {
        Arg::new("reason").long("reason").value_name("TEXT").required(true).help("Why; it is kept for good")
    };
    let common = || [super::store_flag(), super::json_flag()];
    Command::new("records")
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
                     Exit codes: 0 listed, even if there are none; 2 wrong use, or the store cannot be used.",
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
                     Who did it and why is kept for good, with the record's story.",
                )
                .after_help(format!(
                    "Examples:\n  \
                     semel records resolve {EXAMPLE} --verdict executed \\\n      \
                     --status 201 --body answer.json --reason 'found in the ledger'\n  \
                     semel records resolve {EXAMPLE} --verdict not-executed \\\n      \
                     --reason 'not in the ledger an hour later'\n\n\
                     Exit codes: 0 settled, 1 it cannot be settled like this (it is not unknown, or too early), 2 \
                     wrong use, or the store cannot be used."
                ))
                .arg(id())
                .arg(
                    Arg::new("verdict")
                        .long("verdict")
                        .value_name("VERDICT")
                        .required(true)
                        .value_parser(["executed", "not-executed"])
                        .help("What the evidence says"),
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

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let (name, matches) = matches.subcommand().context("a subcommand is required")?;
    let store = open_store(matches)?;
    let json = matches.get_flag("json");
    match name {
        "list" => list(&store, matches, json),
        "show" => show(&store, matches, json),
        "explain" => explain::run(&store, matches, json),
        "resolve" => {
            let (said, config) = (said(matches)?, load(matches)?.config);
            let change = |record: &Record| said.change(config.policy_of(&record.operation));
            act(&store, matches, "resolve", change, json)
        }
        "release" => act(&store, matches, "release", |_| Change::free(), json),
        _ => act(&store, matches, "purge", |_| Change::purge(), json),
    }
}

fn list(store: &Arc<dyn Store>, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let state = match text("state") {
        Some(name) => Some(StateName::parse(&name).with_context(|| {
            let known: Vec<&str> = StateName::ALL.iter().map(|state| state.as_str()).collect();
            format!("{name:?} is not a state: {}", known.join(", "))
        })?),
        None => None,
    };
    let older_than = match text("older-than") {
        Some(time) => Some(
            crate::config::parse_duration(&time)
                .with_context(|| format!("{time:?} is not a duration such as \"30s\", \"5m\" or \"7d\""))?,
        ),
        None => None,
    };
    let now = blocking(store.now())?;
    let updated_before = older_than.map(|age| before(now, age));
    let mut filter = Filter {
        state,
        operation: text("operation"),
        tenant: text("tenant"),
        updated_before,
        after: None,
        limit: PAGE,
    };
    let mut shown = 0;
    if json {
        let mut all = Vec::new();
        while let Some(page) = next_page(store, &mut filter)? {
            all.extend(page.iter().map(summary));
        }
        say(Value::Array(all));
        return Ok(Done::Yes);
    }
    say(format!(
        "{:36}  {:16}  {:24}  {:20}  {:24}",
        "OPERATION ID", "STATE", "OPERATION", "TENANT/CALLER", "CHANGED"
    ));
    while let Some(page) = next_page(store, &mut filter)? {
        for record in &page {
            let who = format!("{}/{}", record.principal.tenant(), record.principal.caller());
            let (id, state) = (record.operation_id, record.head.state.name().as_str());
            say(format!(
                "{id}  {state:16}  {:24}  {who:20}  {}",
                record.operation.as_str(),
                record.updated_at
            ));
        }
        shown += page.len();
    }
    eprintln!("{shown} record{}", if shown == 1 { "" } else { "s" });
    Ok(Done::Yes)
}

fn next_page(store: &Arc<dyn Store>, filter: &mut Filter) -> anyhow::Result<Option<Vec<Record>>> {
    let page = blocking(store.list(filter))?;
    filter.after = page.last().map(|record| record.operation_id).or(filter.after);
    Ok((!page.is_empty()).then_some(page))
}

pub(super) fn before(now: Timestamp, age: Duration) -> Timestamp {
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

/// A record as a list shows it: the names are promises.
fn summary(record: &Record) -> Value {
    json!({
        "operationId": record.operation_id.to_string(),
        "operation": record.operation.as_str(),
        "tenant": record.principal.tenant(),
        "caller": record.principal.caller(),
        "state": record.head.state.name().as_str(),
        "reason": record.head.reason.as_str(),
        "epoch": record.head.epoch,
        "createdAt": record.created_at.to_rfc3339(),
        "updatedAt": record.updated_at.to_rfc3339(),
        "expiresAt": record.head.state.expires_at().map(Timestamp::to_rfc3339),
        "keyHashPrefix": record.key_hash_prefix,
    })
}

fn show(store: &Arc<dyn Store>, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let id = operation_id(matches)?;
    let record = blocking(store.find(id))?.record;
    let notes = blocking(store.notes(id))?;
    if record.is_none() && notes.is_empty() {
        eprintln!("there is no record of operation {id}");
        return Ok(Done::No);
    }
    let steps = blocking(store.progress(id))?;
    let shown = full(record.as_ref(), &notes, &steps);
    if json {
        say(shown);
        return Ok(Done::Yes);
    }
    match shown.as_object() {
        Some(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !LISTS.contains(&name.as_str())) {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                say(printable(&format!("{name:18} {value}")));
            }
        }
        None => say("its record has been forgotten"),
    }
    for step in &steps {
        let (name, told) = line(step);
        say(printable(&format!("{name:18} {told}")));
    }
    for NoteTaken { at, note } in &notes {
        let told = printable(&format!("{} by {}: {}", note.action, note.who, note.why));
        say(format!("{:18} {at} {told}", "note"));
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

/// A step as JSON, and the list that it belongs to: the names are promises.
fn step(step: &Progress) -> (&'static str, Value) {
    let mut shown = json!({
        "name": step.name,
        "beganAt": step.began_at.to_rfc3339(),
        "doneAt": step.done_at.map(Timestamp::to_rfc3339),
    });
    match &step.what {
        StepKind::Local { .. } => shown["kind"] = "local".into(),
        StepKind::External { deduplicated, .. } => {
            shown["kind"] = "external".into();
            shown["deduplicated"] = (*deduplicated).into();
        }
        StepKind::Item { operation_id, state, status } => {
            shown["operationId"] = json!(operation_id.map(|id| id.to_string()));
            shown["state"] = json!(state.map(StateName::as_str));
            shown["status"] = json!(status);
            return ("items", shown);
        }
    }
    ("phases", shown)
}

fn full(record: Option<&Record>, notes: &[NoteTaken], steps: &[Progress]) -> Value {
    let mut shown = record.map_or(json!({}), summary);
    if let Some(record) = record {
        shown["fingerprint"] = record.head.fingerprint.to_string().into();
        if let semel_core::State::Unknown { since, quarantine_until, attempts, .. } = record.head.state {
            shown["unknownSince"] = since.to_rfc3339().into();
            shown["quarantineUntil"] = quarantine_until.to_rfc3339().into();
            shown["reconcileAttempts"] = attempts.into();
        }
        if let Some(result) = &record.result {
            shown["status"] = result.status.into();
            shown["resource"] = json!(result.resource);
            shown["responseBytes"] = result.response.bytes.len().into();
            // Without its key, nobody can tell.
            shown["bodyStored"] =
                json!(result.response.decode().ok().map(|response| response.body.is_some()));
        }
    }
    let note = |taken: &NoteTaken| json!({ "at": taken.at.to_rfc3339(), "who": taken.note.who, "action": taken.note.action, "why": taken.note.why });
    shown["notes"] = notes.iter().map(note).collect();
    for (list, step) in steps.iter().map(step) {
        match shown[list].as_array_mut() {
            Some(list) => list.push(step),
            None => shown[list] = json!([step]),
        }
    }
    shown
}

/// What a person says about an unknown.
enum Said {
    /// It took place, with this response; without a body, nobody has it at hand.
    Executed { status: StatusCode, headers: HeaderMap, body: Option<Bytes> },
    /// It did not.
    NotExecuted,
}

impl Said {
    /// What is written, where the operation wants this. What is too large for others is kept all the same: a person gave it.
    fn change(&self, policy: &Policy) -> Change {
        let Said::Executed { status, headers, body } = self else {
            return Change::resolve_not_executed(Proof::Quarantine);
        };
        let (empty, none) = (Bytes::new(), HeaderMap::new());
        let body = match body {
            // It can be fetched from where it is.
            None if policy.store_response == StoreResponse::Reference && reference(headers).is_some() => None,
            body => Some(body.as_ref().unwrap_or(&empty)),
        };
        let policy = Policy { max_stored_response: usize::MAX, ..policy.clone() };
        let kept = policy.keep(*status, headers, body, &none);
        if kept.body.is_none() && body.is_some() {
            eprintln!("the body is not stored: the operation's `store_response` does not want it");
        }
        Change::resolve_executed(StoredResult::of(&kept))
    }
}

fn said(matches: &ArgMatches) -> anyhow::Result<Said> {
    let text = |name: &str| matches.get_one::<String>(name);
    let given = ["status", "body", "header"].iter().any(|name| matches.contains_id(name));
    if text("verdict").is_some_and(|verdict| verdict == "not-executed") {
        if given {
            bail!("--status, --body and --header go with --verdict executed");
        }
        return Ok(Said::NotExecuted);
    }
    let status = text("status").context("--verdict executed needs the --status that retries are to get")?;
    let status: StatusCode = status.parse().with_context(|| format!("{status:?} is not a status code"))?;
    if !(200..600).contains(&status.as_u16()) {
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
    let is_json = |body: &Bytes| serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
    if !headers.contains_key(CONTENT_TYPE) && body.as_ref().is_some_and(is_json) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(Said::Executed { status, headers, body })
}

/// Does it, and notes who did and why.
fn act(
    store: &Arc<dyn Store>,
    matches: &ArgMatches,
    action: &str,
    change: impl FnOnce(&Record) -> Change,
    json: bool,
) -> anyhow::Result<Done> {
    let id = operation_id(matches)?;
    let Some(record) = blocking(store.find(id))?.record else {
        eprintln!("there is no record of operation {id}");
        return Ok(Done::No);
    };
    let why = matches.get_one::<String>("reason").cloned().unwrap_or_default();
    if why.trim().is_empty() {
        bail!("--reason must say something");
    }
    if why.chars().any(char::is_control) {
        bail!("--reason is one line of text");
    }
    let note = Note { who: who(), action: action.to_owned(), why };
    let answer = blocking(store.apply(&record.id, &change(&record).noted(note)))?;
    let state = answer.record.as_ref().map(|record| record.head.state.name());
    match answer.decision {
        Decision::Applied if json => {
            say(json!({ "operationId": id.to_string(), "state": state.map(StateName::as_str) }));
        }
        Decision::Applied => say(match state {
            Some(state) => format!("{id} is {state} now"),
            None => format!("{id} is free now"),
        }),
        Decision::Refused(refusal) => {
            let state = record.head.state.name();
            match refusal {
                Refusal::WrongState => eprintln!("{id} is {state}: {action} does not apply to it"),
                Refusal::StillInFlight { .. } | Refusal::Absent | Refusal::Overtaken => {
                    eprintln!("{id}: {refusal}");
                }
            }
            return Ok(Done::No);
        }
        decision => bail!("the store answered {decision:?}"),
    }
    Ok(Done::Yes)
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
    id.parse().ok().with_context(|| {
        format!("{id:?} is not an operation id, such as 01a1df42-c587-7cff-b888-276f0e1e6aeb")
    })
}
