//! One run: load with faults for a while, then without faults until everything is settled; then the judgement.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_chaos::judgement::{Outcome, judge, read};
use semel_checker::event::{Quiet, Run};
use semel_checker::{Event, Tally};

use crate::looker::Looker;
use crate::settings::{Options, SWEEP, millis, operations};
use crate::world::World;
use crate::{faults, operator, upgrade, workload};
use semel_chaos::scribe::Scribe;

/// Longest time to settle everything after faults stop. Generous: a slow machine is not a violation.
const PATIENCE: Duration = Duration::from_secs(180);
/// Longer load of a run that has not met every situation yet: how long at a time, and how many times at most.
const LONGER: Duration = Duration::from_secs(15);
const LONGER_TIMES: u32 = 10;
/// Rounding of times: PostgreSQL's store rounds to the nearest millisecond; times of the history are truncated.
const ROUNDING_MS: i64 = 1;

/// Runs, and then judges the history.
pub(crate) async fn run(options: Options, folder: &Path, history: &Path) -> Result<Outcome, String> {
    let scribe = Arc::new(Scribe::create(history)?);
    let (store, seed) = (options.store.as_str().to_owned(), options.seed);
    let (sweep_ms, rounding_ms, operations) = (millis(SWEEP), ROUNDING_MS, operations());
    scribe.note(|at| Event::Run(Run { at, store, seed, sweep_ms, rounding_ms, operations }));
    let world = World::start(options, folder.to_owned(), scribe.clone()).await?;
    let unfinished = drive(&world).await?;
    scribe.finish()?;
    // Gateways and servers end here.
    drop(world);
    judge(&read(history)?, unfinished)
}

async fn drive(world: &Arc<World>) -> Result<Vec<String>, String> {
    let looker = Looker::new(world.clone());
    let stalls = tokio::spawn(world.clone().watch_for_stalls());
    let operator = tokio::spawn(operator::run(world.clone(), looker.clone()));
    // This gateway is never killed: it counts from here to the end.
    world.read_metrics(&world.gateways[0]).await?;

    tokio::spawn(end_load(world.clone()));
    let looking = tokio::spawn(looker.clone().run());
    let kills = tokio::spawn(faults::kill_processes(world.clone()));
    let stops = tokio::spawn(faults::stop_processes(world.clone()));
    let connections = tokio::spawn(faults::break_connections(world.clone()));
    let rolling = tokio::spawn(upgrade::roll(world.clone()));
    workload::run(world).await;
    for breaking in [kills, stops, connections, rolling] {
        breaking.await.map_err(|error| error.to_string())??;
    }
    looking.await.map_err(|error| error.to_string())?;

    faults::heal(world).await?;
    world.scribe.note(|at| Event::Quiet(Quiet { at }));
    let mut unfinished = settle(world, &looker).await?;
    if unfinished.is_empty() {
        for gateway in &world.gateways {
            world.read_metrics(gateway).await?;
        }
        workload::quiet(world).await;
        come_to_an_end(&looker, Instant::now() + PATIENCE).await?;
        for gateway in &world.gateways {
            world.read_metrics(gateway).await?;
        }
    }
    unfinished.extend(upgrade::lacks(world)?);
    // The service's code ends its own transactions after faults stop, too: the operator settles those unknown
    // outcomes.
    operator.abort();
    stalls.abort();
    looker.look(true, true).await?;
    looker.look_at_service().await?;
    Ok(unfinished)
}

/// Ends load and faults after the time of the run, or later if the history lacks a rare situation until then: chance
/// alone must not fail a run.
async fn end_load(world: Arc<World>) {
    tokio::time::sleep(world.options.time).await;
    for _ in 0..LONGER_TIMES {
        let scribe = world.scribe.clone();
        let lacks = tokio::task::spawn_blocking(move || lacks(&scribe)).await;
        let Ok(Ok(Some(lacks))) = lacks else { break };
        if world.options.broken {
            break;
        }
        println!("the history has not once {lacks} yet: {} s more", LONGER.as_secs());
        tokio::time::sleep(LONGER).await;
    }
    world.breaking.store(false, Ordering::SeqCst);
}

/// Returns a situation that the history lacks so far.
fn lacks(scribe: &Scribe) -> Result<Option<&'static str>, String> {
    let written = scribe.written()?;
    let events = semel_checker::read(&written[..]).map_err(|error| error.to_string())?;
    Ok(Tally::of(&events).lacks())
}

/// Retries everything until it is settled. Returns the commands that are not.
async fn settle(world: &Arc<World>, looker: &Arc<Looker>) -> Result<Vec<String>, String> {
    let deadline = Instant::now() + PATIENCE;
    let looks = tokio::spawn({
        let looker = looker.clone();
        async move {
            loop {
                let _ = looker.look(true, false).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    });
    let mut unfinished = workload::retry_all(world, PATIENCE).await;
    let left = come_to_an_end(looker, deadline).await?;
    looks.abort();
    unfinished.extend(left);
    for member in world.gateways.iter().chain([&world.service]) {
        if member.has_ended() {
            unfinished.push(format!("{} has ended by itself", member.name));
        }
    }
    Ok(unfinished)
}

/// Waits until no command runs, none is unknown and every message is delivered. Returns the rest, if any.
async fn come_to_an_end(looker: &Arc<Looker>, deadline: Instant) -> Result<Option<String>, String> {
    loop {
        let open = looker.look(true, false).await?;
        let messages = looker.undelivered().await?;
        if open.running == 0 && open.unknown == 0 && messages == 0 {
            return Ok(None);
        }
        if Instant::now() > deadline {
            return Ok(Some(format!(
                "{} commands still run, {} are unknown, {messages} messages are not delivered",
                open.running, open.unknown
            )));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
