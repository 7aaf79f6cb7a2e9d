//! One run: load with faults for a while, then without faults until everything is settled; then the judgement.

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_checker::event::{Quiet, Run};
use semel_checker::{Event, Tally};

use crate::looker::Looker;
use crate::scribe::Scribe;
use crate::settings::{Options, SWEEP, millis, operations};
use crate::world::World;
use crate::{faults, operator, workload};

/// Longest time to settle everything after faults stop. Generous: a slow machine is not a violation.
const PATIENCE: Duration = Duration::from_secs(180);
/// Rounding of times: PostgreSQL's store rounds to the nearest millisecond; times of the history are truncated.
const ROUNDING_MS: i64 = 1;

/// Result of a run.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// Stories of the violations.
    pub(crate) stories: String,
    /// Numbers of the violated invariants.
    pub(crate) violated: Vec<u8>,
    /// Commands and messages that were not settled.
    pub(crate) unfinished: Vec<String>,
}

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
    judge(history, unfinished)
}

async fn drive(world: &Arc<World>) -> Result<Vec<String>, String> {
    let looker = Looker::new(world.clone());
    let stalls = tokio::spawn(world.clone().watch_for_stalls());
    let operator = tokio::spawn(operator::run(world.clone(), looker.clone()));
    // This gateway is never killed: it counts from here to the end.
    world.read_metrics(&world.gateways[0]).await?;

    let ending = world.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ending.options.time).await;
        ending.breaking.store(false, Ordering::SeqCst);
    });
    let looking = tokio::spawn(looker.clone().run());
    let kills = tokio::spawn(faults::kill_processes(world.clone()));
    let stops = tokio::spawn(faults::stop_processes(world.clone()));
    let connections = tokio::spawn(faults::break_connections(world.clone()));
    workload::run(world).await;
    for breaking in [kills, stops, connections] {
        breaking.await.map_err(|error| error.to_string())??;
    }
    looking.await.map_err(|error| error.to_string())?;

    faults::heal(world).await?;
    world.scribe.note(|at| Event::Quiet(Quiet { at }));
    let unfinished = settle(world, &looker).await?;
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
    // The service's code ends its own transactions after faults stop, too: the operator settles those unknown
    // outcomes.
    operator.abort();
    stalls.abort();
    looker.look(true, true).await?;
    looker.look_at_service().await?;
    Ok(unfinished)
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

fn judge(history: &Path, unfinished: Vec<String>) -> Result<Outcome, String> {
    let file = std::fs::File::open(history).map_err(|error| error.to_string())?;
    let events = semel_checker::read(BufReader::new(file)).map_err(|error| error.to_string())?;
    let report = semel_checker::check(&events).map_err(|error| error.to_string())?;
    let mut violated: Vec<u8> = report.violations.iter().map(|violation| violation.invariant).collect();
    violated.dedup();
    Ok(Outcome { tally: Tally::of(&events), stories: report.to_string(), violated, unfinished })
}
