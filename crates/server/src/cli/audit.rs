//! `semel audit`: which endpoints of an OpenAPI document change state, and what they tell clients about retries.
//!
//! `reader` makes a `document` of the text, `operations` lists what it describes, `reference` follows its references,
//! `judge` says what counts (with `key` for the names of keys, and `lifetime` for what is written in prose), `choice` leaves out
//! what needs none, and `report` shows it, in `groups` where there is much. A document may come
//! from anywhere: its size, its depth, and the work that it asks for are bounded.

mod choice;
mod document;
mod groups;
mod judge;
mod key;
mod lifetime;
mod operations;
mod reader;
mod reference;
mod report;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;

use anyhow::{Context, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Done, say, show};
use choice::LeftOut;
use judge::Endpoint;
use report::Report;

/// How large a document may be. The largest public ones have about 12 MiB.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

pub(super) fn command() -> Command {
    Command::new("audit")
        .about("Find the endpoints of an OpenAPI document that do not say how to retry them")
        .long_about(
            "Reads an OpenAPI document (3.0, 3.1, 3.2, or Swagger 2.0, in YAML or JSON) and lists every endpoint that changes \
             state, with what it tells its clients about retries. Nothing is sent anywhere.\n\n\
             Five things are asked of each:\n\
             - key: a header parameter Idempotency-Key, of the operation or of its path, or a key by another name: \
             X-Idempotency-Key, PayPal-Request-Id, a member idempotency_key or idempotencyKey of the body, or one that --key \
             names. It may be optional, which is noted.\n\
             - 400: the answer to a missing or malformed key.\n\
             - 409: the answer to a retry while the first request still runs.\n\
             - 422: the answer to a key that was used with another request. The one that FastAPI declares by itself, for \
             requests that do not validate, does not count.\n\
             - expiry: how long a key is kept. OpenAPI has no field for it; any of these will do, the first counts: \
             the extension `x-idempotency-ttl: 24h`, on the operation, its key parameter, its path or the whole \
             document; a response header Idempotency-Expires on a 2xx answer; or a sentence such as \"Keys expire \
             after 24 hours.\" in the description of the key parameter.\n\n\
             Answers must be named: `4XX` and `default` do not say what a client is to do, and are only noted.\n\n\
             POST and PATCH change state, and so does any method that no registry calls idempotent. PUT and DELETE \
             may be sent twice by the definition of HTTP: they are listed if they declare the key, or with \
             --all-methods. GET and its like never are, nor are webhooks and callbacks, which others receive.\n\n\
             References within the document are followed. What is in another document cannot be seen: it counts as \
             not declared, and a note says so. Bundle such documents into one first.\n\n\
             25 endpoints or more are shown in groups: by the first tag of each, or else by where its path begins.",
        )
        .after_help(
            "Example of an endpoint that declares everything:\n\n  \
             paths:\n    \
             /payments:\n      \
             post:\n        \
             x-idempotency-ttl: 24h\n        \
             parameters:\n          \
             - {name: Idempotency-Key, in: header, required: true, schema: {type: string}}\n        \
             responses:\n          \
             '201': {description: The payment was made}\n          \
             '400': {description: The key is missing or malformed}\n          \
             '409': {description: The first request still runs}\n          \
             '422': {description: The key was used with another request}\n\n\
             Examples:\n  \
             semel audit openapi.yaml\n  \
             semel audit openapi.yaml --ignore 'POST /login' --exclude 'POST */search'\n  \
             semel audit openapi.yaml --key X-Request-Token\n  \
             curl -s http://127.0.0.1:3000/openapi.json | semel audit - --json\n\n\
             Exit codes: 0 every endpoint declares everything, or there is none; 1 one does not; 2 wrong use, or the \
             document cannot be read.",
        )
        .arg(Arg::new("file").value_name("FILE").required(true).help("The document; `-` reads the standard input"))
        .arg(
            Arg::new("ignore")
                .long("ignore")
                .value_name("METHOD PATH")
                .action(ArgAction::Append)
                .num_args(1)
                .help("An endpoint that needs no key, written as in the document; may be repeated"),
        )
        .arg(
            Arg::new("exclude")
                .long("exclude")
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .num_args(1)
                .help(
                    "Endpoints that need no key, such as searches by POST: a path, or a method and a path, where `*` stands \
                     for any text; may be repeated",
                ),
        )
        .arg(
            Arg::new("key")
                .long("key")
                .value_name("NAME")
                .action(ArgAction::Append)
                .num_args(1)
                .help("Another name of the key, of a header or of a member of the body; may be repeated"),
        )
        .arg(
            Arg::new("all-methods")
                .long("all-methods")
                .action(ArgAction::SetTrue)
                .help("Ask the same of PUT, DELETE and other methods that are idempotent by definition"),
        )
        .arg(super::json_flag())
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let file = matches.get_one::<String>("file").map_or("-", String::as_str);
    let all = |name: &str| -> Vec<&str> {
        matches.get_many::<String>(name).unwrap_or_default().map(String::as_str).collect()
    };
    let left_out = all("ignore").into_iter().map(LeftOut::named);
    let left_out = left_out.chain(all("exclude").into_iter().map(LeftOut::pattern));
    let wanted = Wanted {
        left_out: left_out.collect::<Result<_, _>>()?,
        key_names: all("key"),
        all_methods: matches.get_flag("all-methods"),
    };
    let text = read_text(file)?;
    let shown = if file == "-" { "the standard input" } else { file };
    let report = audit(&text, &wanted).with_context(|| shown.to_owned())?;
    if matches.get_flag("json") {
        say(format!("{:#}", report.to_json()));
    } else {
        show(report.to_text().trim_end());
    }
    Ok(if report.ok() { Done::Yes } else { Done::No })
}

fn read_text(file: &str) -> anyhow::Result<String> {
    let source: Box<dyn Read> = if file == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).with_context(|| format!("cannot open {file}"))?)
    };
    let mut bytes = Vec::new();
    source
        .take(MAX_DOCUMENT_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {file}"))?;
    ensure!(
        bytes.len() as u64 <= MAX_DOCUMENT_BYTES,
        "{file} is larger than {} MiB",
        MAX_DOCUMENT_BYTES >> 20
    );
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        anyhow::anyhow!("{file}: line {line}: it is not UTF-8")
    })
}

/// The part of a document that is audited, and the names of keys.
#[derive(Default)]
struct Wanted<'a> {
    left_out: Vec<LeftOut<'a>>,
    key_names: Vec<&'a str>,
    all_methods: bool,
}

/// Audits the document in this text.
fn audit(text: &str, wanted: &Wanted<'_>) -> anyhow::Result<Report> {
    let document = reader::read(text)?;
    let paths = operations::list(document.root())?;
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for operation in &paths.operations {
        endpoints.extend(judge::judge(operation, wanted.all_methods, &wanted.key_names)?);
    }
    endpoints.extend(paths.unseen.iter().map(judge::judge_unseen));
    wanted.left_out.iter().try_for_each(|choice| choice.check(&endpoints))?;
    let (left_out, endpoints): (Vec<_>, Vec<_>) =
        endpoints.into_iter().partition(|endpoint| wanted.left_out.iter().any(|choice| choice.is(endpoint)));
    let ignored = left_out.iter().map(|endpoint| format!("{} {}", endpoint.method, endpoint.path)).collect();
    Ok(Report { version: paths.version.to_owned(), endpoints, ignored })
}
