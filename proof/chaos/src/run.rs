//! One run: load and faults for a while, then none, until everything has come to its end; then the judgement.

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

/// How long everything may take to come to its end once nothing is broken any more. Generous: a slow machine is no
/// violation.
const PATIENCE: Duration = Duration::from_secs(180);
/// PostgreSQL's store rounds to the nearest millisecond; times of the history are cut off.
const ROUNDING_MS: i64 = 1;

/// What a run came to.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// The stories of what is violated.
    pub(crate) stories: String,
    /// The numbers of what is violated.
    pub(crate) violated: Vec<u8>,
    /// What did not come to its end.
    pub(crate) unfinished: Vec<String>,
}

/// Runs, and judges what is in the history then.
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
    // The one that is never killed: it counts from here to the end.
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
    // The service's code ends its own transactions also while all is quiet: somebody must settle what is unknown then.
    operator.abort();
    stalls.abort();
    looker.look(true, true).await?;
    looker.look_at_service().await?;
    Ok(unfinished)
}

/// Has everything retried until it has come to its end. Says what has not.
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

/// Waits until nothing runs, nothing is unknown and every message is delivered. Says what is left.
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
