//! `cargo xtask chaos`: gateways under load on a real database while everything around them breaks; a checker
//! judges the history from outside. `cargo xtask store-chaos`: the PostgreSQL store alone, on a server that
//! is killed all the time.

use std::process::Command;
use std::time::Instant;

use crate::databases;
use crate::parts::Beside;
use crate::step::{program, step};

const USAGE: &str = "usage: cargo xtask chaos [--store sqlite|postgres] [--minutes NUMBER | --seconds NUMBER] [--seed NUMBER] [--versions mixed]";
const STORE_USAGE: &str = "usage: cargo xtask store-chaos [--minutes NUMBER] [--seed NUMBER]";

/// Default duration in minutes.
const MINUTES: &str = "10";
/// Duration in `cargo xtask test`, and of a run with a setting that breaks a promise, in seconds.
const SHORT: &str = "60";
const BROKEN: &str = "6";

/// Builds gateway and driver, and runs them: on both stores if none is named.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (mut stores, mut seconds, mut seed, mut versions) =
        (vec!["sqlite", "postgres"], 60 * number(MINUTES, USAGE)?, None, None);
    for (name, value) in pairs(arguments, USAGE)? {
        match name {
            "--store" if stores.contains(&value) => stores = vec![value],
            "--minutes" => seconds = 60 * number(value, USAGE)?,
            "--seconds" => seconds = number(value, USAGE)?,
            "--seed" => seed = Some(number(value, USAGE)?.to_string()),
            "--versions" if value == "mixed" => versions = Some(value),
            _ => return Err(format!("`{name} {value}` is unknown; {USAGE}")),
        }
    }
    let installed = if stores.contains(&"postgres") { Some(databases::install()?) } else { None };
    let variables = installed.as_ref().map(databases::Installed::variables).unwrap_or_default();
    step("build", &["build", "--package", "semel-server", "--package", "semel-chaos", "--bins"], &[])?;
    for store in stores {
        let seconds = seconds.to_string();
        let mut words = vec!["--store", store, "--seconds", &seconds];
        words.extend(seed.iter().flat_map(|seed| ["--seed", seed]));
        words.extend(versions.iter().flat_map(|versions| ["--versions", versions]));
        drive(&words, &variables)?;
    }
    Ok(())
}

/// Returns the short form, with programs that must have been built: both stores, and a run with a setting
/// that permits second effects, which must be noticed.
pub(crate) fn short(installed: &databases::Installed) -> Result<[Beside; 2], String> {
    let variables = installed.variables();
    let broken = driver(&["--store", "sqlite", "--seconds", BROKEN, "--broken"], &variables)?;
    let sqlite = driver(&["--store", "sqlite", "--seconds", SHORT], &variables)?;
    let postgres = driver(&["--store", "postgres", "--seconds", SHORT], &variables)?;
    Ok([
        Beside { name: "chaos on SQLite", commands: vec![sqlite, broken] },
        Beside { name: "chaos on PostgreSQL", commands: vec![postgres] },
    ])
}

fn driver(arguments: &[&str], variables: &[(&str, String)]) -> Result<Command, String> {
    let mut command = program("semel-chaos", arguments)?;
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    Ok(command)
}

fn drive(arguments: &[&str], variables: &[(&str, String)]) -> Result<(), String> {
    println!("── chaos: semel-chaos {}", arguments.join(" "));
    let begun = Instant::now();
    let status = driver(arguments, variables)?
        .status()
        .map_err(|error| format!("semel-chaos cannot be run: {error}"))?;
    if !status.success() {
        return Err("chaos: something is violated, or could not be run; see above".into());
    }
    println!("── chaos: done in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs the test of the PostgreSQL store under kills, for longer than in `cargo xtask test`, or again with
/// the same seed.
pub(crate) fn run_store(arguments: &[&str]) -> Result<(), String> {
    let (mut minutes, mut seed) = (MINUTES, None);
    for (name, value) in pairs(arguments, STORE_USAGE)? {
        number(value, STORE_USAGE)?;
        match name {
            "--minutes" => minutes = value,
            "--seed" => seed = Some(value),
            other => return Err(format!("`{other}` is unknown; {STORE_USAGE}")),
        }
    }
    let installed = databases::install()?;
    let shared = installed.start()?;
    let mut variables = shared.variables();
    variables.push(("SEMEL_CHAOS_MINUTES", minutes));
    variables.extend(seed.map(|seed| ("SEMEL_CHAOS_SEED", seed)));
    // Not by nextest, whose timeout would end it.
    let words = ["test", "--package", "semel-stores", "--all-features", "--test", "it"];
    let words = [&words[..], &["postgres_chaos", "--", "--nocapture"]].concat();
    step("chaos", &words, &variables)
}

/// Returns names and their values.
fn pairs<'a>(arguments: &[&'a str], usage: &str) -> Result<Vec<(&'a str, &'a str)>, String> {
    let pairs = arguments.chunks(2).map(|pair| match pair {
        [name, value] => Ok((*name, *value)),
        _ => Err(format!("`{}` has no value, or is unknown; {usage}", pair.join(" "))),
    });
    pairs.collect()
}

fn number(text: &str, usage: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number; {usage}"))
}
