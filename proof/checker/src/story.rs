//! Violations as stories: the broken promise, and the events that show it, in order.

use std::fmt::Write as _;

use crate::INVARIANTS;
use crate::event::{Action, Event, PhaseProgress, Record, Verdict};
use crate::kind::Kind;

/// Promise that the history breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant.
    pub invariant: u8,
    /// Description of the violation, in a sentence.
    pub what: String,
    /// Lines that show it, counted from 0.
    pub events: Vec<usize>,
}

/// Result of a check.
#[derive(Debug)]
pub struct Report<'a> {
    events: &'a [Event],
    /// Violations, by invariant.
    pub violations: Vec<Violation>,
}

/// Largest number of lines in a story: the first and the last are shown.
const MOST_LINES: usize = 40;
/// Largest number of stories for one invariant.
const MOST_STORIES: usize = 5;

impl<'a> Report<'a> {
    pub(crate) fn new(events: &'a [Event], violations: Vec<Violation>) -> Report<'a> {
        Report { events, violations }
    }

    /// Returns the number of violations of this invariant.
    pub fn count(&self, invariant: u8) -> usize {
        self.violations.iter().filter(|violation| violation.invariant == invariant).count()
    }

    fn tell(&self, f: &mut std::fmt::Formatter<'_>, violation: &Violation) -> std::fmt::Result {
        writeln!(f, "  {}", violation.what)?;
        let begun = self.events.first().and_then(when).unwrap_or(0);
        let mut lines = violation.events.clone();
        lines.sort_unstable();
        lines.dedup();
        let hidden = lines.len().saturating_sub(MOST_LINES);
        for (position, line) in lines.iter().enumerate() {
            if hidden > 0 && position == MOST_LINES / 2 {
                writeln!(f, "          … {hidden} more …")?;
            }
            if hidden > 0 && (MOST_LINES / 2..MOST_LINES / 2 + hidden).contains(&position) {
                continue;
            }
            let event = &self.events[*line];
            let at = when(event).or_else(|| self.looked_at(event)).unwrap_or(begun) - begun;
            writeln!(f, "    {:>4}.{:03} s  line {:<7} {}", at / 1000, at % 1000, line + 1, tell(event))?;
        }
        Ok(())
    }

    fn looked_at(&self, event: &Event) -> Option<i64> {
        let look = match event {
            Event::Record(record) => record.look,
            Event::Gone(gone) => gone.look,
            Event::Phase(phase) => phase.look,
            _ => return None,
        };
        self.events.iter().find_map(|event| match event {
            Event::Looked(looked) if looked.look == look => Some(looked.at),
            _ => None,
        })
    }
}

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, name) in INVARIANTS {
            let broken = self.violations.iter().filter(|violation| violation.invariant == number);
            let count = self.count(number);
            if count == 0 {
                continue;
            }
            writeln!(
                f,
                "invariant {number} ({name}) is violated {count} time{}:",
                if count == 1 { "" } else { "s" }
            )?;
            for violation in broken.take(MOST_STORIES) {
                self.tell(f, violation)?;
            }
        }
        match self.violations.len() {
            0 => write!(f, "no violations in {} events", self.events.len()),
            count => write!(f, "{count} violations in {} events", self.events.len()),
        }
    }
}

/// Returns the time of an event, if it has one.
pub(crate) fn when(event: &Event) -> Option<i64> {
    Some(match event {
        Event::Run(run) => run.at,
        Event::Invoked(invoked) => invoked.at,
        Event::Answered(answered) => answered.at,
        Event::Lost(lost) => lost.at,
        Event::Called(called) => called.at,
        Event::Effect(effect) => effect.at,
        Event::Looked(looked) => looked.at,
        Event::Evidence(evidence) => evidence.at,
        Event::Ruled(ruled) => ruled.at,
        Event::Fault(fault) => fault.at,
        Event::Quiet(quiet) => quiet.at,
        Event::Metrics(metrics) => metrics.at,
        Event::Committed(row) => row.at,
        Event::Message(message) => message.at,
        Event::Delivered(delivered) => delivered.at,
        Event::Requested(call) => call.at,
        Event::Charged(charge) => charge.at,
        Event::Declined(refusal) => refusal.at,
        Event::Intervention(wish) => wish.at,
        Event::Intervened(done) => done.at,
        Event::Record(_) | Event::Gone(_) | Event::Phase(_) => return None,
    })
}

/// Returns an event as one line of text.
fn tell(event: &Event) -> String {
    match event {
        Event::Run(run) => format!("the run begins, on {}, with seed {}", run.store, run.seed),
        Event::Invoked(invoked) => {
            let payload = if invoked.payload == 0 { "" } else { ", with another payload" };
            format!("request {} asks {} for {}{payload}", invoked.request, invoked.gateway, invoked.command)
        }
        Event::Answered(answered) => {
            let mut told = format!("request {} is told {}", answered.request, answered.status);
            let _ = write!(told, " ({})", Kind::of(answered).as_str());
            if let Some(id) = &answered.operation_id {
                let _ = write!(told, ", operation {id}");
            }
            if let Some(effect) = &answered.effect {
                let _ = write!(told, ", {effect}");
            }
            for item in &answered.items {
                let _ = write!(told, ", {} {}", item.name, item.outcome);
            }
            if let Some(undone) = &answered.undone {
                let _ = write!(told, ", {} rolled back ({})", undone.effect, undone.end);
            }
            let _ = write!(told, ", digest {}", answered.digest);
            told
        }
        Event::Lost(lost) => format!("request {} hears nothing: {}", lost.request, lost.why),
        Event::Called(called) => {
            format!("the service is called: operation {}, attempt {}", called.operation_id, called.attempt)
        }
        Event::Effect(effect) => format!(
            "EFFECT {}: operation {}, attempt {}, {}",
            effect.effect, effect.operation_id, effect.attempt, effect.command
        ),
        Event::Looked(looked) => format!("look {} at the store", looked.look),
        Event::Record(record) => tell_record(record),
        Event::Gone(gone) => format!("the store has no record of operation {} any more", gone.operation_id),
        Event::Evidence(evidence) => {
            let part = part(evidence.part.as_deref());
            format!("the operator says: {}{part} was {}", evidence.operation_id, verdict(evidence.verdict))
        }
        Event::Ruled(ruled) => {
            let what = match ruled.accepted {
                Some(true) => "that counts",
                Some(false) => "that is refused",
                None => "nobody knows whether that counts",
            };
            let part = part(ruled.part.as_deref());
            format!("the operator about {}{part}, {}: {what}", ruled.operation_id, verdict(ruled.verdict))
        }
        Event::Fault(fault) => format!("FAULT {} of {} {}", fault.kind, fault.target, fault.detail),
        Event::Quiet(_) => "no more faults from here on".to_owned(),
        Event::Metrics(metrics) => format!("what {} counts, as process {}", metrics.gateway, metrics.process),
        Event::Committed(row) => {
            format!("COMMITTED {}: operation {}{}", row.effect, row.operation_id, part(row.part.as_deref()))
        }
        Event::Message(message) => format!("the message {} is {}", message.event_id, message.state),
        Event::Delivered(delivered) => {
            let effect = if delivered.effect { "with an effect" } else { "again" };
            format!("the message {} is delivered, {effect}", delivered.event_id)
        }
        Event::Requested(call) => format!("the provider is called under {}", call.key),
        Event::Charged(charge) => format!("CHARGED {} under {}", charge.effect, charge.key),
        Event::Declined(refusal) => format!("the provider declines {}", refusal.key),
        Event::Phase(phase) => {
            let progress = match phase.progress {
                PhaseProgress::Begun => "begun",
                PhaseProgress::Done => "done",
                PhaseProgress::Gone => "gone",
            };
            format!(
                "the store has the phase {} of operation {} as {progress}",
                phase.phase, phase.operation_id
            )
        }
        Event::Intervention(wish) => {
            format!("the operator wants to {} {}", action(wish.action), wish.event_id)
        }
        Event::Intervened(done) => {
            let what = match done.accepted {
                Some(true) => "done",
                Some(false) => "refused",
                None => "nobody knows whether it was done",
            };
            format!("the operator wanted to {} {}: {what}", action(done.action), done.event_id)
        }
    }
}

fn part(part: Option<&str>) -> String {
    part.map(|part| format!(", {part}")).unwrap_or_default()
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Retry => "retry",
        Action::Discard => "discard",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Executed => "executed",
        Verdict::NotExecuted => "not executed",
        Verdict::NothingOpen => "left without an open call",
    }
}

fn tell_record(record: &Record) -> String {
    let mut told = format!("the store has operation {}: {}", record.operation_id, record.state);
    if let Some(status) = record.status {
        let _ = write!(told, " with {status}");
    }
    for effect in &record.effects {
        let _ = write!(told, ", {effect}");
    }
    let steps: Vec<String> = record
        .steps
        .iter()
        .map(|step| format!("{} {} in epoch {} ({})", step.at, step.state, step.epoch, step.reason))
        .collect();
    let _ = write!(told, "; its steps: {}", steps.join(", "));
    told
}
