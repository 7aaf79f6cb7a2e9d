//! How much happened in a history: for people, and so that a run in which nothing happened is not taken for a good one.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Event;
use crate::kind::Kind;
use crate::situations;

/// How much happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Commands that somebody asked for.
    pub keys: usize,
    /// How often they did.
    pub requests: usize,
    /// What they were told.
    pub answers: BTreeMap<&'static str, usize>,
    /// Effects in the ledger, and rows of services.
    pub effects: usize,
    /// What was broken.
    pub faults: BTreeMap<String, usize>,
    /// Where records stood at the end.
    pub records: BTreeMap<String, usize>,
    /// What operators said, and whether it counted.
    pub verdicts: BTreeMap<&'static str, usize>,
    /// Messages that reached their receiver, each time.
    pub deliveries: usize,
    /// Situations of commands in parts, and how often each was met.
    pub situations: BTreeMap<&'static str, usize>,
    /// The first situation that the run should have met and has not.
    lacking: Option<&'static str>,
}

impl Tally {
    /// Of this history.
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

    /// What a history that proves anything has, and this one lacks.
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
