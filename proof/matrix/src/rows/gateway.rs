//! Steps of a command on its way through a gateway: 1 to 7, 9, 10, 17 and 18.
//!
//! Every cell goes the same way: the first request is held at the step, the fault strikes, duplicates come, the request
//! is released, the fault is lifted, and clients retry until nothing changes any more.

mod hold;
mod otherwise;
mod strike;

use std::time::Duration;

use tokio::task::JoinHandle;

use self::hold::bring;
use self::otherwise::{answer_lost, poisoned_answer, poisoned_cache, poisoned_requests};
use self::strike::{Scene, strike};
use crate::lab::{Lab, logs};
use crate::reading;
use crate::seen::{Record, Seen, Told};
use crate::table::{Cell, Code, Fault};
use crate::upstream::Mood;
use crate::world::{Settings, World};

/// Lease: short where a cell waits for its expiry, else longer than any cell takes.
const SHORT_LEASE: Duration = Duration::from_millis(1_000);
const LONG_LEASE: Duration = Duration::from_secs(20);
/// Lease that is renewed every second: neither a lost renewal nor a slow machine may let it expire.
const RENEWED_LEASE: Duration = Duration::from_secs(3);

/// Runs a cell, and returns its observations.
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

/// Observations while a cell runs.
struct Notes {
    at_fault: (Option<Record>, usize),
    /// Duplicates that were sent meanwhile and have no response yet.
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
    let first = strike(world, Scene { cell, expected, hold, first }, &mut notes).await?;
    end(world, cell.fault, first, notes).await
}

async fn told(task: JoinHandle<Told>) -> Told {
    task.await.unwrap_or(Told::Left)
}

/// Retries until nothing changes any more, and collects the observations.
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
    // A memory cache may replay lost records for a while: step 17 judges that.
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
