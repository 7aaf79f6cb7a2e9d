//! `semel records settle`: settles many unknown outcomes from a file of evidence.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::{reason, who};
use crate::cli::{CommandResult, OutputFlags, StoreFlag, load, open_store, printable, runtime, say, show};
use anyhow::{Context, bail};
use semel_operations::operate::settle::{EvidenceLine, read_file};
use semel_operations::operate::settling::{Settling, VerdictCounts, VerdictOutcome};
use semel_stores::Access;

/// Number of verdicts after which the progress is printed.
const TELL_EVERY: usize = 500;
/// Largest number of faults that are printed.
const MAX_SHOWN: usize = 1000;

/// The command line of `semel records settle`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Settle many records in state unknown, from a file of evidence",
    long_about = "Settles records in state unknown as `records resolve` does, one for each line of a file. A line is a \
        JSON object: `operationId`; `verdict`, which is \"executed\" or \"not-executed\"; with \"executed\" the \
        `status`, and if you have them `headers` and `body` or `bodyBase64`, that retries get; the `attempt` that you \
        looked at, 1 by default; and a `reason` of its own, which is noted after that of --reason.\n\n\
        The whole file is checked first: if one line cannot be used, each such line is named, and nothing is settled. Then \
        each verdict is given by itself: a refused one, such as not-executed within the quarantine, does not stop the \
        others. Begin with --dry-run, which says for each record what the verdict would come to now, and changes nothing. \
        After an interruption, run the same file again: a record that the same verdict settled before, with the same \
        response, is told as already settled, and that is no failure.\n\n\
        A file has at most 10,000 verdicts and 256 MiB, a line 1 MiB. The operator and the reason are kept for good, with \
        the story of each record.",
    after_help = "Examples:\n  \
        semel records settle found.jsonl --dry-run --reason 'incident 42: checked with the provider'\n  \
        semel records settle found.jsonl --reason 'incident 42: checked with the provider'\n\n\
        A line of found.jsonl:\n  \
        {\"operationId\":\"01a1df32-caa3-786d-a196-45c465f24292\",\"verdict\":\"executed\",\"status\":201}\n\n\
        Exit codes: 0 every record is settled as its line says, now or before, or would be; 1 some are not, for the \
        printed reasons; 2 wrong use, a line cannot be used and nothing is settled, or the store cannot be used."
)]
pub(super) struct SettleArgs {
    #[arg(value_name = "FILE", help = "Verdicts as JSON Lines; - for the standard input")]
    file: String,
    #[arg(long, help = "Only say what each verdict would come to now")]
    dry_run: bool,
    #[arg(long, value_name = "TEXT", help = "Reason for all verdicts, which is kept for good")]
    reason: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &SettleArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let lines = read(args)?;
    let access = if args.dry_run { Access::Read } else { Access::Write };
    let store = open_store(config, &args.store, access)?;
    let config = load(config, args.store.flags())?.config;
    let who = who();
    let mut settling =
        Settling { store: &*store, config: &config, who: &who, is_dry: args.dry_run, stopped: None };
    let (mut results, mut counts) = (Vec::new(), VerdictCounts::default());
    if !args.output.json {
        show(format!("{:>6}  {:36}  {:12}  {:15}  DETAIL", "LINE", "OPERATION ID", "VERDICT", "RESULT"));
    }
    for (done, line) in lines.iter().enumerate() {
        if done > 0 && done % TELL_EVERY == 0 {
            eprintln!("{done} of {} verdicts", lines.len());
        }
        let outcome = runtime()?.block_on(settling.give(line));
        counts.count(&outcome);
        match args.output.json {
            true => results.push(settling.to_json(line, &outcome)),
            false => show(row(&settling, line, &outcome)),
        }
    }
    if args.output.json {
        say(counts.to_json(args.dry_run, &results));
    } else {
        let VerdictCounts { settled, already_settled, others } = counts;
        let word = if args.dry_run { "would be settled" } else { "settled" };
        let end = if args.dry_run { "; nothing was changed" } else { "" };
        eprintln!(
            "{settled} of {} {word}, {already_settled} already settled so, {others} not{end}",
            lines.len()
        );
    }
    if let Some(why) = settling.stopped {
        bail!("the store cannot be used: {why}; run the same file again: settled records stay as they are");
    }
    Ok(if counts.others == 0 { CommandResult::Yes } else { CommandResult::No })
}

/// Reads the file, whole.
fn read(args: &SettleArgs) -> anyhow::Result<Vec<EvidenceLine>> {
    let (name, reason) = (&args.file, reason(&args.reason)?);
    let read = match name.as_str() {
        "-" => read_file(std::io::stdin().lock(), &reason),
        name => {
            let file = File::open(name).with_context(|| format!("cannot read {name}"))?;
            read_file(BufReader::new(file), &reason)
        }
    };
    let lines = read.with_context(|| format!("cannot read {name}"))?;
    let lines = lines.map_err(|faults| {
        for fault in faults.iter().take(MAX_SHOWN) {
            eprintln!("line {}: {}", fault.number, printable(&fault.why));
        }
        let more = faults.len().saturating_sub(MAX_SHOWN);
        let more = if more > 0 { format!(", {more} of them not shown") } else { String::new() };
        let count = faults.len();
        let lines = if count == 1 { "a line" } else { "lines" };
        anyhow::anyhow!("nothing was settled: {name} has {lines} that cannot be used ({count}{more})")
    })?;
    if lines.is_empty() {
        bail!("there is no verdict in {name}");
    }
    Ok(lines)
}

/// Returns the result of one verdict as a line.
fn row(settling: &Settling<'_>, line: &EvidenceLine, outcome: &VerdictOutcome) -> String {
    let id = line.operation_id.to_string();
    let detail = match outcome {
        VerdictOutcome::Settled { state, loses_its_body } => {
            let state = state.map_or("deleted", |state| state.as_str());
            let body = if *loses_its_body { ", without its body: `store_response` excludes it" } else { "" };
            format!("{state}{body}")
        }
        VerdictOutcome::AlreadySettled { state } => format!("{state}, by the same verdict"),
        VerdictOutcome::Refused(why) | VerdictOutcome::Absent(why) | VerdictOutcome::Failed(why) => {
            why.strip_prefix(&format!("{id}: ")).unwrap_or(why).to_owned()
        }
        VerdictOutcome::NotTried => "the store failed before".to_owned(),
    };
    let word = settling.word(outcome).replace('_', " ");
    printable(&format!("{:>6}  {id}  {:12}  {word:15}  {detail}", line.number, line.verdict()))
}
