//! Counts of a history, for display and to reject a run in which nothing happened.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Event;
use crate::kind::Kind;
use crate::situations;

/// Counts of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of commands that clients asked for.
    pub keys: usize,
    /// Number of requests.
    pub requests: usize,
    /// Number of answers, by kind.
    pub answers: BTreeMap<&'static str, usize>,
    /// Number of effects in ledgers and in rows of services.
    pub effects: usize,
    /// Number of faults, by kind.
    pub faults: BTreeMap<String, usize>,
    /// Number of records at the end, by state.
    pub records: BTreeMap<String, usize>,
    /// Number of operators' verdicts, by acceptance.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// Number of deliveries of messages.
    pub deliveries: usize,
    /// Number of times that each situation of commands in parts was met.
    pub situations: BTreeMap<&'static str, usize>,
    /// First required situation that the run has not met.
    lacking: Option<&'static str>,
}

impl Tally {
    /// Counts the events of a history.
    pub fn of(events: &[Event]) -> Tally {
        let mut tally = Tally::default();
        let mut keys = BTreeSet::new();
        let last = events.iter().rev().find_map(|event| match event {
            Event::Looked(looked) if looked.last => Some(looked.look),
            _ => None,
        });
        for event in events {
            match event {
                Event::Invoked(invoked) => {
                    keys.insert(&invoked.command);
                    tally.requests += 1;
                }
                Event::Answered(answer) => *tally.answers.entry(Kind::of(answer).as_str()).or_default() += 1,
                Event::Lost(_) => *tally.answers.entry("lost").or_default() += 1,
                Event::Effect(_) | Event::Committed(_) | Event::Charged(_) => tally.effects += 1,
                Event::Fault(fault) => *tally.faults.entry(fault.kind.clone()).or_default() += 1,
                Event::Record(record) if Some(record.look) == last => {
                    *tally.records.entry(record.state.clone()).or_default() += 1;
                }
                Event::Ruled(ruled) => {
                    let what = match ruled.accepted {
                        Some(true) => "counted",
                        Some(false) => "refused",
                        None => "nobody knows",
                    };
                    *tally.verdicts.entry(what).or_default() += 1;
                }
                Event::Delivered(_) => tally.deliveries += 1,
                Event::Run(_)
                | Event::Called(_)
                | Event::Looked(_)
                | Event::Record(_)
                | Event::Gone(_)
                | Event::Evidence(_)
                | Event::Quiet(_)
                | Event::Metrics(_)
                | Event::Message(_)
                | Event::Requested(_)
                | Event::Declined(_)
                | Event::Phase(_)
                | Event::Intervention(_)
                | Event::Intervened(_) => {}
            }
        }
        tally.keys = keys.len();
        tally.situations = situations::count(events);
        if let Some(Event::Run(run)) = events.first() {
            tally.lacking = situations::lacking(run, &tally.situations);
        }
        tally
    }

    /// Returns something that every meaningful history has and this one lacks.
    pub fn lacks(&self) -> Option<&'static str> {
        let told = |kind: Kind| self.answers.contains_key(kind.as_str());
        match () {
            () if self.effects == 0 => Some("an effect"),
            () if !told(Kind::Executed) => Some("a first answer"),
            () if !told(Kind::Replayed) => Some("a replay"),
            () if self.faults.is_empty() => Some("a fault"),
            () => self.lacking,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fn list<N: std::fmt::Display>(counts: &BTreeMap<N, usize>) -> String {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
        }
        writeln!(f, "  keys       {}", self.keys)?;
        writeln!(f, "  requests   {}", self.requests)?;
        writeln!(f, "  answers    {}", list(&self.answers))?;
        writeln!(f, "  effects    {}", self.effects)?;
        writeln!(f, "  messages   {} deliveries", self.deliveries)?;
        writeln!(f, "  verdicts   {}", list(&self.verdicts))?;
        writeln!(f, "  faults     {}", list(&self.faults))?;
        writeln!(f, "  records    {}", list(&self.records))?;
        write!(f, "  situations {}", list(&self.situations))
    }
}
