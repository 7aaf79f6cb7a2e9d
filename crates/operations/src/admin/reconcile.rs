//! Look-ups of evidence at the admin listener: `semel reconcile`, for one command or many.

use std::sync::Arc;
use std::time::Duration;

use semel_core::problem::ProblemKind;
use semel_core::{Note, OperationId, Problem, StoreError};
use semel_flow::reconcile::{LookUpOutcome, LookUpResult, Reconciler};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::call::{AdminAnswer, AdminCall, malformed};
use super::{refused, unavailable};
use crate::operate::looks::{self, LookCounts};
use crate::operate::operation_id;
use crate::operate::records::absent;

/// Largest number of commands in one request.
const MAX_LOOKS: usize = 1000;
/// Time after which no further look-up of a request begins, so that its answer comes in time.
const LOOK_TIME: Duration = Duration::from_secs(45);

/// Looks for evidence about one command now.
pub(crate) async fn one(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (id, note) = (call.operation_id()?, call.note(looks::ACTION)?);
    let look = reconciler(&call)?.look_noted(id, note).await.map_err(unavailable)?;
    let look = look.ok_or_else(|| Problem::new(ProblemKind::OperationNotFound, absent(id)))?;
    let result = match &look.outcome {
        LookUpOutcome::Resolved(_) => "resolved",
        LookUpOutcome::Again { .. } => "again",
        LookUpOutcome::GivenUp { .. } => "given_up",
        LookUpOutcome::Overtaken => return Err(refused("another process is looking it up")),
        LookUpOutcome::NotUnknown(state) => {
            return Err(refused(&format!("{id} is {state}: reconcile does not apply to it")));
        }
        LookUpOutcome::Failed { why } => return Err(unavailable(StoreError::Unavailable(why.clone()))),
    };
    Ok(AdminAnswer { result, ..AdminAnswer::json(&looks::shown(&look)) })
}

/// Looks for evidence about many commands now, and names the result of each.
pub(crate) async fn many(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (note, ids) = (call.note(looks::ACTION)?, ids(&call)?);
    let results = look_up(reconciler(&call)?, &ids, &note).await;
    let mut counts = LookCounts::default();
    results.iter().for_each(|result| counts.count(result));
    let result = if counts.others == 0 { "done" } else { "done in part" };
    Ok(AdminAnswer { result, ..AdminAnswer::json(&counts.to_json(&results)) })
}

fn reconciler(call: &AdminCall) -> Result<&Arc<Reconciler>, Problem> {
    let why = "no evidence can be found: no `[operation.reconcile]` and no `[[webhook]]` is configured";
    call.admin.reconciler.as_ref().ok_or_else(|| refused(why))
}

/// Returns the commands of a request, each once.
fn ids(call: &AdminCall) -> Result<Vec<OperationId>, Problem> {
    let given = call.members.get("operationIds").and_then(Value::as_array);
    let given = given.ok_or_else(|| malformed("`operationIds` must be a list of texts."))?;
    if !(1..=MAX_LOOKS).contains(&given.len()) {
        return Err(malformed(format!("`operationIds` has from 1 to {MAX_LOOKS} elements.")));
    }
    let mut ids = Vec::with_capacity(given.len());
    for (index, id) in given.iter().enumerate() {
        let id = id.as_str().ok_or_else(|| malformed("`operationIds` must be a list of texts."))?;
        let id = operation_id(id).map_err(|wrong| malformed(format!("element {}: {wrong}.", index + 1)))?;
        if ids.contains(&id) {
            return Err(malformed(format!("{id} is named twice.")));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Looks commands up, at most as many at a time as the reconciler does itself. After a failure of the store, or when its time is
/// over, no further look-up begins.
async fn look_up(reconciler: &Arc<Reconciler>, ids: &[OperationId], note: &Note) -> Vec<Value> {
    let end = Instant::now() + LOOK_TIME;
    let mut results: Vec<Value> = ids.iter().map(|id| looks::not_tried(*id)).collect();
    let (mut waiting, mut running, mut is_stopped) = (ids.iter().enumerate(), JoinSet::new(), false);
    loop {
        while !is_stopped && running.len() < reconciler.concurrency() && Instant::now() < end {
            let Some((index, id)) = waiting.next() else { break };
            let (reconciler, id, note) = (reconciler.clone(), *id, note.clone());
            running.spawn(async move { (index, reconciler.look_noted(id, note).await) });
        }
        let Some(looked) = running.join_next().await else { return results };
        // A look-up that panicked is logged by its panic, and its command is due again later.
        let Ok((index, looked)) = looked else { continue };
        is_stopped |= stops(&looked);
        if let (Some(result), Some(id)) = (results.get_mut(index), ids.get(index)) {
            *result = looks::one_of_many(*id, looked);
        }
    }
}

/// Returns true after a failure that is not about one command only.
fn stops(looked: &Result<Option<LookUpResult>, StoreError>) -> bool {
    match looked {
        Ok(_) => false,
        Err(StoreError::Busy(_) | StoreError::Rejected(_) | StoreError::Corrupt(_)) => false,
        Err(StoreError::Unavailable(_) | StoreError::Ambiguous(_) | StoreError::Damaged(_)) => true,
    }
}
