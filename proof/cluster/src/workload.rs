//! Load: new commands at a steady rate, whatever becomes of earlier ones, and older ones that are asked for again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use semel_testkit::Chance;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::asked::Asked;
use crate::retrying::{End, execute};
use crate::world::World;

/// Largest number of commands that clients pursue at the same time; beyond it, no new one comes.
const MOST: usize = 400;
/// Number of commands that are pursued at the same time after faults.
const FEW: usize = 16;
/// Percentage of clients that ask for an older command again, and the number of commands among which they choose.
const RETURNING: u64 = 15;
const RECENT: u64 = 1_500;
/// Time after which a client gives up; the end of the run comes back to its command.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends commands until the load ends. Returns once no client waits.
pub(crate) async fn run(world: Arc<World>) {
    let mut chance = Chance::of(world.options.seed, "clients");
    let mut clients = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / world.options.rate.max(1)));
    // After a stall, the missed commands do not come at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while world.is_loaded() {
        ticks.tick().await;
        while clients.try_join_next().is_some() {}
        if clients.len() >= MOST {
            continue;
        }
        let known = world.commands.load(Ordering::SeqCst);
        let number = if known > 0 && chance.percent(RETURNING) {
            known - 1 - chance.below(known.min(RECENT))
        } else {
            let number = world.commands.fetch_add(1, Ordering::SeqCst);
            world.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
            number
        };
        clients.spawn(pursue(world.clone(), number, PATIENCE, Chance::new(chance.draw())));
    }
    while clients.join_next().await.is_some() {}
}

async fn pursue(world: Arc<World>, number: u64, patience: Duration, chance: Chance) {
    let asked = Asked::number(world.options.seed, number);
    if execute(&world, &asked, patience, chance).await == End::Final {
        world.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

/// Asks for every command without a final answer, until a deadline. Returns those that still have none.
pub(crate) async fn retry_open(world: &Arc<World>, deadline: Instant) -> Vec<String> {
    let mut chance = Chance::of(world.options.seed, "retries");
    loop {
        let open: Vec<u64> =
            world.open.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        if open.is_empty() || Instant::now() > deadline {
            let name = |number: &u64| Asked::number(world.options.seed, *number).command.to_string();
            return open.iter().map(name).collect();
        }
        ask_all(world, &open, Duration::from_secs(5), &mut chance).await;
    }
}

/// Asks again for some of all commands, so that every gateway has to find their answers.
pub(crate) async fn replay_some(world: &Arc<World>, most: u64, patience: Duration) {
    let mut chance = Chance::of(world.options.seed, "replays");
    let known = world.commands.load(Ordering::SeqCst);
    let numbers: Vec<u64> = (0..most.min(known)).map(|_| chance.below(known)).collect();
    ask_all(world, &numbers, patience, &mut chance).await;
}

async fn ask_all(world: &Arc<World>, numbers: &[u64], patience: Duration, chance: &mut Chance) {
    let mut clients = JoinSet::new();
    for number in numbers {
        if clients.len() >= FEW {
            clients.join_next().await;
        }
        clients.spawn(pursue(world.clone(), *number, patience, Chance::new(chance.draw())));
    }
    while clients.join_next().await.is_some() {}
}
