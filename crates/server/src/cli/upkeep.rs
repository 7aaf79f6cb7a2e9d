//! `semel sweep`, `semel reap` and `semel migrate`: manual maintenance of a store, which a running gateway
//! does by itself.

use std::path::Path;
use std::sync::Arc;

use semel_core::{StoreError, Upkeep};
use semel_faults::{Point, reached_by_thread};
use semel_settings::StoreLocation;
use semel_stores::sqlite::SqliteOptions;
use semel_stores::{Access, SqliteStore, StoreSchema};
use serde_json::json;

use super::{CommandResult, OutputFlags, StoreFlag, blocking, say};

/// The command line of `semel sweep`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Turn commands whose lease expired into unknown, or requeue them",
    long_about = "Turns commands whose lease expired without an outcome into unknown, or frees them where \
        `on_lease_expired` says so. A running gateway does this by itself every few seconds. Use it where \
        no gateway runs; then `semel records list --state unknown` lists the commands that need evidence.",
    after_help = "Example:\n  semel sweep\n\nExit codes: 0 done, 2 wrong use, or the store cannot be used."
)]
pub(super) struct SweepArgs {
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "1000",
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        help = "Records of a batch; live requests run between two batches"
    )]
    batch: u32,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel reap`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Delete expired records",
    long_about = "Removes records whose time to live is over. A running gateway does this by itself every \
        minute. Use it where none runs, or to catch up after a long time in smaller steps. Running and \
        unknown commands are never removed.",
    after_help = "Example:\n  \
        semel reap --batch 500\n\n\
        Exit codes: 0 done, 2 wrong use, or the store cannot be used."
)]
pub(super) struct ReapArgs {
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "1000",
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        help = "Records of a batch; live requests run between two batches"
    )]
    batch: u32,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel migrate`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Bring the store to the schema of this version",
    long_about = "Brings the tables of the store to the schema of this version. The gateway does so when it starts, and so does every \
        command that changes the store; commands that only look do not. Use it to choose the moment, or, on PostgreSQL, a role that may change tables, which the \
        gateway's own role then need not be. The tables only go forward: copy the store first. Programs of the version before keep \
        working on them, and the new program writes only what they can read, so that gateways may be upgraded one after the other, and \
        back.\n\n\
        `--finish` ends that, once every gateway runs this version: the store gets the formats of this version, and older programs \
        refuse it. Semel does not know which gateways run: check that yourself. It changes one number, and migrates nothing.\n\n\
        A SQLite store that is gone is not replaced by an empty one: the file with its id, PATH.id, is still there, \
        and every command that the store held might run again. `--create` says that this is meant.",
    after_help = "Examples:\n  \
        semel migrate\n  \
        semel migrate --store postgres://owner@db.internal/semel\n  \
        semel migrate --finish\n\n\
        Exit codes: 0 done, or there was nothing to do; 2 wrong use, or the store cannot be used, as when a \
        newer version wrote it, or `--finish` meets a store of another version."
)]
pub(super) struct MigrateArgs {
    #[arg(
        long,
        conflicts_with = "create",
        help = "Finish the upgrade: every gateway runs this version, and none goes back"
    )]
    finish: bool,
    #[arg(
        long,
        help = "Make a new SQLite store in place of one that is gone; the commands of that one may run \
                again"
    )]
    create: bool,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn sweep(args: &SweepArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let store = open(config, &args.store)?;
    let total = in_batches(args.batch, async |batch| Ok(store.sweep(batch).await?.len()))?;
    match args.output.json {
        true => say(json!({ "records": total })),
        false => say(format!("{total} leases had expired")),
    }
    Ok(CommandResult::Yes)
}

pub(super) fn reap(args: &ReapArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let store = open(config, &args.store)?;
    let total = in_batches(args.batch, async |batch| Ok(store.reap(batch).await?.len()))?;
    match args.output.json {
        true => say(json!({ "records": total })),
        false => say(format!("{total} records had expired")),
    }
    Ok(CommandResult::Yes)
}

pub(super) fn migrate(args: &MigrateArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let config = super::load(config, args.store.flags())?.config;
    let location = config.store.clone();
    if let StoreLocation::Sqlite(path) = &location
        && args.create
    {
        let options = SqliteOptions { create: true, ..SqliteOptions::default() };
        drop(SqliteStore::open_with(path, &options)?);
        // It remembers the store that is gone.
        let _ = config.witness().map(std::fs::remove_file);
    }
    if args.finish || !matches!(location, StoreLocation::Postgres(_)) {
        super::existing(&location)?;
    }
    let runtime = super::runtime()?;
    let schema = match args.finish {
        true => runtime.block_on(semel_stores::finish(&location))?,
        false => runtime.block_on(semel_stores::migrate(&location))?,
    };
    match (args.output.json, schema) {
        (true, None) => say(json!({ "schema": 0 })),
        (true, Some(schema)) => {
            say(json!({ "schema": schema.version, "readableFrom": schema.readable_from }));
        }
        (false, None) => say("a store in memory has no schema"),
        (false, Some(schema)) => say(schema_line(schema)),
    }
    Ok(CommandResult::Yes)
}

/// Returns the sentence about the store's schema, with what is left to do.
fn schema_line(schema: StoreSchema) -> String {
    let StoreSchema { version, readable_from } = schema;
    if schema.is_finished() {
        return format!("the store has schema version {version}");
    }
    format!(
        "the store has schema version {version}, and is readable from version {readable_from} on: run `semel migrate --finish` when \
         every gateway runs the newest version, and none goes back"
    )
}

/// Opens the store, which must exist.
fn open(config: Option<&Path>, flag: &StoreFlag) -> anyhow::Result<Arc<dyn Upkeep>> {
    Ok(super::open_keyless(&super::load(config, flag.flags())?.config.store, Access::Write)?)
}

/// Repeats a step until it finds less than a full batch, and returns the total.
fn in_batches(batch: u32, step: impl AsyncFn(usize) -> Result<usize, StoreError>) -> anyhow::Result<usize> {
    let batch = batch as usize;
    reached_by_thread(Point::UpkeepBegun);
    let mut total = 0;
    loop {
        let done = blocking(step(batch))?;
        total += done;
        if done < batch {
            return Ok(total);
        }
        eprintln!("{total} so far");
    }
}
