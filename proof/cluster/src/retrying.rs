//! Client that retries: one command, the same key, bounded waits, another gateway for each try.
//!
//! `execute` is the only place at which a run asks for a command, so that another client can take its place.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_chaos::{client, reading};
use semel_checker::Event;
use semel_checker::event::{Answered, Invoked, Lost};
use semel_testkit::Chance;

use crate::asked::Asked;
use crate::world::World;

/// Longest time for one answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Shortest and longest wait between two tries, in milliseconds.
const SHORTEST_WAIT: u64 = 100;
const LONGEST_WAIT: u64 = 2_000;

/// Meaning of the last answer for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer will not change.
    Final,
    /// The client gives up, and may come back.
    Open,
}

/// Asks for a command until it has a final answer, for this long.
pub(crate) async fn execute(world: &World, asked: &Asked, patience: Duration, mut chance: Chance) -> End {
    let deadline = Instant::now() + patience;
    let first = chance.index(world.gateways.len());
    for tries in 0_u32.. {
        let gateway = (first + tries as usize) % world.gateways.len();
        if ask(world, asked, gateway).await == End::Final {
            return End::Final;
        }
        let longest = LONGEST_WAIT.min(SHORTEST_WAIT << tries.min(10));
        let wait = chance.millis(longest / 2, longest);
        if Instant::now() + wait > deadline {
            break;
        }
        tokio::time::sleep(wait).await;
    }
    End::Open
}

/// Sends one request, and records it with its answer.
async fn ask(world: &World, asked: &Asked, gateway: usize) -> End {
    let member = &world.gateways[gateway];
    let (Some(address), Ok(message)) = (member.address(), asked.request()) else { return End::Open };
    let request = world.requests.fetch_add(1, Ordering::SeqCst);
    let invoked = Invoked {
        at: 0,
        request,
        gateway: member.name.clone(),
        command: asked.command.clone(),
        payload: 0,
        canary: asked.canary(),
        reference: None,
    };
    world.scribe.note(|at| Event::Invoked(Invoked { at, ..invoked }));
    match client::send_within(PATIENCE, address, message).await {
        Ok(reply) => {
            let answered = reading::answered(request, &reply);
            let (is_final, is_first) = (answered.expires.is_some(), !answered.replayed);
            let at = world.scribe.note(|at| Event::Answered(Answered { at, ..answered }));
            if is_final && is_first {
                world.acknowledge(gateway, at);
            }
            if is_final { End::Final } else { End::Open }
        }
        Err(why) => {
            world.scribe.note(|at| Event::Lost(Lost { at, request, why }));
            End::Open
        }
    }
}
