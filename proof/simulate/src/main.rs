//! `semel-simulate`: runs seeds. `cargo xtask simulate` calls it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

use std::process::ExitCode;

use semel_simulate::{Broken, Options, SITUATIONS, run, run_many};

const USAGE: &str = "usage: cargo xtask simulate [--seeds NUMBER] [--from SEED] [--threads NUMBER] [--broken NAME] [--coverage]
       cargo xtask simulate --seed SEED [--trace | --history] [--broken NAME]

  --seeds     how many seeds are run, 2000 if nothing is said
  --from      the first of them, 0 if nothing is said
  --threads   on how many threads, as many as there are processors if nothing is said
  --seed      one seed only: prints its hash
  --trace     prints everything that happened
  --history   prints the history that is judged, one JSON object a line, as `semel-checker` reads it
  --broken    does something wrong on purpose, which is to be found: lost-write, no-fence, racy-claim, early-reap,
              silent-commit, rerun, hasty-verdict, second-call, missing-request
  --coverage  prints how often each situation was met";

/// Number of seeds from which on every situation must be met.
const ENOUGH: u64 = 1_000;

#[derive(Default)]
struct Arguments {
    seeds: Option<u64>,
    from: u64,
    threads: Option<usize>,
    seed: Option<u64>,
    trace: bool,
    history: bool,
    coverage: bool,
    broken: Option<Broken>,
}

fn main() -> ExitCode {
    match read(std::env::args().skip(1)) {
        Ok(arguments) => match arguments.seed {
            Some(seed) => one(seed, &arguments),
            None => many(&arguments),
        },
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` has no value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        match word.as_str() {
            "--seeds" => arguments.seeds = Some(number(value()?)?),
            "--from" => arguments.from = number(value()?)?,
            "--threads" => arguments.threads = Some(number(value()?)? as usize),
            "--seed" => arguments.seed = Some(number(value()?)?),
            "--trace" => arguments.trace = true,
            "--history" => arguments.history = true,
            "--coverage" => arguments.coverage = true,
            "--broken" => {
                let name = value()?;
                let broken = Broken::parse(&name).ok_or(format!("{name:?} is nothing that can be broken"))?;
                arguments.broken = Some(broken);
            }
            _ => return Err(format!("`{word}` is unknown")),
        }
    }
    if arguments.seed.is_some() && arguments.seeds.is_some() {
        return Err("`--seed` runs one seed, and `--seeds` many".into());
    }
    Ok(arguments)
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    let keeps = arguments.trace || arguments.history;
    let outcome = run(seed, Options { broken: arguments.broken, trace: keeps });
    if arguments.trace {
        outcome.trace.iter().for_each(|line| println!("{line}"));
    }
    if arguments.history {
        for event in &outcome.history {
            match serde_json::to_string(event) {
                Ok(line) => println!("{line}"),
                Err(error) => eprintln!("an event cannot be written: {error}"),
            }
        }
    } else {
        if let Some(wrong) = &outcome.wrong {
            println!("{wrong}");
        }
        println!("{}", outcome.tally);
        println!("seed {seed}, {} s simulated, hash {}", outcome.simulated.as_secs(), outcome.hash);
    }
    if outcome.wrong.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn many(arguments: &Arguments) -> ExitCode {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or(available);
    let options = Options { broken: arguments.broken, trace: false };
    let seeds = arguments.seeds.unwrap_or(2_000);
    let summary = run_many(arguments.from, seeds, threads, options, arguments.broken.is_some());
    if !summary.failing.is_empty() {
        print!("{}", summary.stories(arguments.broken));
    }
    println!("{summary}");
    let lacks = summary.coverage.lacks();
    println!("  situations {} of {}", SITUATIONS.len() - lacks.len(), SITUATIONS.len());
    if arguments.coverage {
        summary.coverage.times().iter().for_each(|(situation, times)| println!("  {times:>8}  {situation}"));
    }
    if !lacks.is_empty() {
        println!("  never met  {}", lacks.join("; "));
    }
    let unmet = arguments.broken.is_none() && seeds >= ENOUGH && !lacks.is_empty();
    if unmet {
        println!("so many seeds must meet every situation: what was never met is not tried");
    }
    if unmet || !summary.failing.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
