//! Program `semel-clients`: runs the driver of a client through a proxy that breaks HTTP, before a real gateway, and
//! judges what the client says by the effects. `cargo xtask clients` builds and calls it.
//!
//! Everything is on the loopback address, in processes that this program starts and ends.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod book;
mod broken;
mod fault;
mod gateway;
mod journal;
mod judge;
mod line;
mod proxy;
mod run;
mod story;
mod upstream;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use semel_core::{Clock, SystemClock};

use crate::broken::Mistake;
use crate::run::Options;

const USAGE: &str = "\
usage: semel-clients [--commands NUMBER] [--seed NUMBER] [--keep] NAME -- PROGRAM [ARGUMENT...]
       semel-clients [--commands NUMBER] [--seed NUMBER] --broken

Starts `semel serve` on SQLite before a service that counts effects, and behind a proxy that drops requests and answers,
cuts, delays, resets, and answers 5xx; runs the driver of a client to its end; and judges each of its lines and its journal.
The program `semel` is expected beside this one.

  NAME        name of the client in the output
  PROGRAM     driver of the client; its arguments end with ORIGIN PATH COUNT JOURNAL, or have them in place of {}
  --commands  how many commands the driver sends, 2000 if nothing is said
  --seed      repeats the choices of an earlier run; processes still interleave as they like
  --keep      keeps the folder of the run although nothing is wrong
  --broken    runs drivers of this program that make one mistake each: succeeds only if each is found

Exit codes: 0 all is well; 1 something is violated; 2 wrong use, or it cannot run.";

/// Commands of a run, and of a run of a broken driver.
const COMMANDS: u64 = 2_000;
const FEW_COMMANDS: u64 = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return cannot(&error.to_string()),
    };
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["drive", mistake, origin, path, count, journal] = words[..] {
        return runtime.block_on(drive(mistake, origin, path, count, journal));
    }
    let asked = match read(arguments) {
        Ok(asked) => asked,
        Err(why) => return cannot(&format!("{why}\n\n{USAGE}")),
    };
    runtime.block_on(async {
        tokio::select! {
            code = carry_out(asked) => code,
            // All started processes end with this one.
            _ = tokio::signal::ctrl_c() => cannot("interrupted"),
        }
    })
}

fn cannot(why: &str) -> ExitCode {
    eprintln!("semel-clients: {why}");
    ExitCode::from(2)
}

async fn drive(mistake: &str, origin: &str, path: &str, count: &str, journal: &str) -> ExitCode {
    let (Some(mistake), Ok(count)) = (Mistake::of(mistake), count.parse()) else { return cannot(USAGE) };
    match broken::drive(mistake, origin, path, count, Path::new(journal)).await {
        Ok(printed) => {
            print!("{printed}");
            ExitCode::SUCCESS
        }
        Err(why) => cannot(&why),
    }
}

/// Command line.
struct Asked {
    commands: Option<u64>,
    seed: u64,
    keeps: bool,
    /// Name and words of a driver; `None` for the broken drivers.
    driver: Option<(String, Vec<String>)>,
    own: PathBuf,
    program: PathBuf,
}

fn read(words: Vec<String>) -> Result<Asked, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name("semel");
    if !program.exists() {
        return Err(format!("{} is missing: build it with `cargo build -p semel-server`", program.display()));
    }
    // Any number serves as a seed; this one differs from run to run.
    let seed = SystemClock.now().as_millis().unsigned_abs() % 1_000_000;
    let mut asked = Asked { commands: None, seed, keeps: false, driver: None, own, program };
    let mut is_broken = false;
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("`{word}` has no value"))?;
            value.parse::<u64>().map_err(|_| format!("{value:?} is no number"))
        };
        match word.as_str() {
            "--commands" => asked.commands = Some(number()?),
            "--seed" => asked.seed = number()?,
            "--keep" => asked.keeps = true,
            "--broken" => is_broken = true,
            _ if words.next().as_deref() == Some("--") => {
                asked.driver = Some((word, words.by_ref().collect()));
            }
            _ => return Err(format!("`{word}` is unknown, or is not followed by `--`")),
        }
    }
    if asked.driver.is_some() == is_broken {
        return Err("either a driver is run, or the broken ones are".into());
    }
    Ok(asked)
}

async fn carry_out(asked: Asked) -> ExitCode {
    let Asked { commands, seed, keeps, driver, own, program } = asked;
    let Some((name, driver)) = driver else {
        for mistake in Mistake::ALL {
            let name = mistake.as_str().to_owned();
            let driver = vec![own.display().to_string(), "drive".into(), name.clone()];
            let commands = commands.unwrap_or(FEW_COMMANDS);
            let options = Options { name, driver, commands, seed, program: program.clone() };
            let code = judged(&options, keeps, Some(mistake)).await;
            if code != ExitCode::SUCCESS {
                return code;
            }
        }
        return ExitCode::SUCCESS;
    };
    let options = Options { name, driver, commands: commands.unwrap_or(COMMANDS), seed, program };
    judged(&options, keeps, None).await
}

async fn judged(options: &Options, keeps: bool, mistake: Option<Mistake>) -> ExitCode {
    println!("{}, seed {}: {} commands", options.name, options.seed, options.commands);
    let folder = match tempfile::Builder::new().prefix("semel-clients-").tempdir() {
        Ok(folder) => folder,
        Err(error) => return cannot(&error.to_string()),
    };
    let (is_well, code) = match run::run(options, folder.path()).await {
        Ok(outcome) => {
            println!("{}", story::figures(options, &outcome));
            let is_well = match mistake {
                Some(mistake) => is_found(mistake, options, &outcome),
                None => is_clean(options, &outcome),
            };
            (is_well, ExitCode::FAILURE)
        }
        Err(why) => (false, cannot(&why)),
    };
    if keeps || !is_well {
        println!("what there is, is in {}", folder.keep().display());
    }
    if is_well { ExitCode::SUCCESS } else { code }
}

/// Tells the violations of a client. Returns true if there are none, and if the run proves that.
fn is_clean(options: &Options, outcome: &run::Outcome) -> bool {
    let lack = story::lack(options, outcome);
    if let Some(lack) = &lack {
        println!("this proves nothing: {lack}");
    }
    if !outcome.violations.is_empty() {
        println!("{}", story::stories(options, outcome));
    }
    lack.is_none() && outcome.violations.is_empty()
}

/// Tells whether a mistake was found, by each of the rules that it breaks.
fn is_found(mistake: Mistake, options: &Options, outcome: &run::Outcome) -> bool {
    let missed =
        mistake.breaks().iter().find(|rule| !outcome.violations.iter().any(|one| one.rule == **rule));
    match missed {
        None => println!("{}: it was found", mistake.as_str()),
        Some(rule) => {
            println!("{}: NOT FOUND by {rule:?}\n{}", mistake.as_str(), story::stories(options, outcome));
        }
    }
    missed.is_none()
}
