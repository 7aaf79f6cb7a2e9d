//! Looks at the store from outside, again and again, and writes down what changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_checker::Event;
use semel_checker::event::{Committed, Gone, Looked, Message, Record};

use crate::scribe::now;
use crate::world::World;

/// How often it looks for what changed, and of these looks, every so many is at everything.
const PAUSE: Duration = Duration::from_millis(1_200);
const EVERYTHING: u32 = 5;
/// By how much a look goes back behind the last one: what was about to be committed then has an older time.
const OVERLAP_MS: i64 = 10_000;

/// Looks at the store.
pub(crate) struct Looker {
    world: Arc<World>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    looks: u32,
    since: i64,
    seen: HashMap<String, Record>,
    unknown: HashMap<String, (i64, u32)>,
}

/// What is not at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    /// Claimed or processing.
    pub(crate) running: usize,
    /// Unknown.
    pub(crate) unknown: usize,
}

impl Looker {
    pub(crate) fn new(world: Arc<World>) -> Arc<Looker> {
        Arc::new(Looker { world, state: Mutex::default() })
    }

    /// Looks until nothing is broken any more; then others decide when.
    pub(crate) async fn run(self: Arc<Looker>) {
        let mut looks = 0;
        while self.world.is_breaking() {
            looks += 1;
            let all = looks % EVERYTHING == 0;
            // A store that is away is looked at later.
            let _ = self.look(all, false).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One look, at everything or at what may have changed. The last one writes down every record.
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
        state.looks += 1;
        state.since = begun;
        let look = state.looks;
        self.world.scribe.note(|at| Event::Looked(Looked { at, look, begun, last }));
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
                    let until = found.quarantine_until.unwrap_or(i64::MAX);
                    state.unknown.insert(record.operation_id.clone(), (until, record.epoch));
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

    /// Unknown commands, as the last look has them: until when a call may be on its way, and their last attempt.
    pub(crate) fn unknown(&self) -> Vec<(String, (i64, u32))> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unknown: Vec<_> = state.unknown.iter().map(|(id, until)| (id.clone(), *until)).collect();
        unknown.sort();
        unknown
    }

    /// This one is settled; the next look will tell.
    pub(crate) fn settled(&self, operation_id: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).unknown.remove(operation_id);
    }

    /// Writes down the rows and the messages of the service.
    pub(crate) async fn look_at_service(&self) -> Result<(), String> {
        let world = self.world.clone();
        let looked = tokio::task::spawn_blocking(move || {
            for (operation_id, effect) in world.place.transfers()? {
                world.scribe.note(|at| Event::Committed(Committed { at, operation_id, effect }));
            }
            for sent in world.place.messages()? {
                let (event_id, operation_id, state) = (sent.event_id, sent.operation_id, sent.state);
                world.scribe.note(|at| Event::Message(Message { at, event_id, operation_id, state }));
            }
            Ok(())
        });
        looked.await.map_err(|error| error.to_string())?
    }

    /// How many messages are not delivered.
    pub(crate) async fn undelivered(&self) -> Result<usize, String> {
        let world = self.world.clone();
        let messages = tokio::task::spawn_blocking(move || world.place.messages()).await;
        let messages = messages.map_err(|error| error.to_string())??;
        Ok(messages.iter().filter(|message| message.state != "delivered").count())
    }
}
