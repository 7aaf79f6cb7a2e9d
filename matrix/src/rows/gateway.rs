//! The steps of a command on its way through a gateway: 1 to 7, 9, 10, 17 and 18.
//!
//! Every cell goes the same way: processes are brought to the step and held there, the fault strikes, others ask for the
//! same, what is held is let go, the fault is lifted, and everybody asks until nothing changes any more.

use std::time::{Duration, Instant};

use semel_faults::{Lever, Point};
use semel_testkit::proxy::{Cut, Held, Matching};
use tokio::task::JoinHandle;

use crate::client::{self, Asked};
use crate::lab::{Lab, logs};
use crate::patience::PATIENCE;
use crate::reading;
use crate::seen::{Record, Seen, Told};
use crate::table::{Cell, Code, Fault, Store};
use crate::upstream::Mood;
use crate::world::{Settings, World};

/// The steps that are brought about here.
pub(crate) const STEPS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 9, 10, 17, 18];

/// Short, where a cell waits for its end; else longer than any cell takes.
const SHORT_LEASE: Duration = Duration::from_millis(1_000);
const LONG_LEASE: Duration = Duration::from_secs(20);
/// Renewed every second: one that is lost must not cost it, and a slow machine must not either.
const RENEWED_LEASE: Duration = Duration::from_secs(3);
/// Longer than a short lease, and shorter than SQLite waits for another writer.
const SLOW: Duration = Duration::from_millis(1_400);
/// How long a fault of the store lasts at least, for those who meet it.
const MOMENT: Duration = Duration::from_millis(500);
const HOUR_MILLIS: i64 = 3_600_000;
const HALF_A_LEASE_MILLIS: i64 = 10_000;

/// The statements of the store on PostgreSQL, as a proxy sees them.
const CLAIM: &str = "INSERT INTO semel_records (";
const COMPLETION: &str = "UPDATE semel_records AS r SET state = i.state";
const CHANGE: &str = "UPDATE semel_records AS r SET operation_id = i.operation_id";

/// What an operator decides while an executor stands still.
const VERDICT: &str = r#"{"effect":"as the operator saw it"}"#;

/// Runs a cell, and says what was seen.
pub(crate) async fn run(lab: &Lab, cell: Cell, broken: bool) -> Result<Seen, String> {
    let expected = reading::of(cell).code;
    let lease = match (expected, cell.step, cell.fault) {
        (Code::Owned, ..) => LONG_LEASE,
        (_, 18, Fault::AnswerLost) => RENEWED_LEASE,
        _ => SHORT_LEASE,
    };
    // A synchronous command is started by its claim; only a worker's start is a write of its own.
    let path = if (cell.step, cell.fault) == (4, Fault::AnswerLost) { "/reports" } else { "/payments" };
    let mut world = World::start(lab, Settings { lease, broken, path }, mood(cell)).await?;
    let seen = match cell.fault {
        Fault::Poison if cell.step == 1 => poisoned_requests(&world).await,
        Fault::Poison if cell.step == 17 => poisoned_cache(&world).await,
        Fault::Poison => poisoned_answer(&world).await,
        Fault::AnswerLost => answer_lost(&world, cell).await,
        _ => held_at_step(&mut world, cell, expected).await,
    };
    seen.map_err(|why| format!("{why}\n    {}", logs(&world.folder)))
}

fn mood(cell: Cell) -> Mood {
    match (cell.step, cell.fault) {
        (4, Fault::Poison) => Mood::Garbage,
        (5, Fault::Poison) => Mood::BreaksOffBefore,
        (6, Fault::Poison) => Mood::BreaksOffAfter,
        (7, Fault::Poison) => Mood::HalfAnswer,
        (9, Fault::Poison) => Mood::TooLarge,
        (5, _) => Mood::HoldsBefore,
        (6 | 18, _) => Mood::HoldsAfter,
        _ => Mood::Well,
    }
}

/// Where the first request is held.
enum Hold {
    Point(Point),
    Wire(Held),
    Upstream,
    Both(Box<Hold>, Box<Hold>),
}

impl Hold {
    fn release(self, world: &World<'_>) {
        match self {
            Hold::Point(point) => world.a.release(point),
            Hold::Wire(held) => held.release(),
            Hold::Upstream => world.upstream.release(),
            Hold::Both(one, other) => {
                one.release(world);
                other.release(world);
            }
        }
    }
}

/// Sends the first request, and has it held at the step.
async fn bring(world: &World<'_>, cell: Cell) -> Result<(Hold, JoinHandle<Told>), String> {
    let on_wire = cell.store == Store::Postgres;
    let at = async |point: Point| {
        world.a.arm(point)?;
        let first = world.send(&world.a);
        world.a.is_held(point).await?;
        Ok((Hold::Point(point), first))
    };
    let wire = async |held: Held| {
        let first = world.send(&world.a);
        reached(&held).await?;
        Ok((Hold::Wire(held), first))
    };
    let (_, proxies) = world.place.server().unzip();
    let proxy = proxies.map(|proxies| &proxies[0]);
    match (cell.step, proxy) {
        (1, _) => at(Point::RequestRead).await,
        (2, Some(proxy)) => wire(proxy.hold_statement(Matching::statement(CLAIM))).await,
        (2, None) => at(Point::ClaimSent).await,
        (3, Some(proxy)) => wire(proxy.hold_answer(Matching::statement(CLAIM))).await,
        (3, None) => at(Point::ClaimCommitted).await,
        (4, _) => at(Point::HandlerCalled).await,
        (5 | 6, _) => {
            let first = world.send(&world.a);
            upstream_holds(world).await?;
            Ok((Hold::Upstream, first))
        }
        (7, _) => at(Point::HandlerAnswered).await,
        (9, Some(proxy)) => wire(proxy.hold_statement(Matching::statement(COMPLETION))).await,
        (9, None) => at(Point::SettlementSent).await,
        (10, _) => at(Point::ResponseOut).await,
        (17, _) => at(Point::CacheFilled).await,
        (18, _) => {
            let first = world.send(&world.a);
            upstream_holds(world).await?;
            let renewal = match proxy {
                Some(proxy) if on_wire => {
                    let held = proxy.hold_statement(Matching::statement(CHANGE));
                    reached(&held).await?;
                    Hold::Wire(held)
                }
                _ => {
                    world.a.arm(Point::RenewalSent)?;
                    world.a.is_held(Point::RenewalSent).await?;
                    Hold::Point(Point::RenewalSent)
                }
            };
            Ok((Hold::Both(Box::new(renewal), Box::new(Hold::Upstream)), first))
        }
        (step, _) => Err(format!("step {step} is not brought about here")),
    }
}

async fn reached(held: &Held) -> Result<(), String> {
    let reached = tokio::time::timeout(PATIENCE, held.reached()).await;
    reached.map_err(|_| "the statement was never sent".to_owned())
}

async fn upstream_holds(world: &World<'_>) -> Result<(), String> {
    let held = tokio::time::timeout(PATIENCE, world.upstream.is_held()).await;
    held.map_err(|_| "the service was never called".to_owned())
}

/// What is noted while a cell runs.
struct Notes {
    at_fault: (Option<Record>, usize),
    /// Those who asked meanwhile and have no answer yet.
    asking: Vec<JoinHandle<Told>>,
    during: Vec<Told>,
    beyond: Vec<Told>,
    operator: Option<String>,
    executor_gone: bool,
}

impl Notes {
    fn new(record: Option<Record>, effects: usize) -> Notes {
        Notes {
            at_fault: (record, effects),
            asking: Vec::new(),
            during: Vec::new(),
            beyond: Vec::new(),
            operator: None,
            executor_gone: false,
        }
    }
}

async fn held_at_step(world: &mut World<'_>, cell: Cell, expected: Code) -> Result<Seen, String> {
    let (hold, first) = bring(world, cell).await?;
    let mut notes = Notes::new(world.record()?, world.upstream.effects().len());
    let first = strike(world, cell, expected, hold, first, &mut notes).await?;
    end(world, cell.fault, first, notes).await
}

/// The fault strikes, and is lifted. Gives what the first client was told.
async fn strike(
    world: &mut World<'_>,
    cell: Cell,
    expected: Code,
    hold: Hold,
    mut first: JoinHandle<Told>,
    notes: &mut Notes,
) -> Result<Told, String> {
    match cell.fault {
        Fault::Kill => {
            world.a.kill();
            notes.executor_gone = true;
            notes.asking.push(world.send(&world.b));
            let first = told(first).await;
            if let (9 | 18, Some((_, proxies))) = (cell.step, world.place.server()) {
                // What it was about to write is lost with it.
                proxies[0].cut_all().await;
            }
            // What was sent before it died may still arrive.
            hold.release(world);
            world.restart_a()?;
            Ok(first)
        }
        Fault::Failover => {
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
                // Its memory has what the store lost.
                notes.asking.push(world.send(&world.a));
            }
            Ok(first)
        }
        Fault::DatabaseKilled | Fault::DiskFull | Fault::PoolExhausted | Fault::ReadOnly => {
            let broken = break_store(world, cell).await?;
            notes.asking.push(world.send(&world.b));
            tokio::time::sleep(MOMENT).await;
            if let (3, Some((_, proxies))) = (cell.step, world.place.server()) {
                // The answer is lost with the connection.
                proxies[0].cut_all().await;
            }
            hold.release(world);
            // Where nothing may run without a store, or others hold a file, that lasts until it was said; else a moment.
            if matches!(expected, Code::FailClosed) || broken.is_some() {
                let first = told(first).await;
                notes.during.extend(remembered(world, cell).await);
                mend_store(world, cell, broken).await?;
                return Ok(first);
            }
            let early = tokio::time::timeout(MOMENT * 2, &mut first).await;
            notes.during.extend(remembered(world, cell).await);
            mend_store(world, cell, broken).await?;
            match early {
                Ok(first) => Ok(first.unwrap_or(Told::Left)),
                Err(_) => Ok(told(first).await),
            }
        }
        Fault::Slow => {
            let Some((_, proxies)) = world.place.server() else {
                let lock = Lock::take(world)?;
                hold.release(world);
                tokio::time::sleep(SLOW).await;
                lock.release()?;
                return Ok(told(first).await);
            };
            proxies[0].blackhole();
            // What is held on the wire is as slow as the rest.
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
        Fault::ClockJump => {
            for millis in [-HOUR_MILLIS, HALF_A_LEASE_MILLIS] {
                world.set_clock(millis).await?;
                notes.during.push(told(world.send(&world.b)).await);
            }
            world.set_clock(HOUR_MILLIS).await?;
            notes.beyond.push(told(world.send(&world.b)).await);
            hold.release(world);
            Ok(told(first).await)
        }
        Fault::Stopped => {
            world.a.stop(true);
            let hold = match hold {
                // What was sent arrives while the sender stands still.
                Hold::Wire(held) if cell.step == 2 => {
                    held.release();
                    None
                }
                hold => Some(hold),
            };
            let waits = |told: &Told| told.is_unknown() || told.is_done();
            let others = world.ask_until(&world.b, "nobody gave up the one who stands still", waits).await?;
            notes.during.extend(others);
            // Whoever only looks is told that it is unknown before a sweep has written that down.
            let open = world.record()?.filter(|record| record.state != "succeeded");
            if let (Code::Fenced | Code::UnknownFenced, Some(record)) = (expected, open) {
                world.resolve(&record.operation_id, VERDICT)?;
                notes.operator = Some(VERDICT.to_owned());
            }
            world.a.stop(false);
            if let Some(hold) = hold {
                hold.release(world);
            }
            Ok(told(first).await)
        }
        Fault::ClientGone => {
            first.abort();
            let _ = first.await;
            if let (1, Hold::Point(point)) = (cell.step, &hold) {
                // Nothing was begun, so nothing stays.
                world.a.is_left(*point).await?;
            }
            hold.release(world);
            Ok(Told::Left)
        }
        Fault::Duplicate => {
            let same = world.send(&world.a);
            notes.during.push(told(world.send(&world.b)).await);
            if cell.store == Store::Postgres || ![2, 3, 9, 18].contains(&cell.step) {
                notes.during.push(told(same).await);
            } else {
                // The one thread that writes is held: the duplicate waits behind it.
                notes.asking.push(same);
            }
            hold.release(world);
            Ok(told(first).await)
        }
        Fault::AnswerLost | Fault::Poison => Err("this fault strikes otherwise".to_owned()),
    }
}

/// What memory says without a store, where that is the question.
async fn remembered(world: &World<'_>, cell: Cell) -> Option<Told> {
    if cell.step == 17 { Some(told(world.send(&world.a)).await) } else { None }
}

async fn told(task: JoinHandle<Told>) -> Told {
    task.await.unwrap_or(Told::Left)
}

/// A file that somebody else writes.
struct Lock(rusqlite::Connection);

impl Lock {
    fn take(world: &World<'_>) -> Result<Lock, String> {
        let file = world.place.file().ok_or("only a file is locked")?;
        let lock = || {
            let file = rusqlite::Connection::open(file)?;
            file.busy_timeout(Duration::from_secs(5))?;
            file.execute_batch("BEGIN IMMEDIATE")?;
            Ok(Lock(file))
        };
        lock().map_err(|error: rusqlite::Error| format!("the file cannot be locked: {error}"))
    }

    fn release(self) -> Result<(), String> {
        self.0.execute_batch("ROLLBACK").map_err(|error| error.to_string())
    }
}

/// Breaks the store. What it gives mends it.
async fn break_store(world: &World<'_>, cell: Cell) -> Result<Option<Lock>, String> {
    let failed = |error: semel_testkit::postgres::Error| error.to_string();
    match (cell.fault, world.place.server()) {
        (Fault::DatabaseKilled, Some((cluster, _))) => {
            tokio::task::block_in_place(|| cluster.kill9()).map_err(failed)?;
        }
        (Fault::DiskFull, Some((cluster, _))) => {
            // A server that cannot write its log ends, and cannot recover before there is room again.
            tokio::task::block_in_place(|| cluster.limit_files(Some(0))).map_err(failed)?;
        }
        (Fault::DiskFull, None) => {
            world.a.limit_files(Some(0))?;
            world.b.limit_files(Some(0))?;
        }
        (Fault::PoolExhausted, Some(_)) => world.place.limit_connections(Some(0))?,
        (Fault::PoolExhausted, None) => return Lock::take(world).map(Some),
        (Fault::ReadOnly, Some(_)) => world.place.read_only(true)?,
        (Fault::ReadOnly, None) => {
            world.a.pull(Lever::ReadOnly(true)).await?;
            world.b.pull(Lever::ReadOnly(true)).await?;
        }
        (fault, _) => return Err(format!("{fault:?} does not break this store")),
    }
    Ok(None)
}

async fn mend_store(world: &World<'_>, cell: Cell, lock: Option<Lock>) -> Result<(), String> {
    let failed = |error: semel_testkit::postgres::Error| error.to_string();
    if let Some(lock) = lock {
        return lock.release();
    }
    match (cell.fault, world.place.server()) {
        (Fault::DatabaseKilled | Fault::DiskFull, Some((cluster, _))) => tokio::task::block_in_place(|| {
            cluster.kill9()?;
            cluster.restart()?;
            cluster.wait_until_ready()
        })
        .map_err(failed),
        (Fault::DiskFull, None) => {
            world.a.limit_files(None)?;
            world.b.limit_files(None)
        }
        (Fault::PoolExhausted, _) => world.place.limit_connections(None),
        (Fault::ReadOnly, Some(_)) => world.place.read_only(false),
        (Fault::ReadOnly, None) => {
            world.a.pull(Lever::ReadOnly(false)).await?;
            world.b.pull(Lever::ReadOnly(false)).await
        }
        (fault, _) => Err(format!("{fault:?} is not mended so")),
    }
}

/// The write is made, and its answer is lost.
async fn answer_lost(world: &World<'_>, cell: Cell) -> Result<Seen, String> {
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

/// Waits until the lease was renewed so often.
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

/// What the service answers is broken, or too much to keep.
async fn poisoned_answer(world: &World<'_>) -> Result<Seen, String> {
    let first = told(world.send(&world.a)).await;
    let notes = Notes { executor_gone: true, ..Notes::new(None, 0) };
    end(world, Fault::Poison, first, notes).await
}

/// Requests that are none.
async fn poisoned_requests(world: &World<'_>) -> Result<Seen, String> {
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

/// Requests that a careless cache would answer with what is another's.
async fn poisoned_cache(world: &World<'_>) -> Result<Seen, String> {
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
    // The stranger's command is another one: it is not judged here.
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

/// Everybody asks until nothing changes any more.
async fn end(world: &World<'_>, fault: Fault, first: Told, notes: Notes) -> Result<Seen, String> {
    let mut during = notes.during;
    for other in notes.asking {
        during.push(told(other).await);
    }
    let effects_then = world.upstream.effects().len();
    let gone = notes.executor_gone;
    let settled = |told: &Told| told.is_done() || told.is_not_retained() || (gone && told.is_unknown());
    let mut after = world.ask_until(&world.b, "it did not come to an end", settled).await?;
    let mut last = vec![told(world.send(&world.b)).await];
    // Memory may keep what the store lost, for a while: that is a matter of step 17.
    if fault != Fault::Failover {
        after.extend(world.ask_until(&world.a, "it did not come to an end", settled).await?);
        last.push(told(world.send(&world.a)).await);
    }
    Ok(Seen {
        at_fault: notes.at_fault,
        first,
        during,
        beyond: notes.beyond,
        effects_then,
        after,
        last,
        record: world.record()?,
        effects: world.upstream.effects(),
        operator: notes.operator.map(Into::into),
        executor_gone: gone,
    })
}
