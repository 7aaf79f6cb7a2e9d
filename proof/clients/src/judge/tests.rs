//! Runs that the judge must condemn, each for its own rule, and one that it must not.

use serde_json::json;

use super::*;
use crate::book::Sending;
use crate::fault::Fault;

fn sending(key: &str) -> Sending {
    Sending {
        key: Some(key.into()),
        deadline: Some(60_000),
        body: b"{\"n\":0}".to_vec(),
        fault: Fault::None,
        status: Some(201),
        advice: None,
    }
}

fn paid(number: Number) -> Command {
    let effect = format!("effect-{number}-0");
    Command {
        sendings: vec![sending(&format!("key-{number}")), sending(&format!("key-{number}"))],
        answers: vec![(201, json!({"n": number, "effect": effect}))],
        effects: vec![effect],
        operations: vec![format!("op-{number}")],
        ..Command::default()
    }
}

fn line(number: Number) -> Line {
    Line {
        n: number,
        outcome: "final".into(),
        status: Some(201),
        replayed: Some(true),
        attempts: Some(2),
        stopped: None,
        body: Some(format!("{{\"effect\":\"effect-{number}-0\",\"n\":{number}}}")),
    }
}

fn unresolved(number: Number, stopped: &str, attempts: u64) -> Line {
    let (status, body, replayed) = (None, None, None);
    let (stopped, attempts) = (Some(stopped.into()), Some(attempts));
    Line { outcome: "unresolved".into(), status, body, replayed, stopped, attempts, ..line(number) }
}

/// Run of two commands, of which the second stays open.
struct Run {
    pages: Pages,
    printed: Printed,
    journal: Vec<String>,
}

impl Run {
    fn good() -> Run {
        let mut pages = Pages::default();
        pages.commands.insert(0, paid(0));
        pages.commands.insert(1, paid(1));
        let pending = vec![intent(1)];
        let printed =
            Printed { lines: vec![line(0), unresolved(1, "attempts", ATTEMPTS)], pending: pending.clone() };
        Run { pages, printed, journal: pending }
    }

    fn first(&mut self) -> &mut Command {
        self.pages.command(0)
    }

    fn broken(&self) -> Vec<Rule> {
        let violations = judge(2, &self.printed, &self.journal, &self.pages);
        let mut rules: Vec<Rule> = violations.into_iter().map(|violation| violation.rule).collect();
        rules.dedup();
        rules
    }
}

fn broken_by(change: impl FnOnce(&mut Run)) -> Vec<Rule> {
    let mut run = Run::good();
    change(&mut run);
    run.broken()
}

#[test]
fn a_good_run_breaks_no_rule() {
    assert_eq!(broken_by(|_| {}), []);
    let declined = |run: &mut Run| {
        *run.first() = Command { effects: vec![], answers: vec![(402, json!({"declined": 0}))], ..paid(0) };
        (run.printed.lines[0].status, run.printed.lines[0].body) =
            (Some(402), Some("{\"declined\": 0}".into()));
    };
    assert_eq!(broken_by(declined), []);
}

#[test]
fn a_second_effect_is_found() {
    assert_eq!(broken_by(|run| run.pages.command(1).effects.push("another".into())), [Rule::OneEffect]);
}

#[test]
fn a_second_key_is_found() {
    assert_eq!(broken_by(|run| run.first().sendings[1].key = Some("other".into())), [Rule::OneKey]);
    assert_eq!(broken_by(|run| run.first().sendings[1].key = None), [Rule::OneKey]);
    assert_eq!(broken_by(|run| run.first().sendings[1].body.clear()), [Rule::OneKey]);
    assert_eq!(broken_by(|run| run.first().operations.push("op-7".into())), [Rule::OneKey]);
    let shared = |run: &mut Run| run.first().sendings = vec![sending("key-1")];
    assert_eq!(broken_by(shared), [Rule::OneKey]);
}

#[test]
fn a_missing_doubled_or_strange_line_is_found() {
    let doubled = |run: &mut Run| run.printed.lines.push(line(0));
    assert_eq!(broken_by(doubled), [Rule::OneLine]);
    assert_eq!(broken_by(|run| run.printed.lines.truncate(1)), [Rule::OneLine]);
    let strange = |run: &mut Run| {
        run.pages.commands.insert(9, paid(9));
        run.printed.lines.push(line(9));
    };
    assert_eq!(broken_by(strange), [Rule::OneLine]);
}

#[test]
fn an_outcome_that_is_not_the_commands_own_is_found() {
    assert_eq!(broken_by(|run| run.printed.lines[0].status = Some(500)), [Rule::OwnOutcome]);
    assert_eq!(broken_by(|run| run.printed.lines[0].body = line(1).body), [Rule::OwnOutcome]);
    assert_eq!(broken_by(|run| run.printed.lines[0].body = None), [Rule::OwnOutcome]);
    assert_eq!(broken_by(|run| run.first().effects.clear()), [Rule::OwnOutcome]);
    let denied = |run: &mut Run| run.printed.lines[1].outcome = "error:not_executed".into();
    assert_eq!(broken_by(denied), [Rule::OwnOutcome]);
}

#[test]
fn a_call_that_stops_too_early_is_found() {
    let stopped = |stopped: &'static str, attempts, deadline, polls| {
        broken_by(move |run| {
            run.printed.lines[1] = unresolved(1, stopped, attempts);
            let command = run.pages.command(1);
            command.polls = polls;
            command.sendings[1].deadline = Some(deadline);
        })
    };
    assert_eq!(stopped("attempts", ATTEMPTS - 1, 9, 0), [Rule::NotTooEarly]);
    assert_eq!(stopped("deadline", 3, DEADLINE, 0), [Rule::NotTooEarly]);
    assert_eq!(stopped("deadline", 3, 4_000, 0), []);
    assert_eq!(stopped("deadline", 3, DEADLINE, 5), []);
    assert_eq!(stopped("budget", 3, DEADLINE, 0), [Rule::NotTooEarly]);
    assert_eq!(stopped("budget", 80_000, DEADLINE, 0), []);
    assert_eq!(stopped("answer", 3, DEADLINE, 0), [Rule::NotTooEarly]);
}

#[test]
fn an_unknown_outcome_that_the_gateway_did_not_tell_is_found() {
    let unknown = |advice: Option<&str>| {
        let advice = advice.map(str::to_owned);
        broken_by(move |run| {
            run.printed.lines[1].outcome = "unknown".into();
            run.pages.command(1).sendings[1].advice = advice;
        })
    };
    assert_eq!(unknown(None), [Rule::NotTooEarly]);
    assert_eq!(unknown(Some("poll")), []);
}

#[test]
fn a_journal_that_forgets_or_keeps_is_found() {
    assert_eq!(broken_by(|run| run.journal.clear()), [Rule::Journal]);
    assert_eq!(broken_by(|run| run.printed.pending.clear()), [Rule::Journal]);
    assert_eq!(broken_by(|run| run.journal.push(intent(0))), [Rule::Journal]);
}

#[test]
fn a_repeat_below_the_client_is_found() {
    assert_eq!(broken_by(|run| run.printed.lines[0].attempts = Some(1)), [Rule::EveryAttempt]);
}

#[test]
fn an_error_that_nothing_caused_is_found() {
    let journal = |run: &mut Run| run.printed.lines[1].outcome = "error:bad_key".into();
    assert_eq!(broken_by(journal), [Rule::NoError]);
}
