//! Figures of a history for a reader: what each kind of fault cost the clients.
//!
//! A fault lasts from its event to the next event `healed`. A command belongs to it if it had no final answer when
//! the fault began, or was asked for before the fault was healed.

use std::collections::BTreeMap;

use semel_checker::Event;
use semel_checker::event::{Answered, Command};

/// Kind of the event that ends a fault.
pub(crate) const HEALED: &str = "healed";

/// Cost of all faults of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Longest time without a first answer, of each fault, in milliseconds.
    pub(crate) gaps: Vec<i64>,
    /// Longest time without a commit of the database itself, of each fault, in milliseconds.
    pub(crate) database: Vec<i64>,
    /// Commands with a final answer in the end.
    pub(crate) answered: usize,
    /// Commands of which a request was told, at least once: the outcome is unknown; else 503; else nothing at all.
    pub(crate) unknown: usize,
    pub(crate) refused: usize,
    pub(crate) lost: usize,
    /// Commands that were answered at once.
    pub(crate) unaffected: usize,
}

/// Trouble that a client had with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Lost,
    Refused,
    Unknown,
}

#[derive(Default)]
struct Fate {
    first: i64,
    answered: Option<i64>,
    troubles: Vec<(i64, Trouble)>,
}

/// Returns the cost of each kind of fault, by its name in the history. `commits` are times of commits past the gateways.
pub(crate) fn rows(events: &[Event], commits: &[i64]) -> BTreeMap<String, Row> {
    let (fates, answers) = fates(events);
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut begun: Option<(&str, i64)> = None;
    for event in events {
        let Event::Fault(fault) = event else { continue };
        match begun.take() {
            Some((kind, from)) if fault.kind == HEALED => {
                let row = rows.entry(kind.to_owned()).or_default();
                row.database.push(longest_gap(commits, from, fault.at));
                add(row, &fates, &answers, from, fault.at);
            }
            _ => begun = Some((fault.kind.as_str(), fault.at)),
        }
    }
    rows
}

fn add(row: &mut Row, fates: &[Fate], answers: &[i64], from: i64, to: i64) {
    row.gaps.push(longest_gap(answers, from, to));
    for fate in fates {
        if fate.first > to || fate.answered.is_some_and(|at| at < from) {
            continue;
        }
        row.answered += usize::from(fate.answered.is_some());
        let during = fate.troubles.iter().filter(|(at, _)| *at >= from).map(|(_, trouble)| *trouble);
        match during.max() {
            Some(Trouble::Unknown) => row.unknown += 1,
            Some(Trouble::Refused) => row.refused += 1,
            Some(Trouble::Lost) => row.lost += 1,
            None => row.unaffected += 1,
        }
    }
}

/// Returns the longest time without an answer, the answer before `from` and the one after `to` included.
fn longest_gap(answers: &[i64], from: i64, to: i64) -> i64 {
    let begin = answers.partition_point(|at| *at < from).saturating_sub(1);
    let end = (answers.partition_point(|at| *at <= to) + 1).min(answers.len());
    let between = answers.get(begin..end).unwrap_or_default();
    between.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// Returns the number of commands with a second effect: all that can be judged of a run without an end.
pub(crate) fn second_effects(events: &[Event]) -> usize {
    let mut effects: BTreeMap<&Command, usize> = BTreeMap::new();
    for event in events {
        if let Event::Effect(effect) = event {
            *effects.entry(&effect.command).or_default() += 1;
        }
    }
    effects.values().filter(|count| **count > 1).count()
}

/// Returns the fates of all commands, and the times of first answers in order.
fn fates(events: &[Event]) -> (Vec<Fate>, Vec<i64>) {
    let mut fates: BTreeMap<&Command, Fate> = BTreeMap::new();
    let mut requests: BTreeMap<u64, &Command> = BTreeMap::new();
    let mut answers = Vec::new();
    for event in events {
        match event {
            Event::Invoked(invoked) => {
                requests.insert(invoked.request, &invoked.command);
                let first = Fate { first: invoked.at, ..Fate::default() };
                fates.entry(&invoked.command).or_insert(first);
            }
            Event::Answered(answered) => {
                let Some(fate) = requests.get(&answered.request).and_then(|command| fates.get_mut(command))
                else {
                    continue;
                };
                if answered.expires.is_some() {
                    fate.answered.get_or_insert(answered.at);
                    if !answered.replayed {
                        answers.push(answered.at);
                    }
                } else if fate.answered.is_none() {
                    fate.troubles.extend(trouble(answered).map(|trouble| (answered.at, trouble)));
                }
            }
            Event::Lost(lost) => {
                let fate = requests.get(&lost.request).and_then(|command| fates.get_mut(command));
                if let Some(fate) = fate.filter(|fate| fate.answered.is_none()) {
                    fate.troubles.push((lost.at, Trouble::Lost));
                }
            }
            _ => {}
        }
    }
    (fates.into_values().collect(), answers)
}

fn trouble(answered: &Answered) -> Option<Trouble> {
    match (answered.code.as_deref(), answered.status) {
        (Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), _) => Some(Trouble::Unknown),
        (_, 503) => Some(Trouble::Refused),
        _ => None,
    }
}

/// Returns the rows as a table in Markdown.
pub(crate) fn table(rows: &BTreeMap<String, Row>) -> String {
    let seconds = |millis: i64| format!("{:.1} s", millis as f64 / 1_000.0);
    let mut text = "| fault | times | database away: median | longest | without answers: median | longest | commands | told 503 \
                    | told unknown | no answer | unaffected | answered in the end |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (kind, row) in rows {
        let (away, silent) = (middle_and_end(&row.database), middle_and_end(&row.gaps));
        let commands = row.refused + row.unknown + row.lost + row.unaffected;
        text.push_str(&format!(
            "| {kind} | {} | {} | {} | {} | {} | {commands} | {} | {} | {} | {} | {} |\n",
            row.gaps.len(),
            seconds(away.0),
            seconds(away.1),
            seconds(silent.0),
            seconds(silent.1),
            row.refused,
            row.unknown,
            row.lost,
            row.unaffected,
            row.answered
        ));
    }
    text
}

/// Returns the median and the largest of some times.
fn middle_and_end(times: &[i64]) -> (i64, i64) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or(0);
    (at(times.len() / 2), at(times.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_checker::event::{Effect, Fault, Invoked, Lost};

    fn invoked(at: i64, request: u64, key: &str) -> Event {
        let text = |text: &str| text.to_owned();
        let command = Command { tenant: text("t"), caller: text("c"), operation: text("o"), key: text(key) };
        let gateway = text("gateway-1");
        Event::Invoked(Invoked {
            at,
            request,
            gateway,
            command,
            payload: 0,
            canary: text("x"),
            reference: None,
        })
    }

    fn answered(at: i64, request: u64, status: u16, code: Option<&str>) -> Event {
        let expires = code.is_none().then_some(99);
        Event::Answered(Answered {
            at,
            request,
            status,
            code: code.map(str::to_owned),
            operation_id: None,
            replayed: false,
            expires,
            digest: String::new(),
            effect: None,
            canaries: Vec::new(),
            not_executed: None,
            undone: None,
            items: Vec::new(),
        })
    }

    fn fault(at: i64, kind: &str) -> Event {
        Event::Fault(Fault { at, kind: kind.to_owned(), target: String::new(), detail: String::new() })
    }

    #[test]
    fn second_effects_are_counted_by_command() {
        let effect = |key: &str, id: &str| {
            let Event::Invoked(invoked) = invoked(1, 1, key) else { unreachable!("it is one") };
            let (effect, canary) = (format!("effect-{id}"), invoked.canary);
            let (command, operation_id) = (invoked.command, id.to_owned());
            Event::Effect(Effect {
                at: 1,
                effect,
                operation_id,
                attempt: 1,
                command,
                canary,
                reference: None,
            })
        };
        assert_eq!(second_effects(&[effect("a", "1"), effect("b", "2"), effect("a", "3")]), 1);
        assert_eq!(second_effects(&[effect("a", "1"), effect("b", "2")]), 0);
    }

    #[test]
    fn commands_of_a_fault_are_counted_by_their_worst_answer() {
        let events = [
            // Over before the fault, and begun after it: neither counts.
            invoked(1, 1, "before"),
            answered(2, 1, 201, None),
            fault(10, "leader killed"),
            invoked(11, 2, "refused"),
            answered(12, 2, 503, Some("IDEMPOTENCY_STORE_UNAVAILABLE")),
            invoked(13, 3, "unknown"),
            answered(14, 3, 500, Some("IDEMPOTENCY_OUTCOME_UNKNOWN")),
            invoked(15, 4, "unknown"),
            answered(16, 4, 503, Some("IDEMPOTENCY_STORE_UNAVAILABLE")),
            invoked(17, 5, "lost"),
            Event::Lost(Lost { at: 18, request: 5, why: String::new() }),
            invoked(20, 6, "well"),
            answered(30, 6, 201, None),
            invoked(31, 7, "refused"),
            answered(33, 7, 201, None),
            fault(40, HEALED),
            invoked(41, 8, "after"),
            answered(52, 8, 201, None),
        ];
        let rows = rows(&events, &[5, 15, 45, 50]);
        let expected = Row {
            gaps: vec![28],
            database: vec![30],
            answered: 2,
            unknown: 1,
            refused: 1,
            lost: 1,
            unaffected: 1,
        };
        assert_eq!(rows, BTreeMap::from([("leader killed".to_owned(), expected)]));
        assert!(
            table(&rows)
                .contains("| leader killed | 1 | 0.0 s | 0.0 s | 0.0 s | 0.0 s | 4 | 1 | 1 | 1 | 1 | 2 |")
        );
    }
}
