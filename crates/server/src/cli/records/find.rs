//! `semel records find`: finds a command by its id, its business reference or its key. The key comes from the standard
//! input: arguments are visible to other users of the machine, and stay in the shell's history.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, bail};
use clap::ArgGroup;
use semel_core::OperationId;
use semel_core::key::MAX_FIELD_BYTES;
use semel_operations::operate::find::{CommandMatch, FoundCommands, SearchTerms};
use semel_stores::Access;
use serde_json::Value;

use super::{EXAMPLE, show};
use crate::cli::{self, CommandResult, OutputFlags, StoreFlag, blocking, load, open_store, say};

/// The command line of `semel records find`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Find a command by its id, its business reference or its key",
    long_about = "Finds a command and shows it like `records show`: by its operation id; by tenant, operation and \
        business reference, such as an order number; or by tenant, caller, operation and key. The operation's \
        former names (`aliases`) count too. The key is hashed, and found by the primary key of its record.\n\n\
        The key is read from the standard input, as the client sends it in `Idempotency-Key`. It cannot be an \
        argument: other users of the machine see those. It is not shown, logged or noted.\n\n\
        Several commands can have had one reference: the holder comes first, then those that did nothing and \
        gave it back.",
    after_help = format!(
        "Examples:\n  \
         semel records find {EXAMPLE}\n  \
         semel records find --tenant acme --operation payments.create --reference order-7\n  \
         printf %s \"$KEY\" | semel records find --tenant acme --caller shop --operation payments.create\n\n\
         Exit codes: 0 found, 1 not found, 2 wrong use (such as a key that breaks the rules of its operation), or \
         the store cannot be used."
    ),
    override_usage = "semel records find [OPTIONS] OPERATION_ID\n       \
        semel records find [OPTIONS] --tenant NAME --operation NAME --reference TEXT\n       \
        printf %s \"$KEY\" | semel records find [OPTIONS] --tenant NAME --operation NAME --caller NAME",
    group = ArgGroup::new("way").args(["id", "reference", "caller"]).required(true),
)]
pub(super) struct FindRecordsArgs {
    #[arg(
        value_name = "OPERATION_ID",
        conflicts_with_all = ["tenant", "operation"],
        help = "The id that clients get in Idempotency-Operation-Id"
    )]
    id: Option<String>,
    #[arg(long, value_name = "NAME", help = "Tenant of the command")]
    tenant: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        requires = "tenant",
        requires = "operation",
        help = "Caller that sent the key, which is read from the standard input"
    )]
    caller: Option<String>,
    #[arg(long, value_name = "NAME", help = "Operation of the command, or a former name of it")]
    operation: Option<String>,
    #[arg(
        long,
        value_name = "TEXT",
        requires = "tenant",
        requires = "operation",
        help = "Business reference of the command, such as an order number"
    )]
    reference: Option<String>,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &FindRecordsArgs, file: Option<&Path>) -> anyhow::Result<CommandResult> {
    // A key that was typed here by mistake is not repeated: the output may be kept.
    if args.id.as_ref().is_some_and(|id| id.parse::<OperationId>().is_err()) {
        bail!(
            "the argument is no operation id, such as {EXAMPLE}; a key is read from the standard input: \
             printf %s \"$KEY\" | semel records find --tenant NAME --caller NAME --operation NAME"
        );
    }
    let config = load(file, args.store.flags())?.config;
    let terms = SearchTerms {
        operation_id: args.id.clone(),
        tenant: args.tenant.clone(),
        caller: args.caller.clone(),
        operation: args.operation.clone(),
        reference: args.reference.clone(),
        key: args.caller.as_ref().map(|_| key()).transpose()?,
    };
    let wanted = terms.read(&config).map_err(anyhow::Error::msg)?;
    let store = open_store(file, &args.store, Access::Read)?;
    let FoundCommands { commands, omitted } = blocking(wanted.find(&*store))?;
    if commands.is_empty() {
        eprintln!("{}", wanted.absent());
        return Ok(CommandResult::No);
    }
    if args.output.json {
        say(commands.iter().map(CommandMatch::to_json).collect::<Value>());
    } else {
        for (number, found) in commands.iter().enumerate() {
            if number > 0 {
                say("");
            }
            print(found);
        }
    }
    if omitted > 0 {
        eprintln!("{omitted} more gave the reference back");
    }
    Ok(CommandResult::Yes)
}

fn print(found: &CommandMatch) {
    if let Some(holds) = found.holds_reference {
        let told =
            if holds { "held by this command" } else { "given back by this command, which did nothing" };
        cli::show(format!("{:18} {told}", "reference"));
    }
    if found.command.record.is_none() {
        say(format!("{:18} {}", "operationId", found.operation_id));
    }
    show::print(&found.command);
}

/// Reads the key from the standard input, without the end of its line.
fn key() -> anyhow::Result<Vec<u8>> {
    let input = std::io::stdin();
    let is_terminal = input.is_terminal();
    // A line that is too long is still seen to be: its end is not needed.
    let mut input = input.lock().take(MAX_FIELD_BYTES as u64 + 3);
    let mut key = Vec::new();
    let read = if is_terminal {
        eprintln!("Type the key, which is shown as you type, and Enter:");
        input.read_until(b'\n', &mut key)
    } else {
        input.read_to_end(&mut key)
    };
    read.context("the key cannot be read from the standard input")?;
    let key = key.strip_suffix(b"\n").unwrap_or(&key);
    Ok(key.strip_suffix(b"\r").unwrap_or(key).to_vec())
}
