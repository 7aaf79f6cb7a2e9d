//! Crash matrix: every step of a command under every fault, on real processes and real databases, judged from outside.
//! `cargo xtask crash-matrix` builds its programs and runs it.
//!
//! All traffic is on loopback, between processes that it starts and ends itself.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod client;
mod frames;
mod gate;
mod judge;
mod kept;
mod lab;
mod patience;
mod process;
mod reading;
mod receiver;
mod report;
mod rows;
mod sample;
mod seen;
mod service;
mod shop;
mod site;
mod table;
mod upstream;
mod verdict;
mod violations;
mod world;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::lab::Lab;
use crate::report::Report;
use crate::rows::Outcome;
use crate::table::{Cell, Fault, Store};

const USAGE: &str = "\
usage: semel-matrix [--store sqlite|postgres] [--step NUMBER] [--fault LETTER] [--sample] [--page FILE] [--tell] [--broken]

Runs the cells of the crash matrix: all of them, those that are named, or a fixed sample. The program `semel`, built with
fault points, is expected beside this one.

  --page    writes the tables between the marks of this page
  --tell    says what was seen, also where all is well
  --broken  runs cells with a setting that permits second effects: succeeds only if that is found

Exit codes: 0 all is well; 1 something does not hold; 2 wrong use, or it cannot run.";

/// Number of labs for each kind of store that work at the same time.
const LABS: usize = 1;

#[derive(Default)]
struct Options {
    store: Option<Store>,
    step: Option<usize>,
    fault: Option<Fault>,
    sample: bool,
    page: Option<PathBuf>,
    tell: bool,
    broken: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["service", rest @ ..] = &arguments[..] {
        return serve(rest);
    }
    let options = match options(&arguments) {
        Ok(options) => options,
        Err(why) => return cannot(&format!("{why}\n\n{USAGE}")),
    };
    if !semel_faults::BUILT_IN {
        return cannot("this build has no fault points: nothing can be held in it");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return cannot(&error.to_string()),
    };
    runtime.block_on(async {
        tokio::select! {
            code = run(options) => code,
            // Every started process ends with this one, also a suspended one.
            _ = tokio::signal::ctrl_c() => cannot("interrupted"),
        }
    })
}

/// Runs one of the processes under test.
fn serve(arguments: &[&str]) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return cannot(&error.to_string()),
    };
    match runtime.block_on(service::run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cannot(&error.to_string()),
    }
}

fn cannot(why: &str) -> ExitCode {
    eprintln!("semel-matrix: {why}");
    ExitCode::from(2)
}

fn options(mut arguments: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    loop {
        arguments = match arguments {
            [] => return Ok(options),
            ["--store", name, rest @ ..] => {
                let store = Store::ALL.into_iter().find(|store| store.as_str() == *name);
                options.store = Some(store.ok_or_else(|| format!("there is no store {name:?} here"))?);
                rest
            }
            ["--step", number, rest @ ..] => {
                let step = number.parse().ok().filter(|step| (1..=table::STEPS.len()).contains(step));
                options.step = Some(step.ok_or_else(|| format!("there is no step {number:?}"))?);
                rest
            }
            ["--fault", letter, rest @ ..] => {
                let fault = Fault::ALL.into_iter().find(|fault| fault.letter().to_string() == *letter);
                options.fault = Some(fault.ok_or_else(|| format!("there is no fault {letter:?}"))?);
                rest
            }
            ["--sample", rest @ ..] => {
                options.sample = true;
                rest
            }
            ["--tell", rest @ ..] => {
                options.tell = true;
                rest
            }
            ["--broken", rest @ ..] => {
                options.broken = true;
                rest
            }
            ["--page", page, rest @ ..] => {
                options.page = Some(page.into());
                rest
            }
            [other, ..] => return Err(format!("`{other}` is unknown, or has no value")),
        };
    }
}

fn wanted(options: &Options, store: Store) -> VecDeque<Cell> {
    let named = |cell: &Cell| {
        options.step.is_none_or(|step| step == cell.step)
            && options.fault.is_none_or(|fault| fault == cell.fault)
            && (!options.sample || sample::has(*cell))
            && (!options.broken || sample::breaks(*cell))
    };
    let wanted = options.store.is_none_or(|wanted| wanted == store);
    table::cells(store).into_iter().filter(|cell| wanted && named(cell)).collect()
}

async fn run(options: Options) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name("semel"),
        Err(error) => return cannot(&error.to_string()),
    };
    if !program.exists() {
        let missing = program.display();
        return cannot(&format!("{missing} is missing: build it with `cargo build -p semel-server`"));
    }
    let begun = Instant::now();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let mut workers = Vec::new();
    for store in Store::ALL {
        let cells = wanted(&options, store);
        if cells.is_empty() {
            continue;
        }
        let cells = Arc::new(Mutex::new(cells));
        for _ in 0..LABS {
            let (cells, outcomes, program) = (cells.clone(), outcomes.clone(), program.clone());
            workers.push(tokio::spawn(work(store, program, cells, outcomes, (options.tell, options.broken))));
        }
    }
    for worker in workers {
        match worker.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return cannot(&why),
            Err(error) => return cannot(&error.to_string()),
        }
    }
    let cells = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    let report = Report { cells, seconds: begun.elapsed().as_secs() };
    tell(&options, &report)
}

/// Runs cells, one after the other, until there are none left.
async fn work(
    store: Store,
    program: PathBuf,
    cells: Arc<Mutex<VecDeque<Cell>>>,
    outcomes: Arc<Mutex<Vec<(Cell, Outcome)>>>,
    (tell, broken): (bool, bool),
) -> Result<(), String> {
    let lab = tokio::task::block_in_place(|| Lab::make(store, &program))?;
    let mut failed = false;
    loop {
        let next = cells.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(cell) = next else { break };
        let begun = Instant::now();
        let outcome = rows::run(&lab, cell, broken).await;
        let millis = begun.elapsed().as_millis();
        match &outcome {
            Outcome::Pass(seen) => {
                println!("{cell} ({}): pass, {millis} ms", cell.code.letters());
                if tell {
                    println!("    {seen}");
                }
            }
            Outcome::Fail(why) => {
                failed = true;
                println!("{cell} ({}): FAIL, {millis} ms\n    {why}", cell.code.letters());
            }
            Outcome::NotApplicable(_) => {}
        }
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((cell, outcome));
    }
    if failed && !broken {
        println!("what there is of the failed cells is in {}", lab.keep().display());
    }
    Ok(())
}

fn tell(options: &Options, report: &Report) -> ExitCode {
    println!("{}", report.summary());
    let failed = report.count(|outcome| matches!(outcome, Outcome::Fail(_)));
    if options.broken {
        let found =
            |outcome: &Outcome| matches!(outcome, Outcome::Fail(why) if why.contains(judge::TOO_MANY));
        let all = report.cells.len();
        let noticed = report.count(found);
        println!("a setting that permits second effects: found in {noticed} of {all} cells");
        return if noticed == all && all > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some(page) = &options.page
        && let Err(why) = report::write(page, report)
    {
        return cannot(&why);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
