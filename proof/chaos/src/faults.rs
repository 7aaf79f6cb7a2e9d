//! Faults, in an order drawn from the seed: processes, connections, the store, the disk.

use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use semel_testkit::Chance;

use crate::settings::{LEASE, LONGEST_STOP};
use crate::world::World;
use semel_chaos::process::Member;

/// Kills processes until faults stop.
pub(crate) async fn kill_processes(world: Arc<World>) -> Result<(), String> {
    let mut chance = Chance::of(world.options.seed, "kills");
    while world.is_breaking() {
        tokio::time::sleep(chance.millis(300, 1_500)).await;
        if chance.percent(60) || world.options.broken {
            kill_gateway(&world, &mut chance).await?;
        } else {
            kill_service(&world, &mut chance).await?;
        }
    }
    Ok(())
}

/// Stops processes, each for a while, until faults stop.
pub(crate) async fn stop_processes(world: Arc<World>) -> Result<(), String> {
    let mut chance = Chance::of(world.options.seed, "stops");
    while world.is_breaking() {
        tokio::time::sleep(chance.millis(500, 3_000)).await;
        stop_member(&world, &mut chance).await;
    }
    Ok(())
}

/// Kills and restarts any gateway but the first.
async fn kill_gateway(world: &Arc<World>, chance: &mut Chance) -> Result<(), String> {
    let number = 1 + chance.below(world.gateways.len() as u64 - 1) as usize;
    let gateway = &world.gateways[number];
    let _turn = world.versions.turn(number, chance).await;
    world.fault("kill gateway", &gateway.name, "");
    let killed = world.clone();
    let _ = tokio::task::spawn_blocking(move || killed.gateways[number].kill()).await;
    tokio::time::sleep(chance.millis(0, 700)).await;
    world.start_gateway(number).await
}

async fn kill_service(world: &Arc<World>, chance: &mut Chance) -> Result<(), String> {
    let _turn = world.versions.turn(world.gateways.len(), chance).await;
    world.fault("kill service", &world.service.name, "");
    let killed = world.clone();
    let _ = tokio::task::spawn_blocking(move || killed.service.kill()).await;
    tokio::time::sleep(chance.millis(0, 500)).await;
    world.start_service().await
}

/// Stops any member for longer than its leases hold.
async fn stop_member(world: &World, chance: &mut Chance) {
    let member = any_member(world, chance);
    let time = chance.millis(LEASE.as_millis() as u64 + 100, LONGEST_STOP.as_millis() as u64);
    let kind = if member.name == world.service.name { "stop service" } else { "stop gateway" };
    world.fault(kind, &member.name, format!("for {} ms", time.as_millis()));
    let begun = Instant::now();
    member.stop();
    tokio::time::sleep(time).await;
    member.go_on();
    world.stood_still(begun.elapsed());
}

/// Cuts connections and breaks the store until faults stop.
pub(crate) async fn break_connections(world: Arc<World>) -> Result<(), String> {
    let mut chance = Chance::of(world.options.seed, "connections");
    while world.is_breaking() && !world.options.broken {
        tokio::time::sleep(chance.millis(200, 900)).await;
        match chance.below(10) {
            0..3 => cut_clients(&world, &mut chance),
            3..5 => upstream_leaves(&world, &mut chance).await?,
            _ if world.place.file().is_some() => break_file(&world, &mut chance).await,
            _ => break_server(&world, &mut chance).await?,
        }
    }
    Ok(())
}

/// Returns a gateway or the service.
fn any_member<'a>(world: &'a World, chance: &mut Chance) -> &'a Member {
    let number = chance.below(world.gateways.len() as u64 + 1) as usize;
    world.gateways.get(number).unwrap_or(&world.service)
}

fn cut_clients(world: &World, chance: &mut Chance) {
    let member = any_member(world, chance);
    world.fault("cut clients", &member.name, "");
    member.cut.send_modify(|cuts| *cuts += 1);
}

async fn upstream_leaves(world: &World, chance: &mut Chance) -> Result<(), String> {
    let time = chance.millis(100, 800);
    world.fault("upstream away", "upstream", format!("for {} ms", time.as_millis()));
    world.upstream.leave().await;
    tokio::time::sleep(time).await;
    world.upstream.come_back().await
}

/// Fills the disk of one process, or locks the file.
async fn break_file(world: &World, chance: &mut Chance) {
    let Some(path) = world.place.file() else { return };
    let time = chance.millis(200, 1_500);
    if chance.percent(50) {
        let member = any_member(world, chance);
        let log = path.with_extension("db-wal");
        let length = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
        // A page or two still fit.
        let limit =
            if chance.percent(50) { length(&log) + 8_192 } else { length(path).min(length(&log)) / 2 };
        world.fault("full disk", &member.name, format!("at {limit} bytes, for {} ms", time.as_millis()));
        member.limit_files(Some(limit));
        tokio::time::sleep(time).await;
        member.limit_files(None);
        return;
    }
    world.fault("locked", "file", format!("for {} ms", time.as_millis()));
    let path = path.to_owned();
    let _ = tokio::task::spawn_blocking(move || {
        let file = Connection::open(&path)?;
        file.busy_timeout(std::time::Duration::from_secs(5))?;
        file.execute_batch("BEGIN IMMEDIATE")?;
        std::thread::sleep(time);
        file.execute_batch("ROLLBACK")
    })
    .await;
}

/// Breaks the connections of one process to its server, or the server itself.
async fn break_server(world: &Arc<World>, chance: &mut Chance) -> Result<(), String> {
    let Some((_, proxies)) = world.place.server() else { return Ok(()) };
    let number = chance.below(proxies.len() as u64) as usize;
    let name = &world.gateways.get(number).unwrap_or(&world.service).name;
    let proxy = &proxies[number];
    let time = chance.millis(300, 1_500);
    let told = format!("for {} ms", time.as_millis());
    match chance.below(10) {
        0..3 => {
            world.fault("cut store", name, "");
            proxy.cut_all().await;
        }
        3..6 => {
            world.fault("cut statements", name, format!("one in 12, {told}"));
            proxy.cut_randomly(chance.draw(), 12);
            tokio::time::sleep(time).await;
        }
        6..7 => {
            world.fault("store unreachable", name, told);
            proxy.refuse().await;
            proxy.cut_all().await;
            tokio::time::sleep(time).await;
        }
        7..8 => {
            world.fault("store silent", name, told);
            proxy.blackhole();
            tokio::time::sleep(time).await;
        }
        _ => {
            world.fault("kill postgres", "postgres", told);
            let killed = world.clone();
            let done = tokio::task::spawn_blocking(move || {
                let Some((cluster, _)) = killed.place.server() else { return Ok(()) };
                cluster.kill9()?;
                std::thread::sleep(time);
                cluster.restart()
            });
            let done = done.await.map_err(|error| error.to_string())?;
            done.map_err(|error| error.to_string())?;
        }
    }
    proxy.heal().await.map_err(|error| error.to_string())
}

/// Repairs all faults.
pub(crate) async fn heal(world: &Arc<World>) -> Result<(), String> {
    for member in world.gateways.iter().chain([&world.service]) {
        member.go_on();
        member.limit_files(None);
    }
    if let Some((_, proxies)) = world.place.server() {
        for proxy in proxies {
            proxy.heal().await.map_err(|error| error.to_string())?;
        }
    }
    world.ledger.calm_down();
    Ok(())
}
