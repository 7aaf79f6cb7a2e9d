//! Situations that a history with commands in parts must meet, with their counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Action, Answered, Event, Mode, PhaseProgress, Record, Run, Verdict};

/// Every situation, with the mode of operation that requires it.
pub(crate) const ALL: [(&str, Mode); 18] = [
    ("phase finished", Mode::Phased),
    ("call left open", Mode::Phased),
    ("open call found executed", Mode::Phased),
    ("open call found not executed", Mode::Phased),
    ("command in phases resumed and succeeded", Mode::Phased),
    ("command in phases refused after a finished phase", Mode::Phased),
    ("message dead", Mode::Deferred),
    ("message retried by an operator", Mode::Deferred),
    ("message discarded by an operator", Mode::Deferred),
    ("deferred command settled by its message", Mode::Deferred),
    ("deferred command declined", Mode::Deferred),
    ("deferred command settled by an operator", Mode::Deferred),
    ("bulk request partly done", Mode::Bulk),
    ("bulk request finished in a later attempt", Mode::Bulk),
    ("work refused", Mode::Local),
    ("work failed", Mode::Local),
    ("work panicked, or lost its database", Mode::Local),
    ("work ended its transaction itself", Mode::Local),
];

/// Returns the number of times that each situation was met.
pub(crate) fn count(events: &[Event]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let Some(Event::Run(run)) = events.first() else { return counts };
    let mut met = |situation: &'static str| *counts.entry(situation).or_default() += 1;
    let mut records: BTreeMap<&str, &Record> = BTreeMap::new();
    let mut phased = BTreeSet::new();
    for event in events {
        match event {
            Event::Phase(phase) => match phase.progress {
                PhaseProgress::Begun => met("call left open"),
                PhaseProgress::Done => {
                    phased.insert(phase.operation_id.as_str());
                    met("phase finished");
                }
                PhaseProgress::Gone => {}
            },
            Event::Ruled(ruled) if ruled.part.is_some() && ruled.accepted == Some(true) => {
                met(match ruled.verdict {
                    Verdict::Executed => "open call found executed",
                    Verdict::NotExecuted | Verdict::NothingOpen => "open call found not executed",
                });
            }
            Event::Message(message) if message.state == "dead" => met("message dead"),
            Event::Intervened(done) if done.accepted == Some(true) => met(match done.action {
                Action::Retry => "message retried by an operator",
                Action::Discard => "message discarded by an operator",
            }),
            Event::Answered(answered) => answer(answered).into_iter().for_each(&mut met),
            Event::Record(record) => {
                records.insert(&record.operation_id, record);
            }
            _ => {}
        }
    }
    for (id, record) in records {
        settled(run, record, phased.contains(id)).into_iter().for_each(&mut met);
    }
    counts
}

fn answer(answered: &Answered) -> Option<&'static str> {
    let done = answered.items.iter().any(|item| item.is_succeeded());
    let open = answered.items.iter().any(|item| !item.is_finished());
    match answered.undone.as_ref().map(|undone| undone.end.as_str()) {
        Some("refused") => Some("work refused"),
        Some("failed") => Some("work failed"),
        Some("ended") => Some("work ended its transaction itself"),
        _ if done && open => Some("bulk request partly done"),
        _ if answered.code.as_deref() == Some("COMMAND_ROLLED_BACK") => {
            Some("work panicked, or lost its database")
        }
        _ => None,
    }
}

fn settled(run: &Run, record: &Record, has_phases: bool) -> Option<&'static str> {
    let mode = run.operations.get(&record.operation)?.mode;
    let runs = record.steps.iter().filter(|step| step.state == "processing").count();
    let unsure = record.steps.iter().any(|step| step.reason == "handler_unsure");
    match (mode, record.state.as_str(), record.reason.as_str()) {
        // Such work may have committed anything, so its outcome is unknown.
        (Mode::Local, _, _) if unsure => Some("work ended its transaction itself"),
        (Mode::Phased, "succeeded", _) if runs > 1 => Some("command in phases resumed and succeeded"),
        (Mode::Phased, "failed_final", _) if has_phases => {
            Some("command in phases refused after a finished phase")
        }
        (Mode::Deferred, _, "verdict_executed") => Some("deferred command settled by an operator"),
        (Mode::Deferred, "succeeded", _) => Some("deferred command settled by its message"),
        (Mode::Deferred, "failed_final", _) => Some("deferred command declined"),
        (Mode::Bulk, "succeeded", _) if runs > 1 => Some("bulk request finished in a later attempt"),
        _ => None,
    }
}

/// Returns the first situation that a run with these operations must meet and has not met.
pub(crate) fn lacking(run: &Run, counts: &BTreeMap<&'static str, usize>) -> Option<&'static str> {
    let has = |mode: Mode| run.operations.values().any(|operation| operation.mode == mode);
    // Runs without commands in phases have another purpose.
    let expected = ALL.iter().filter(|(_, mode)| has(Mode::Phased) && has(*mode));
    expected.map(|(situation, _)| *situation).find(|situation| !counts.contains_key(situation))
}
