//! Observer of the store: reads it from outside at intervals, and records changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_checker::Event;
use semel_checker::event::{Committed, Gone, Looked, Message, Phase, PhaseProgress, Record};

use crate::tables::{Found, Sent};
use crate::world::World;
use semel_chaos::scribe::now;

/// Interval between looks, and number of looks between two looks at everything.
const PAUSE: Duration = Duration::from_millis(1_200);
const EVERYTHING: u32 = 5;
/// Overlap with the last look: a change that was not committed then has an older time.
const OVERLAP_MS: i64 = 10_000;

/// Observer of the store.
pub(crate) struct Looker {
    world: Arc<World>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    looks: u32,
    since: i64,
    seen: HashMap<String, Record>,
    unknown: HashMap<String, Unknown>,
    /// Phases by command and name, and messages by event id.
    phases: HashMap<(String, String), PhaseProgress>,
    messages: HashMap<String, Sent>,
}

/// Command with an unknown outcome.
#[derive(Clone, Debug)]
pub(crate) struct Unknown {
    pub(crate) operation_id: String,
    pub(crate) operation: String,
    pub(crate) reason: String,
    pub(crate) epoch: u32,
    /// End of the quarantine, until which a call may be on its way.
    pub(crate) quarantine_until: i64,
    /// Phase whose call is open.
    pub(crate) open: Option<String>,
}

/// Number of commands that are not settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    /// Number of claimed or processing commands.
    pub(crate) running: usize,
    /// Number of unknown commands.
    pub(crate) unknown: usize,
}

impl Looker {
    pub(crate) fn new(world: Arc<World>) -> Arc<Looker> {
        Arc::new(Looker { world, state: Mutex::default() })
    }

    /// Looks until faults stop; after that, the run decides when to look.
    pub(crate) async fn run(self: Arc<Looker>) {
        let mut looks = 0;
        while self.world.is_breaking() {
            looks += 1;
            let all = looks % EVERYTHING == 0;
            // An unavailable store is looked at later.
            let _ = self.look(all, false).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Looks at everything, or at records that may have changed. The last look records every record.
    pub(crate) async fn look(self: &Arc<Looker>, all: bool, last: bool) -> Result<Open, String> {
        let looker = self.clone();
        let looked = tokio::task::spawn_blocking(move || looker.look_now(all, last)).await;
        looked.map_err(|error| error.to_string())?
    }

    fn look_now(&self, all: bool, last: bool) -> Result<Open, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = now();
        let since = (!all).then_some(state.since - OVERLAP_MS);
        let found = self.world.place.records(since)?;
        let (phases, messages) = (self.world.place.phases()?, self.world.place.messages()?);
        state.looks += 1;
        state.since = begun;
        let look = state.looks;
        self.world.scribe.note(|at| Event::Looked(Looked { at, look, begun, last }));
        self.note_phases(&mut state, phases, look);
        self.note_messages(&mut state, messages);
        let mut seen = std::mem::take(&mut state.seen);
        let mut here = HashMap::new();
        state.unknown.clear();
        let mut open = Open::default();
        for found in found {
            let record = found.record;
            match record.state.as_str() {
                "claimed" | "processing" => open.running += 1,
                "unknown" => {
                    open.unknown += 1;
                    let unknown = unknown(&state, &record, found.quarantine_until.unwrap_or(i64::MAX));
                    state.unknown.insert(record.operation_id.clone(), unknown);
                }
                _ => {}
            }
            let id = record.operation_id.clone();
            if seen.remove(&id).as_ref() != Some(&record) || last {
                let written = Record { look, ..record.clone() };
                self.world.scribe.note(|_| Event::Record(written));
            }
            here.insert(id, record);
        }
        for (operation_id, record) in seen {
            if all {
                self.world.scribe.note(|_| Event::Gone(Gone { look, operation_id }));
            } else {
                here.insert(operation_id, record);
            }
        }
        state.seen = here;
        Ok(open)
    }

    /// Records the changed phases. Any look after a phase was done finds it done.
    fn note_phases(&self, state: &mut State, phases: Vec<Found>, look: u32) {
        let mut here = HashMap::new();
        let note = |operation_id: &String, phase: &String, progress| {
            let (operation_id, phase) = (operation_id.clone(), phase.clone());
            self.world.scribe.note(|_| Event::Phase(Phase { look, operation_id, phase, progress }));
        };
        for Found { operation_id, phase, progress } in phases {
            let name = (operation_id, phase);
            if state.phases.remove(&name) != Some(progress) {
                note(&name.0, &name.1, progress);
            }
            here.insert(name, progress);
        }
        for (operation_id, phase) in state.phases.keys() {
            note(operation_id, phase, PhaseProgress::Gone);
        }
        state.phases = here;
    }

    fn note_messages(&self, state: &mut State, messages: Vec<Sent>) {
        let mut here = HashMap::new();
        for sent in messages {
            if state.messages.get(&sent.event_id) != Some(&sent) {
                self.note_message(sent.clone());
            }
            here.insert(sent.event_id.clone(), sent);
        }
        state.messages = here;
    }

    fn note_message(&self, sent: Sent) {
        let Sent { event_id, operation_id, state } = sent;
        self.world.scribe.note(|at| Event::Message(Message { at, event_id, operation_id, state }));
    }

    /// Returns the unknown commands of the last look.
    pub(crate) fn unknown(&self) -> Vec<Unknown> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unknown: Vec<_> = state.unknown.values().cloned().collect();
        unknown.sort_by(|one, other| one.operation_id.cmp(&other.operation_id));
        unknown
    }

    /// Returns the dead messages of the last look.
    pub(crate) fn dead(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let dead = state.messages.values().filter(|sent| sent.state == "dead");
        let mut dead: Vec<String> = dead.map(|sent| sent.event_id.clone()).collect();
        dead.sort();
        dead
    }

    /// Returns true if the last look has found this message.
    pub(crate) fn has_message(&self, event_id: &str) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).messages.contains_key(event_id)
    }

    /// Notes an intervention in this message; the next look shows its result.
    pub(crate) fn intervened(&self, event_id: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sent) = state.messages.get_mut(event_id) {
            sent.state = "pending".to_owned();
        }
    }

    /// Notes that this command is settled; the next look shows it.
    pub(crate) fn settled(&self, operation_id: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).unknown.remove(operation_id);
    }

    /// Records the rows and messages of the service.
    pub(crate) async fn look_at_service(&self) -> Result<(), String> {
        let world = self.world.clone();
        let looked = tokio::task::spawn_blocking(move || {
            for row in world.place.rows()? {
                world.scribe.note(|at| Event::Committed(Committed { at, ..row }));
            }
            for Sent { event_id, operation_id, state } in world.place.messages()? {
                world.scribe.note(|at| Event::Message(Message { at, event_id, operation_id, state }));
            }
            Ok(())
        });
        looked.await.map_err(|error| error.to_string())?
    }

    /// Returns the number of undelivered messages.
    pub(crate) async fn undelivered(&self) -> Result<usize, String> {
        let world = self.world.clone();
        let messages = tokio::task::spawn_blocking(move || world.place.messages()).await;
        let messages = messages.map_err(|error| error.to_string())??;
        Ok(messages.iter().filter(|message| message.state != "delivered").count())
    }
}

fn unknown(state: &State, record: &Record, quarantine_until: i64) -> Unknown {
    let open = state.phases.iter().find(|((operation_id, _), progress)| {
        *operation_id == record.operation_id && **progress == PhaseProgress::Begun
    });
    Unknown {
        operation_id: record.operation_id.clone(),
        operation: record.operation.clone(),
        reason: record.reason.clone(),
        epoch: record.epoch,
        quarantine_until,
        open: open.map(|((_, phase), _)| phase.clone()),
    }
}
