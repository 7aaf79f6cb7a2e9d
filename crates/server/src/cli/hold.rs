//! `semel hold list|add|lift`: stops an operation, a tenant, a sink, the reconciler or a restored store for a while. Every change requires
//! a reason, and is noted permanently with it.

use std::path::Path;

use anyhow::Context;
use clap::ArgGroup;
use semel_core::{Hold, HoldTarget, Note};
use semel_operations::operate::Acted;
use semel_operations::operate::holds::{self, HoldAction};
use semel_stores::Access;
use serde_json::Value;

use super::records::{reason, who};
use super::table::show_table;
use super::{CommandResult, OutputFlags, StoreFlag, blocking, load, open_keyless, printable, runtime, say};

/// The command line of `semel hold`.
#[derive(Debug, clap::Args)]
#[command(about = "Hold an operation, a tenant, a sink, the reconciler or a restored store, and lift holds")]
pub(super) struct HoldArgs {
    #[command(subcommand)]
    command: HoldCommand,
}

#[derive(Debug, clap::Subcommand)]
enum HoldCommand {
    List(ListHoldsArgs),
    Add(AddHoldArgs),
    Lift(LiftHoldArgs),
}

/// The command line of `semel hold list`.
#[derive(Debug, clap::Args)]
#[command(
    about = "List the holds in force, with their authors and reasons",
    long_about = "Lists the holds in force: what is held, since when, by whom and why. `semel notes` has earlier ones.",
    after_help = "Example:\n  \
        semel hold list\n\n\
        Exit codes: 0 listed, even if there are none; 2 wrong use, or the store cannot be used."
)]
struct ListHoldsArgs {
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel hold add`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Hold an operation, a tenant, a sink, the reconciler or a restored store",
    long_about = "Holds one target, in every gateway of this store, within 2 seconds and until it is lifted, also over \
        restarts:\n\
        - an operation or a tenant: new commands get 503 `IDEMPOTENCY_HELD` with `Retry-After`, and nothing of them \
        runs; workers start none that wait. Retries of known commands are answered as before. Commands that run \
        already are not stopped.\n\
        - a sink: messages of this kind are kept, and not delivered.\n\
        - the reconciler: unknown outcomes are not looked up on schedule.\n\
        - the store, at once: its fence, for a store that was restored and may have forgotten commands. Known commands are \
        answered; every other is refused like a held one. Workers, messages and look-ups wait. Two choices for an operation \
        have an effect while the fence is up: with --look-up-first, a command without a record is unknown until a look-up \
        or a verdict has found that it did not run; with --younger-keys, it runs if its key is a UUID of version 7 that was \
        drawn at least ten minutes after the fence.\n\n\
        An operation that neither a rule nor a record has is refused. A tenant is held in any case, with a warning if no \
        setting names it and no record of it is found: the look-up reads the oldest records of the store, at most \
        10,000. The operator and the reason are kept for good.",
    after_help = "Examples:\n  \
        semel hold add --operation payments.create --reason 'the provider is down, ticket 7'\n  \
        semel hold add --tenant acme --reason 'runaway client'\n  \
        semel hold add --sink payment.created --reason 'the receiver counts twice'\n  \
        semel hold add --reconciler --reason 'the provider limits our look-ups'\n  \
        semel hold add --store-fence --reason 'restored from the backup of 03:00'\n  \
        semel hold add --look-up-first payments.create --reason 'the provider knows every payment'\n\n\
        Exit codes: 0 held, 1 it is held already or cannot be held, 2 wrong use, or the store cannot be used."
)]
struct AddHoldArgs {
    #[command(flatten)]
    change: ChangeHoldArgs,
}

/// The command line of `semel hold lift`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Lift a hold",
    long_about = "Lifts a hold, in every gateway of this store, within 2 seconds: commands run, messages go out and \
        look-ups are made again. The operator and the reason are kept for good.\n\n\
        When the fence of a store is lifted, commands that the store had as waiting or running become unknown, and a \
        command without a record counts as new: it runs again if it ran in the time that the store has forgotten.",
    after_help = "Example:\n  \
        semel hold lift --operation payments.create --reason 'the provider is back'\n\n\
        Exit codes: 0 lifted, 1 it is not held, 2 wrong use, or the store cannot be used."
)]
struct LiftHoldArgs {
    #[command(flatten)]
    change: ChangeHoldArgs,
}

/// The arguments of which a change of a hold has one.
const TARGETS: [&str; 7] =
    ["operation", "tenant", "sink", "reconciler", "store_fence", "look_up_first", "younger_keys"];

/// The arguments of a change of a hold.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("target").args(TARGETS).required(true))]
struct ChangeHoldArgs {
    #[arg(long, value_name = "NAME", help = "New commands of this operation")]
    operation: Option<String>,
    #[arg(long, value_name = "NAME", help = "New commands of this tenant")]
    tenant: Option<String>,
    #[arg(long, value_name = "KIND", help = "Delivery of messages of this kind")]
    sink: Option<String>,
    #[arg(long, help = "Scheduled look-ups of unknown outcomes")]
    reconciler: bool,
    #[arg(long, help = "Fence of a store that was restored")]
    store_fence: bool,
    #[arg(
        long,
        value_name = "NAME",
        help = "Under a fence: look up missing commands of this operation before they run"
    )]
    look_up_first: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        help = "Under a fence: run commands of this operation whose keys are younger"
    )]
    younger_keys: Option<String>,
    #[arg(long, value_name = "TEXT", help = "Reason for the action, which is kept for good")]
    reason: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

impl ChangeHoldArgs {
    fn target(&self) -> anyhow::Result<HoldTarget> {
        let given = [
            ("operation", &self.operation),
            ("tenant", &self.tenant),
            ("sink", &self.sink),
            ("look-up-first", &self.look_up_first),
            ("younger-keys", &self.younger_keys),
        ];
        let named = given.into_iter().find_map(|(kind, name)| Some((kind, Some(name.as_deref()?))));
        let nameless = [("reconciler", self.reconciler), ("store", self.store_fence)];
        let nameless = nameless.into_iter().find_map(|(kind, is_given)| is_given.then_some((kind, None)));
        let (kind, name) = named.or(nameless).context("the target is missing")?;
        holds::target(kind, name).map_err(anyhow::Error::msg)
    }
}

pub(super) fn run(args: &HoldArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    match &args.command {
        HoldCommand::List(args) => list(args, config),
        HoldCommand::Add(AddHoldArgs { change: args }) => change(args, config, HoldAction::Add),
        HoldCommand::Lift(LiftHoldArgs { change: args }) => change(args, config, HoldAction::Lift),
    }
}

fn list(args: &ListHoldsArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let store = open_keyless(&load(config, args.store.flags())?.config.store, Access::Read)?;
    let holds = blocking(store.holds())?;
    if args.output.json {
        say(holds.iter().map(holds::summary).collect::<Value>());
        return Ok(CommandResult::Yes);
    }
    let row = |hold: &Hold| {
        vec![hold.target.to_string(), hold.since.to_string(), hold.who.clone(), hold.why.clone()]
    };
    show_table(&["HELD", "SINCE", "BY", "REASON"], &holds.iter().map(row).collect::<Vec<_>>());
    eprintln!("{} hold{}", holds.len(), if holds.len() == 1 { "" } else { "s" });
    Ok(CommandResult::Yes)
}

fn change(args: &ChangeHoldArgs, config: Option<&Path>, action: HoldAction) -> anyhow::Result<CommandResult> {
    let (target, why) = (args.target()?, reason(&args.reason)?);
    let config = load(config, args.store.flags())?.config;
    let store = open_keyless(&config.store, Access::Write)?;
    if action == HoldAction::Add
        && let Err(why) = blocking(holds::check_operation(&target, &config, &*store))?
    {
        eprintln!("{}", printable(&why));
        return Ok(CommandResult::No);
    }
    let note = Note { who: who(), action: String::new(), why };
    if let Acted::Refused(why) | Acted::Absent(why) =
        blocking(holds::act(&*store, &*store, &target, action, note))?
    {
        eprintln!("{}", printable(&why));
        return Ok(CommandResult::No);
    }
    // It is held before anything is looked up: a slow store must not delay that.
    let warning = match action {
        HoldAction::Add => runtime()?.block_on(holds::unknown_tenant(&target, &config, &*store)),
        HoldAction::Lift => None,
    };
    if args.output.json {
        say(holds::done(&target, action, warning.as_deref()));
    } else {
        let done = if action == HoldAction::Add { "is held" } else { "is not held any more" };
        super::show(printable(&format!("{target} {done}")));
        super::show(holds::effect(&target, action));
    }
    if let Some(warning) = warning {
        eprintln!("warning: {}", printable(&warning));
    }
    Ok(CommandResult::Yes)
}
