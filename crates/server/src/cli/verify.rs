//! `semel verify`: tries any HTTP command endpoint from outside, and says which rules it keeps.
//!
//! `options` reads what to try, `client` sends it, `judge` tells how often it ran, `probes` try one promise after
//! another, `rules` names the promises, `shape` judges refusals, and `report` shows what was found. Everything is bounded: the
//! requests, how many are out at once, how much is read of an answer, and the time of one request and of the whole run.

mod client;
mod judge;
mod options;
mod probes;
mod report;
mod rules;
mod shape;
mod spelling;

use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Done, say, show};
use options::Options;

/// How long a whole run may take, whatever the endpoint does.
const MAX_RUN: Duration = Duration::from_secs(20 * 60);

pub(super) fn command() -> Command {
    let header = |name: &'static str| {
        Arg::new(name).long(name).value_name("NAME: VALUE").action(ArgAction::Append).num_args(1)
    };
    Command::new("verify")
        .about("Try an HTTP command endpoint from outside: is it safe to retry?")
        .long_about(
            "Sends a command to an HTTP endpoint the way networks and clients do: twice, twenty times at once, hung \
             up in the middle, re-spelled, changed, under another caller's name. Then it says, rule by rule and \
             with the evidence, whether the endpoint keeps the promises of an Idempotency-Key. The endpoint may be \
             anything that speaks HTTP; it need not be Semel.\n\n\
             The command REALLY RUNS: about ten times where the rules are kept, and up to sixty times where keys \
             are ignored. Use an endpoint where that does no harm, a body that may be sent many times, and a \
             moment when nobody else sends any. Keys are random and fresh.\n\n\
             Levels are ours. A `must` is broken by a second execution, or by an answer that belongs to another \
             command or another caller: money is lost. A `should` is about codes, shapes and headers: clients \
             are left to guess. A rule that cannot be judged is `not tried`, and says why; nothing is guessed.\n\n\
             How often a command ran is judged by --count-url, and by what the answers name: the Location header, \
             the member `id` of a JSON body, or the whole body, whichever differs between two commands. With \
             neither, executions cannot be counted. What happens to a command whose client hung up can only be \
             judged with --count-url, since its answer is lost.",
        )
        .after_help(
            "Examples:\n  \
             semel verify --url http://127.0.0.1:8080/payments --body payment.json\n  \
             semel verify --url https://shop.internal/payments --body payment.json --ca internal-ca.crt\n  \
             semel verify --url http://127.0.0.1:8080/payments --body payment.json \\\n      \
             --header 'Authorization: Bearer alice' --other-header 'Authorization: Bearer bob' \\\n      \
             --count-url http://127.0.0.1:8080/payments/count\n\n\
             Exit codes: 0 every must that could be tried holds, 1 a must is broken, 2 wrong use, or the endpoint \
             cannot be reached or refuses the command itself.",
        )
        .arg(
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .required(true)
                .help("Where the command is sent, by POST: http:// or https://"),
        )
        .arg(
            Arg::new("body")
                .long("body")
                .value_name("FILE")
                .required(true)
                .value_parser(clap::value_parser!(std::path::PathBuf))
                .help("The command, as the endpoint accepts it; unless it is JSON, give its Content-Type with --header"),
        )
        .arg(header("header").help("Sent with every request, such as credentials; may be repeated"))
        .arg(
            header("other-header")
                .help("What another caller sends in its place; tries that callers are kept apart"),
        )
        .arg(
            Arg::new("count-url")
                .long("count-url")
                .value_name("URL")
                .help("Answers GET with how often the command ran: a number, or JSON with one number"),
        )
        .arg(
            Arg::new("profile")
                .long("profile")
                .value_name("NAME")
                .value_parser(["ietf", "stripe"])
                .default_value("ietf")
                .help("Which answers to expect: of the IETF draft, or of Stripe (400 for a reused key, {\"error\": …})"),
        )
        .arg(super::json_flag())
        .arg(
            Arg::new("ca")
                .long("ca")
                .value_name("FILE")
                .value_parser(clap::value_parser!(std::path::PathBuf))
                .conflicts_with("insecure")
                .help("With https://: the authorities to trust, in PEM, instead of the system's"),
        )
        .arg(Arg::new("insecure").long("insecure").action(ArgAction::SetTrue).help(
            "With https://: check NO certificate. An attacker on the network can read and change everything: for test servers only",
        ))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("TIME")
                .default_value("10s")
                .help("How long one request may take, from 100ms to 60s"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let options = Options::read(matches)?;
    for warning in options.warnings() {
        eprintln!("warning: {warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        tokio::time::timeout(MAX_RUN, probes::try_all(&options))
            .await
            .with_context(|| format!("gave up after {} s", MAX_RUN.as_secs()))?
    })?;
    if matches.get_flag("json") {
        say(format!("{:#}", report.to_json()));
    } else {
        let colour = crate::terminal::colours(&std::io::stdout());
        show(report.to_text(colour).trim_end());
    }
    Ok(if report.holds() { Done::Yes } else { Done::No })
}
