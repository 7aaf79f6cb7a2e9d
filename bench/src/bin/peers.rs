//! Peers of Semel: lists them, installs them, and tries whether their responses are correct.
//! `cargo run --release -p semel-bench --bin peers -- check [NAME…]` writes `bench/peers/CORRECTNESS.md`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::process::ExitCode;
use std::sync::Arc;

use semel_bench::peers::{
    Build, Error, Findings, Peer, Report, Tried, check, install, named, program_with_verify,
};
use semel_bench::results::today;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

const USAGE: &str = "usage: peers list | install [--debug] [NAME…] | check [--debug] [--jobs N] [NAME…]

  list     every peer, its version and its store
  install  get packages and build, below target/peers
  check    install, try, and write bench/peers/CORRECTNESS.md and target/peers/correctness.json
  --debug  build Rust peers without optimisation
  --jobs   how many peers are tried at the same time (1)

A NAME is a peer's or a package's; without any, all are meant.
Exit codes: 0 done, 1 a peer could not be installed or tried, 2 wrong use or cannot run.";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = Options::read(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::from(2)
        }
    }
}

enum Task {
    List,
    Install,
    Check,
}

struct Options {
    task: Task,
    build: Build,
    jobs: usize,
    names: Vec<String>,
}

impl Options {
    fn read(arguments: &[String]) -> Option<Options> {
        let (task, rest) = arguments.split_first()?;
        let task = match task.as_str() {
            "list" => Task::List,
            "install" => Task::Install,
            "check" => Task::Check,
            _ => return None,
        };
        let mut options = Options { task, build: Build::Dist, jobs: 1, names: Vec::new() };
        let mut rest = rest.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--debug" => options.build = Build::Debug,
                "--jobs" => {
                    options.jobs = rest.next()?.parse().ok().filter(|jobs| (1..=16).contains(jobs))?;
                }
                flag if flag.starts_with('-') => return None,
                name => options.names.push(name.to_owned()),
            }
        }
        Some(options)
    }
}

async fn run(options: Options) -> Result<bool, Error> {
    let peers = named(&options.names)?;
    match options.task {
        Task::List => {
            for peer in peers {
                println!(
                    "{:<28} {:<10} {:<7} {}",
                    peer.name,
                    peer.version,
                    peer.language,
                    peer.store.words()
                );
            }
            Ok(true)
        }
        Task::Install => {
            let mut well = true;
            for peer in peers {
                match install(&peer, options.build).await {
                    Ok(_) => println!("{}: installed", peer.name),
                    Err(why) => {
                        well = false;
                        println!("{}: cannot be installed: {why}", peer.name);
                    }
                }
            }
            Ok(well)
        }
        Task::Check => check_all(peers, options.build, options.jobs).await,
    }
}

/// Installs peers one after the other, since the tools lock each other out, and tries several at a time.
async fn check_all(peers: Vec<Peer>, build: Build, jobs: usize) -> Result<bool, Error> {
    let semel = Arc::new(program_with_verify(build).await?);
    let (places, installing) = (Arc::new(Semaphore::new(jobs)), Arc::new(Mutex::new(())));
    let mut report = Report::read()?;
    let mut trials: JoinSet<(Peer, Result<Findings, Error>)> = JoinSet::new();
    for peer in peers {
        let (semel, places, installing) = (semel.clone(), places.clone(), installing.clone());
        trials.spawn(async move {
            let found = async {
                let _place = places.acquire().await?;
                let one_at_a_time = installing.lock().await;
                let installed = install(&peer, build).await;
                drop(one_at_a_time);
                check(&installed.map_err(|why| format!("cannot be installed: {why}"))?, &semel).await
            }
            .await;
            (peer, found)
        });
    }
    let mut well = true;
    while let Some(tried) = trials.join_next().await {
        let (peer, found) = tried?;
        well &= found.is_ok();
        match &found {
            Ok(_) => println!("{}: tried", peer.name),
            Err(why) => println!("{}: {why}", peer.name),
        }
        let found = found.map_or_else(|why| Tried::Not(why.to_string()), Tried::Seen);
        report.put(&peer, today(), found);
        report.write()?;
    }
    for file in report.write()? {
        println!("{}", file.display());
    }
    Ok(well)
}
