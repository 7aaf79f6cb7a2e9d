//! The upgrade of a mixed run: the members get the next version one after the other, go back, come back in either, get the next one
//! for good, and the upgrade is finished, while load and faults go on.
//!
//! Invariant: no process of the old version runs when the upgrade is finished.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use semel_testkit::Chance;

use crate::versions::NEXT_REASON;
use crate::world::World;
use semel_chaos::process::Member;
use semel_chaos::program;

/// Shares of the run's time, in percent, at which a step begins: forward, back, each restart in either version, forward for good.
const FORWARD: u32 = 10;
const BACK: u32 = 25;
const EITHER: u32 = 40;
const FOR_GOOD: u32 = 55;
/// Share at which the upgrade is finished.
const FINISH: u32 = 70;

/// Upgrades the members, goes back, and upgrades them for good, while faults are injected.
pub(crate) async fn roll(world: Arc<World>) -> Result<(), String> {
    if !world.versions.is_mixed {
        return Ok(());
    }
    let begun = tokio::time::Instant::now();
    let at = |percent: u32| tokio::time::sleep_until(begun + world.options.time * percent / 100);
    let mut chance = Chance::of(world.options.seed, "versions");
    for (percent, is_next) in [(FORWARD, true), (BACK, false)] {
        at(percent).await;
        all_become(&world, is_next, &mut chance).await?;
    }
    at(EITHER).await;
    world.versions.draws.store(true, Ordering::SeqCst);
    at(FOR_GOOD).await;
    world.versions.draws.store(false, Ordering::SeqCst);
    all_become(&world, true, &mut chance).await?;
    at(FINISH).await;
    finish(&world).await
}

/// Restarts every member but the first gateway in this version, one after the other.
async fn all_become(world: &Arc<World>, is_next: bool, chance: &mut Chance) -> Result<(), String> {
    let kind = if is_next { "upgrade" } else { "go back" };
    for (number, version) in world.versions.members.iter().enumerate().skip(1) {
        let member: &Member = world.gateways.get(number).unwrap_or(&world.service);
        let turn = version.turn.lock().await;
        version.is_next.store(is_next, Ordering::SeqCst);
        world.fault(kind, &member.name, "");
        let killed = world.clone();
        let kill = move || killed.gateways.get(number).unwrap_or(&killed.service).kill();
        tokio::task::spawn_blocking(kill).await.map_err(|error| error.to_string())?;
        if number < world.gateways.len() {
            world.start_gateway(number).await?;
        } else {
            world.start_service().await?;
        }
        drop(turn);
        tokio::time::sleep(chance.millis(100, 800)).await;
    }
    Ok(())
}

/// Finishes the upgrade. Tries it again while the store is away: a second time does nothing.
async fn finish(world: &World) -> Result<(), String> {
    world.fault("finish upgrade", "store", "");
    for _ in 0..100 {
        let mut next = world.semel();
        next.args(["migrate", "--finish"]);
        if program::done(next.into(), program::PATIENCE).await == Some(true) {
            world.versions.is_finished.store(true, Ordering::SeqCst);
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Err("the upgrade cannot be finished".to_owned())
}

/// Returns what a mixed run lacks at its end, when no fault is left: with the next version that tests have, an old program must refuse the store, and commands must have
/// been written in both formats. Blocks.
pub(crate) fn lacks(world: &World) -> Result<Vec<String>, String> {
    if !world.versions.is_mixed {
        return Ok(Vec::new());
    }
    let mut lacks = Vec::new();
    if !world.versions.is_finished.load(Ordering::SeqCst) {
        lacks.push("the upgrade was not finished".to_owned());
    }
    if world.versions.old.is_some() {
        // The two programs may have one schema.
        return Ok(lacks);
    }
    let old = world.old_semel().arg("migrate").output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&old.stderr);
    if old.status.code() != Some(2) || !said.contains("readable from version 2") {
        lacks.push(format!("the old version does not refuse the store: {said}"));
    }
    let formats = [
        ("in the formats of the old version", "fingerprint_version = 1".to_owned()),
        ("in the formats of the next version", "fingerprint_version = 2".to_owned()),
        ("for a reason of the next version", format!("reason LIKE '%{NEXT_REASON}'")),
    ];
    for (formats, condition) in formats {
        let count = world.place.count(&condition)?;
        println!("{count} records {formats}");
        if count == 0 {
            lacks.push(format!("no record is {formats}"));
        }
    }
    Ok(lacks)
}
