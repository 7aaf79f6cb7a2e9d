//! `semel sweep`, `semel reap` and `semel migrate`: what the gateway does by itself, by hand.

use clap::{Arg, ArgMatches, Command};
use semel_faults::{Point, reached_by_thread};
use semel_stores::SqliteStore;
use semel_stores::access::Access;
use semel_stores::sqlite::SqliteOptions;
use serde_json::json;

use super::{Done, blocking, say};
use crate::config::StoreLocation;

pub(super) fn commands() -> [Command; 3] {
    let common = || [super::store_flag(), super::json_flag()];
    let batch = Arg::new("batch")
        .long("batch")
        .value_name("COUNT")
        .value_parser(clap::value_parser!(u32).range(1..=100_000))
        .default_value("1000")
        .help("How many at a time; live traffic goes between");
    [
        Command::new("sweep")
            .about("Make commands whose executor fell silent what they are: unknown")
            .long_about(
                "Looks for commands whose lease has ended without a word, and makes them what they are: unknown, or free \
                 where `on_lease_expired` says so. A running gateway does this by itself every few seconds. Use it where \
                 none runs and you want to see what is left, with `semel records list --state unknown` after it.",
            )
            .after_help(
                "Example:\n  semel sweep\n\nExit codes: 0 done, 2 wrong use, or the store cannot be used.",
            )
            .arg(batch.clone())
            .args(common()),
        Command::new("reap")
            .about("Forget what has expired")
            .long_about(
                "Removes records whose time to live is over. A running gateway does this by itself every minute. Use it \
                 where none runs, or to catch up after a long time in smaller steps. What runs, and what is unknown, is \
                 never removed.",
            )
            .after_help(
                "Example:\n  \
                 semel reap --batch 500\n\n\
                 Exit codes: 0 done, 2 wrong use, or the store cannot be used.",
            )
            .arg(batch)
            .args(common()),
        Command::new("migrate")
            .about("Bring the store to the schema of this version")
            .long_about(
                "Brings the tables of the store to the schema of this version. The gateway does so when it starts, and so does every \
                 command that changes the store; commands that only look do not. Use it to choose the moment, or, on PostgreSQL, a role that may change tables, which the \
                 gateway's own role then need not be. There is no way back: copy the store first.\n\n\
                 A SQLite store that is gone is not replaced by an empty one: the file with its id, PATH.id, is still there, \
                 and every command that the store held might run again. `--create` says that this is meant.",
            )
            .after_help(
                "Examples:\n  \
                 semel migrate\n  \
                 semel migrate --store postgres://owner@db.internal/semel\n\n\
                 Exit codes: 0 done, or there was nothing to do; 2 wrong use, or the store cannot be used, as when a \
                 newer version wrote it.",
            )
            .arg(
                Arg::new("create")
                    .long("create")
                    .action(clap::ArgAction::SetTrue)
                    .help("Make a new SQLite store where one was before and is gone; its commands may run again"),
            )
            .args(common()),
    ]
}

pub(super) fn run(name: &str, matches: &ArgMatches) -> anyhow::Result<Done> {
    let location = super::load(matches)?.config.store;
    if let ("migrate", StoreLocation::Sqlite(path)) = (name, &location)
        && matches.get_flag("create")
    {
        let options = SqliteOptions { create: true, ..SqliteOptions::default() };
        drop(SqliteStore::open_with(path, &options)?);
    }
    if name != "migrate" || !matches!(location, StoreLocation::Postgres(_)) {
        super::existing(&location)?;
    }
    let store = super::runtime()?.block_on(crate::gateway::open_plain(&location, Access::Write))?.store;
    let json = matches.get_flag("json");
    if name == "migrate" {
        // Opening it was the migration.
        let schema = match location {
            StoreLocation::Memory => 0,
            StoreLocation::Sqlite(_) => i64::from(semel_stores::sqlite::known_version()),
            StoreLocation::Postgres(_) => semel_stores::postgres::known_version(),
        };
        match json {
            true => say(json!({ "schema": schema })),
            false => say(format!("the store has schema version {schema}")),
        }
        return Ok(Done::Yes);
    }
    let batch = matches.get_one::<u32>("batch").map_or(1000, |batch| *batch as usize);
    reached_by_thread(Point::UpkeepBegun);
    let mut total = 0;
    loop {
        let done = blocking(async {
            if name == "sweep" { store.sweep(batch).await } else { store.reap(batch).await }
        })?;
        total += done;
        if done < batch {
            break;
        }
        eprintln!("{total} so far");
    }
    match json {
        true => say(json!({ "records": total })),
        false if name == "sweep" => say(format!("{total} leases had ended")),
        false => say(format!("{total} records had expired")),
    }
    Ok(Done::Yes)
}
