//! Holds at the admin listener: the views and actions of `semel hold`.

use semel_core::problem::ProblemKind;
use semel_core::{HoldTarget, Problem};
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::{refused, unavailable};
use crate::operate::Acted;
use crate::operate::holds::{HoldAction, act, check_operation, done, summary, target, unknown_tenant};

pub(crate) async fn list(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let holds = call.admin.holds.holds().await.map_err(unavailable)?;
    let shown: Vec<Value> = holds.iter().map(summary).collect();
    Ok(AdminAnswer::json(&json!({ "holds": shown })))
}

pub(crate) async fn add(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let target = read(&call)?;
    let checked = check_operation(&target, &call.admin.config, &*call.admin.store).await;
    checked.map_err(unavailable)?.map_err(|why| refused(&why))?;
    let admin = call.admin.clone();
    let done = change(call, &target, HoldAction::Add).await?;
    // It is held before anything is looked up: a slow store must not delay that.
    let warning = unknown_tenant(&target, &admin.config, &*admin.store).await;
    Ok(answer(&target, done, warning.as_deref()))
}

pub(crate) async fn lift(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let target = read(&call)?;
    let done = change(call, &target, HoldAction::Lift).await?;
    Ok(answer(&target, done, None))
}

fn read(call: &AdminCall) -> Result<HoldTarget, Problem> {
    let kind = call.member("kind")?.ok_or_else(|| malformed("`kind` is missing."))?;
    target(&kind, call.member("name")?.as_deref()).map_err(|wrong| malformed(format!("{wrong}.")))
}

/// Performs the action.
async fn change(call: AdminCall, target: &HoldTarget, action: HoldAction) -> Result<HoldAction, Problem> {
    let note = call.note(action.as_str())?;
    match act(&*call.admin.store, &*call.admin.holds, target, action, note).await.map_err(unavailable)? {
        Acted::Done(_) => Ok(action),
        Acted::Refused(why) => Err(refused(&why)),
        Acted::Absent(why) => Err(Problem::new(ProblemKind::NotFound, why)),
    }
}

fn answer(target: &HoldTarget, action: HoldAction, warning: Option<&str>) -> AdminAnswer {
    AdminAnswer::json(&done(target, action, warning))
}
