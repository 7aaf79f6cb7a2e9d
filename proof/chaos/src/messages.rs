//! The operator's other task: dead messages, which are sent again or discarded, with the program that operators have.

use semel_checker::Event;
use semel_checker::event::{Action, Intervened, Intervention};
use semel_testkit::Chance;
use tokio::process::Command;

use crate::looker::Looker;
use crate::program::{PATIENCE, done};
use crate::world::World;

/// So many in a hundred are discarded. All others are sent again.
const DISCARDED: u64 = 35;

/// Retries or discards every message that is dead.
pub(crate) async fn see_to_dead_ones(world: &World, looker: &Looker) {
    for event_id in looker.dead() {
        let discards = Chance::of(world.options.seed, &format!("{event_id} dead")).percent(DISCARDED);
        let action = if discards { Action::Discard } else { Action::Retry };
        if intervene(world, &event_id, action).await == Some(true) {
            looker.intervened(&event_id);
        }
    }
}

async fn intervene(world: &World, event_id: &str, action: Action) -> Option<bool> {
    let word = match action {
        Action::Retry => "retry",
        Action::Discard => "discard",
    };
    let id = event_id.to_owned();
    world.scribe.note(|at| Event::Intervention(Intervention { at, event_id: id, action }));
    let mut command = Command::from(world.semel());
    command.args(["outbox", word, event_id, "--reason", "the receiver was asked"]);
    let accepted = done(command, PATIENCE).await;
    let event_id = event_id.to_owned();
    world.scribe.note(|at| Event::Intervened(Intervened { at, event_id, action, accepted }));
    accepted
}
