//! Operator: looks up unknown commands in the ledger, and gives the verdict with the program of operators.

use std::sync::Arc;
use std::time::Duration;

use semel_chaos::program::done;
use semel_chaos::scribe::now;
use semel_checker::Event;
use semel_checker::event::{Evidence, Ruled, Verdict};
use tokio::process::Command;

use crate::looker::Unsettled;
use crate::world::World;

/// Timeout of the program.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval between two looks for a fence.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Lifts the fence of a store that has noticed its loss, whenever there is one, until it is dropped: with asynchronous
/// replication, the loss must show in the history.
pub(crate) async fn accept_losses(world: Arc<World>) {
    loop {
        let mut command = Command::from(world.semel());
        command.args(["hold", "lift", "--store-fence", "--reason", "the loss is accepted"]);
        if done(command, PATIENCE).await == Some(true) {
            println!(
                "      the store noticed that it had lost writes, and was fenced: an operator lifts the fence"
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Settles an unknown command, if the ledger proves what became of it.
pub(crate) async fn settle(world: &World, unknown: &Unsettled) -> Result<(), String> {
    let Some(quarantine_until) = unknown.quarantine_until else { return Ok(()) };
    let id = unknown.operation_id.as_str();
    // The time is read first: an effect that is not in the ledger after that time never will be.
    let over = now() > quarantine_until;
    let entry = world.ledger.find(id);
    if entry.is_none() && !over {
        return Ok(());
    }
    let mut command = Command::from(world.semel());
    command.args(["records", "resolve", id, "--reason", "the ledger says so"]);
    command.args(["--attempt", &unknown.epoch.to_string()]);
    let file = world.folder.join(format!("{id}.json"));
    let verdict = match &entry {
        Some(entry) => {
            std::fs::write(&file, &entry.body).map_err(|error| error.to_string())?;
            command.args(["--verdict", "executed", "--status", "201", "--body"]).arg(&file);
            Verdict::Executed
        }
        None => {
            command.args(["--verdict", "not-executed"]);
            Verdict::NotExecuted
        }
    };
    let (operation_id, effect) = (id.to_owned(), entry.map(|entry| entry.effect));
    let evidence = Evidence { at: 0, operation_id: operation_id.clone(), verdict, effect, part: None };
    world.scribe.note(|at| Event::Evidence(Evidence { at, ..evidence }));
    let accepted = done(command, PATIENCE).await;
    let _ = std::fs::remove_file(&file);
    world.scribe.note(|at| Event::Ruled(Ruled { at, operation_id, verdict, accepted, part: None }));
    Ok(())
}
