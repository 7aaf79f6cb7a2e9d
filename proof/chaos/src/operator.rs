//! Operator: looks up unknown commands in the ledger, and gives its verdict with the program of operators.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use semel_checker::Event;
use semel_checker::event::{Evidence, Ruled, Verdict};
use semel_testkit::Chance;
use serde_json::json;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::looker::{Looker, Unknown};
use crate::messages;
use crate::settings::{CHARGE, CHARGES, ORDERS, TRANSFERS, millis, quarantine};
use crate::world::World;
use semel_chaos::answer::Entry;
use semel_chaos::program::{PATIENCE, done};
use semel_chaos::scribe::now;

const PAUSE: Duration = Duration::from_millis(150);
/// Number of verdicts that are given at the same time.
const HANDS: usize = 3;
/// Percentage of "not executed" verdicts that come too early and must be refused: at least `HASTE_MS` before the end
/// of the quarantine, by a program with a timeout below that.
const HASTY: u64 = 20;
const HASTE_MS: i64 = 4_000;
const HASTY_PATIENCE: Duration = Duration::from_secs(3);

/// Result of a lookup in the ledger.
struct Finding {
    /// Response with the effect that it names, if the command was executed.
    entry: Option<Entry>,
    /// Status of that response.
    status: u16,
    /// Verdict on the command.
    verdict: Verdict,
    /// True if it is too early for "not executed".
    hasty: bool,
}

impl Finding {
    fn of(entry: Option<Entry>) -> Finding {
        let verdict = if entry.is_some() { Verdict::Executed } else { Verdict::NotExecuted };
        Finding { entry, status: 201, verdict, hasty: false }
    }
}

/// Settles unknown commands. Never ends.
pub(crate) async fn run(world: Arc<World>, looker: Arc<Looker>) {
    let mut hasty = HashSet::new();
    loop {
        let mut hands = JoinSet::new();
        for unknown in looker.unknown() {
            let Some(found) = judge(&world, &looker, &unknown, &mut hasty) else { continue };
            if hands.len() >= HANDS {
                hands.join_next().await;
            }
            let (world, looker) = (world.clone(), looker.clone());
            hands.spawn(async move {
                if say(&world, &unknown, found).await == Some(true) {
                    looker.settled(&unknown.operation_id);
                }
            });
        }
        while hands.join_next().await.is_some() {}
        messages::see_to_dead_ones(&world, &looker).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks up the effect. Returns `None` if it is absent and the quarantine is not over.
fn judge(world: &World, looker: &Looker, unknown: &Unknown, hasty: &mut HashSet<String>) -> Option<Finding> {
    let id = &unknown.operation_id;
    let now = now();
    let calm = now > world.stalled_at() + millis(quarantine());
    // The time is read first: an effect that is not in the ledger after that time never will be.
    let over = now > unknown.quarantine_until && calm;
    match (unknown.operation.as_str(), unknown.open.as_deref()) {
        (ORDERS, None) => return Some(Finding { verdict: Verdict::NothingOpen, ..Finding::of(None) }),
        (CHARGES, _) if world.ledger.provider.find(&charge_of(id)).is_none() => {
            return without_charge(looker, unknown, over, hasty);
        }
        _ => {}
    }
    // A ledger that cannot be read proves nothing: least of all that the effect is absent.
    if let Some(entry) = find(world, unknown)? {
        return Some(Finding::of(Some(entry)));
    }
    if over {
        return Some(Finding::of(None));
    }
    let first = hasty.insert(id.clone());
    let early = now + HASTE_MS < unknown.quarantine_until;
    let tries = first && early && Chance::of(world.options.seed, id).percent(HASTY);
    tries.then_some(Finding { hasty: true, ..Finding::of(None) })
}

/// Returns the effect of a command from its ledger, if it has one there. `None`: the ledger cannot be read now.
fn find(world: &World, unknown: &Unknown) -> Option<Option<Entry>> {
    let id = &unknown.operation_id;
    Some(match unknown.operation.as_str() {
        ORDERS => world.ledger.provider.find(&format!("{id}:{}", unknown.open.as_deref()?)),
        CHARGES => world.ledger.provider.find(&charge_of(id)),
        TRANSFERS => {
            let row = world.place.rows().ok()?.into_iter().find(|row| row.operation_id == *id);
            row.map(|row| {
                let body = json!({ "effect": row.effect, "canary": row.canary }).to_string();
                Entry { effect: row.effect, body }
            })
        }
        _ => world.ledger.find(id),
    })
}

fn charge_of(operation_id: &str) -> String {
    format!("{operation_id}:{CHARGE}")
}

/// Judges a command whose message was not charged. While the message exists, the operator handles the message. Once
/// it is discarded, the command is settled without an effect. Some operators say "not executed", which is wrong: its
/// order is committed.
fn without_charge(
    looker: &Looker,
    unknown: &Unknown,
    over: bool,
    hasty: &mut HashSet<String>,
) -> Option<Finding> {
    let id = &unknown.operation_id;
    if !over || unknown.reason != "message_dead" {
        return None;
    }
    if !looker.has_message(&charge_of(id)) {
        let body = json!({ "effect": null, "discarded": true }).to_string();
        let entry = Entry { effect: String::new(), body };
        return Some(Finding { status: 410, ..Finding::of(Some(entry)) });
    }
    hasty.insert(id.clone()).then(|| Finding::of(None))
}

/// Gives the verdict. Returns true if it counts.
async fn say(world: &World, unknown: &Unknown, finding: Finding) -> Option<bool> {
    let Finding { entry, status, verdict, hasty } = finding;
    let id = unknown.operation_id.as_str();
    let mut command = Command::from(world.semel());
    command.args(["records", "resolve", id, "--reason", "the ledger says so"]);
    command.args(["--attempt", &unknown.epoch.to_string()]);
    let part = unknown.open.clone().filter(|_| unknown.operation == ORDERS);
    if let Some(phase) = &part {
        command.args(["--phase", phase]);
    }
    let file = world.folder.join(format!("{id}.json"));
    match (&entry, verdict) {
        (_, Verdict::NothingOpen) => {
            command.args(["--verdict", "resume"]);
        }
        (Some(entry), _) if part.is_some() => {
            // The phase's code returns the effect.
            std::fs::write(&file, json!(entry.effect).to_string()).ok()?;
            command.args(["--verdict", "executed", "--output"]).arg(&file);
        }
        (Some(entry), _) => {
            std::fs::write(&file, &entry.body).ok()?;
            let status = status.to_string();
            command.args(["--verdict", "executed", "--status", &status, "--header", "X-Service: operator"]);
            command.arg("--body").arg(&file);
        }
        (None, _) => {
            command.args(["--verdict", "not-executed"]);
        }
    }
    let effect = entry.map(|entry| entry.effect).filter(|effect| !effect.is_empty());
    let evidence = Evidence { at: 0, operation_id: id.to_owned(), verdict, effect, part: part.clone() };
    world.scribe.note(|at| Event::Evidence(Evidence { at, ..evidence }));
    let accepted = done(command, if hasty { HASTY_PATIENCE } else { PATIENCE }).await;
    let _ = std::fs::remove_file(&file);
    let operation_id = id.to_owned();
    world.scribe.note(|at| Event::Ruled(Ruled { at, operation_id, verdict, accepted, part }));
    accepted
}
