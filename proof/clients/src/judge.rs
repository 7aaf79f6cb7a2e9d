//! Judge of a run: compares what a driver printed, and what its journal has, with what the proxy and the upstream saw.
//!
//! Pure: it reads no clock, no file and no socket. It uses no code of a client.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::book::{Command, Number, Pages};
use crate::line::{Line, Printed, intent};

/// Settings of every driver: attempts of a call, its total deadline in milliseconds, tokens of the retry budget, and the
/// cost of a retry.
const ATTEMPTS: u64 = 30;
const DEADLINE: u64 = 60_000;
const TOKENS: u64 = 1_000_000;
const COST: u64 = 14;

/// Rule that a client must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A command has at most one effect.
    OneEffect,
    /// Every sending of a command has the same key and the same bytes, and no other command has that key.
    OneKey,
    /// Every command has one line.
    OneLine,
    /// A final outcome is the command's own: what the service answered, or what its ledger says.
    OwnOutcome,
    /// A client that stops without an outcome has used up its attempts, its deadline or its budget.
    NotTooEarly,
    /// The journal has exactly the commands without a final outcome.
    Journal,
    /// The client counts every sending as an attempt: nothing below it repeats a request by itself.
    EveryAttempt,
    /// No error is told that nothing caused.
    NoError,
}

/// Rule that was broken, by which command, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) number: Option<Number>,
    pub(crate) what: String,
}

/// Returns every violation in a run of `count` commands. `journal` has the intents that the journal's file still has.
pub(crate) fn judge(count: Number, printed: &Printed, journal: &[String], pages: &Pages) -> Vec<Violation> {
    let mut judge = Judge { pages, violations: Vec::new() };
    judge.keys();
    judge.lines(count, printed);
    let retries = printed.lines.iter().map(|line| line.attempts.unwrap_or(0).saturating_sub(1)).sum::<u64>();
    let has_spent = COST * (retries + 1) > TOKENS;
    for line in &printed.lines {
        judge.line(line, has_spent);
    }
    judge.journal(count, printed, journal);
    judge.violations
}

struct Judge<'a> {
    pages: &'a Pages,
    violations: Vec<Violation>,
}

impl Judge<'_> {
    fn report(&mut self, rule: Rule, number: impl Into<Option<Number>>, what: impl Into<String>) {
        self.violations.push(Violation { rule, number: number.into(), what: what.into() });
    }

    /// Judges effects and keys, whatever the driver says about them.
    fn keys(&mut self) {
        let mut owners: BTreeMap<&str, Number> = BTreeMap::new();
        for (&number, command) in &self.pages.commands {
            if command.effects.len() > 1 {
                self.report(Rule::OneEffect, number, format!("it has the effects {:?}", command.effects));
            }
            let keys: BTreeSet<Option<&str>> =
                command.sendings.iter().map(|one| one.key.as_deref()).collect();
            if keys.len() > 1 || keys.contains(&None) {
                self.report(Rule::OneKey, number, format!("it was sent under the keys {keys:?}"));
            }
            if command.operations.len() > 1 {
                self.report(Rule::OneKey, number, format!("it was {} operations", command.operations.len()));
            }
            let bodies: BTreeSet<&[u8]> = command.sendings.iter().map(|one| &one.body[..]).collect();
            if bodies.len() > 1 {
                self.report(Rule::OneKey, number, format!("it was sent with {} bodies", bodies.len()));
            }
            for key in keys.into_iter().flatten() {
                if let Some(other) = owners.insert(key, number).filter(|other| *other != number) {
                    self.report(Rule::OneKey, number, format!("command {other} has its key"));
                }
            }
        }
    }

    fn lines(&mut self, count: Number, printed: &Printed) {
        let mut seen = BTreeMap::<Number, u64>::new();
        for line in &printed.lines {
            *seen.entry(line.n).or_default() += 1;
        }
        for number in 0..count {
            match seen.remove(&number) {
                Some(1) => {}
                Some(times) => self.report(Rule::OneLine, number, format!("it has {times} lines")),
                None => self.report(Rule::OneLine, number, "it has no line"),
            }
        }
        for number in seen.into_keys() {
            self.report(Rule::OneLine, number, "nobody asked for it");
        }
    }

    fn line(&mut self, line: &Line, has_spent: bool) {
        let none = Command::default();
        let command = self.pages.commands.get(&line.n).unwrap_or(&none);
        let sent = command.sendings.len() as u64;
        if line.attempts.is_some_and(|attempts| sent > attempts) {
            let what = format!("it was sent {sent} times, in {} attempts", line.attempts.unwrap_or_default());
            self.report(Rule::EveryAttempt, line.n, what);
        }
        match line.outcome.as_str() {
            "final" => {
                if let Some(what) = not_its_own(line, command) {
                    self.report(Rule::OwnOutcome, line.n, what);
                }
            }
            "unknown" => {
                let told = command.sendings.iter().any(|one| one.advice.as_deref() == Some("poll"));
                if !told {
                    self.report(Rule::NotTooEarly, line.n, "unknown, and the gateway never said so");
                }
            }
            "unresolved" => self.stop(line, command, has_spent),
            "error:not_executed" => {
                self.stop(line, command, has_spent);
                if !command.effects.is_empty() {
                    let what = format!("not executed, and it has the effects {:?}", command.effects);
                    self.report(Rule::OwnOutcome, line.n, what);
                }
            }
            other => self.report(Rule::NoError, line.n, format!("{other}, which nothing caused")),
        }
    }

    /// Judges a call that ended without an outcome.
    fn stop(&mut self, line: &Line, command: &Command, has_spent: bool) {
        // The client itself says in each sending how much is left. A wait, an attempt and a poll take at most half of it.
        let left = command.sendings.last().and_then(|one| one.deadline).unwrap_or(DEADLINE);
        let is_used_up = match line.stopped.as_deref() {
            Some("attempts") => line.attempts == Some(ATTEMPTS),
            Some("deadline") => left <= DEADLINE / 2 || command.polls > 0,
            Some("budget") => has_spent,
            _ => false,
        };
        if !is_used_up {
            let (stopped, attempts) = (line.stopped.as_deref().unwrap_or("nothing"), line.attempts);
            let what = format!(
                "{}, stopped by {stopped} after {} attempts with {left} ms left",
                line.outcome,
                attempts.unwrap_or_default()
            );
            self.report(Rule::NotTooEarly, line.n, what);
        }
    }

    fn journal(&mut self, count: Number, printed: &Printed, journal: &[String]) {
        let settled: BTreeSet<Number> =
            printed.lines.iter().filter(|line| line.outcome == "final").map(|line| line.n).collect();
        let open: BTreeSet<String> =
            (0..count).filter(|number| !settled.contains(number)).map(intent).collect();
        for (name, intents) in [("the journal's file", journal), ("the driver's last line", &printed.pending)]
        {
            let kept: BTreeSet<String> = intents.iter().cloned().collect();
            let (lost, left): (Vec<_>, Vec<_>) =
                (open.difference(&kept).collect(), kept.difference(&open).collect());
            if !lost.is_empty() {
                self.report(Rule::Journal, None, format!("{name} has cleared, without an outcome: {lost:?}"));
            }
            if !left.is_empty() {
                self.report(Rule::Journal, None, format!("{name} still has, with an outcome: {left:?}"));
            }
        }
    }
}

/// Returns the difference between a final outcome and what the service answered, if there is one.
fn not_its_own(line: &Line, command: &Command) -> Option<String> {
    let body: Option<Value> = line.body.as_deref().and_then(|body| serde_json::from_str(body).ok());
    let (Some(status), Some(body)) = (line.status, body) else {
        return Some(format!("final, with the status {:?} and the body {:?}", line.status, line.body));
    };
    let is_its_own = command.answers.iter().any(|(s, b)| (*s, b) == (status, &body));
    let has_effect =
        body.get("effect").and_then(Value::as_str).is_none_or(|effect| command.effects == [effect]);
    (!is_its_own || !has_effect)
        .then(|| format!("final, {status} {body}; the service says {:?}", command.answers))
}

#[cfg(test)]
mod tests;
