//! Observer of the store: reads the leader from outside while no fault lasts, and records what it finds.
//!
//! A look during a failover could see commits that no standby has yet, and that nobody was told about.

use std::collections::HashMap;

use semel_chaos::record::{Found, OBJECT, condition, from_json};
use semel_chaos::scribe::now;
use semel_checker::Event;
use semel_checker::event::{Looked, Record};

use crate::world::World;

/// Overlap with the last look: a change that was not committed then has an older time, and so has one of a leader
/// whose clock was shifted.
const OVERLAP_MS: i64 = 70_000;

/// Observer of the store.
#[derive(Default)]
pub(crate) struct Looker {
    looks: u32,
    since: Option<i64>,
    seen: HashMap<String, Record>,
}

/// Command that is not settled.
#[derive(Clone, Debug)]
pub(crate) struct Unsettled {
    pub(crate) operation_id: String,
    pub(crate) epoch: u32,
    /// End of the quarantine of an unknown outcome; `None` for a command that runs.
    pub(crate) quarantine_until: Option<i64>,
}

impl Looker {
    /// Looks at the records that may have changed, or at all for the last time. Returns those that are not settled.
    /// Blocks.
    pub(crate) fn look(&mut self, world: &World, last: bool) -> Result<Vec<Unsettled>, String> {
        let begun = now();
        let since = self.since.map(|since| since - OVERLAP_MS).filter(|_| !last);
        let rows = world.base.records(&format!("SELECT {OBJECT} FROM semel_records{}", condition(since)))?;
        let found: Vec<Found> =
            rows.lines().map(|line| from_json(line)?.into_found()).collect::<Result<_, _>>()?;
        self.looks += 1;
        self.since = Some(begun);
        let look = self.looks;
        world.scribe.note(|at| Event::Looked(Looked { at, look, begun, last }));
        let mut unsettled = Vec::new();
        for Found { record, quarantine_until } in found {
            match record.state.as_str() {
                "claimed" | "processing" => unsettled.push(Unsettled::of(&record, None)),
                "unknown" => {
                    unsettled.push(Unsettled::of(&record, Some(quarantine_until.unwrap_or(i64::MAX))));
                }
                _ => {}
            }
            let id = record.operation_id.clone();
            if self.seen.get(&id) != Some(&record) || last {
                let written = Record { look, ..record.clone() };
                world.scribe.note(|_| Event::Record(written));
                self.seen.insert(id, record);
            }
        }
        Ok(unsettled)
    }
}

impl Unsettled {
    fn of(record: &Record, quarantine_until: Option<i64>) -> Unsettled {
        Unsettled { operation_id: record.operation_id.clone(), epoch: record.epoch, quarantine_until }
    }
}
