//! Command line: the names of the commands, and the modules that run them.
//!
//! Exit codes: 0 done, 1 the answer is no, 2 wrong use or cannot run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod admin_client;
mod audit;
mod backup;
mod completions;
mod configuration;
mod demo;
mod doctor;
mod files;
mod fingerprint;
mod hold;
mod keys;
mod log_level;
mod notes;
mod outbox;
mod quotas;
mod reconcile;
mod records;
mod serve;
mod signals;
mod support_bundle;
mod table;
mod upkeep;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use semel_core::{Backend, Records, StoreError};
use semel_gateway::service::ADDRESS_CHECKS;
use semel_settings::{Loaded, Sources, StoreLocation};
use semel_stores::Access;
use tokio::runtime::Runtime;

pub(crate) use semel_operations::operate::printable;

/// Result of a command.
pub(crate) enum CommandResult {
    /// The command did its work.
    Yes,
    /// The command ran, and its answer is no.
    No,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let Cli { config, command } = Cli::<AnyCommand>::parse();
    let config = config.as_deref();
    let result = match command {
        AnyCommand::DemoService(args) => demo::run_service(&args),
        AnyCommand::Shown(command) => match command {
            ShownCommand::Demo(args) => demo::run(&args),
            ShownCommand::Serve(args) => serve::run(&args, config),
            ShownCommand::Config(args) => configuration::run(&args, config),
            ShownCommand::Doctor(args) => doctor::run(&args, config),
            ShownCommand::Records(args) => records::run(&args, config),
            ShownCommand::Hold(args) => hold::run(&args, config),
            ShownCommand::Notes(args) => notes::run(&args, config),
            ShownCommand::Outbox(args) => outbox::run(&args, config),
            ShownCommand::Quotas(args) => quotas::run(&args, config),
            ShownCommand::Reconcile(args) => reconcile::run(&args, config),
            ShownCommand::LogLevel(args) => log_level::run(&args, config),
            ShownCommand::SupportBundle(args) => support_bundle::run(&args, config),
            ShownCommand::Sweep(args) => upkeep::sweep(&args, config),
            ShownCommand::Reap(args) => upkeep::reap(&args, config),
            ShownCommand::Migrate(args) => upkeep::migrate(&args, config),
            ShownCommand::Backup(args) => backup::back_up(&args, config),
            ShownCommand::Restore(args) => backup::restore(&args, config),
            ShownCommand::Fingerprint(args) => fingerprint::run(&args, config),
            ShownCommand::Keys(args) => keys::run(&args, config),
            ShownCommand::Verify(args) => verify::run(&args),
            ShownCommand::Audit(args) => audit::run(&args),
            ShownCommand::Completions(args) => completions::run(&args),
        },
    };
    match result {
        Ok(CommandResult::Yes) => ExitCode::SUCCESS,
        Ok(CommandResult::No) => ExitCode::from(1),
        Err(error) => {
            eprintln!("semel: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The command line of the program, with these commands.
#[derive(Debug, Parser)]
#[command(
    name = "semel",
    version,
    about = "Makes HTTP commands safe to retry: one durable outcome for each Idempotency-Key",
    after_help = "Begin with `semel demo`, which shows what it is for, then `semel serve --upstream URL`.\n\
        `semel COMMAND --help` says what a command does, when to use it, and gives an example.\n\n\
        Exit codes of all commands: 0 done, 1 the answer is no, 2 wrong use, or it cannot be done."
)]
struct Cli<C: Subcommand> {
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        help = "Configuration file; ./semel.toml by default, if it exists"
    )]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: C,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value is made, at the start")]
enum AnyCommand {
    #[command(flatten)]
    Shown(ShownCommand),
    #[command(hide = true)]
    DemoService(demo::ServiceArgs),
}

/// The commands for people, in the order of the help.
#[derive(Debug, Subcommand)]
enum ShownCommand {
    Demo(demo::DemoArgs),
    Serve(serve::ServeArgs),
    Config(configuration::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Records(records::RecordsArgs),
    Hold(hold::HoldArgs),
    Notes(notes::NotesArgs),
    Outbox(outbox::OutboxArgs),
    Quotas(quotas::QuotasArgs),
    Reconcile(reconcile::ReconcileArgs),
    LogLevel(log_level::LogLevelArgs),
    SupportBundle(support_bundle::SupportBundleArgs),
    Sweep(upkeep::SweepArgs),
    Reap(upkeep::ReapArgs),
    Migrate(upkeep::MigrateArgs),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Fingerprint(fingerprint::FingerprintArgs),
    Keys(keys::KeysArgs),
    Verify(verify::VerifyArgs),
    Audit(audit::AuditArgs),
    Completions(completions::CompletionsArgs),
}

/// Returns every command and argument, hidden ones included.
pub fn command() -> Command {
    Cli::<AnyCommand>::command()
}

/// Returns every command and argument without the hidden ones, which a completion script would offer.
fn shown_command() -> Command {
    Cli::<ShownCommand>::command()
}

/// `--store`, for commands that need no other setting.
#[derive(Debug, Args)]
pub(crate) struct StoreFlag {
    #[arg(
        long,
        value_name = "STORE",
        help = "Store to use instead of the configured one: sqlite:PATH or postgres://…"
    )]
    pub(crate) store: Option<String>,
}

impl StoreFlag {
    /// Returns the flag as a setting.
    pub(crate) fn flags(&self) -> impl Iterator<Item = (&str, &str)> {
        self.store.iter().map(|store| ("store", store.as_str()))
    }
}

/// `--json`.
#[derive(Debug, Args)]
pub(crate) struct OutputFlags {
    #[arg(long, help = "Print JSON")]
    pub(crate) json: bool,
}

/// The flags of all settings, each with its value. They come from the table of settings, so they have no fields.
#[derive(Debug)]
pub(crate) struct SettingFlags(Vec<(String, String)>);

impl SettingFlags {
    /// Returns the given flags with their values.
    pub(crate) fn flags(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingFlags, clap::Error> {
        let names = semel_settings::settings().into_iter().filter_map(|setting| setting.flag());
        let given = names.filter_map(|name| {
            let value = matches.get_one::<String>(&name)?.clone();
            Some((name, value))
        });
        Ok(SettingFlags(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SettingFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(setting_flags())
    }

    fn augment_args_for_update(command: Command) -> Command {
        SettingFlags::augment_args(command)
    }
}

/// Opens the store of the configuration with its keys. It must exist.
pub(crate) fn open_store(
    config: Option<&Path>,
    flag: &StoreFlag,
    access: Access,
) -> anyhow::Result<Arc<dyn Records>> {
    let config = load(config, flag.flags())?.config;
    existing(&config.store)?;
    Ok(runtime()?.block_on(crate::gateway::open(&config, access))?)
}

/// Opens a store without its keys, for whoever looks at no response and no request. It must exist.
pub(crate) fn open_keyless(location: &StoreLocation, access: Access) -> anyhow::Result<Arc<dyn Backend>> {
    let location = existing(location)?;
    Ok(runtime()?.block_on(semel_stores::open_with(&location, access, None))?)
}

/// Returns the store if it exists.
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

/// Returns the runtime of a command, on which its stores live from the first call to the last.
pub(crate) fn runtime() -> anyhow::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// Waits for the store, in a command without other work.
pub(crate) fn blocking<T>(call: impl Future<Output = Result<T, StoreError>>) -> anyhow::Result<T> {
    Ok(runtime()?.block_on(call)?)
}

/// Prints a line. A reader that closes the pipe early, such as `head`, is no failure.
pub(crate) fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints text for people, in lines that fit the terminal.
pub(crate) fn show(text: impl std::fmt::Display) {
    say(crate::terminal::fit(&text.to_string()));
}

/// Returns a flag for each setting that has one.
fn setting_flags() -> Vec<Arg> {
    semel_settings::settings()
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

/// Reads the configuration for a command: the file, the environment, and these flags.
pub(crate) fn load<'a>(
    file: Option<&Path>,
    flags: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> anyhow::Result<Loaded> {
    let mut sources = Sources::gather(file, Path::new("."), std::env::vars_os())?;
    for (name, value) in flags {
        sources = sources.flag(name, value);
    }
    Ok(semel_settings::load(&sources, ADDRESS_CHECKS)?)
}
