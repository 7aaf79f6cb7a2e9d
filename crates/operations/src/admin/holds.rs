//! Holds at the admin listener: the views and actions of `semel hold`.

use semel_core::problem::ProblemKind;
use semel_core::{HoldTarget, Problem};
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::{refused, told, unavailable};
use crate::operate::holds::{HoldAction, act, check_operation, done, summary, target};

pub(crate) async fn list(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let holds = call.admin.holds.holds().await.map_err(unavailable)?;
    let shown: Vec<Value> = holds.iter().map(summary).collect();
    Ok(AdminAnswer::json(&json!({ "holds": shown })))
}

pub(crate) async fn add(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let target = read(&call)?;
    let checked = check_operation(&target, &call.admin.config, &*call.admin.store).await;
    checked.map_err(unavailable)?.map_err(|why| refused(&why))?;
    change(call, &target, HoldAction::Add).await
}

pub(crate) async fn lift(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let target = read(&call)?;
    change(call, &target, HoldAction::Lift).await
}

fn read(call: &AdminCall) -> Result<HoldTarget, Problem> {
    let kind = call.member("kind")?.ok_or_else(|| malformed("`kind` is missing."))?;
    target(&kind, call.member("name")?.as_deref()).map_err(|wrong| malformed(format!("{wrong}.")))
}

async fn change(call: AdminCall, target: &HoldTarget, action: HoldAction) -> Result<AdminAnswer, Problem> {
    let note = call.note(action.as_str())?;
    let acted = act(&*call.admin.holds, target, action, note).await.map_err(unavailable)?;
    told(acted, ProblemKind::NotFound, |_| done(target, action))
}
