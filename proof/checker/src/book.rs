//! Index of a history for the rules: by request, by command, by operation id.

use std::collections::{BTreeMap, BTreeSet};

use crate::Malformed;
use crate::event::{
    Answered, Called, Charged, Command, Committed, Declined, Effect, Event, Evidence, Gone, Invoked, Looked,
    Mode, Phase, Record, Requested, Ruled, Run, Step,
};
use crate::kind::Kind;
use crate::story::when;

/// Event or part of one, with its line in the history.
pub(crate) type At<'a, T> = (usize, &'a T);

/// Index of a history.
pub(crate) struct Book<'a> {
    pub(crate) events: &'a [Event],
    pub(crate) run: &'a Run,
    pub(crate) requests: BTreeMap<u64, Request<'a>>,
    pub(crate) commands: BTreeMap<&'a Command, Vec<u64>>,
    pub(crate) operations: BTreeMap<&'a str, Life<'a>>,
    pub(crate) looks: BTreeMap<u32, At<'a, Looked>>,
    pub(crate) last_look: At<'a, Looked>,
    /// Owner of each canary: command and payload.
    pub(crate) canaries: BTreeMap<&'a str, (&'a Command, u32)>,
}

/// Request, with its answer or loss.
pub(crate) struct Request<'a> {
    pub(crate) invoked: At<'a, Invoked>,
    pub(crate) answered: Option<At<'a, Answered>>,
    pub(crate) lost: Option<usize>,
}

impl Request<'_> {
    /// Returns the meaning of the answer.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.answered.map(|(_, answer)| Kind::of(answer))
    }

    /// Returns the line at which the request ended for its client.
    pub(crate) fn ended(&self) -> Option<usize> {
        self.answered.map(|(line, _)| line).or(self.lost)
    }
}

/// Facts about one operation id.
#[derive(Default)]
pub(crate) struct Life<'a> {
    pub(crate) commands: BTreeSet<&'a Command>,
    pub(crate) answers: Vec<u64>,
    pub(crate) calls: Vec<At<'a, Called>>,
    pub(crate) effects: Vec<At<'a, Effect>>,
    pub(crate) commits: Vec<At<'a, Committed>>,
    /// Rows of its phases or of one item.
    pub(crate) parts: Vec<At<'a, Committed>>,
    pub(crate) requested: Vec<At<'a, Requested>>,
    pub(crate) charges: Vec<At<'a, Charged>>,
    pub(crate) declines: Vec<At<'a, Declined>>,
    pub(crate) phases: Vec<At<'a, Phase>>,
    pub(crate) looks: Vec<At<'a, Record>>,
    pub(crate) gone: Vec<At<'a, Gone>>,
    pub(crate) evidence: Vec<At<'a, Evidence>>,
    pub(crate) rulings: Vec<At<'a, Ruled>>,
}

/// Time after a fault within which events may be its consequence.
const AFTERMATH_MS: i64 = 3_000;

/// Number of steps from which on a store may have dropped some after the first.
const MANY_STEPS: usize = 48;

impl<'a> Life<'a> {
    /// Returns the command, if all events agree on it.
    pub(crate) fn command(&self) -> Option<&'a Command> {
        self.commands.first().copied().filter(|_| self.commands.len() == 1)
    }

    /// Returns the record as last seen.
    pub(crate) fn record(&self) -> Option<At<'a, Record>> {
        self.looks.last().copied()
    }

    /// Returns the steps of the record as last seen.
    pub(crate) fn steps(&self) -> &'a [Step] {
        self.record().map_or(&[], |(_, record)| &record.steps)
    }

    /// Returns true if some steps may be missing.
    pub(crate) fn has_gaps(&self) -> bool {
        self.steps().len() >= MANY_STEPS
    }

    /// Returns the names of the effects, in the ledger and in rows of services.
    pub(crate) fn effect_names(&self) -> Vec<&'a str> {
        let effects = self.effects.iter().map(|(_, effect)| effect.effect.as_str());
        effects.chain(self.commits.iter().map(|(_, row)| row.effect.as_str())).collect()
    }

    /// Returns the lines of the effects.
    pub(crate) fn effect_lines(&self) -> Vec<usize> {
        self.effects.iter().map(|(line, _)| *line).chain(self.commits.iter().map(|(line, _)| *line)).collect()
    }

    /// Returns the names of the effects of this part, in rows and in the provider's ledger.
    pub(crate) fn effects_of(&self, part: &str) -> Vec<&'a str> {
        let rows = self.parts.iter().filter(|(_, row)| row.part.as_deref() == Some(part));
        let charges = self.charges.iter().filter(|(_, charge)| charge.part == part);
        rows.map(|(_, row)| row.effect.as_str())
            .chain(charges.map(|(_, charge)| charge.effect.as_str()))
            .collect()
    }

    /// Returns the parts that have an effect.
    pub(crate) fn parts_with_effects(&self) -> BTreeSet<&'a str> {
        let rows = self.parts.iter().filter_map(|(_, row)| row.part.as_deref());
        rows.chain(self.charges.iter().map(|(_, charge)| charge.part.as_str())).collect()
    }

    /// Returns the operation from the record or the command.
    pub(crate) fn operation(&self) -> Option<&'a str> {
        let recorded = self.record().map(|(_, record)| record.operation.as_str());
        recorded.or(self.commands.first().map(|command| command.operation.as_str()))
    }

    /// Returns the final answers.
    pub(crate) fn finals(&self, book: &Book<'a>) -> Vec<(&'a Invoked, At<'a, Answered>)> {
        let requests = self.answers.iter().filter_map(|number| book.requests.get(number));
        let finals = requests.filter(|request| request.kind().is_some_and(Kind::is_final));
        finals.filter_map(|request| Some((request.invoked.1, request.answered?))).collect()
    }

    /// Returns the lines of all events about this operation id, for a story.
    pub(crate) fn lines(&self, book: &Book<'a>) -> Vec<usize> {
        let requests = self.answers.iter().filter_map(|number| book.requests.get(number));
        let mut lines: Vec<usize> = requests
            .flat_map(|request| [Some(request.invoked.0), request.ended()])
            .flatten()
            .chain(self.calls.iter().map(|(line, _)| *line))
            .chain(self.effect_lines())
            .chain(self.parts.iter().map(|(line, _)| *line))
            .chain(self.requested.iter().map(|(line, _)| *line))
            .chain(self.charges.iter().map(|(line, _)| *line))
            .chain(self.declines.iter().map(|(line, _)| *line))
            .chain(self.phases.iter().map(|(line, _)| *line))
            .chain(self.looks.last().map(|(line, _)| *line))
            .chain(self.gone.iter().map(|(line, _)| *line))
            .chain(self.evidence.iter().map(|(line, _)| *line))
            .chain(self.rulings.iter().map(|(line, _)| *line))
            .collect();
        lines.sort_unstable();
        lines
    }
}

impl<'a> Book<'a> {
    /// Indexes a history, if it is complete.
    pub(crate) fn of(events: &'a [Event]) -> Result<Book<'a>, Malformed> {
        let Some(Event::Run(run)) = events.first() else {
            return Err(Malformed("the first event of a history is `run`".into()));
        };
        let ends = |event: &&Event| matches!(event, Event::Looked(Looked { last: true, .. }));
        let last = events.iter().rposition(|event| ends(&event));
        let Some((line, Event::Looked(last))) = last.map(|line| (line, &events[line])) else {
            return Err(Malformed(
                "the history has no end: no `looked` says that it is the last. Whoever wrote it was cut off"
                    .into(),
            ));
        };
        let mut book = Book {
            events,
            run,
            requests: BTreeMap::new(),
            commands: BTreeMap::new(),
            operations: BTreeMap::new(),
            looks: BTreeMap::new(),
            last_look: (line, last),
            canaries: BTreeMap::new(),
        };
        for (line, event) in events.iter().enumerate() {
            book.enter(line, event).map_err(|why| Malformed(format!("line {}: {why}", line + 1)))?;
        }
        Ok(book)
    }

    fn enter(&mut self, line: usize, event: &'a Event) -> Result<(), String> {
        match event {
            Event::Run(_) if line > 0 => return Err("a history has one `run`".into()),
            Event::Invoked(invoked) => {
                let request = Request { invoked: (line, invoked), answered: None, lost: None };
                if self.requests.insert(invoked.request, request).is_some() {
                    return Err(format!("request {} was invoked before", invoked.request));
                }
                if !self.run.operations.contains_key(&invoked.command.operation) {
                    return Err(format!("`run` does not name the operation {}", invoked.command.operation));
                }
                self.commands.entry(&invoked.command).or_default().push(invoked.request);
                self.canaries.insert(&invoked.canary, (&invoked.command, invoked.payload));
            }
            Event::Answered(answered) => {
                let request = self.open_request(answered.request)?;
                request.answered = Some((line, answered));
                let command = &request.invoked.1.command;
                // A "duplicate" answer names the operation id of the reference's holder, not its own.
                if let Some(id) = &answered.operation_id
                    && Kind::of(answered) != Kind::Duplicate
                {
                    let life = self.life(id);
                    life.answers.push(answered.request);
                    life.commands.insert(command);
                }
            }
            Event::Lost(lost) => self.open_request(lost.request)?.lost = Some(line),
            Event::Called(called) => {
                let life = self.life(&called.operation_id);
                life.calls.push((line, called));
                life.commands.insert(&called.command);
            }
            Event::Effect(effect) => {
                let life = self.life(&effect.operation_id);
                life.effects.push((line, effect));
                life.commands.insert(&effect.command);
            }
            Event::Looked(looked) => {
                if self.looks.insert(looked.look, (line, looked)).is_some() {
                    return Err(format!("there was a look {} before", looked.look));
                }
            }
            Event::Record(record) => {
                self.known_look(record.look)?;
                self.life(&record.operation_id).looks.push((line, record));
            }
            Event::Gone(gone) => {
                self.known_look(gone.look)?;
                self.life(&gone.operation_id).gone.push((line, gone));
            }
            Event::Evidence(evidence) => {
                self.life(&evidence.operation_id).evidence.push((line, evidence));
            }
            Event::Ruled(ruled) => self.life(&ruled.operation_id).rulings.push((line, ruled)),
            Event::Committed(row) if row.part.is_none() => {
                self.life(&row.operation_id).commits.push((line, row));
            }
            Event::Committed(row) => self.life(&row.operation_id).parts.push((line, row)),
            Event::Requested(call) => self.life(&call.operation_id).requested.push((line, call)),
            Event::Charged(charge) => self.life(&charge.operation_id).charges.push((line, charge)),
            Event::Declined(refusal) => self.life(&refusal.operation_id).declines.push((line, refusal)),
            Event::Phase(phase) => {
                self.known_look(phase.look)?;
                self.life(&phase.operation_id).phases.push((line, phase));
            }
            Event::Run(_)
            | Event::Fault(_)
            | Event::Quiet(_)
            | Event::Metrics(_)
            | Event::Message(_)
            | Event::Delivered(_)
            | Event::Intervention(_)
            | Event::Intervened(_) => {}
        }
        Ok(())
    }

    fn life(&mut self, id: &'a str) -> &mut Life<'a> {
        self.operations.entry(id).or_default()
    }

    fn open_request(&mut self, number: u64) -> Result<&mut Request<'a>, String> {
        let request =
            self.requests.get_mut(&number).ok_or_else(|| format!("request {number} was not invoked"))?;
        if request.ended().is_some() {
            return Err(format!("request {number} had ended before"));
        }
        Ok(request)
    }

    fn known_look(&self, look: u32) -> Result<(), String> {
        if self.looks.contains_key(&look) { Ok(()) } else { Err(format!("there was no look {look}")) }
    }

    /// Returns the mode of an operation.
    pub(crate) fn mode(&self, operation: &str) -> Option<Mode> {
        self.run.operations.get(operation).map(|operation| operation.mode)
    }

    /// Returns the mode of this command's operation.
    pub(crate) fn mode_of(&self, life: &Life<'a>) -> Option<Mode> {
        life.operation().and_then(|operation| self.mode(operation))
    }

    /// Returns the time to live of the operation's settled records.
    pub(crate) fn ttl(&self, operation: &str) -> i64 {
        self.run.operations.get(operation).map_or(i64::MAX, |operation| operation.ttl_ms)
    }

    /// Returns begin and end of a look.
    pub(crate) fn look(&self, look: u32) -> (i64, i64) {
        self.looks.get(&look).map_or((0, 0), |(_, looked)| (looked.begun, looked.at))
    }

    /// Returns the faults shortly before one of these lines, as possible causes.
    fn faults(&self, lines: &[usize]) -> Vec<usize> {
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return Vec::new() };
        let times: Vec<i64> = lines.iter().filter_map(|line| when(&self.events[*line])).collect();
        let between = self.events.iter().enumerate().take(last + 1).skip(*first);
        let faults = between.filter_map(|(line, event)| match event {
            Event::Fault(fault) => Some((line, fault.at)),
            _ => None,
        });
        let near = |at: i64| times.iter().any(|time| (at..at + AFTERMATH_MS).contains(time));
        faults.filter(|(_, at)| near(*at)).map(|(line, _)| line).collect()
    }

    /// Returns the story of one operation id: its events, and the faults meanwhile.
    pub(crate) fn story(&self, life: &Life<'a>) -> Vec<usize> {
        let mut lines = life.lines(self);
        lines.extend(self.faults(&lines));
        lines.sort_unstable();
        lines
    }
}
