//! Runs gateways on a PostgreSQL that fails over, breaks it under load, and records what every participant saw;
//! `semel-checker` then judges the history. `cargo xtask cluster` builds the programs and runs it.
//!
//! Everything is on the loopback address or in network namespaces that this program makes and removes.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod asked;
mod base;
mod commits;
mod configuration;
mod faults;
mod figures;
mod health;
mod inject;
mod leftovers;
mod looker;
mod network;
mod operator;
mod patroni;
mod probe;
mod programs;
mod replication;
mod rest;
mod retrying;
mod run;
mod settings;
mod upstream;
mod workload;
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::faults::Fault;
use crate::run::Finished;
use crate::settings::{Etcd, Options};

/// Longest wait for steps that block, after the end of a run.
const SHUTDOWN: Duration = Duration::from_secs(5);

const USAGE: &str = "\
usage: semel-cluster [--faults LIST] [--failovers NUMBER] [--commands NUMBER] [--minutes NUMBER] [--rate NUMBER]
                     [--seed NUMBER] [--asynchronous] [--loopback] [--etcd3] [--keep]

Starts PostgreSQL with Patroni and etcd on three nodes, each in a network namespace of its own, and three gateways;
loads them with clients that retry, injects faults, brings every command to its end, and judges the history.
The program `semel` is expected beside this one.

  --faults        names, separated by commas, or `all`, or `sample`; each strikes once, in an order from the seed
  --failovers     goes on in rounds until there were so many failovers
  --commands      goes on with load until so many commands were acknowledged
  --minutes       no fault begins after that time (60)
  --rate          new commands in a second (100)
  --seed          repeats the choices of an earlier run; processes still interleave as they like
  --asynchronous  with asynchronous replication: succeeds only if the checker finds the loss
  --loopback      plain replication on the loopback address and one failover: needs no root and no Patroni
  --etcd3         through version 3 of etcd's API: Patroni 3.0.2 then lets a former leader take the lock of a newer one
  --keep          keeps the history although nothing is wrong

Exit codes: 0 all is well; 1 something is violated, or did not come to its end; 2 wrong use, or it cannot run.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = match options(&arguments) {
        Ok(options) => options,
        Err(why) => return cannot(&format!("{why}\n\n{USAGE}\nFaults: {}", faults::names())),
    };
    for folder in leftovers::remove() {
        println!("removed what a killed run had left: {}", folder.display());
    }
    tell_beginning(&options);
    let folder = match leftovers::make_folder() {
        Ok(folder) => folder,
        Err(why) => return cannot(&why),
    };
    let (seed, keep, asynchronous) = (options.seed, options.keep, options.asynchronous);
    let ran = run_or_be_ended(options, folder.path());
    // Nothing is left of a run that came to its end.
    leftovers::clean(folder.path());
    let well = match &ran {
        Ok(finished) => tell(finished, asynchronous),
        Err(why) => {
            eprintln!("semel-cluster: {why}");
            if let Some(second @ 1..) = run::second_effects(folder.path()) {
                println!("its history has {second} commands with a second effect");
            }
            false
        }
    };
    if keep || !well {
        leftovers::leave_history(folder.path());
        println!("seed {seed}; history and logs are in {}", folder.keep().display());
    }
    match (ran.is_ok(), well) {
        (false, _) => ExitCode::from(2),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    }
}

/// Runs until the end, or until a signal.
fn run_or_be_ended(options: Options, folder: &Path) -> Result<Finished, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let ran = runtime.block_on(async {
        tokio::select! {
            ran = run::run(options, folder) => ran,
            signal = signalled() => Err(format!("ended by {signal}")),
        }
    });
    // A step that blocks may still wait for a node; it ends with this process.
    runtime.shutdown_timeout(SHUTDOWN);
    ran
}

fn cannot(why: &str) -> ExitCode {
    eprintln!("semel-cluster: {why}");
    ExitCode::from(2)
}

fn options(arguments: &[&str]) -> Result<Options, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("semel");
    let mut options = Options {
        // Any number serves as a seed; this one differs from run to run.
        seed: semel_chaos::scribe::now().unsigned_abs() % 1_000_000,
        faults: Vec::new(),
        failovers: 0,
        commands: 0,
        rate: 100,
        time: Duration::from_secs(3_600),
        asynchronous: false,
        loopback: false,
        etcd: Etcd::Second,
        keep: false,
        program,
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
    let mut rest = arguments;
    loop {
        rest = match rest {
            [] => break,
            ["--asynchronous", rest @ ..] => {
                options.asynchronous = true;
                rest
            }
            ["--loopback", rest @ ..] => {
                options.loopback = true;
                rest
            }
            ["--etcd3", rest @ ..] => {
                options.etcd = Etcd::Third;
                rest
            }
            ["--keep", rest @ ..] => {
                options.keep = true;
                rest
            }
            ["--faults", list, rest @ ..] => {
                options.faults = Fault::list(list)?;
                rest
            }
            ["--minutes", value, rest @ ..] => {
                options.time = Duration::from_secs(60 * number(value)?);
                rest
            }
            [name, value, rest @ ..] => {
                let place = match *name {
                    "--failovers" => &mut options.failovers,
                    "--commands" => &mut options.commands,
                    "--rate" => &mut options.rate,
                    "--seed" => &mut options.seed,
                    other => return Err(format!("`{other}` is unknown")),
                };
                *place = number(value)?;
                rest
            }
            [other] => return Err(format!("`{other}` is unknown, or has no value")),
        };
    }
    options.choose_faults()?;
    if !options.loopback {
        network::check()?;
    }
    if !options.program.exists() {
        return Err(format!(
            "{} is missing: build it with `cargo build -p semel-server`",
            options.program.display()
        ));
    }
    Ok(options)
}

/// Waits for the signal that ends a program.
async fn signalled() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}

fn tell_beginning(options: &Options) {
    let replication = if options.asynchronous { "asynchronous" } else { "synchronous" };
    let place =
        if options.loopback { "plain replication on loopback" } else { "Patroni in three namespaces" };
    let names: Vec<&str> = options.faults.iter().map(|fault| fault.name()).collect();
    println!("{place}, {replication}, seed {}: {}", options.seed, names.join(", "));
    if options.faults.iter().any(|fault| matches!(fault, Fault::Pause | Fault::PauseReset)) {
        let device = std::path::Path::new("/dev/watchdog");
        let there =
            if device.exists() { "is not used: it would reset all nodes at once" } else { "does not exist" };
        println!("  no watchdog: {} {there}; `pause-reset` plays one, `pause` has none", device.display());
    }
}

fn tell(finished: &Finished, asynchronous: bool) -> bool {
    let Finished { outcome, table, failovers, acknowledged, cut_short } = finished;
    println!("{}\n{}\n", outcome.tally, table.trim_end());
    println!("{failovers} failovers, {acknowledged} commands acknowledged");
    if asynchronous {
        let noticed = outcome.violated.iter().any(|invariant| LOSSES.contains(invariant));
        println!("asynchronous replication: its loss was {}", if noticed { "found" } else { "NOT FOUND" });
        println!("  violated invariants: {:?}", outcome.violated);
        return noticed;
    }
    println!("{}", outcome.stories);
    for unfinished in outcome.unfinished.iter().take(10) {
        println!("did not come to its end: {unfinished}");
    }
    let lacks = outcome.tally.lacks();
    if let Some(lacks) = lacks {
        println!("this proves nothing: the history has not once {lacks}");
    }
    if *cut_short {
        println!("time was over before there were enough failovers or commands");
    }
    outcome.violated.is_empty() && outcome.unfinished.is_empty() && lacks.is_none() && !cut_short
}

/// Invariants that a lost write breaks: a second effect, an effect without a record, and another final answer.
const LOSSES: [u8; 3] = [1, 9, 11];
