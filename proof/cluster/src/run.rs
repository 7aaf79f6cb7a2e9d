//! One run: load, faults one after the other, then the end of everything; then the judgement.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_chaos::judgement::{Outcome, judge, read};
use semel_chaos::scribe::Scribe;
use semel_checker::Event;
use semel_checker::event::{Quiet, Run};
use semel_testkit::Chance;

use crate::faults::{Fault, Order};
use crate::figures::{self, HEALED};
use crate::health::Health;
use crate::looker::Looker;
use crate::settings::{GATEWAYS, Options, SWEEP, millis, operations, rounding_ms};
use crate::world::World;
use crate::{inject, operator, probe, workload};

/// Longest time to settle everything after faults stop.
const PATIENCE: Duration = Duration::from_secs(240);
/// Time limit of a run whose losses are to be found: its commands need not all end.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
/// Commands that are asked for again in the end.
const REPLAYS: u64 = 2_000;
const FEW_REPLAYS: u64 = 500;
/// File with the history.
const HISTORY: &str = "history.jsonl";
/// Load before the first fault, and between two.
const BETWEEN: Duration = Duration::from_secs(3);

/// Result of a run, with its figures.
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) table: String,
    pub(crate) failovers: u64,
    pub(crate) acknowledged: u64,
    /// True if a goal of the options was not reached in time.
    pub(crate) cut_short: bool,
}

/// Runs, and then judges the history.
pub(crate) async fn run(options: Options, folder: &Path) -> Result<Finished, String> {
    let history = &folder.join(HISTORY);
    let scribe = Arc::new(Scribe::create(history)?);
    let (store, seed) = ("postgres".to_owned(), options.seed);
    let (sweep_ms, rounding_ms, operations) = (millis(SWEEP), rounding_ms(&options), operations());
    scribe.note(|at| Event::Run(Run { at, store, seed, sweep_ms, rounding_ms, operations }));
    let begun = Instant::now();
    let world = World::start(options, folder.to_owned(), scribe.clone()).await?;
    println!("  database and {GATEWAYS} gateways started in {} s", begun.elapsed().as_secs());
    check_tiers(&world).await?;
    probe::start(&world).await?;
    let (failovers, unfinished) = drive(&world).await?;
    let (lost, confirmed) = world.blocking(probe::lost).await?;
    println!("  the database itself has lost {lost} of {confirmed} commits that it confirmed to the probe");
    scribe.finish()?;
    let acknowledged = world.acknowledged.load(Ordering::SeqCst);
    let (options, commits) = (world.options.clone(), world.commits.times());
    // Gateways, servers and namespaces end here.
    tokio::task::spawn_blocking(move || drop(world)).await.map_err(|error| error.to_string())?;
    println!("  judging the history");
    let events = read(history)?;
    let table = figures::table(&figures::rows(&events, &commits));
    let outcome = judge(&events, unfinished)?;
    let cut_short = failovers < options.failovers || acknowledged < options.commands;
    Ok(Finished { outcome, table, failovers, acknowledged, cut_short })
}

/// Returns the number of commands with a second effect in the history of a run that did not come to its end.
pub(crate) fn second_effects(folder: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(folder.join(HISTORY)).ok()?;
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n')?.0;
    semel_checker::read(whole.as_bytes()).ok().map(|events| figures::second_effects(&events))
}

/// Checks that every gateway prints the tier that its database's settings deserve.
async fn check_tiers(world: &World) -> Result<(), String> {
    let expected = if world.options.asynchronous { "tier 2" } else { "tier 1" };
    for gateway in 0..GATEWAYS {
        let tier = world.tier(gateway).await?;
        if !tier.starts_with(expected) {
            return Err(format!("{} prints `{tier}`, and it is {expected}", world.gateways[gateway].name));
        }
        if gateway == 0 {
            println!("  every gateway prints {tier}");
        }
    }
    Ok(())
}

/// Drives load and faults. Returns the number of failovers, and everything that did not come to its end.
async fn drive(world: &Arc<World>) -> Result<(u64, Vec<String>), String> {
    let load = tokio::spawn(workload::run(world.clone()));
    let accepting = world.options.asynchronous.then(|| tokio::spawn(operator::accept_losses(world.clone())));
    let mut looker = Looker::default();
    let first = world.wait_until_well().await?;
    tokio::time::sleep(BETWEEN).await;
    let done = break_and_heal(world, &first, &mut looker).await;
    world.loaded.store(false, Ordering::SeqCst);
    load.await.map_err(|error| error.to_string())?;
    let failovers = done?;
    world.scribe.note(|at| Event::Quiet(Quiet { at }));
    println!("  faults have stopped; every command is brought to its end");
    let unfinished = settle(world, &mut looker).await?;
    if let Some(accepting) = accepting {
        accepting.abort();
    }
    Ok((failovers, unfinished))
}

/// Injects faults until the options are satisfied or time is over. Returns the number of failovers.
async fn break_and_heal(world: &Arc<World>, first: &Health, looker: &mut Looker) -> Result<u64, String> {
    let options = &world.options;
    let begun = Instant::now();
    let mut chance = Chance::of(options.seed, "blows");
    let mut health = first.clone();
    let mut struck = 0;
    for fault in Order::new(options.seed, &options.faults) {
        let failovers = health.timeline.saturating_sub(first.timeline);
        let enough = struck >= options.faults.len() && failovers >= options.failovers;
        if enough || begun.elapsed() > options.time {
            break;
        }
        struck += 1;
        health = one(world, fault, &health, &mut chance, struck).await?;
        let failovers = health.timeline.saturating_sub(first.timeline);
        let (of, acknowledged) = (options.failovers, world.acknowledged.load(Ordering::SeqCst));
        let goal = if of > 0 { format!(" of {of}") } else { String::new() };
        println!(
            "      {failovers} failovers{goal}, {acknowledged} commands acknowledged, {} s",
            begun.elapsed().as_secs()
        );
        look(world, looker, false).await?;
        tokio::time::sleep(BETWEEN).await;
    }
    while world.acknowledged.load(Ordering::SeqCst) < options.commands && begun.elapsed() < options.time {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(health.timeline.saturating_sub(first.timeline))
}

/// Injects one fault, and waits until everything has recovered.
async fn one(
    world: &Arc<World>,
    fault: Fault,
    health: &Health,
    chance: &mut Chance,
    number: usize,
) -> Result<Health, String> {
    world.take_gap();
    let begun = Instant::now();
    world.fault(fault.meaning(), inject::target(fault, health), format!("fault {number}"));
    let struck = inject::strike(world, fault, health, chance).await;
    let healed = match struck {
        Ok(()) => world.wait_until_well().await,
        Err(why) => Err(why),
    };
    let healthy = healed.map_err(|why| format!("fault {number}, {}: {why}", fault.meaning()))?;
    world.fault(HEALED, fault.meaning(), "");
    let moved = if healthy.leader == health.leader {
        format!("{} still leads", health.leader.name)
    } else {
        format!("{} leads after {}", healthy.leader.name, health.leader.name)
    };
    println!(
        "  {number:>3} {:<42} {:>5.1} s without answers, healed after {:>3} s, {moved}",
        fault.meaning(),
        world.take_gap().as_secs_f64(),
        begun.elapsed().as_secs()
    );
    Ok(healthy)
}

async fn look(
    world: &Arc<World>,
    looker: &mut Looker,
    last: bool,
) -> Result<Vec<crate::looker::Unsettled>, String> {
    let mut taken = std::mem::take(looker);
    let (taken, found) = world
        .blocking(move |world| {
            let found = taken.look(world, last);
            Ok((taken, found))
        })
        .await?;
    *looker = taken;
    found
}

/// Brings every command to its end. Returns those that have none.
async fn settle(world: &Arc<World>, looker: &mut Looker) -> Result<Vec<String>, String> {
    let lossy = world.options.asynchronous;
    let (patience, replays) = if lossy { (SHORT_PATIENCE, FEW_REPLAYS) } else { (PATIENCE, REPLAYS) };
    let deadline = Instant::now() + patience;
    let mut unfinished = loop {
        let unsettled = look(world, looker, false).await?;
        for unknown in &unsettled {
            operator::settle(world, unknown).await?;
        }
        let soon = deadline.min(Instant::now() + Duration::from_secs(10));
        let open = workload::retry_open(world, soon).await;
        if unsettled.is_empty() && open.is_empty() {
            break open;
        }
        if Instant::now() > deadline {
            break open.into_iter().chain(unsettled.into_iter().map(|left| left.operation_id)).collect();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    for gateway in world.gateways.iter().filter(|gateway| gateway.has_ended()) {
        unfinished.push(format!("{} has ended by itself", gateway.name));
    }
    workload::replay_some(world, replays, patience).await;
    look(world, looker, true).await?;
    Ok(unfinished)
}
