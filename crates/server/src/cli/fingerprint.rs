//! `semel fingerprint`: what makes a request this request, to see why two of them differ.

use std::io::Read;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use semel_core::{FingerprintInput, JsonPointer};

use super::{Done, say};

pub(super) fn command() -> Command {
    let flag =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).value_name("TEXT").help(help);
    Command::new("fingerprint")
        .about("Print the fingerprint of a request")
        .long_about(
            "Prints the fingerprint of a request. Two requests with the same key are the same command if, and only \
             if, their fingerprints are equal.",
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
                .help("A JSON member that does not count, such as /sentAt"),
        )
        .arg(
            Arg::new("canonical")
                .long("canonical")
                .action(ArgAction::SetTrue)
                .help("Print the exact bytes that are hashed for the body instead"),
        )
        .arg(Arg::new("body").value_name("FILE").required(true).help("The body; `-` reads the standard input"))
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let file = text("body").unwrap_or("-");
    let mut body = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut body).context("cannot read the standard input")?;
    } else {
        body = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    }
    let exclude = matches.get_many::<String>("exclude").unwrap_or_default();
    let exclude: Vec<JsonPointer> = exclude
        .map(|pointer| JsonPointer::parse(pointer).with_context(|| format!("{pointer:?}")))
        .collect::<Result<_, _>>()?;
    let target = text("path").unwrap_or("/");
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let input = FingerprintInput {
        method: text("method").unwrap_or("POST"),
        path,
        query,
        content_type: text("content-type").map(str::as_bytes),
        content_encoding: text("content-encoding").map(str::as_bytes),
        body: &body,
        exclude: &exclude,
    };
    if matches.get_flag("canonical") {
        use std::io::Write;
        std::io::stdout().write_all(input.canonical_body().as_bytes()).context("cannot write")?;
    } else {
        say(input.fingerprint());
    }
    Ok(Done::Yes)
}
