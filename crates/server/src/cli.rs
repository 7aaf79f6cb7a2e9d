//! The command line: what each command is called, and who does it.
//!
//! Exit codes: 0 done, 1 the answer is no, 2 wrong use or cannot run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod configuration;
mod keys;
mod serve;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};

use crate::config::{self, Loaded, Sources};

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
        Some(("config", matches)) => configuration::run(matches),
        Some(("keys", matches)) => keys::run(matches),
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
    Command::new("semel")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Makes HTTP commands safe to retry: one durable outcome for each Idempotency-Key")
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
        .subcommand(serve::command())
        .subcommand(configuration::command())
        .subcommand(keys::command())
}

/// Prints a line. A reader that has seen enough, such as `head`, is no reason to fail.
pub(crate) fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A flag for each setting that has one.
pub(crate) fn setting_flags() -> Vec<Arg> {
    config::settings()
        .into_iter()
        .filter_map(|setting| {
            let name = setting.flag()?;
            let help = match &setting.default {
                Some(default) => format!("{} [{default}]", setting.help),
                None => setting.help.to_string(),
            };
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
