//! Faults without a held request: a lost answer of the store, and broken requests and responses.

use std::time::{Duration, Instant};

use semel_faults::{Lever, Point};
use semel_testkit::proxy::{Cut, Matching};

use super::hold::{CHANGE, CLAIM, COMPLETION};
use super::{Notes, end, told};
use crate::client::{self, Asked};
use crate::patience::PATIENCE;
use crate::seen::Seen;
use crate::table::{Cell, Fault};
use crate::world::World;

/// Executes a write and loses its answer.
pub(super) async fn answer_lost(world: &World<'_>, cell: Cell) -> Result<Seen, String> {
    let (statement, point) = match cell.step {
        2 | 3 => (CLAIM, Point::ClaimSent),
        4 => (CHANGE, Point::StartSent),
        9 | 17 => (COMPLETION, Point::SettlementSent),
        _ => (CHANGE, Point::RenewalSent),
    };
    let before = world.record()?;
    let first = match world.place.server() {
        Some((_, proxies)) => {
            let cut = if cell.step == 2 { Cut::AfterSent } else { Cut::AfterServerAnswered };
            let armed = proxies[0].cut_next(Matching::statement(statement), cut);
            let first = world.send(&world.a);
            let struck = tokio::time::timeout(PATIENCE, armed.struck()).await;
            struck.map_err(|_| "the statement was never sent")?;
            first
        }
        None => {
            world.a.arm(point)?;
            let first = world.send(&world.a);
            world.a.is_held(point).await?;
            world.a.pull(Lever::LoseAnswer).await?;
            world.a.release(point);
            first
        }
    };
    let mut notes = Notes::new(before, 0);
    if cell.step == 18 {
        // The lease must outlive the lost answer.
        renewals(world, 3).await?;
        notes.during.push(told(world.send(&world.b)).await);
        world.upstream.release();
    }
    let first = told(first).await;
    end(world, cell.fault, first, notes).await
}

/// Waits until the lease was renewed `wanted` times.
async fn renewals(world: &World<'_>, wanted: u32) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        // `1763207245123 1 processing claimed 3 1763207245999`: written again three times since.
        let history = world.record()?.map(|record| record.history).unwrap_or_default();
        let count = history.split_whitespace().nth(4).and_then(|count| count.parse().ok()).unwrap_or(0);
        if count >= wanted {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("the lease was renewed {count} times in {} s", PATIENCE.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs a command whose upstream response is broken, or too large to be stored.
pub(super) async fn poisoned_answer(world: &World<'_>) -> Result<Seen, String> {
    let first = told(world.send(&world.a)).await;
    let notes = Notes { executor_gone: true, ..Notes::new(None, 0) };
    end(world, Fault::Poison, first, notes).await
}

/// Sends invalid requests.
pub(super) async fn poisoned_requests(world: &World<'_>) -> Result<Seen, String> {
    let good = world.asked();
    let bad = [
        Asked { key: None, ..good.clone() },
        Asked { key: Some("short".to_owned()), ..good.clone() },
        Asked { key: Some("\"an unfinished string".to_owned()), ..good.clone() },
        Asked { key: Some("jane.doe@example.com".to_owned()), ..good.clone() },
        Asked { body: vec![b'x'; 100_000].into(), ..good.clone() },
        Asked { caller: "", ..good.clone() },
    ];
    let mut told = Vec::new();
    for asked in bad {
        told.push(client::send(world.a.address(), asked).await);
    }
    let first = told.remove(0);
    Ok(Seen {
        at_fault: (None, 0),
        first,
        during: told,
        beyond: Vec::new(),
        effects_then: world.upstream.effects().len(),
        after: Vec::new(),
        last: Vec::new(),
        record: world.record()?,
        effects: world.upstream.effects(),
        operator: None,
        executor_gone: false,
    })
}

/// Sends requests that a careless cache would answer with another command's response.
pub(super) async fn poisoned_cache(world: &World<'_>) -> Result<Seen, String> {
    let first = told(world.send(&world.a)).await;
    let good = world.asked();
    let other_body = Asked { body: bytes::Bytes::from_static(b"{\"amount\":999}"), ..good.clone() };
    let mismatch = client::send(world.a.address(), other_body).await;
    let is_mismatch = mismatch.as_answer().is_some_and(|answer| answer.status == 422);
    if !is_mismatch {
        return Err(format!("another request under the same key got {mismatch}"));
    }
    let stranger = client::send(world.a.address(), Asked { caller: "mallory", ..good }).await;
    let own = first.as_answer().map(|answer| answer.body.clone());
    if stranger.as_answer().map(|answer| answer.body.clone()) == own {
        return Err("another caller got what is not its own".to_owned());
    }
    // The other caller's command is not judged here.
    let effects: Vec<_> = world.upstream.effects().into_iter().take(1).collect();
    let last = vec![told(world.send(&world.a)).await, told(world.send(&world.b)).await];
    let record = world.place.records()?.into_iter().next();
    Ok(Seen {
        at_fault: (None, 0),
        first,
        during: Vec::new(),
        beyond: Vec::new(),
        effects_then: 1,
        after: Vec::new(),
        last,
        record,
        effects,
        operator: None,
        executor_gone: false,
    })
}
