//! `semel fingerprint`: prints the fingerprint of a request, and the differences of two.

mod compare;
mod explain;
mod shown;

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use clap::ValueHint;
use semel_core::path::{RequestPath, one_form};
use semel_core::{FingerprintInput, JsonPointer};
use serde_json::json;

use super::{CommandResult, OutputFlags, say};
use compare::RequestComparison;
use explain::Explained;

/// The command line of `semel fingerprint`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Print the fingerprint of a request, or the differences between two requests",
    long_about = "Prints the fingerprint of a request. Two requests with the same key are the same command \
        if, and only if, their fingerprints are equal; otherwise the second gets 422.\n\n\
        --explain shows everything that is hashed: method, path, query, content type, content encoding and \
        body, each in the form in which it is hashed. A JSON body goes in as canonical JSON, so that its \
        spelling does not count; any other goes in byte by byte, and --explain says why. Headers such as \
        dates, trace ids and credentials are not hashed.\n\n\
        --against names the body of a second request and prints the differences between the two: the field, \
        and in JSON bodies the JSON Pointer of each member that was added, removed or changed, with both \
        values, cut short. Members that differ on purpose, such as a client's timestamp, can be left out: \
        try --exclude here, then set `fingerprint_exclude` for the operation. Members that the \
        configuration excludes for the matching operation are left out here, too.",
    after_help = "Examples:\n  \
        semel fingerprint --path /payments --content-type application/json --explain payment.json\n  \
        semel fingerprint --path /payments --content-type application/json payment.json \\\n      \
        --against retry.json\n  \
        semel fingerprint --path /payments --content-type application/json payment.json \\\n      \
        --against retry.json --against-path /payments?dry_run=1 --exclude /sentAt\n\n\
        Exit codes: 0 done, or the two are the same command; 1 they are not; 2 wrong use."
)]
pub(super) struct FingerprintArgs {
    #[arg(long, value_name = "TEXT", default_value = "POST", help = "The method")]
    method: String,
    #[arg(long, value_name = "TEXT", help = "The path, and the query after `?`")]
    path: String,
    #[arg(long, value_name = "TEXT", help = "The Content-Type, if there is one")]
    content_type: Option<String>,
    #[arg(long, value_name = "TEXT", help = "The Content-Encoding, if there is one")]
    content_encoding: Option<String>,
    #[arg(
        long,
        value_name = "POINTER",
        help = "A JSON member that does not count, such as /sentAt; may be repeated"
    )]
    exclude: Vec<String>,
    #[arg(long, help = "Show every field that is hashed, in the form in which it is hashed")]
    explain: bool,
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help = "Body of a second request; prints the differences between the two"
    )]
    against: Option<String>,
    #[arg(
        long,
        value_name = "TEXT",
        requires = "against",
        help = "The second request's method, if it differs"
    )]
    against_method: Option<String>,
    #[arg(
        long,
        value_name = "TEXT",
        requires = "against",
        help = "The second request's path and query, if they differ"
    )]
    against_path: Option<String>,
    #[arg(
        long,
        value_name = "TEXT",
        requires = "against",
        help = "The second request's Content-Type, if it differs"
    )]
    against_content_type: Option<String>,
    #[arg(
        long,
        value_name = "TEXT",
        requires = "against",
        help = "The second request's Content-Encoding, if it differs"
    )]
    against_content_encoding: Option<String>,
    #[arg(
        long,
        conflicts_with_all = ["explain", "against", "json"],
        help = "Print the exact bytes of the body that are hashed, instead of the fingerprint"
    )]
    canonical: bool,
    #[command(flatten)]
    output: OutputFlags,
    #[arg(
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help = "The body; `-` reads the standard input"
    )]
    body: String,
}

pub(super) fn run(args: &FingerprintArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let exclude: Vec<JsonPointer> = args
        .exclude
        .iter()
        .map(|pointer| JsonPointer::parse(pointer).with_context(|| format!("{pointer:?}")))
        .collect::<Result<_, _>>()?;
    let (request, against) = requests(args)?;
    ensure!(request.target.starts_with('/'), "--path begins with a slash, such as /payments");
    for request in std::iter::once(&request).chain(&against) {
        let path = request.path();
        RequestPath::read(path).with_context(|| format!("no request has the path {path}"))?;
    }
    let exclude = [exclude, configured(config, &request)?].concat();
    let input = request.input(&exclude);
    if args.canonical {
        std::io::stdout().write_all(input.canonical_body().as_bytes()).context("cannot write")?;
        return Ok(CommandResult::Yes);
    }
    let (explain, json) = (args.explain, args.output.json);
    let Some(against) = against else {
        match (explain, json) {
            (true, true) => say(Explained::of(input).to_json()),
            (true, false) => say(Explained::of(input).to_text()),
            (false, true) => say(json!({ "fingerprint": input.fingerprint().to_string() })),
            (false, false) => say(input.fingerprint()),
        }
        return Ok(CommandResult::Yes);
    };
    let (one, other) = (Explained::of(input), Explained::of(against.input(&exclude)));
    let comparison = RequestComparison::of(&one, &other);
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
    Ok(if comparison.same() { CommandResult::Yes } else { CommandResult::No })
}

/// Returns the pointers that the configuration excludes from the fingerprint of this request.
fn configured(config: Option<&Path>, request: &FingerprintedRequest) -> anyhow::Result<Vec<JsonPointer>> {
    let operations = super::load(config, None)?.config.operations;
    let mut routes = matchit::Router::new();
    for operation in operations.iter().filter(|operation| operation.route.method == request.method.as_str()) {
        routes.insert(operation.route.path.as_str(), operation)?;
    }
    Ok(routes.at(&one_form(request.path())).map(|found| found.value.exclude.clone()).unwrap_or_default())
}

/// Parts of a request that are fingerprinted.
struct FingerprintedRequest {
    method: String,
    target: String,
    content_type: Option<String>,
    content_encoding: Option<String>,
    body: Vec<u8>,
}

/// Returns the request, and the one to compare it with, which takes everything from the first that is not
/// given.
fn requests(args: &FingerprintArgs) -> anyhow::Result<(FingerprintedRequest, Option<FingerprintedRequest>)> {
    ensure!(
        args.body != "-" || args.against.as_deref() != Some("-"),
        "the standard input can be read once: give one of the two bodies as a file"
    );
    let request = FingerprintedRequest {
        method: args.method.clone(),
        target: args.path.clone(),
        content_type: args.content_type.clone(),
        content_encoding: args.content_encoding.clone(),
        body: read(&args.body)?,
    };
    let Some(file) = &args.against else { return Ok((request, None)) };
    let or_first = |other: &Option<String>, first: &str| other.as_deref().unwrap_or(first).to_owned();
    let other = FingerprintedRequest {
        method: or_first(&args.against_method, &request.method),
        target: or_first(&args.against_path, &request.target),
        content_type: args.against_content_type.clone().or_else(|| request.content_type.clone()),
        content_encoding: args.against_content_encoding.clone().or_else(|| request.content_encoding.clone()),
        body: read(file)?,
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

impl FingerprintedRequest {
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
