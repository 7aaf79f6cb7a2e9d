//! `semel log-level show|set|reset`: what a running gateway logs, changed for a bounded time.

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use super::admin_client::{self, AdminClient, AdminFlags};
use super::records::reason;
use super::{CommandResult, OutputFlags, load, printable, runtime, say};

/// Path at the admin listener.
const PATH: &str = "/admin/v1/log-level";
/// Filter that ends a change at once.
const USUAL: &str = "usual";

/// The command line of `semel log-level`.
#[derive(Debug, clap::Args)]
#[command(about = "Show or change what a running gateway logs, for a while")]
pub(super) struct LogLevelArgs {
    #[arg(
        long,
        value_name = "URL",
        global = true,
        help = "Admin listener of the gateway; by default the configured `admin_listen`, http://127.0.0.1:9090 if there is none"
    )]
    admin: Option<String>,
    #[command(flatten)]
    flags: AdminFlags,
    #[command(subcommand)]
    command: LogLevelCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LogLevelCommand {
    Show(ShowLogLevelArgs),
    Set(SetLogLevelArgs),
    Reset(ResetLogLevelArgs),
}

/// The command line of `semel log-level show`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Show what a running gateway logs",
    long_about = "Shows the filter of a running gateway's log: the one in force, and, if that was set by `log-level set`, \
        until when, and the usual one that follows.",
    after_help = "Example:\n  \
        semel log-level show --admin http://10.0.0.7:9090 --token-file alice.token\n\n\
        Exit codes: 0 shown, 2 wrong use, or the gateway cannot be asked."
)]
struct ShowLogLevelArgs {
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel log-level set`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Change what a running gateway logs, for a while",
    long_about = "Changes the filter of a running gateway's log. When the time is over, or the gateway starts anew, the \
        usual filter is in force again: RUST_LOG at its start, or `info`.\n\n\
        A filter is a level (off, error, warn, info, debug or trace), modules with a level of their own, or both, with \
        commas between them: `debug`, or `info,semel_http=debug`. Only modules of Semel can be set, which begin with \
        semel_http, semel_gateway, semel_operations, semel_stores, semel_flow, semel_server, semel_traces, \
        semel_outgoing, semel_core or semel_settings; those of others \
        stay at `info` at most: no key, no body and no header field is logged at any level. Actions of operators are always \
        logged.\n\n\
        Each process has its own filter: of several gateways, ask each. The operator and the reason are in its log.",
    after_help = "Example:\n  \
        semel log-level set info,semel_http=debug --for 10m --reason 'incident 42'\n\n\
        Exit codes: 0 changed, 2 wrong use, or the gateway cannot be asked, or refuses."
)]
struct SetLogLevelArgs {
    #[arg(value_name = "FILTER", help = "Level, or module=level, separated by commas")]
    filter: String,
    #[arg(
        long = "for",
        value_name = "TIME",
        default_value = "15m",
        help = "Time after which the usual filter is in force again, from 1s to 24h"
    )]
    time: String,
    #[arg(long, value_name = "TEXT", help = "Reason for the change, which is logged")]
    reason: String,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel log-level reset`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Return to the usual log filter now",
    long_about = "Ends a change by `log-level set` before its time is over: the usual filter of the running gateway's log is in \
        force again. The operator and the reason are in its log.",
    after_help = "Example:\n  \
        semel log-level reset --reason 'incident 42 is over'\n\n\
        Exit codes: 0 the usual filter is in force, 2 wrong use, or the gateway cannot be asked, or refuses."
)]
struct ResetLogLevelArgs {
    #[arg(long, value_name = "TEXT", help = "Reason for the change, which is logged")]
    reason: String,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &LogLevelArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let address = match &args.admin {
        Some(address) => address.clone(),
        None => {
            let loaded = load(config, [])
                .context("the address of the gateway is in its configuration: give --admin")?;
            admin_client::configured(&loaded.config)
        }
    };
    let admin = AdminClient::new(&address, &args.flags)?;
    let (answer, output) = match &args.command {
        LogLevelCommand::Show(ShowLogLevelArgs { output }) => {
            (runtime()?.block_on(admin.get_json(PATH))?, output)
        }
        LogLevelCommand::Set(SetLogLevelArgs { filter, time, reason: why, output }) => {
            let members = json!({ "filter": filter, "for": time, "reason": reason(why)? });
            (runtime()?.block_on(admin.post_json(PATH, &members))?, output)
        }
        LogLevelCommand::Reset(ResetLogLevelArgs { reason: why, output }) => {
            let members = json!({ "filter": USUAL, "reason": reason(why)? });
            (runtime()?.block_on(admin.post_json(PATH, &members))?, output)
        }
    };
    match output.json {
        true => say(answer),
        false => say(told(&answer)),
    }
    Ok(CommandResult::Yes)
}

fn told(answer: &Value) -> String {
    let text = |name: &str| printable(answer[name].as_str().unwrap_or_default());
    match answer["until"].as_str() {
        None => text("filter"),
        Some(_) => format!("{} until {}, then {}", text("filter"), text("until"), text("usual")),
    }
}
