//! Output for people: the figures of a run, and the story of each violation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::fault::Fault;
use crate::judge::Violation;
use crate::line::Printed;
use crate::run::{Options, Outcome};

/// Number of commands from which every fault and every outcome must have occurred.
const ENOUGH: u64 = 1_000;
/// Violations that are told in full.
const TOLD: usize = 5;
/// Events of a command that are told.
const EVENTS: usize = 80;

/// Returns the figures of a run.
pub(crate) fn figures(options: &Options, outcome: &Outcome) -> String {
    let (pages, printed) = (&outcome.pages, &outcome.printed);
    let commands = pages.commands.values();
    let (mut sendings, mut polls, mut calls, mut effects) = (0, 0, 0, 0);
    for command in commands {
        sendings += command.sendings.len() as u64;
        polls += command.polls;
        calls += command.calls;
        effects += command.effects.len() as u64;
    }
    let faults: Vec<String> =
        pages.faults.iter().map(|(fault, count)| format!("{count} {}", fault.as_str())).collect();
    let mut outcomes = BTreeMap::<&str, u64>::new();
    for line in &printed.lines {
        *outcomes.entry(&line.outcome).or_default() += 1;
    }
    let outcomes: Vec<String> =
        outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let replayed = replayed(printed);
    let Options { name, seed, commands, .. } = options;
    let seconds = outcome.took.as_secs_f64();
    let violations = outcome.violations.len();
    format!(
        "{name}, seed {seed}: {commands} commands in {seconds:.1} s, {sendings} sendings, {polls} polls\n  \
         treatment: {}\n  the service: {calls} calls, {effects} effects\n  \
         outcomes: {}; {replayed} of them replays; {} in the journal\n  {violations} violations",
        faults.join(", "),
        outcomes.join(", "),
        printed.pending.len(),
    )
}

fn replayed(printed: &Printed) -> u64 {
    printed.lines.iter().filter(|line| line.replayed == Some(true)).count() as u64
}

/// Returns the reason for which a run without violations proves nothing, if there is one.
pub(crate) fn lack(options: &Options, outcome: &Outcome) -> Option<String> {
    let mistakes: Vec<&str> = outcome.pages.mistakes.iter().map(String::as_str).collect();
    if !mistakes.is_empty() {
        return Some(mistakes.join("; "));
    }
    if options.commands < ENOUGH {
        return None;
    }
    let faults = &outcome.pages.faults;
    if let Some(fault) = Fault::ALL.into_iter().find(|fault| !faults.contains_key(fault)) {
        return Some(format!("no request met the fault {:?}", fault.as_str()));
    }
    for wanted in ["final", "unknown", "unresolved"] {
        if !outcome.printed.lines.iter().any(|line| line.outcome == wanted) {
            return Some(format!("no outcome is {wanted}"));
        }
    }
    (replayed(&outcome.printed) == 0).then(|| "no outcome is a replay".into())
}

/// Returns the stories of the first violations.
pub(crate) fn stories(options: &Options, outcome: &Outcome) -> String {
    let mut text = String::new();
    for violation in outcome.violations.iter().take(TOLD) {
        tell(&mut text, violation, outcome);
    }
    if outcome.violations.len() > TOLD {
        let _ = writeln!(text, "… and {} more violations", outcome.violations.len() - TOLD);
    }
    let driver = options.driver.join(" ");
    let (seed, commands, name) = (options.seed, options.commands, &options.name);
    let _ = write!(text, "again: semel-clients --seed {seed} --commands {commands} {name} -- {driver}");
    text
}

fn tell(text: &mut String, violation: &Violation, outcome: &Outcome) {
    let Violation { rule, number, what } = violation;
    let Some(number) = number else {
        let _ = writeln!(text, "VIOLATION of {rule:?}: {what}");
        return;
    };
    let _ = writeln!(text, "VIOLATION of {rule:?} by command {number}: {what}");
    let command = outcome.pages.commands.get(number);
    let events = command.map(|command| &command.events[..]).unwrap_or_default();
    for event in events.iter().take(EVENTS) {
        let _ = writeln!(text, "  {event}");
    }
    for line in outcome.printed.lines.iter().filter(|line| line.n == *number) {
        let _ = writeln!(text, "  driver: {line:?}");
    }
}
