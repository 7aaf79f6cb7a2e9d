//! Second task of the operator: retries or discards dead messages, with the program of operators.

use semel_checker::Event;
use semel_checker::event::{Action, Intervened, Intervention};
use semel_testkit::Chance;
use tokio::process::Command;

use crate::looker::Looker;
use crate::world::World;
use semel_chaos::program::{PATIENCE, done};

/// Percentage of dead messages that are discarded. All others are retried.
const DISCARDED: u64 = 35;

/// Retries or discards every dead message.
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
