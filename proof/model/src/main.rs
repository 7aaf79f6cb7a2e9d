//! Command line of `cargo xtask model`: checks every configuration and refutes every variant.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

use std::process::ExitCode;
use std::time::Instant;

use semel_model::check::{self, Broken, Walk};
use semel_model::configuration::Configuration;
use semel_model::invariants::SIGHTS;
use semel_model::parts::{self, Kind, Parts};
use semel_model::shipped;
use semel_model::variants::{self, Case};

const USAGE: &str = "\
cargo xtask model [--quick | --only NAME | --story NAME]

  --quick        smaller spaces, for every change
  --only NAME    one configuration
  --story NAME   one variant, with its story";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_fine = match arguments[..] {
        [] => all(&shipped::ALL),
        ["--quick"] => all(&shipped::QUICK),
        ["--only", name] => match shipped::ALL.iter().find(|configuration| configuration.name == name) {
            Some(configuration) => only(configuration),
            None => return misused(&format!("there is no configuration `{name}`")),
        },
        ["--story", name] => match wrong().find(|case| case.name == name) {
            Some(case) => full(case),
            None => return misused(&format!("there is no variant `{name}`")),
        },
        _ => return misused("that is not understood"),
    };
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn misused(why: &str) -> ExitCode {
    let names: Vec<&str> = wrong().map(|case| case.name).collect();
    let configurations: Vec<&str> = shipped::ALL.iter().map(|configuration| configuration.name).collect();
    eprintln!("{why}\n\n{USAGE}\n\nconfigurations: {}", configurations.join(", "));
    eprintln!("variants: {}", names.join(", "));
    ExitCode::from(2)
}

fn wrong() -> impl Iterator<Item = &'static Case> {
    variants::all().chain(&variants::ASSUMED)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn all(configurations: &[&Configuration]) -> bool {
    let begun = Instant::now();
    println!("The protocol. No promise may be broken.\n");
    println!("{:<20} {:>10} {:>6} {:>8}  broken", "configuration", "states", "depth", "seconds");
    let (mut is_fine, mut states, mut seen) = (true, 0, Vec::new());
    for configuration in configurations {
        let walk = check::walk(configuration, threads());
        is_fine &= walk.broken.is_empty();
        states += walk.states;
        report(configuration, &walk);
        seen.extend(walk.seen);
    }
    println!("{:<20} {states:>10} {:>6} {:>8.1}\n", "together", "", begun.elapsed().as_secs_f64());
    for (sight, _) in SIGHTS.iter().filter(|(sight, _)| !seen.contains(sight)) {
        println!("never seen: {sight}. The model does not try what it is about.");
        is_fine = false;
    }
    println!("Protocols that are wrong. Each must be refuted.\n");
    is_fine &= refuted(variants::all());
    println!("\nThe real protocol, where what it assumes does not hold (docs/src/explanation/model.md).\n");
    is_fine &= refuted(variants::ASSUMED.iter());
    is_fine &= several_parts();
    println!(
        "\n{} in {:.0} s",
        if is_fine { "As it should be" } else { "NOT as it should be" },
        begun.elapsed().as_secs_f64()
    );
    is_fine
}

/// Checks commands of several parts. Returns true if no promise breaks and every wrong protocol is refuted.
fn several_parts() -> bool {
    let mut is_fine = true;
    println!("\nCommands of several parts. No promise may be broken.\n");
    for kind in Kind::ALL {
        let walk = parts::walk(&Parts { kind, variant: None });
        println!("{:<20} {:>10}  broken: {}", kind.name(), walk.states, walk.broken.len());
        for (promise, steps) in &walk.broken {
            println!("  broken: {}: {steps:?}", promise.name());
        }
        let missed = parts::SIGHTS.iter().filter(|(sight, of, _)| *of == kind && !walk.seen.contains(sight));
        let missed: Vec<&str> = missed.map(|(sight, ..)| *sight).collect();
        missed.iter().for_each(|sight| println!("  never seen: {sight}"));
        is_fine &= walk.broken.is_empty() && missed.is_empty();
    }
    println!("\nWrong protocols for them. Each must be refuted.\n");
    for case in parts::WRONG {
        let walk = parts::walk(&Parts { kind: case.kind, variant: Some(case.variant) });
        match walk.broken.iter().find(|(promise, _)| *promise == case.breaks) {
            Some((_, steps)) => println!("{:<26} {:>2} steps  {}", case.name, steps.len(), case.what),
            None => {
                println!("{:<26} NOT REFUTED in {} states: {}", case.name, walk.states, case.what);
                is_fine = false;
            }
        }
    }
    is_fine
}

fn report(configuration: &Configuration, walk: &Walk) {
    let broken = if walk.broken.is_empty() { "none" } else { "SEE BELOW" };
    let (name, seconds) = (configuration.name, walk.time.as_secs_f64());
    println!("{name:<20} {:>10} {:>6} {seconds:>8.1}  {broken}", walk.states, walk.depth);
    for broken in &walk.broken {
        show(broken);
    }
}

fn only(configuration: &Configuration) -> bool {
    println!("{}", configuration.about);
    // One thread searches breadth first, so the path to a broken promise is the shortest.
    let walk = check::walk(configuration, 1);
    report(configuration, &walk);
    walk.broken.is_empty()
}

/// Tries every case, also after a failure. Returns true if all are refuted.
fn refuted(cases: impl Iterator<Item = &'static Case>) -> bool {
    cases.filter(|case| !short(case)).count() == 0
}

fn short(case: &Case) -> bool {
    let walk = check::refute(case);
    match walk.broken.first() {
        Some(broken) => {
            println!("{:<26} {:>2} steps  {}", case.name, broken.steps(), case.what);
            println!("{:<26}           {}", "", broken.story.last().map_or("", String::as_str));
            true
        }
        None => {
            println!("{:<26} NOT REFUTED in {} states: {}", case.name, walk.states, case.what);
            false
        }
    }
}

fn full(case: &Case) -> bool {
    println!("{}: {}\n({})\n", case.name, case.what, case.configuration.about);
    let walk = check::refute(case);
    walk.broken.iter().for_each(show);
    !walk.broken.is_empty()
}

fn show(broken: &Broken) {
    let lines: &[String] = &broken.story;
    println!("  broken: {}", broken.promise.name());
    for (number, line) in (1..).zip(lines) {
        if number <= broken.steps() { println!("  {number:>3}. {line}") } else { println!("       {line}") }
    }
}
