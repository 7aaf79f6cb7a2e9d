//! Clients: several of them retry each command until it has a final answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_chaos::process::Member;
use semel_chaos::{client, reading};
use semel_checker::Event;
use semel_checker::event::{Answered, Invoked, Lost};
use semel_testkit::Chance;
use tokio::task::JoinSet;

use crate::asked::Asked;
use crate::world::World;

/// Number of commands that clients pursue at the same time.
const PURSUITS: u64 = 12;
/// Number of tries before a client leaves a command for later.
const TRIES: u32 = 6;
/// Largest number of new commands per second of a run.
const MOST_A_SECOND: u64 = 60;
/// Percentages of clients that return to an older command, send another payload, or hang up.
const RETURNING: u64 = 25;
const TAMPERING: u64 = 10;
const LEAVING: u64 = 4;
/// After faults stop: retries at each gateway, new commands, and tries of each new command.
const QUIET_REPLAYS: u64 = 60;
const QUIET_COMMANDS: u64 = 40;
const QUIET_TRIES: usize = 200;

/// Meaning of an answer for a client that retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer will not change.
    Final,
    /// The client must retry.
    Open,
}

/// Sends commands until faults stop.
pub(crate) async fn run(world: &Arc<World>) {
    let mut pursuits = JoinSet::new();
    for number in 0..PURSUITS {
        let chance = Chance::of(world.options.seed, &format!("pursuit {number}"));
        pursuits.spawn(pursue_all(world.clone(), chance));
    }
    while pursuits.join_next().await.is_some() {}
}

async fn pursue_all(world: Arc<World>, mut chance: Chance) {
    let most = MOST_A_SECOND * world.options.time.as_secs().max(1);
    while world.is_breaking() {
        let known = world.commands.load(Ordering::SeqCst);
        let number = if known > 0 && (known >= most || chance.percent(RETURNING)) {
            chance.below(known)
        } else {
            world.commands.fetch_add(1, Ordering::SeqCst)
        };
        let asked = Asked::number(world.options.seed, number, world.options.broken);
        let mut clients = JoinSet::new();
        for _ in 0..1 + chance.below(3) {
            clients.spawn(pursue(world.clone(), asked.clone(), 0, Chance::new(chance.draw())));
        }
        if chance.percent(TAMPERING) {
            clients.spawn(pursue(world.clone(), asked, 1, Chance::new(chance.draw())));
        }
        while clients.join_next().await.is_some() {}
        tokio::time::sleep(chance.millis(0, 40)).await;
    }
}

/// Pursues one command as one client.
async fn pursue(world: Arc<World>, asked: Asked, payload: u32, mut chance: Chance) {
    for tries in 0..TRIES {
        if !world.is_breaking() {
            return;
        }
        let leaves = chance.percent(LEAVING).then(|| chance.millis(0, 60));
        let end = match choose(&world, &asked, &mut chance) {
            Some(member) => ask(&world, &asked, payload, member, leaves).await,
            None => End::Open,
        };
        if end == End::Final && !chance.percent(30) {
            return;
        }
        tokio::time::sleep(chance.millis(5, 40 << tries)).await;
    }
}

/// Returns the member to ask: any running gateway, or the service for its own commands.
fn choose<'a>(world: &'a World, asked: &Asked, chance: &mut Chance) -> Option<&'a Member> {
    let member = if asked.is_local() {
        &world.service
    } else {
        &world.gateways[chance.below(world.gateways.len() as u64) as usize]
    };
    member.address().is_some().then_some(member)
}

/// Sends one request, and records it with its answer.
pub(crate) async fn ask(
    world: &World,
    asked: &Asked,
    payload: u32,
    member: &Member,
    leaves: Option<Duration>,
) -> End {
    let (Some(address), Ok(message)) = (member.address(), asked.request(payload)) else { return End::Open };
    let request = world.requests.fetch_add(1, Ordering::SeqCst);
    let mut cut = member.cut.subscribe();
    let invoked = Invoked {
        at: 0,
        request,
        gateway: member.name.clone(),
        command: asked.command.clone(),
        payload,
        canary: asked.canary(payload),
        reference: asked.reference.clone(),
    };
    world.scribe.note(|at| Event::Invoked(Invoked { at, ..invoked }));
    let leaving = async {
        match leaves {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let reply = tokio::select! {
        reply = client::send(address, message) => reply,
        _ = cut.changed() => Err("the connection was cut".to_owned()),
        () = leaving => Err("the client hung up".to_owned()),
    };
    match reply {
        Ok(reply) => {
            let answered = reading::answered(request, &reply);
            let end = meaning(&answered);
            world.scribe.note(|at| Event::Answered(Answered { at, ..answered }));
            end
        }
        Err(why) => {
            world.scribe.note(|at| Event::Lost(Lost { at, request, why }));
            End::Open
        }
    }
}

fn meaning(answer: &Answered) -> End {
    let settled = ["IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", "DUPLICATE_BUSINESS_REFERENCE"];
    let refused = answer.code.as_deref().is_some_and(|code| settled.contains(&code));
    if refused || answer.expires.is_some() { End::Final } else { End::Open }
}

/// Retries every command at any gateway until it has a final answer. Returns the commands without one.
pub(crate) async fn retry_all(world: &Arc<World>, patience: Duration) -> Vec<String> {
    let deadline = Instant::now() + patience;
    let all = world.commands.load(Ordering::SeqCst);
    let mut waiting: Vec<u64> = (0..all).collect();
    let mut chance = Chance::of(world.options.seed, "retries");
    while !waiting.is_empty() && Instant::now() < deadline {
        let mut still = Vec::new();
        for numbers in waiting.chunks(PURSUITS as usize) {
            let mut requests = JoinSet::new();
            for number in numbers.iter().copied() {
                let (world, mut chance) = (world.clone(), Chance::new(chance.draw()));
                requests.spawn(async move {
                    let asked = Asked::number(world.options.seed, number, world.options.broken);
                    match choose(&world, &asked, &mut chance) {
                        Some(member) => (number, ask(&world, &asked, 0, member, None).await),
                        None => (number, End::Open),
                    }
                });
            }
            while let Some(done) = requests.join_next().await {
                if let Ok((number, End::Open)) = done {
                    still.push(number);
                }
            }
        }
        waiting = still;
        if !waiting.is_empty() {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
    waiting
        .iter()
        .map(|number| Asked::number(world.options.seed, *number, world.options.broken).command.to_string())
        .collect()
}

/// Sends requests after faults have stopped, each to one gateway: replays, other payloads, new commands and
/// duplicates.
pub(crate) async fn quiet(world: &Arc<World>) {
    let known = world.commands.load(Ordering::SeqCst);
    let mut chance = Chance::of(world.options.seed, "quiet");
    for gateway in &world.gateways {
        for _ in 0..QUIET_REPLAYS.min(known) {
            let asked = Asked::number(world.options.seed, chance.below(known), world.options.broken);
            if !asked.is_local() {
                let payload = u32::from(chance.percent(TAMPERING));
                ask(world, &asked, payload, gateway, None).await;
            }
        }
    }
    let mut pursuits = JoinSet::new();
    for _ in 0..QUIET_COMMANDS {
        let number = world.commands.fetch_add(1, Ordering::SeqCst);
        let asked = Asked::number(world.options.seed, number, world.options.broken);
        for _ in 0..2 {
            let (world, asked, mut chance) = (world.clone(), asked.clone(), Chance::new(chance.draw()));
            pursuits.spawn(async move {
                for _ in 0..QUIET_TRIES {
                    if let Some(member) = choose(&world, &asked, &mut chance)
                        && ask(&world, &asked, 0, member, None).await == End::Final
                    {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
        if pursuits.len() >= PURSUITS as usize {
            pursuits.join_next().await;
        }
    }
    while pursuits.join_next().await.is_some() {}
}
