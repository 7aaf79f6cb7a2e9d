//! `semel fingerprint`: what makes a request this request, and why two of them differ.

mod compare;
mod explain;
mod shown;

use std::io::{Read, Write};

use anyhow::{Context, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use semel_core::path::{RequestPath, one_form};
use semel_core::{FingerprintInput, JsonPointer};
use serde_json::json;

use super::{Done, say};
use compare::Comparison;
use explain::Explained;

pub(super) fn command() -> Command {
    let flag =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).value_name("TEXT").help(help);
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let of_the_other = |name: &'static str, help: &'static str| flag(name, help).requires("against");
    Command::new("fingerprint")
        .about("Print the fingerprint of a request, and why two of them differ")
        .long_about(
            "Prints the fingerprint of a request. Two requests with the same key are the same command if, and only \
             if, their fingerprints are equal; otherwise the second gets 422.\n\n\
             --explain shows everything that is hashed: method, path, query, content type, content encoding and \
             body, each in the form in which it is hashed. A JSON body goes in as canonical JSON, so that its \
             spelling does not count; any other goes in byte by byte, and --explain says why. Headers such as \
             dates, trace ids and credentials are not hashed.\n\n\
             --against names the body of a second request and says what differs between the two: which field, and \
             in JSON bodies the JSON Pointer of each member that was added, removed or changed, with both values, \
             cut short. Members that differ on purpose, such as a client's timestamp, can be left out: try \
             --exclude here, then set `fingerprint_exclude` for the operation. What the configuration leaves out for \
             the operation that the request matches is left out here, too.",
        )
        .after_help(
            "Examples:\n  \
             semel fingerprint --path /payments --content-type application/json --explain payment.json\n  \
             semel fingerprint --path /payments --content-type application/json payment.json \\\n      \
             --against retry.json\n  \
             semel fingerprint --path /payments --content-type application/json payment.json \\\n      \
             --against retry.json --against-path /payments?dry_run=1 --exclude /sentAt\n\n\
             Exit codes: 0 done, or the two are the same command; 1 they are not; 2 wrong use.",
        )
        .arg(flag("method", "The method").default_value("POST"))
        .arg(flag("path", "The path, and the query after `?`").required(true))
        .arg(flag("content-type", "The Content-Type, if there is one"))
        .arg(flag("content-encoding", "The Content-Encoding, if there is one"))
        .arg(
            Arg::new("exclude")
                .long("exclude")
                .value_name("POINTER")
                .action(ArgAction::Append)
                .help("A JSON member that does not count, such as /sentAt; may be repeated"),
        )
        .arg(switch("explain", "Show every field that is hashed, in the form in which it is hashed"))
        .arg(
            Arg::new("against")
                .long("against")
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .help("The body of a second request: say what differs between the two"),
        )
        .arg(of_the_other("against-method", "The second request's method, if it is another"))
        .arg(of_the_other("against-path", "The second request's path and query, if they are others"))
        .arg(of_the_other("against-content-type", "The second request's Content-Type, if it is another"))
        .arg(of_the_other("against-content-encoding", "The second request's Content-Encoding, if it is another"))
        .arg(
            switch("canonical", "Print the exact bytes that are hashed for the body instead")
                .conflicts_with_all(["explain", "against", "json"]),
        )
        .arg(super::json_flag())
        .arg(
            Arg::new("body")
                .value_name("FILE")
                .required(true)
                .value_hint(ValueHint::FilePath)
                .help("The body; `-` reads the standard input"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let exclude = matches.get_many::<String>("exclude").unwrap_or_default();
    let exclude: Vec<JsonPointer> = exclude
        .map(|pointer| JsonPointer::parse(pointer).with_context(|| format!("{pointer:?}")))
        .collect::<Result<_, _>>()?;
    let (request, against) = requests(matches)?;
    ensure!(request.target.starts_with('/'), "--path begins with a slash, such as /payments");
    for request in std::iter::once(&request).chain(&against) {
        let path = request.path();
        RequestPath::read(path).with_context(|| format!("no request has the path {path}"))?;
    }
    let exclude = [exclude, configured(matches, &request)?].concat();
    let input = request.input(&exclude);
    if matches.get_flag("canonical") {
        std::io::stdout().write_all(input.canonical_body().as_bytes()).context("cannot write")?;
        return Ok(Done::Yes);
    }
    let (explain, json) = (matches.get_flag("explain"), matches.get_flag("json"));
    let Some(against) = against else {
        match (explain, json) {
            (true, true) => say(Explained::of(input).to_json()),
            (true, false) => say(Explained::of(input).to_text()),
            (false, true) => say(json!({ "fingerprint": input.fingerprint().to_string() })),
            (false, false) => say(input.fingerprint()),
        }
        return Ok(Done::Yes);
    };
    let (one, other) = (Explained::of(input), Explained::of(against.input(&exclude)));
    let comparison = Comparison::of(&one, &other);
    if json {
        let mut document = comparison.to_json();
        document["request"] = one.to_json();
        document["against"] = other.to_json();
        say(document);
    } else {
        if explain {
            say(format!("{}\n\nagainst\n\n{}\n", one.to_text(), other.to_text()));
        }
        say(comparison.to_text());
    }
    Ok(if comparison.same() { Done::Yes } else { Done::No })
}

/// What the configuration leaves out of the fingerprint of such a request.
fn configured(matches: &ArgMatches, request: &Request) -> anyhow::Result<Vec<JsonPointer>> {
    let operations = super::load(matches)?.config.operations;
    let mut routes = matchit::Router::new();
    for operation in operations.iter().filter(|operation| operation.route.method == request.method.as_str()) {
        routes.insert(operation.route.path.as_str(), operation)?;
    }
    Ok(routes.at(&one_form(request.path())).map(|found| found.value.exclude.clone()).unwrap_or_default())
}

/// What is fingerprinted of a request.
struct Request {
    method: String,
    target: String,
    content_type: Option<String>,
    content_encoding: Option<String>,
    body: Vec<u8>,
}

/// The request, and the one that it is compared with, which is like it in all that is not said of it.
fn requests(matches: &ArgMatches) -> anyhow::Result<(Request, Option<Request>)> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let file = text("body").unwrap_or_default();
    let against = text("against");
    ensure!(
        file != "-" || against.as_deref() != Some("-"),
        "the standard input can be read once: give one of the two bodies as a file"
    );
    let request = Request {
        method: text("method").unwrap_or_default(),
        target: text("path").unwrap_or_default(),
        content_type: text("content-type"),
        content_encoding: text("content-encoding"),
        body: read(&file)?,
    };
    let Some(file) = against else { return Ok((request, None)) };
    let other = Request {
        method: text("against-method").unwrap_or_else(|| request.method.clone()),
        target: text("against-path").unwrap_or_else(|| request.target.clone()),
        content_type: text("against-content-type").or_else(|| request.content_type.clone()),
        content_encoding: text("against-content-encoding").or_else(|| request.content_encoding.clone()),
        body: read(&file)?,
    };
    Ok((request, Some(other)))
}

fn read(file: &str) -> anyhow::Result<Vec<u8>> {
    if file != "-" {
        return std::fs::read(file).with_context(|| format!("cannot read {file}"));
    }
    let mut body = Vec::new();
    std::io::stdin().read_to_end(&mut body).context("cannot read the standard input")?;
    Ok(body)
}

impl Request {
    fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    fn input<'a>(&'a self, exclude: &'a [JsonPointer]) -> FingerprintInput<'a> {
        let target = self.target.as_str();
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        FingerprintInput {
            method: &self.method,
            path,
            query,
            content_type: self.content_type.as_deref().map(str::as_bytes),
            content_encoding: self.content_encoding.as_deref().map(str::as_bytes),
            body: &self.body,
            exclude,
        }
    }
}
