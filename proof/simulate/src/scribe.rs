//! Recorder of a run: the history to judge, and the trace whose hash tells if two runs were equal.

use std::collections::BTreeMap;

use semel_checker::Event;
use semel_checker::event::{Gone, Looked, Record};
use sha2::{Digest, Sha256};

use crate::coverage::Coverage;
use crate::reading;
use crate::settings::EPOCH;

/// Recorder of a run.
pub(crate) struct Scribe {
    pub(crate) events: Vec<Event>,
    hash: Sha256,
    trace: Option<Vec<String>>,
    looks: u32,
    seen: BTreeMap<String, Record>,
}

/// Recorded run.
pub(crate) struct Written {
    pub(crate) events: Vec<Event>,
    pub(crate) hash: String,
    pub(crate) trace: Vec<String>,
}

impl Scribe {
    /// Returns an empty recorder, which keeps the trace itself only if `keeps_trace`.
    pub(crate) fn new(keeps_trace: bool) -> Scribe {
        let trace = keeps_trace.then(Vec::new);
        Scribe { events: Vec::new(), hash: Sha256::new(), trace, looks: 0, seen: BTreeMap::new() }
    }

    /// Adds a line to the trace.
    pub(crate) fn say(&mut self, now: u64, line: &str) {
        self.hash.update(now.to_be_bytes());
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>4}.{:03}  {line}", now / 1000, now % 1000));
        }
    }

    /// Adds an event to the history and to the trace.
    pub(crate) fn note(&mut self, now: u64, event: Event) {
        let line = serde_json::to_string(&event).unwrap_or_else(|error| format!("unwritable: {error}"));
        self.say(now, &line);
        self.events.push(event);
    }

    /// Reads the store, and records all rows or only the changed ones.
    pub(crate) fn look(
        &mut self,
        now: u64,
        records: &[semel_core::Record],
        last: bool,
        coverage: &mut Coverage,
    ) {
        self.looks += 1;
        let (look, at) = (self.looks, EPOCH + now as i64);
        self.note(now, Event::Looked(Looked { at, look, begun: at, last }));
        let mut before = std::mem::take(&mut self.seen);
        for record in records {
            let read = reading::record(look, record);
            let known = before.remove(&read.operation_id);
            let steps = known.as_ref().map_or(0, |known| known.steps.len());
            record.history.steps().skip(steps).for_each(|step| coverage.stepped(step.reason));
            let same = known.is_some_and(|known| Record { look, ..known } == read);
            if !same || last {
                self.note(now, Event::Record(read.clone()));
            }
            self.seen.insert(read.operation_id.clone(), read);
        }
        for (operation_id, _) in before {
            self.note(now, Event::Gone(Gone { look, operation_id }));
        }
    }

    /// Returns the recorded run.
    pub(crate) fn finish(self) -> Written {
        let hash = self.hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Written { events: self.events, hash, trace: self.trace.unwrap_or_default() }
    }
}
