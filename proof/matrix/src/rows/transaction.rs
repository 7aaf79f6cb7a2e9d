//! Steps of a command in one transaction of the service's own database: 8, the transaction itself, and 11, its message.

use std::time::Duration;

use semel_faults::{Lever, Point};
use semel_testkit::proxy::{Cut, Matching};
use tokio::task::JoinHandle;

use super::store::{Lock, break_store, mend_store};
use crate::kept::Kept;
use crate::lab::{Lab, logs};
use crate::reading;
use crate::receiver::Manner;
use crate::seen::Told;
use crate::service::Mood;
use crate::shop::{Shop, Terms};
use crate::table::{Cell, Code, Fault, Store};
use crate::verdict::{Found, Seen};

/// Steps that this module runs.
pub(crate) const STEPS: [usize; 2] = [8, 11];

/// Minimum duration of a store fault.
const MOMENT: Duration = Duration::from_millis(500);
/// Shorter than SQLite's busy timeout.
const SLOW: Duration = Duration::from_millis(1_400);
/// Ends sessions that are idle in a transaction.
const END_IDLE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'";
/// Ends all sessions, like a server whose writes another one takes over.
const END_ALL: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Way in which a fault strikes at a step.
#[derive(Clone, Copy, Debug)]
enum Scene {
    /// While the first request is held at this point.
    At(Point),
    /// Cut at COMMIT, on its way to the server or back; `CutTwice` also at the query for its outcome.
    Cut(Cut),
    CutTwice(Cut),
    /// SQLite: the answer to COMMIT is lost, for a request that was held at this point.
    Lost(Point),
    /// Within the service's own work.
    Own(Mood),
    /// SQLite: while another connection has the write lock.
    Locked,
}

fn scenes(cell: Cell) -> Vec<Scene> {
    let (is_file, is_message) = (cell.store == Store::Sqlite, cell.step == 11);
    let begun = Scene::At(if is_message { Point::MessagePushed } else { Point::WorkDone });
    match cell.fault {
        Fault::Kill | Fault::DatabaseKilled => vec![begun, Scene::At(Point::WorkCommitted)],
        Fault::AnswerLost if is_file && is_message => vec![Scene::Lost(Point::MessagePushed)],
        Fault::AnswerLost if is_file => vec![Scene::Lost(Point::WorkDone)],
        Fault::AnswerLost if is_message => {
            vec![Scene::CutTwice(Cut::BeforeSent), Scene::CutTwice(Cut::AfterServerAnswered)]
        }
        Fault::AnswerLost => vec![Scene::Cut(Cut::AfterSent), Scene::Cut(Cut::AfterServerAnswered)],
        Fault::Failover => vec![Scene::At(Point::WorkCommitted)],
        Fault::PoolExhausted | Fault::Slow if is_file => vec![Scene::Locked],
        Fault::ReadOnly if is_file && is_message => vec![Scene::Own(Mood::NoMessage)],
        Fault::ReadOnly if is_file => vec![Scene::Own(Mood::NoRow)],
        Fault::Stopped if is_file && !is_message => vec![Scene::At(Point::WorkAhead)],
        Fault::Poison if is_message => vec![Scene::Own(Mood::WrongKind), Scene::Own(Mood::Twice)],
        Fault::Poison => vec![Scene::Own(Mood::Panics)],
        _ => vec![begun],
    }
}

/// Runs a cell, and returns observations and violations of each scene.
pub(crate) async fn run(lab: &Lab, cell: Cell) -> Result<Found, String> {
    let code = reading::of(cell).code;
    let mut found = Found::default();
    for scene in scenes(cell) {
        let mood = if let Scene::Own(mood) = scene { mood } else { Mood::Well };
        // The process without a fault delivers the messages.
        let terms = Terms { workers: [false, true], mood, manner: Manner::Well, tries: 10_000 };
        let mut shop = Shop::open(lab, terms).await?;
        let seen = play(&mut shop, cell, code, scene).await;
        let seen = seen.map_err(|why| format!("{scene:?}: {why}\n    {}", logs(&shop.folder)))?;
        found.judge(&format!("{scene:?}"), code, &seen);
    }
    Ok(found)
}

/// Observations while a scene runs.
#[derive(Default)]
struct Notes {
    at_fault: Kept,
    received: usize,
    during: Vec<Told>,
    committed: Option<bool>,
    /// True if COMMIT was next.
    committing: bool,
}

async fn play(shop: &mut Shop<'_>, cell: Cell, code: Code, scene: Scene) -> Result<Seen, String> {
    let mut notes = Notes { at_fault: shop.kept()?, ..Notes::default() };
    let first = match scene {
        Scene::At(point) => {
            shop.a.arm(point)?;
            let first = shop.send(&shop.a);
            shop.a.is_held(point).await?;
            notes.at_fault = shop.kept()?;
            notes.received = shop.receiver.deliveries().len();
            // SQLite writes nothing of a transaction to its file before COMMIT: a full disk strikes there.
            let is_written_late = (cell.fault, cell.store) == (Fault::DiskFull, Store::Sqlite);
            notes.committing = point == Point::WorkDone || is_written_late;
            notes.committed = Some(point == Point::WorkCommitted);
            strike(shop, cell, code, point, first, &mut notes).await?
        }
        Scene::Cut(_) | Scene::CutTwice(_) => cut(shop, scene).await?,
        Scene::Lost(point) => {
            shop.a.arm(point)?;
            let first = shop.send(&shop.a);
            shop.a.is_held(point).await?;
            shop.a.pull(Lever::LoseCommit).await?;
            shop.a.release(point);
            told(first).await
        }
        Scene::Own(_) => told(shop.send(&shop.a)).await,
        Scene::Locked => {
            let lock = Lock::take(&shop.place)?;
            let first = shop.send(&shop.a);
            if cell.fault == Fault::Slow {
                tokio::time::sleep(SLOW).await;
                lock.release()?;
                told(first).await
            } else {
                let first = told(first).await;
                lock.release()?;
                first
            }
        }
    };
    end(shop, cell.fault, first, notes).await
}

/// Sends the write and loses its answer.
async fn cut(shop: &Shop<'_>, scene: Scene) -> Result<Told, String> {
    let (_, proxies) = shop.place.server().ok_or("only connections are cut")?;
    let (Scene::Cut(place) | Scene::CutTwice(place)) = scene else { return Err("nothing is cut".to_owned()) };
    let armed = proxies[0].cut_next(Matching::commit(), place);
    if matches!(scene, Scene::CutTwice(_)) {
        let question = Matching::statement("INSERT INTO semel_records").skipping(1);
        proxies[0].cut_next(question, Cut::AfterSent);
    }
    let first = shop.send(&shop.a);
    let struck = tokio::time::timeout(crate::patience::PATIENCE, armed.struck()).await;
    struck.map_err(|_| "nothing was committed")?;
    Ok(told(first).await)
}

/// Makes the fault strike, and lifts it. Returns the first client's result.
async fn strike(
    shop: &mut Shop<'_>,
    cell: Cell,
    code: Code,
    point: Point,
    mut first: JoinHandle<Told>,
    notes: &mut Notes,
) -> Result<Told, String> {
    match cell.fault {
        Fault::Kill => {
            shop.a.kill();
            Ok(told(first).await)
        }
        // A process that has the file open must end before the loss, so its client is answered first.
        Fault::Failover if shop.place.file().is_some() => {
            shop.a.release(point);
            let first = told(first).await;
            shop.lose_everything().await?;
            Ok(first)
        }
        Fault::Failover => {
            shop.lose_everything().await?;
            shop.a.release(point);
            Ok(told(first).await)
        }
        Fault::DatabaseKilled | Fault::DiskFull | Fault::PoolExhausted | Fault::ReadOnly | Fault::Slow => {
            let broken = break_store(&shop.place, &[&shop.a, &shop.b], cell.fault).await?;
            if cell.fault == Fault::ReadOnly {
                shop.place.sql(END_ALL)?;
            }
            shop.a.release(point);
            let early = tokio::time::timeout(MOMENT * 2, &mut first).await;
            mend_store(&shop.place, &[&shop.a, &shop.b], cell.fault, broken).await?;
            match early {
                Ok(first) => Ok(first.unwrap_or(Told::Left)),
                Err(_) => Ok(told(first).await),
            }
        }
        Fault::Stopped => {
            shop.a.stop(true);
            if code == Code::Fenced {
                if shop.place.server().is_some() {
                    let waits = Told::is_in_progress;
                    notes.during.extend(shop.ask_until(&shop.b, "nobody was told to wait", waits).await?);
                    shop.place.sql(END_IDLE)?;
                }
                let others = shop.ask_until(&shop.b, "nobody took it over", Told::is_done).await?;
                notes.during.extend(others);
            } else {
                notes.during.push(told(shop.send(&shop.b)).await);
            }
            shop.a.stop(false);
            shop.a.release(point);
            Ok(told(first).await)
        }
        Fault::ClientGone => {
            first.abort();
            let _ = first.await;
            shop.a.release(point);
            Ok(Told::Left)
        }
        Fault::Duplicate => {
            let (same, other) = (shop.send(&shop.a), shop.send(&shop.b));
            notes.during.extend([told(same).await, told(other).await]);
            shop.a.release(point);
            Ok(told(first).await)
        }
        Fault::AnswerLost | Fault::ClockJump | Fault::Poison | Fault::StreamCut => {
            Err("this fault strikes otherwise".to_owned())
        }
    }
}

async fn told(task: JoinHandle<Told>) -> Told {
    task.await.unwrap_or(Told::Left)
}

/// Retries until nothing changes any more and the message is delivered, and collects the observations.
async fn end(shop: &mut Shop<'_>, fault: Fault, first: Told, notes: Notes) -> Result<Seen, String> {
    let then = shop.kept()?;
    if fault == Fault::Kill {
        shop.restart_a()?;
    }
    let after = shop.ask_until(&shop.b, "it did not come to an end", Told::is_done).await?;
    let mut last = vec![told(shop.send(&shop.b)).await];
    // A memory cache may replay lost records for a while: step 17 judges that.
    if fault != Fault::Failover {
        last.push(told(shop.send(&shop.a)).await);
    }
    let end = shop.nothing_is_pending().await?;
    Ok(Seen {
        at_fault: notes.at_fault,
        received: notes.received,
        first,
        during: notes.during,
        committed: notes.committed,
        committing: notes.committing,
        then,
        after,
        last,
        end,
        deliveries: shop.receiver.deliveries(),
        ..Seen::default()
    })
}
