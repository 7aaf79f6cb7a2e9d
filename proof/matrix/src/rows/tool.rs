//! A maintenance command line under fault: brought to its write, held there, and struck.

use std::time::Duration;

use semel_faults::{Lever, Point};
use semel_testkit::proxy::{Cut, Held, Matching};

use crate::patience::PATIENCE;
use crate::process::Process;
use crate::rows::store::{Lock, break_store, mend_store};
use crate::site::Site;
use crate::table::{Cell, Fault};

/// Longer than most steps take, and shorter than SQLite's busy timeout.
const SLOW: Duration = Duration::from_millis(1_400);
/// Duration of a store fault, unless the tool ends before. Longer than SQLite's busy timeout.
const AWAY: Duration = Duration::from_millis(3_500);
const HOUR_MILLIS: i64 = 3_600_000;

/// A command line, and the points at which it can be held.
pub(super) struct Work {
    pub(super) arguments: Vec<String>,
    /// SQLite: point before its write.
    pub(super) before: Point,
    /// SQLite: point within its write.
    pub(super) within: Option<Point>,
    /// SQLite: point after its commit, before it knows.
    pub(super) after: Point,
    /// PostgreSQL: statement of its write, and statement of its commit.
    pub(super) statement: Matching,
    pub(super) commit: Matching,
}

impl Work {
    pub(super) fn words(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }
}

/// Moment at which it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Before,
    Within,
    After,
}

/// Means by which it is held.
pub(super) enum Hold {
    Point(Point),
    Wire(Held),
}

impl Hold {
    pub(super) fn release(self, tool: &Process) {
        match self {
            Hold::Point(point) => tool.release(point),
            Hold::Wire(held) => held.release(),
        }
    }
}

/// State of the store during a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The store can be read.
    Readable,
    /// The store is unavailable or read-only.
    Broken,
    /// The store can be read and written, and the tool is suspended.
    Stopped,
}

/// Actions of other processes during a fault.
pub(super) trait Meanwhile: Send {
    fn at(&mut self, stage: Stage) -> impl Future<Output = Result<(), String>> + Send;
}

/// Starts the tool, and holds it. Returns `None` if this store has no such moment.
pub(super) async fn bring(
    site: &Site<'_>,
    work: &Work,
    name: &str,
    way: usize,
    when: When,
) -> Result<Option<(Process, Hold)>, String> {
    let words = work.words();
    let Some((_, proxies)) = site.place.server() else {
        let point = match when {
            When::Before => Some(work.before),
            When::Within => work.within,
            When::After => Some(work.after),
        };
        let Some(point) = point else { return Ok(None) };
        let tool = site.tool(name, way, &words, &[point])?;
        tool.is_held(point).await?;
        return Ok(Some((tool, Hold::Point(point))));
    };
    let held = match when {
        When::Before => proxies[way].hold_statement(work.statement.clone()),
        When::Within => return Ok(None),
        When::After => proxies[way].hold_answer(work.commit.clone()),
    };
    let tool = site.tool(name, way, &words, &[])?;
    let reached = tokio::time::timeout(PATIENCE, held.reached()).await;
    reached.map_err(|_| "the statement was never sent")?;
    Ok(Some((tool, Hold::Wire(held))))
}

async fn brought(site: &Site<'_>, work: &Work, name: &str, way: usize) -> Result<(Process, Hold), String> {
    let held = bring(site, work, name, way, When::Before).await?;
    held.ok_or_else(|| "it cannot be held before it writes".to_owned())
}

/// Makes the fault strike, and lifts it. Returns the exit code of the tool, if it ended by itself.
pub(super) async fn strike(
    site: &Site<'_>,
    work: &Work,
    cell: Cell,
    meanwhile: &mut impl Meanwhile,
) -> Result<Option<i32>, String> {
    let on_server = site.place.server();
    match cell.fault {
        Fault::Kill => {
            for when in [When::Before, When::Within, When::After] {
                let Some((mut tool, hold)) = bring(site, work, "first", 0, when).await? else { continue };
                tool.kill();
                if let (Some((_, proxies)), When::Before) = (on_server, when) {
                    // Writes that it had not sent are lost with it.
                    proxies[0].cut_all().await;
                }
                hold.release(&tool);
                meanwhile.at(Stage::Readable).await?;
            }
            Ok(None)
        }
        Fault::DatabaseKilled | Fault::DiskFull | Fault::PoolExhausted | Fault::ReadOnly => {
            let (mut tool, hold) = brought(site, work, "first", 0).await?;
            let lock = break_store(&site.place, &[&tool], cell.fault).await?;
            meanwhile.at(Stage::Broken).await?;
            hold.release(&tool);
            let early = tokio::time::timeout(AWAY, tool.ended()).await;
            let left: &[&Process] = if early.is_ok() { &[] } else { &[&tool] };
            mend_store(&site.place, left, cell.fault, lock).await?;
            match early {
                Ok(ended) => ended.map(Some),
                Err(_) => tool.ended().await.map(Some),
            }
        }
        Fault::Slow => {
            let (mut tool, hold) = brought(site, work, "first", 0).await?;
            let lock = match on_server {
                Some((_, proxies)) => {
                    proxies[0].blackhole();
                    None
                }
                None => Some(Lock::take(&site.place)?),
            };
            hold.release(&tool);
            tokio::time::sleep(SLOW).await;
            match (on_server, lock) {
                (_, Some(lock)) => lock.release()?,
                (Some((_, proxies)), None) => proxies[0].heal().await.map_err(|error| error.to_string())?,
                (None, None) => {}
            }
            tool.ended().await.map(Some)
        }
        Fault::AnswerLost => {
            let mut tool = match on_server {
                Some((_, proxies)) => {
                    let armed = proxies[0].cut_next(work.commit.clone(), Cut::AfterServerAnswered);
                    let tool = site.tool("first", 0, &work.words(), &[])?;
                    let struck = tokio::time::timeout(PATIENCE, armed.struck()).await;
                    struck.map_err(|_| "the statement was never sent")?;
                    tool
                }
                None => {
                    let (tool, hold) = brought(site, work, "first", 0).await?;
                    tool.pull(Lever::LoseAnswer).await?;
                    hold.release(&tool);
                    tool
                }
            };
            let code = tool.ended().await?;
            meanwhile.at(Stage::Readable).await?;
            Ok(Some(code))
        }
        Fault::Failover | Fault::Poison => {
            let code = site.tool("first", 0, &work.words(), &[])?.ended().await?;
            meanwhile.at(Stage::Readable).await?;
            Ok(Some(code))
        }
        Fault::Stopped => {
            let (mut tool, hold) = brought(site, work, "first", 0).await?;
            tool.stop(true);
            meanwhile.at(Stage::Stopped).await?;
            tool.stop(false);
            hold.release(&tool);
            tool.ended().await.map(Some)
        }
        Fault::Duplicate => {
            let (mut one, one_hold) = brought(site, work, "first", 0).await?;
            let (mut other, other_hold) = brought(site, work, "second", 1).await?;
            meanwhile.at(Stage::Readable).await?;
            one_hold.release(&one);
            other_hold.release(&other);
            let codes = [one.ended().await?, other.ended().await?];
            meanwhile.at(Stage::Readable).await?;
            Ok(codes.into_iter().max())
        }
        Fault::ClockJump => {
            for millis in [-HOUR_MILLIS, 10_000, HOUR_MILLIS] {
                let mut tool = site.tool("first", 0, &work.words(), &[Point::UpkeepBegun])?;
                tool.is_held(Point::UpkeepBegun).await?;
                tool.pull(Lever::Clock(millis)).await?;
                tool.release(Point::UpkeepBegun);
                let code = tool.ended().await?;
                if code != 0 {
                    return Err(format!("with the clock {millis} ms away it ended with {code}"));
                }
                meanwhile.at(Stage::Readable).await?;
            }
            Ok(None)
        }
        Fault::ClientGone | Fault::StreamCut => Err("this fault strikes otherwise".to_owned()),
    }
}
