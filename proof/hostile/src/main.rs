//! Program `semel-hostile`: runs cases. `cargo xtask hostile` calls it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

use std::process::ExitCode;
use std::time::Instant;

use semel_core::{Clock, SystemClock};
use semel_hostile::{CASES, Defect, Group, Options, Outcome, run};

const USAGE: &str = "\
usage: cargo xtask hostile [--cases NUMBER] [--seed NUMBER] [--only GROUP] [--threads NUMBER] [--broken NAME]
       cargo xtask hostile --seed NUMBER --case NUMBER [--only GROUP] [--broken NAME] [--tell]

Sends hostile requests to a gateway, from clients of three identities and one without, before an upstream that records what
it saw; and judges that the upstream saw exactly what was accepted, and that each client got only its own answers.

  --cases    how many cases are run, 5000 if nothing is said
  --seed     what they are drawn from; the seed of an earlier run draws the same again
  --case     one case only, with those of its scene
  --only     cases of one group: framing, upgrade, path, header-name, trailer, http2, surplus
  --tell     says what was sent and got in every case, also where all is well
  --threads  gateways at the same time, as many as there are processors if nothing is said
  --broken   puts a relay with a mistake before the gateway or behind it, which is to be found: prefers-length,
             passes-upgrades, decodes-late, passes-reads, moves-trailers, believes-resets, shares-connection, repeats

Exit codes: 0 all is well, or the mistake was found; 1 something does not hold; 2 wrong use.";

/// Number of cases from which every group must have accepted and refused requests.
const ENOUGH: u64 = 1_000;
/// Number of cases between two lines of progress.
const STEP: u64 = 2_000;
/// Number of violations that are shown in full.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let options = match read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}, {} cases", options.seed, options.cases);
    let begun = Instant::now();
    let outcome = run(&options, &|done| {
        if done % STEP < CASES && done >= STEP {
            println!("  {done} cases, {} s", begun.elapsed().as_secs());
        }
    });
    tell(&options, &outcome)
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    // Any number serves; the time differs from run to run.
    let seed = SystemClock.now().as_millis().unsigned_abs() % 1_000_000;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        Options { seed, first: 0, cases: 5_000, only: None, threads, defect: None, tells: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` has no value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        match word.as_str() {
            "--cases" => options.cases = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--case" => (options.first, options.cases) = (number(value()?)?, 1),
            "--threads" => options.threads = number(value()?)? as usize,
            "--tell" => options.tells = true,
            "--only" => {
                let name = value()?;
                let group = Group::ALL.into_iter().find(|group| group.as_str() == name);
                options.only = Some(group.ok_or(format!("{name:?} is no group"))?);
            }
            "--broken" => {
                let name = value()?;
                let defect = Defect::ALL.into_iter().find(|defect| defect.as_str() == name);
                options.defect = Some(defect.ok_or(format!("{name:?} is nothing that can be broken"))?);
            }
            _ => return Err(format!("`{word}` is unknown")),
        }
    }
    Ok(options)
}

fn tell(options: &Options, outcome: &Outcome) -> ExitCode {
    outcome.told.iter().for_each(|case| println!("{case}"));
    outcome.stories.iter().take(SHOWN).for_each(|story| println!("{story}"));
    println!("{:<12} {:>8} {:>9} {:>8} {:>8}", "group", "cases", "accepted", "refused", "seen");
    for (group, count) in &outcome.counts {
        println!(
            "{group:<12} {:>8} {:>9} {:>8} {:>8}",
            count.cases, count.accepted, count.refused, count.seen
        );
    }
    let (cases, violations) = (outcome.cases(), outcome.violations.len());
    println!("seed {}: {cases} cases in {} s, {violations} violations", options.seed, outcome.took.as_secs());
    if let Some(defect) = options.defect {
        let is_found = violations > 0;
        println!("{}: {}", defect.as_str(), if is_found { "it was found" } else { "NOT FOUND" });
        return if is_found { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let one_sided = outcome.one_sided();
    let is_unproven = cases >= ENOUGH && !one_sided.is_empty();
    if is_unproven {
        let names: Vec<&str> = one_sided.iter().map(|group| group.as_str()).collect();
        println!("this proves nothing: no request was accepted, or none refused, in {}", names.join(", "));
    }
    if violations > 0 || is_unproven { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
