//! Faults that strike while the first request is held, and their repair. Each returns the first client's result.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::hold::Hold;
use super::{Notes, told};
use crate::rows::store::{Lock, break_store, mend_store};
use crate::seen::Told;
use crate::table::{Cell, Code, Fault, Store};
use crate::world::World;

/// Longer than a short lease, and shorter than SQLite's busy timeout.
const SLOW: Duration = Duration::from_millis(1_400);
/// Minimum duration of a store fault.
const MOMENT: Duration = Duration::from_millis(500);
const HOUR_MILLIS: i64 = 3_600_000;
const HALF_A_LEASE_MILLIS: i64 = 10_000;

/// Verdict of an operator while an executor is suspended.
const VERDICT: &str = r#"{"effect":"as the operator saw it"}"#;

/// Held request of a cell, and its client.
pub(super) struct Scene {
    pub(super) cell: Cell,
    pub(super) expected: Code,
    pub(super) hold: Hold,
    pub(super) first: JoinHandle<Told>,
}

/// Makes the fault of the cell strike, and lifts it.
pub(super) async fn strike(world: &mut World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    match scene.cell.fault {
        Fault::Kill => killed(world, scene, notes).await,
        Fault::Failover => failover(world, scene, notes).await,
        Fault::DatabaseKilled | Fault::DiskFull | Fault::PoolExhausted | Fault::ReadOnly => {
            without_store(world, scene, notes).await
        }
        Fault::Slow => slow(world, scene, notes).await,
        Fault::ClockJump => clock_jumps(world, scene, notes).await,
        Fault::Stopped => stopped(world, scene, notes).await,
        Fault::ClientGone => client_leaves(world, scene).await,
        Fault::Duplicate => duplicates(world, scene, notes).await,
        Fault::AnswerLost | Fault::Poison | Fault::StreamCut => {
            Err("this fault strikes otherwise".to_owned())
        }
    }
}

/// Kills the process that runs the command.
async fn killed(world: &mut World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    let Scene { cell, hold, first, .. } = scene;
    world.a.kill();
    notes.executor_gone = true;
    notes.asking.push(world.send(&world.b));
    let first = told(first).await;
    if let (9 | 18, Some((_, proxies))) = (cell.step, world.place.server()) {
        // Writes that it had not sent are lost with it.
        proxies[0].cut_all().await;
    }
    // Writes that it had sent may still arrive.
    hold.release(world);
    world.restart_a()?;
    Ok(first)
}

/// Loses all writes of the store.
async fn failover(world: &mut World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    let Scene { cell, hold, first, .. } = scene;
    let in_a_file = cell.store == Store::Sqlite;
    if in_a_file {
        world.a.kill();
        world.b.kill();
    }
    world.place.lose_everything().await?;
    notes.at_fault.0 = world.record()?;
    world.place.heal().await?;
    hold.release(world);
    if in_a_file {
        world.restart()?;
    }
    let first = told(first).await;
    if cell.step == 17 && !in_a_file {
        // Its memory cache has records that the store lost.
        notes.asking.push(world.send(&world.a));
    }
    Ok(first)
}

/// Makes the store unavailable, full, exhausted or read-only.
async fn without_store(world: &World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    let Scene { cell, expected, hold, mut first } = scene;
    let broken = break_store(&world.place, &[&world.a, &world.b], cell.fault).await?;
    notes.asking.push(world.send(&world.b));
    tokio::time::sleep(MOMENT).await;
    if let (3, Some((_, proxies))) = (cell.step, world.place.server()) {
        // The store's answer is lost with the connection.
        proxies[0].cut_all().await;
    }
    hold.release(world);
    // Where nothing may run without a store, or another process locks the file, the fault lasts until the client has
    // its response; else a moment.
    if matches!(expected, Code::FailClosed) || broken.is_some() {
        let first = told(first).await;
        notes.during.extend(remembered(world, cell).await);
        mend_store(&world.place, &[&world.a, &world.b], cell.fault, broken).await?;
        return Ok(first);
    }
    let early = tokio::time::timeout(MOMENT * 2, &mut first).await;
    notes.during.extend(remembered(world, cell).await);
    mend_store(&world.place, &[&world.a, &world.b], cell.fault, broken).await?;
    match early {
        Ok(first) => Ok(first.unwrap_or(Told::Left)),
        Err(_) => Ok(told(first).await),
    }
}

/// Makes the store slow for longer than a lease.
async fn slow(world: &World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    let Scene { expected, hold, mut first, .. } = scene;
    let Some((_, proxies)) = world.place.server() else {
        let lock = Lock::take(&world.place)?;
        hold.release(world);
        tokio::time::sleep(SLOW).await;
        lock.release()?;
        return Ok(told(first).await);
    };
    proxies[0].blackhole();
    // A statement that is held on the wire is as slow as the rest.
    let mut hold = Some(hold);
    if matches!(&hold, Some(Hold::Point(_) | Hold::Upstream)) {
        hold.take().into_iter().for_each(|hold| hold.release(world));
    }
    let mut answered = None;
    if matches!(expected, Code::FailClosed | Code::Ambiguous) {
        answered = (&mut first).await.ok();
    } else {
        tokio::time::sleep(SLOW).await;
        notes.asking.push(world.send(&world.b));
        tokio::time::sleep(MOMENT).await;
    }
    world.place.heal().await?;
    hold.into_iter().for_each(|hold| hold.release(world));
    match answered {
        Some(first) => Ok(first),
        None => Ok(told(first).await),
    }
}

/// Makes the store's clock jump.
async fn clock_jumps(world: &World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    let Scene { hold, first, .. } = scene;
    for millis in [-HOUR_MILLIS, HALF_A_LEASE_MILLIS] {
        world.set_clock(millis).await?;
        notes.during.push(told(world.send(&world.b)).await);
    }
    world.set_clock(HOUR_MILLIS).await?;
    notes.beyond.push(told(world.send(&world.b)).await);
    hold.release(world);
    Ok(told(first).await)
}

/// Suspends the process that runs the command beyond its lease, so that others fence it.
async fn stopped(world: &World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    let Scene { cell, expected, hold, first } = scene;
    world.a.stop(true);
    let hold = match hold {
        // A statement that was sent arrives while its sender is suspended.
        Hold::Wire(held) if cell.step == 2 => {
            held.release();
            None
        }
        hold => Some(hold),
    };
    let waits = |told: &Told| told.is_unknown() || told.is_done();
    let others = world.ask_until(&world.b, "nobody gave up the one who stands still", waits).await?;
    notes.during.extend(others);
    // A read reports the outcome as unknown before a sweep has written that.
    let open = world.record()?.filter(|record| record.state != "succeeded");
    if let (Code::Fenced | Code::UnknownFenced, Some(record)) = (expected, open) {
        world.resolve(&record.operation_id, record.epoch, VERDICT)?;
        notes.operator = Some(VERDICT.to_owned());
    }
    world.a.stop(false);
    if let Some(hold) = hold {
        hold.release(world);
    }
    Ok(told(first).await)
}

/// Disconnects the client.
async fn client_leaves(world: &World<'_>, scene: Scene) -> Result<Told, String> {
    let Scene { hold, first, .. } = scene;
    first.abort();
    let _ = first.await;
    hold.release(world);
    Ok(Told::Left)
}

/// Sends duplicates of the request to both gateways.
async fn duplicates(world: &World<'_>, scene: Scene, notes: &mut Notes) -> Result<Told, String> {
    let Scene { cell, hold, first, .. } = scene;
    let same = world.send(&world.a);
    notes.during.push(told(world.send(&world.b)).await);
    if cell.store == Store::Postgres || ![2, 3, 9, 18].contains(&cell.step) {
        notes.during.push(told(same).await);
    } else {
        // The single writer thread is held: the duplicate waits behind it.
        notes.asking.push(same);
    }
    hold.release(world);
    Ok(told(first).await)
}

/// Returns the result of a replay from memory without a store, in the step about the cache.
async fn remembered(world: &World<'_>, cell: Cell) -> Option<Told> {
    if cell.step == 17 { Some(told(world.send(&world.a)).await) } else { None }
}
