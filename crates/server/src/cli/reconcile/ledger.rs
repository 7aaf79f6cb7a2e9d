//! `semel reconcile ledger`: compares two ledgers by a reference.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use semel_core::StateName;
use semel_flow::reconcile::ledger::{
    Condition, EntryCounts, FindingKind, Format, LedgerFinding, LedgerReport,
};
use semel_gateway::service::ADDRESS_CHECKS;
use semel_operations::ledger::{Compared, compare};
use semel_settings::{
    LedgerComparison as Comparison, LedgerSettings as Settings, LedgerSource as Source, ServiceTls,
    parse_condition, parse_duration, plan_ledger as plan,
};
use serde_json::{Value, json};

use semel_stores::Access;

use crate::cli::{CommandResult, OutputFlags, StoreFlag, open_store, printable, runtime, say};

/// The command line of `semel reconcile ledger`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Compare our ledger with theirs: missing, duplicate and different entries",
    long_about = "Compares two ledgers: ours, with the commands that we believe were executed, and theirs, \
        with those that the provider executed. It reports the entries that either side lacks or holds \
        twice, and those that differ.\n\n\
        A ledger is CSV with a header, NDJSON, or a JSON list of objects. A name is that of a column, or of \
        a member, or a JSON Pointer such as /charge/amount. Numbers are compared exactly, however they are \
        spelled: 1200 is 1200.00. An entry that cannot be read ends the comparison, with its line; no entry \
        is skipped silently.\n\n\
        `--ours store` takes the operation ids of all commands that succeeded; theirs must then hold what \
        it got as Semel-Operation-Id, or keys that begin with it (`--strip-suffix :`). A store deletes \
        expired records: set `--max-age` to the time for which it keeps them.\n\n\
        `semel serve` does the same once a day if `[ledger]` says so; without `--theirs`, this command does \
        it once, now.",
    after_help = "Examples:\n  \
        semel reconcile ledger --ours charges.csv --theirs provider.ndjson \\\n      \
        --reference id --compare amount,currency --their-filter status=captured\n  \
        semel reconcile ledger --ours store --operation payments.create --theirs provider.csv \\\n      \
        --their-reference idempotency_key --strip-suffix : --their-time created --max-age 20h\n\n\
        Exit codes: 0 they agree, 1 they do not, 2 wrong use, or they cannot be compared."
)]
pub(super) struct LedgerArgs {
    #[arg(
        long,
        value_name = "LEDGER",
        requires = "theirs",
        help = "Our ledger: store, a file, or - for the standard input"
    )]
    ours: Option<String>,
    #[arg(
        long,
        value_name = "LEDGER",
        requires = "ours",
        help = "Their ledger: a file, an address, or - [default: as `[ledger]` says]"
    )]
    theirs: Option<String>,
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), requires = "theirs", help = "Format \
                                                                                                    of both \
                                                                                                    ledgers, \
                                                                                                    if \
                                                                                                    their \
                                                                                                    file \
                                                                                                    names \
                                                                                                    do not \
                                                                                                    show it")]
    format: Option<Format>,
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), requires = "theirs", help = "Format \
                                                                                                    of \
                                                                                                    theirs, \
                                                                                                    if it \
                                                                                                    differs")]
    their_format: Option<Format>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "theirs",
        help = "With `--ours store`: only records of this operation"
    )]
    operation: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "theirs",
        help = "Column or member that identifies an entry in both ledgers"
    )]
    reference: Option<String>,
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "theirs",
        help = "Columns or members that must be equal in both ledgers, separated by commas"
    )]
    compare: Vec<String>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "theirs",
        help = "Column or member with the time of an entry: RFC 3339, or seconds since 1970"
    )]
    time: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "theirs",
        help = "Name of the reference in theirs [default: the same]"
    )]
    their_reference: Option<String>,
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "theirs",
        help = "Names of the compared values in theirs, in the same order [default: the same]"
    )]
    their_compare: Vec<String>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "theirs",
        help = "Name of the time in theirs [default: the same]"
    )]
    their_time: Option<String>,
    #[arg(
        long,
        value_name = "NAME=VALUE",
        requires = "theirs",
        help = "Filter on our entries; several values of one name are alternatives"
    )]
    our_filter: Vec<String>,
    #[arg(
        long,
        value_name = "NAME=VALUE",
        requires = "theirs",
        help = "Filter on their entries, such as status=captured"
    )]
    their_filter: Vec<String>,
    #[arg(
        long,
        value_name = "TEXT",
        requires = "theirs",
        help = "Text at which their references are cut: it and everything after it is removed"
    )]
    strip_suffix: Option<String>,
    #[arg(
        long,
        value_name = "TIME",
        requires = "theirs",
        help = "Age below which an entry does not count as missing: it may still be on its way [default: \
                15m]"
    )]
    grace: Option<String>,
    #[arg(
        long,
        value_name = "TIME",
        requires = "theirs",
        help = "Age above which an entry does not count as missing: the other side may have deleted it"
    )]
    max_age: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "theirs",
        help = "Environment variable with the value of the Authorization header, for an address"
    )]
    authorization_env: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        requires = "theirs",
        help = "With an https:// address: the authorities to trust, instead of the system's"
    )]
    ca: Option<PathBuf>,
    #[arg(
        long,
        value_name = "FILE",
        requires = "theirs",
        help = "With an https:// address: the certificate to show"
    )]
    certificate: Option<PathBuf>,
    #[arg(
        long,
        value_name = "FILE",
        requires = "theirs",
        help = "With an https:// address: the private key of that certificate"
    )]
    key: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// Returns the parser of a format's name.
fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::as_str)).map(|name| {
        let known = Format::ALL.into_iter().find(|format| format.as_str() == name);
        known.expect("the parser takes only names of formats")
    })
}

pub(super) fn run(args: &LedgerArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let comparison = match args.theirs {
        Some(_) => asked_for(args)?,
        None => configured(args, config)?,
    };
    let store = match comparison.ours.source {
        Source::Store { .. } => Some(open_store(config, &args.store, Access::Read)?),
        Source::File(..) | Source::Input(_) | Source::Url(_) => None,
    };
    if let Source::Url(url) = &comparison.theirs.source
        && url.authorization_env.is_some()
        && url.address.is_exposed()
    {
        eprintln!(
            "warning: the credential for {} crosses the network unencrypted: use https",
            url.address.authority()
        );
    }
    let compared = runtime()?.block_on(compare(&comparison, store.as_ref()))?;
    let names = &comparison.ours.columns.compare;
    match args.output.json {
        true => say(to_json(&compared, names)),
        false => tell(&compared, names),
    }
    Ok(if compared.report.agrees() { CommandResult::Yes } else { CommandResult::No })
}

fn configured(args: &LedgerArgs, config: Option<&Path>) -> anyhow::Result<Comparison> {
    let watch = crate::cli::load(config, args.store.flags())?.config.ledger;
    let advice = "no `[ledger]` is configured: name two ledgers with `--ours` and `--theirs`";
    Ok(watch.context(advice)?.comparison)
}

fn asked_for(args: &LedgerArgs) -> anyhow::Result<Comparison> {
    let defaults = Settings::default();
    let grace = duration("grace", args.grace.as_deref())?;
    let settings = Settings {
        ours: args.ours.clone().unwrap_or(defaults.ours),
        theirs: args.theirs.clone(),
        format: args.format,
        their_format: args.their_format,
        operation: args.operation.clone(),
        reference: args.reference.clone(),
        compare: args.compare.clone(),
        time: args.time.clone(),
        their_reference: args.their_reference.clone(),
        their_compare: args.their_compare.clone(),
        their_time: args.their_time.clone(),
        our_filter: conditions("our-filter", &args.our_filter)?,
        their_filter: conditions("their-filter", &args.their_filter)?,
        strip_suffix: args.strip_suffix.clone().filter(|suffix| !suffix.is_empty()),
        grace: grace.unwrap_or(defaults.grace),
        max_age: duration("max-age", args.max_age.as_deref())?,
        authorization_env: args.authorization_env.clone(),
        timeout: defaults.timeout,
        max_size: defaults.max_size,
        tls: ServiceTls { ca: args.ca.clone(), certificate: args.certificate.clone(), key: args.key.clone() },
    };
    plan(&settings, grace.is_some(), &ADDRESS_CHECKS)
        .map_err(|refusal| anyhow!("--{}: {}", refusal.setting.replace('_', "-"), refusal.message))
}

fn duration(name: &str, text: Option<&str>) -> anyhow::Result<Option<Duration>> {
    let Some(text) = text else { return Ok(None) };
    let duration = parse_duration(text);
    duration
        .map(Some)
        .with_context(|| format!("--{name}: {text:?} is not a duration such as \"15m\" or \"20h\""))
}

fn conditions(name: &str, given: &[String]) -> anyhow::Result<Vec<Condition>> {
    let read = given.iter().map(|text| {
        parse_condition(text).with_context(|| {
            format!("--{name}: {text:?} is not a name and its value, such as status=captured")
        })
    });
    read.collect()
}

/// Prints a line for each finding, then the sums.
fn tell(compared: &Compared, names: &[String]) {
    let Compared { report, our_states } = compared;
    if !report.agrees() {
        say(format!("{:14}  {:40}  WHERE", "KIND", "REFERENCE"));
    }
    for kind in FindingKind::ALL {
        let findings = report.findings(kind);
        for finding in &findings.first {
            let state = our_states.get(&finding.reference).copied();
            let (reference, place) =
                (printable(&finding.reference), printable(&place(finding, state, names)));
            say(format!("{:14}  {reference:40}  {place}", kind.as_str().replace('_', " ")));
        }
        let more = findings.total - findings.first.len() as u64;
        if more > 0 {
            say(format!("{:14}  … and {more} more", kind.as_str().replace('_', " ")));
        }
    }
    say(sums(report));
}

/// Describes the place of a finding, with its known facts.
fn place(finding: &LedgerFinding, state: Option<StateName>, names: &[String]) -> String {
    let lines = |whose: &str, lines: &[u32]| {
        let numbers: Vec<String> = lines.iter().map(u32::to_string).collect();
        match numbers.len() {
            0 => None,
            1 => Some(format!("{whose} line {}", numbers[0])),
            _ => Some(format!("{whose} lines {}", numbers.join(", "))),
        }
    };
    let differences = finding.differences.iter().map(|difference| {
        let name = names.get(difference.value).map_or("", String::as_str);
        format!("{name} {:?} is {:?} in theirs", difference.ours, difference.theirs)
    });
    let state = state.map(|state| format!("our record is {}", state.as_str()));
    let places = [lines("our", &finding.our_lines), lines("their", &finding.their_lines), state];
    let parts: Vec<String> = differences.chain(places.into_iter().flatten()).collect();
    if parts.is_empty() { "in the store".to_owned() } else { parts.join("; ") }
}

fn sums(report: &LedgerReport) -> String {
    let side = |whose: &str, counted: EntryCounts| {
        let EntryCounts { entries, left_out } = counted;
        let noun = if entries == 1 { "entry" } else { "entries" };
        match left_out {
            0 => format!("{whose}: {entries} {noun}"),
            _ => format!("{whose}: {entries} {noun}, and {left_out} that the filter leaves out"),
        }
    };
    let counts = FindingKind::ALL
        .map(|kind| format!("{} {}", report.findings(kind).total, kind.as_str().replace('_', " ")));
    let excused = format!("{} too young, {} too old", report.too_young, report.too_old);
    let verdict = if report.agrees() { "they agree" } else { "they do not agree" };
    format!(
        "{}\n{}\n{} agree, {}, {excused}\n{verdict}",
        side("ours", report.ours),
        side("theirs", report.theirs),
        report.agreeing,
        counts.join(", ")
    )
}

/// Returns the comparison as JSON. The names are stable.
fn to_json(compared: &Compared, names: &[String]) -> Value {
    let Compared { report, our_states } = compared;
    let side = |counted: EntryCounts| json!({ "entries": counted.entries, "leftOut": counted.left_out });
    let findings = |kind: FindingKind| {
        let findings = report.findings(kind);
        let first: Vec<Value> = findings
            .first
            .iter()
            .map(|finding| {
                let mut shown = json!({
                    "reference": finding.reference,
                    "ourLines": finding.our_lines,
                    "theirLines": finding.their_lines,
                });
                if kind == FindingKind::Different {
                    let differences = finding.differences.iter().map(|difference| {
                        json!({
                            "name": names.get(difference.value),
                            "ours": difference.ours,
                            "theirs": difference.theirs,
                        })
                    });
                    shown["differences"] = differences.collect();
                }
                if let Some(state) = our_states.get(&finding.reference) {
                    shown["ourState"] = state.as_str().into();
                }
                shown
            })
            .collect();
        json!({ "total": findings.total, "first": first })
    };
    json!({
        "agree": report.agrees(),
        "ours": side(report.ours),
        "theirs": side(report.theirs),
        "agreeing": report.agreeing,
        "tooYoung": report.too_young,
        "tooOld": report.too_old,
        "missingOurs": findings(FindingKind::MissingOurs),
        "missingTheirs": findings(FindingKind::MissingTheirs),
        "doubleOurs": findings(FindingKind::DoubleOurs),
        "doubleTheirs": findings(FindingKind::DoubleTheirs),
        "different": findings(FindingKind::Different),
    })
}
