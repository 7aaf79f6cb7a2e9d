//! Loads real gateways on a real database, injects faults, and records what every participant saw; `semel-checker`
//! then judges the history. `cargo xtask chaos` builds the programs and runs it.
//!
//! Everything is on the loopback address, in processes that this program starts and ends.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod asked;
mod counters;
mod faults;
mod looker;
mod messages;
mod operator;
mod place;
mod provider;
mod run;
mod service;
mod settings;
mod tables;
mod upgrade;
mod upstream;
mod versions;
mod workload;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use semel_chaos::{judgement::Outcome, scribe};

use crate::settings::{Options, Store};

const USAGE: &str = "\
usage: semel-chaos --store sqlite|postgres [--seconds NUMBER] [--seed NUMBER] [--versions mixed [--old PROGRAM]]
                   [--keep] [--broken]

Loads gateways for so many seconds (25 if nobody says) while things break, then lets everything come to its end, and
judges the history. The program `semel` is expected beside this one.

  --seed    repeats the choices of an earlier run; processes still interleave as they like
  --keep    keeps the history although nothing is wrong
  --versions mixed
            upgrades gateways and service to the next version, which only tests have, and back, and finishes the upgrade
  --old PROGRAM
            the program `semel` of the old version; the present one is the newer version then, and the service has no other
  --broken  with a setting that permits second effects: succeeds only if they are found

Exit codes: 0 all is well; 1 something is violated, or did not come to its end; 2 wrong use, or it cannot run.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return cannot(&error.to_string()),
    };
    if let ["service", upstream, seed] = arguments[..] {
        return match runtime.block_on(service::run(upstream, seed)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => cannot(&format!("service: {error}")),
        };
    }
    let options = match options(&arguments) {
        Ok(options) => options,
        Err(why) => return cannot(&format!("{why}\n\n{USAGE}")),
    };
    runtime.block_on(async {
        tokio::select! {
            code = run_and_tell(options) => code,
            // All started processes end with this one, suspended or not.
            _ = tokio::signal::ctrl_c() => cannot("interrupted"),
        }
    })
}

fn cannot(why: &str) -> ExitCode {
    eprintln!("semel-chaos: {why}");
    ExitCode::from(2)
}

fn options(mut arguments: &[&str]) -> Result<Options, String> {
    let (mut store, mut seconds, mut seed, mut keep, mut broken) = (None, 25, None, false, false);
    let (mut mixed, mut old) = (false, None);
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
    loop {
        arguments = match arguments {
            [] => break,
            ["--store", "sqlite", rest @ ..] => {
                store = Some(Store::Sqlite);
                rest
            }
            ["--store", "postgres", rest @ ..] => {
                store = Some(Store::Postgres);
                rest
            }
            ["--seconds", value, rest @ ..] => {
                seconds = number(value)?;
                rest
            }
            ["--seed", value, rest @ ..] => {
                seed = Some(number(value)?);
                rest
            }
            ["--versions", "mixed", rest @ ..] => {
                mixed = true;
                rest
            }
            ["--old", path, rest @ ..] => {
                let found = std::fs::canonicalize(path).map_err(|error| format!("{path}: {error}"))?;
                old = Some(found);
                rest
            }
            ["--keep", rest @ ..] => {
                keep = true;
                rest
            }
            ["--broken", rest @ ..] => {
                broken = true;
                rest
            }
            [other, ..] => return Err(format!("`{other}` is unknown, or has no value")),
        };
    }
    let store = store.ok_or("--store says where records are kept")?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("semel");
    if !program.exists() {
        return Err(format!("{} is missing: build it with `cargo build -p semel-server`", program.display()));
    }
    // Any number serves as a seed; this one differs from run to run.
    let seed = seed.unwrap_or_else(|| scribe::now().unsigned_abs() % 1_000_000);
    let time = Duration::from_secs(seconds);
    Ok(Options { store, seed, time, program, broken, mixed, old, keep })
}

async fn run_and_tell(options: Options) -> ExitCode {
    let (store, seed, broken, keep) = (options.store.as_str(), options.seed, options.broken, options.keep);
    let seconds = options.time.as_secs();
    println!("{store}, seed {seed}: {seconds} s of faults, then until everything has come to its end");
    let folder = match tempfile::Builder::new().prefix("semel-chaos-").tempdir() {
        Ok(folder) => folder,
        Err(error) => return cannot(&error.to_string()),
    };
    let history = folder.path().join("history.jsonl");
    let outcome = match run::run(options, folder.path(), &history).await {
        Ok(outcome) => outcome,
        Err(why) => {
            let kept = folder.keep();
            return cannot(&format!("{why}; what there is, is in {}", kept.display()));
        }
    };
    println!("{}", outcome.tally);
    let well = if broken { tell_broken(&outcome) } else { tell(&outcome) };
    if keep || !well {
        let kept = folder.keep();
        println!("seed {seed}; the history is {}", kept.join("history.jsonl").display());
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(outcome: &Outcome) -> bool {
    println!("{}", outcome.stories);
    for unfinished in outcome.unfinished.iter().take(10) {
        println!("did not come to its end: {unfinished}");
    }
    let lacks = outcome.tally.lacks();
    if let Some(lacks) = lacks {
        println!("this proves nothing: the history has not once {lacks}; run it for longer");
    }
    outcome.violated.is_empty() && outcome.unfinished.is_empty() && lacks.is_none()
}

/// Reports a deliberately broken run. Returns true if the violation was noticed.
fn tell_broken(outcome: &Outcome) -> bool {
    let noticed = outcome.violated.contains(&1);
    println!(
        "a setting that permits second effects: {}",
        if noticed { "they were found" } else { "NOT FOUND" }
    );
    if !noticed {
        println!("{}", outcome.stories);
    }
    noticed
}
