//! Steps of a message on its way to its receiver: 12, it is sent, and 13, the receiver's reference is written.

use std::time::Duration;

use semel_faults::{Lever, Point};
use semel_testkit::proxy::{Cut, Matching};

use super::store::{break_store, mend_store};
use crate::client;
use crate::kept::Kept;
use crate::lab::{Lab, logs};
use crate::reading;
use crate::receiver::Manner;
use crate::seen::Told;
use crate::service::Mood;
use crate::shop::{Shop, Terms, asked};
use crate::table::{Cell, Fault, Store};
use crate::verdict::{Found, Poison, Seen};

/// Steps that this module runs.
pub(crate) const STEPS: [usize; 2] = [12, 13];

/// Duration of a store fault: longer than SQLite's busy timeout, and longer than the lease of a message.
const WHILE: Duration = Duration::from_millis(3_500);
/// Shorter than SQLite's busy timeout.
const SLOW: Duration = Duration::from_millis(1_400);
/// Time for which the clock keeps an offset.
const MOMENT: Duration = Duration::from_millis(300);
const HOUR_MILLIS: i64 = 3_600_000;
const HALF_A_LEASE_MILLIS: i64 = 1_500;
/// Maximum of delivery attempts: more than any cell takes, or few where they are counted.
const MANY: u32 = 10_000;
const FEW: u32 = 3;

/// Statements of the PostgreSQL store, as a proxy sees them.
const ACCEPT: &str = "UPDATE semel_outbox SET provider_reference";
const SETTLE: &str = "UPDATE semel_outbox SET state";

/// Position of the message when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// Message with its worker, which is held at this point.
    At(Point),
    /// Message with the receiver, which has not answered.
    Received,
    /// The answer to this statement, or on SQLite to the write after this point, is lost.
    Lost(&'static str, Point),
    /// Message with a receiver that refuses it, for this number of attempts.
    Poison(Manner, u32),
}

fn scenes(cell: Cell) -> Vec<Scene> {
    match (cell.step, cell.fault) {
        (12, Fault::Poison) => vec![Scene::Poison(Manner::Fails, FEW), Scene::Poison(Manner::Refuses, 1)],
        (_, Fault::Poison) => vec![Scene::Poison(Manner::BreaksOff, FEW)],
        (12, Fault::Kill | Fault::Stopped) => vec![Scene::At(Point::MessageTaken), Scene::Received],
        (12, Fault::ClockJump | Fault::Duplicate) => vec![Scene::At(Point::MessageTaken)],
        (12, _) => vec![Scene::Received],
        (_, Fault::Kill | Fault::Stopped) => {
            vec![Scene::At(Point::MessageAccepted), Scene::At(Point::ReferenceWritten)]
        }
        (_, Fault::AnswerLost) => {
            let (accept, settle) = (Point::MessageAccepted, Point::ReferenceWritten);
            vec![Scene::Lost(ACCEPT, accept), Scene::Lost(SETTLE, settle)]
        }
        _ => vec![Scene::At(Point::MessageAccepted)],
    }
}

/// Runs a cell, and returns observations and violations of each scene.
pub(crate) async fn run(lab: &Lab, cell: Cell) -> Result<Found, String> {
    let code = reading::of(cell).code;
    let mut found = Found::default();
    for scene in scenes(cell) {
        let (manner, tries) = match scene {
            Scene::Received => (Manner::Holds, MANY),
            Scene::Poison(manner, _) => (manner, FEW),
            _ => (Manner::Well, MANY),
        };
        let terms = Terms { workers: [true, false], mood: Mood::Well, manner, tries };
        let mut shop = Shop::open(lab, terms).await?;
        let seen = match scene {
            Scene::Poison(_, tries) => poisoned(&shop, tries).await,
            Scene::Lost(statement, point) => lost(&shop, statement, point).await,
            scene => held(&mut shop, cell, scene).await,
        };
        let seen = seen.map_err(|why| format!("{scene:?}: {why}\n    {}", logs(&shop.folder)))?;
        found.judge(&format!("{scene:?}"), code, &seen);
    }
    Ok(found)
}

impl Scene {
    fn release(self, shop: &Shop<'_>) {
        match self {
            Scene::At(point) => shop.a.release(point),
            _ => shop.receiver.release(),
        }
    }

    /// Returns true if the receiver gets the message again when its worker is gone for good.
    fn is_sent_again(self) -> bool {
        self != Scene::At(Point::ReferenceWritten)
    }
}

async fn held(shop: &mut Shop<'_>, cell: Cell, scene: Scene) -> Result<Seen, String> {
    if let Scene::At(point) = scene {
        shop.a.arm(point)?;
    }
    let first = client::send(shop.a.address(), asked(&shop.key)).await;
    match scene {
        Scene::At(point) => shop.a.is_held(point).await?,
        _ => shop.receiver.is_held().await?,
    }
    let mut seen = Seen {
        about_message: true,
        at_fault: shop.kept()?,
        received: shop.receiver.deliveries().len(),
        first,
        ..Seen::default()
    };
    strike(shop, cell, scene, &mut seen).await?;
    if cell.fault == Fault::Failover {
        // The command is lost with its message: the client must send it again.
        seen.after = shop.ask_until(&shop.b, "the key does not work", Told::is_done).await?;
    }
    end(shop, cell.fault, seen).await
}

/// Makes the fault strike, and lifts it.
async fn strike(shop: &mut Shop<'_>, cell: Cell, scene: Scene, seen: &mut Seen) -> Result<(), String> {
    match cell.fault {
        Fault::Kill => {
            shop.a.kill();
            seen.then = shop.kept()?;
            seen.sent_again = Some(scene.is_sent_again());
            scene.release(shop);
            shop.restart_b()?;
            shop.restart_a()?;
        }
        Fault::Failover => {
            shop.lose_everything().await?;
            scene.release(shop);
        }
        Fault::DatabaseKilled | Fault::DiskFull | Fault::PoolExhausted | Fault::ReadOnly | Fault::Slow => {
            let broken = break_store(&shop.place, &[&shop.a, &shop.b], cell.fault).await?;
            scene.release(shop);
            let is_short = cell.fault == Fault::Slow && cell.store == Store::Sqlite;
            tokio::time::sleep(if is_short { SLOW } else { WHILE }).await;
            mend_store(&shop.place, &[&shop.a, &shop.b], cell.fault, broken).await?;
            seen.then = shop.kept()?;
        }
        Fault::ClockJump => {
            shop.restart_b()?;
            for millis in [-HOUR_MILLIS, HALF_A_LEASE_MILLIS, HOUR_MILLIS] {
                shop.a.pull(Lever::Clock(millis)).await?;
                shop.b.pull(Lever::Clock(millis)).await?;
                tokio::time::sleep(MOMENT).await;
            }
            seen.then = shop.nothing_is_pending().await?;
            leave(shop, scene).await?;
        }
        Fault::Stopped => {
            shop.a.stop(true);
            shop.restart_b()?;
            seen.then = shop.nothing_is_pending().await?;
            seen.won = seen.then.messages.first().cloned();
            seen.sent_again = Some(scene.is_sent_again());
            shop.a.arm(Point::MessageLeft)?;
            scene.release(shop);
            shop.a.stop(false);
            shop.a.is_held(Point::MessageLeft).await?;
            shop.a.release(Point::MessageLeft);
        }
        Fault::Duplicate => {
            shop.restart_b()?;
            for process in [&shop.a, &shop.b] {
                seen.during.push(client::send(process.address(), asked(&shop.key)).await);
            }
            seen.then = shop.kept()?;
            leave(shop, scene).await?;
        }
        Fault::AnswerLost | Fault::ClientGone | Fault::Poison | Fault::StreamCut => {
            return Err("this fault strikes otherwise".to_owned());
        }
    }
    Ok(())
}

/// Releases the worker, and waits until it is done with the message.
async fn leave(shop: &Shop<'_>, scene: Scene) -> Result<(), String> {
    shop.a.arm(Point::MessageLeft)?;
    scene.release(shop);
    shop.a.is_held(Point::MessageLeft).await?;
    shop.a.release(Point::MessageLeft);
    Ok(())
}

/// Executes a write about the message and loses its answer.
async fn lost(shop: &Shop<'_>, statement: &str, point: Point) -> Result<Seen, String> {
    shop.a.arm(point)?;
    let first = client::send(shop.a.address(), asked(&shop.key)).await;
    shop.a.is_held(point).await?;
    let (at_fault, received) = (shop.kept()?, shop.receiver.deliveries().len());
    match shop.place.server() {
        Some((_, proxies)) => {
            let armed = proxies[0].cut_next(Matching::statement(statement), Cut::AfterServerAnswered);
            shop.a.release(point);
            let struck = tokio::time::timeout(crate::patience::PATIENCE, armed.struck()).await;
            struck.map_err(|_| "the statement was never sent")?;
        }
        None => {
            shop.a.pull(Lever::LoseAnswer).await?;
            shop.a.release(point);
        }
    }
    let then = shop.kept()?;
    let seen = Seen { about_message: true, at_fault, received, first, then, ..Seen::default() };
    end(shop, Fault::AnswerLost, seen).await
}

/// Runs two commands; the receiver refuses the first one's message and accepts the other's.
async fn poisoned(shop: &Shop<'_>, tries: u32) -> Result<Seen, String> {
    let first = client::send(shop.a.address(), asked(&shop.key)).await;
    let other = client::send(shop.a.address(), asked("matrix-another-command")).await;
    let then: Kept = shop.nothing_is_pending().await?;
    let seen = Seen {
        about_message: true,
        first,
        then,
        poison: Some(Poison { key: shop.key.clone(), tries, other }),
        ..Seen::default()
    };
    end(shop, Fault::Poison, seen).await
}

async fn end(shop: &Shop<'_>, fault: Fault, mut seen: Seen) -> Result<Seen, String> {
    seen.end = shop.nothing_is_pending().await?;
    let last = shop.ask_until(&shop.b, "a retry got no answer", Told::is_done).await?;
    seen.last.extend(last.into_iter().next_back());
    // A memory cache may replay lost records for a while: step 17 judges that.
    if fault != Fault::Failover {
        let last = shop.ask_until(&shop.a, "a retry got no answer", Told::is_done).await?;
        seen.last.extend(last.into_iter().next_back());
    }
    seen.deliveries = shop.receiver.deliveries();
    Ok(seen)
}
