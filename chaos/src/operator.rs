//! The operator: looks for unknown commands in the ledger, and says what it shows, with the program that operators have.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use semel_checker::Event;
use semel_checker::event::{Evidence, Ruled, Verdict};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::looker::Looker;
use crate::scribe::now;
use crate::settings::{millis, quarantine};
use crate::upstream::Entry;
use crate::world::World;

const PAUSE: Duration = Duration::from_millis(150);
/// How many are settled at the same time.
const HANDS: usize = 3;
/// How long the program may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// So many in a hundred are said not to have been executed too early, which must be refused: at least so long before
/// it would be time, and by a program that has less than that.
const HASTY: u64 = 20;
const HASTE_MS: i64 = 4_000;
const HASTY_PATIENCE: Duration = Duration::from_secs(3);

/// What the ledger shows.
struct Finding {
    /// The effect, if there is one.
    entry: Option<Entry>,
    /// It is too early to say that there is none.
    hasty: bool,
}

/// Settles what is unknown. Never ends.
pub(crate) async fn run(world: Arc<World>, looker: Arc<Looker>) {
    let mut hasty = HashSet::new();
    loop {
        let mut hands = JoinSet::new();
        for (operation_id, (quarantine_until, attempt)) in looker.unknown() {
            let Some(found) = judge(&world, &operation_id, quarantine_until, &mut hasty) else { continue };
            if hands.len() >= HANDS {
                hands.join_next().await;
            }
            let (world, looker) = (world.clone(), looker.clone());
            hands.spawn(async move {
                if say(&world, &operation_id, attempt, found).await == Some(true) {
                    looker.settled(&operation_id);
                }
            });
        }
        while hands.join_next().await.is_some() {}
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks into the ledger. Nothing if it is too early to say what is not there.
fn judge(
    world: &World,
    operation_id: &str,
    quarantine_until: i64,
    hasty: &mut HashSet<String>,
) -> Option<Finding> {
    let now = now();
    let calm = now > world.stalled_at() + millis(quarantine());
    // The time first: what is not there after it will never be.
    let over = now > quarantine_until && calm;
    if let Some(entry) = world.ledger.find(operation_id) {
        return Some(Finding { entry: Some(entry), hasty: false });
    }
    if over {
        return Some(Finding { entry: None, hasty: false });
    }
    let first = hasty.insert(operation_id.to_owned());
    let early = now + HASTE_MS < quarantine_until;
    let tries = first && early && Chance::of(world.options.seed, operation_id).percent(HASTY);
    tries.then_some(Finding { entry: None, hasty: true })
}

/// Says it, and whether it counts.
async fn say(world: &World, operation_id: &str, attempt: u32, finding: Finding) -> Option<bool> {
    let Finding { entry: found, hasty } = finding;
    let verdict = if found.is_some() { Verdict::Executed } else { Verdict::NotExecuted };
    let mut command = Command::from(world.semel());
    command.args(["records", "resolve", operation_id, "--reason", "the ledger says so"]);
    command.args(["--attempt", &attempt.to_string()]);
    let file = world.folder.join(format!("{operation_id}.json"));
    match &found {
        Some(entry) => {
            std::fs::write(&file, &entry.body).ok()?;
            command.args([
                "--verdict",
                "executed",
                "--status",
                "201",
                "--header",
                "X-Service: operator",
                "--body",
            ]);
            command.arg(&file);
        }
        None => {
            command.args(["--verdict", "not-executed"]);
        }
    }
    let (id, effect) = (operation_id.to_owned(), found.map(|entry| entry.effect));
    world.scribe.note(|at| Event::Evidence(Evidence { at, operation_id: id, verdict, effect }));
    command.kill_on_drop(true).stdin(std::process::Stdio::null());
    let patience = if hasty { HASTY_PATIENCE } else { PATIENCE };
    let output = tokio::time::timeout(patience, command.output()).await;
    let _ = std::fs::remove_file(&file);
    let accepted = match output.ok().and_then(Result::ok).and_then(|output| output.status.code()) {
        Some(0) => Some(true),
        Some(1) => Some(false),
        _ => None,
    };
    let id = operation_id.to_owned();
    world.scribe.note(|at| Event::Ruled(Ruled { at, operation_id: id, verdict, accepted }));
    accepted
}
