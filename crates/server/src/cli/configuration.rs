//! `semel config check|show|init`.

mod check;

use std::path::Path;

use semel_settings::{EffectiveSetting, Loaded};

use super::{CommandResult, OutputFlags, SettingFlags, printable, say};

/// The command line of `semel config`.
#[derive(Debug, clap::Args)]
#[command(about = "Check, show or begin a configuration")]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    Check(CheckArgs),
    Show(ShowConfigurationArgs),
    Init(InitArgs),
}

/// The command line of `semel config check`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Check the configuration, and print its errors and warnings",
    long_about = "Reads the configuration as `semel serve` does, and prints every error with its place and \
        a correction, or the warnings. If the store exists, the command also looks there for records whose \
        operation has no rule any more, and for encryption keys that are not configured. It changes \
        nothing: an older schema stays as it is. Use it before you restart a gateway, and in the CI of the \
        file's owner.",
    after_help = "Examples:\n  \
        semel config check\n  \
        semel config check --config /etc/semel.toml --json\n\n\
        Exit codes: 0 the configuration can be used, with or without warnings; 1 it cannot; 2 wrong use, or \
        the store cannot be read."
)]
struct CheckArgs {
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel config show`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Print every setting in force, with its source",
    long_about = "Prints every setting in force, with its source: a flag, a SEMEL_… variable, a line of the \
        file, or the default. Use it when a gateway does not do what the file seems to say. Passwords are \
        hidden, and so are the values in the query of an address. With --json, values are those of JSON: numbers, booleans, lists, and texts for all else, \
        such as \"24h\".",
    after_help = "Examples:\n  \
        semel config show\n  \
        SEMEL_TTL=7d semel config show --json\n\n\
        Exit codes: 0 shown, 2 wrong use, or the configuration cannot be used."
)]
struct ShowConfigurationArgs {
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel config init`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Print a commented configuration with every default",
    long_about = "Prints a configuration with every setting, its meaning and its default. As printed, it \
        changes nothing: remove the `#` in front of a setting to change it. The command writes no file.",
    after_help = "Example:\n  semel config init > semel.toml\n\nExit codes: 0 printed, 2 wrong use."
)]
struct InitArgs {}

pub(super) fn run(args: &ConfigArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    match &args.command {
        ConfigCommand::Check(args) => check::run(args, config),
        ConfigCommand::Show(args) => show(args, config),
        ConfigCommand::Init(InitArgs {}) => {
            say(semel_settings::init().trim_end());
            Ok(CommandResult::Yes)
        }
    }
}

/// Returns every setting in force as JSON. The names are stable.
pub(super) fn rows(loaded: &Loaded) -> serde_json::Value {
    let row = |row: &EffectiveSetting| serde_json::json!({ "name": row.name, "value": row.json(), "source": row.source });
    loaded.rows.iter().map(row).collect()
}

fn show(args: &ShowConfigurationArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let loaded = super::load(config, args.settings.flags())?;
    if args.output.json {
        say(rows(&loaded));
        return Ok(CommandResult::Yes);
    }
    let width =
        |of: fn(&EffectiveSetting) -> &str| loaded.rows.iter().map(|row| of(row).chars().count()).max();
    let names = width(|row| &row.name).unwrap_or(0);
    let values = width(|row| &row.value).unwrap_or(0);
    for row in &loaded.rows {
        super::show(printable(&format!("{:names$}  {:values$}  {}", row.name, row.value, row.source)));
    }
    Ok(CommandResult::Yes)
}
