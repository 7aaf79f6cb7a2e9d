//! The command line: what each command is called, and who does it.
//!
//! Exit codes: 0 done, 1 the answer is no, 2 wrong use or cannot run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod audit;
mod completions;
mod configuration;
mod demo;
mod doctor;
mod fingerprint;
mod keys;
mod outbox;
mod quotas;
mod reconcile;
mod records;
mod serve;
mod signals;
mod upkeep;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use clap::{Arg, ArgMatches, Command};
use semel_core::{Outbox, Store, StoreError};
use semel_stores::access::Access;
use tokio::runtime::Runtime;

use crate::config::{self, Loaded, Sources, StoreLocation};
pub(crate) use crate::operate::printable;

/// What a command came to.
pub(crate) enum Done {
    /// It did what it was asked.
    Yes,
    /// It could, and the answer is no.
    No,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some(("serve", matches)) => serve::run(matches),
        Some(("demo", matches)) => demo::run(matches),
        Some(("demo-service", matches)) => demo::run_service(matches),
        Some(("config", matches)) => configuration::run(matches),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("keys", matches)) => keys::run(matches),
        Some(("records", matches)) => records::run(matches),
        Some(("outbox", matches)) => outbox::run(matches),
        Some(("quotas", matches)) => quotas::run(matches),
        Some(("reconcile", matches)) => reconcile::run(matches),
        Some((name @ ("sweep" | "reap" | "migrate"), matches)) => upkeep::run(name, matches),
        Some(("fingerprint", matches)) => fingerprint::run(matches),
        Some(("verify", matches)) => verify::run(matches),
        Some(("audit", matches)) => audit::run(matches),
        Some(("completions", matches)) => completions::run(matches),
        _ => Ok(Done::Yes),
    };
    match result {
        Ok(Done::Yes) => ExitCode::SUCCESS,
        Ok(Done::No) => ExitCode::from(1),
        Err(error) => {
            eprintln!("semel: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Every command and argument.
pub fn command() -> Command {
    shown_command().subcommand(demo::service_command())
}

/// The same, without what is hidden: a completion offers whatever it is given.
fn shown_command() -> Command {
    Command::new("semel")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Makes HTTP commands safe to retry: one durable outcome for each Idempotency-Key")
        .after_help(
            "Begin with `semel demo`, which shows what it is for, then `semel serve --upstream URL`.\n\
             `semel COMMAND --help` says what a command does, when to use it, and gives an example.\n\n\
             Exit codes of all commands: 0 done, 1 the answer is no, 2 wrong use, or it cannot be done.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .global(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The configuration; ./semel.toml where there is one"),
        )
        .subcommand(demo::command())
        .subcommand(serve::command())
        .subcommand(configuration::command())
        .subcommand(doctor::command())
        .subcommand(records::command())
        .subcommand(outbox::command())
        .subcommand(quotas::command())
        .subcommand(reconcile::command())
        .subcommands(upkeep::commands())
        .subcommand(fingerprint::command())
        .subcommand(keys::command())
        .subcommand(verify::command())
        .subcommand(audit::command())
        .subcommand(completions::command())
}

/// `--store`, for commands that need nothing else of the configuration.
pub(crate) fn store_flag() -> Arg {
    Arg::new("store")
        .long("store")
        .value_name("STORE")
        .help("Where records are kept, if not as configured: sqlite:PATH or postgres://…")
}

/// `--json`.
pub(crate) fn json_flag() -> Arg {
    Arg::new("json").long("json").action(clap::ArgAction::SetTrue).help("Print JSON")
}

/// Access of a command that does this: those that only look change nothing, not even an older schema.
pub(crate) fn access_of(name: &str) -> Access {
    match name {
        "list" | "show" | "explain" => Access::Read,
        _ => Access::Write,
    }
}

/// Opens the store that the configuration names. A file that is not there holds nothing to work on.
pub(crate) fn open_store(matches: &ArgMatches, access: Access) -> anyhow::Result<Arc<dyn Store>> {
    let config = load(matches)?.config;
    existing(&config.store)?;
    runtime()?.block_on(crate::gateway::open_store(&config, access))
}

/// The same for the messages in it.
pub(crate) fn open_outbox(matches: &ArgMatches, access: Access) -> anyhow::Result<Arc<dyn Outbox>> {
    let location = existing(&load(matches)?.config.store)?;
    runtime()?.block_on(crate::gateway::open_outbox(&location, access))
}

/// This store, if there is one.
pub(crate) fn existing(store: &StoreLocation) -> anyhow::Result<StoreLocation> {
    match store {
        StoreLocation::Memory => {
            anyhow::bail!(
                "a store in memory can be seen by its own process only: this command needs sqlite:PATH or postgres://…"
            )
        }
        StoreLocation::Sqlite(path) if !path.exists() => {
            anyhow::bail!(
                "there is no store at {}: run this where the gateway runs, or name its store with `--store`; a \
                 gateway makes the file when it first starts",
                path.display()
            )
        }
        location @ StoreLocation::Postgres(url) => {
            let address = url.address()?;
            anyhow::ensure!(
                runtime()?.block_on(semel_stores::postgres::has_tables(&address))?,
                "there is no store at {}: a gateway makes its tables there when it first starts, and so does \
                 `semel migrate`; is it the right database?",
                address.describe()
            );
            Ok(location.clone())
        }
        location @ StoreLocation::Sqlite(_) => Ok(location.clone()),
    }
}

/// The runtime of a command: its stores live on it from the first call to the last.
pub(crate) fn runtime() -> anyhow::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// Waits for the store, in a command that has nothing else to do.
pub(crate) fn blocking<T>(call: impl Future<Output = Result<T, StoreError>>) -> anyhow::Result<T> {
    Ok(runtime()?.block_on(call)?)
}

/// Prints a line. A reader that has seen enough, such as `head`, is no reason to fail.
pub(crate) fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints text for people, in lines that fit the terminal.
pub(crate) fn show(text: impl std::fmt::Display) {
    say(crate::terminal::fit(&text.to_string()));
}

/// A flag for each setting that has one.
pub(crate) fn setting_flags() -> Vec<Arg> {
    config::settings()
        .into_iter()
        .filter_map(|setting| {
            let name = setting.flag()?;
            let mut help = setting.help.to_string();
            if !setting.choices.is_empty() {
                help.push_str(&format!(": {}", setting.choices.join(", ")));
            }
            if let Some(default) = &setting.default {
                help.push_str(&format!(" [default: {default}]"));
            }
            let heading = if setting.table.is_empty() { "Settings" } else { "Defaults of operations" };
            Some(Arg::new(name.clone()).long(name).value_name("VALUE").help(help).help_heading(heading))
        })
        .collect()
}

/// Reads the configuration for a command, and shows what is wrong with it, or doubtful about it.
pub(crate) fn load(matches: &ArgMatches) -> anyhow::Result<Loaded> {
    let file = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let mut sources = Sources::gather(file, Path::new("."), std::env::vars_os())?;
    for setting in config::settings() {
        let Some(name) = setting.flag() else { continue };
        if let Ok(Some(value)) = matches.try_get_one::<String>(&name) {
            sources = sources.flag(&name, value);
        }
    }
    Ok(config::load(&sources)?)
}
