//! Records at the admin listener: the views and actions of `semel records` and `semel reconcile`.

use bytes::Bytes;
use semel_core::problem::ProblemKind;
use semel_core::{Change, Epoch, Problem, Record, Records, Store};
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::{refused, told, unavailable};
use crate::operate::content::ContentLookup;
use crate::operate::filters::{FilterSpelling, WantedRecords};
use crate::operate::records::{Said, absent, act, done, find, summary, unreadable};
use crate::operate::requests::{self, RequestLookup};
use crate::operate::story::Around;
use crate::operate::{content, operation_id, story, verdicts};

pub(crate) async fn list(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let wanted =
        WantedRecords::read(FilterSpelling::Parameters, |name| call.query.flag(name)).map_err(malformed)?;
    let after = call.query.get("after").map(|id| operation_id(&id)).transpose().map_err(malformed)?;
    let (store, limit) = (&call.admin.store, call.limit()?);
    let _turn = call.turn().await?;
    let filter = wanted.page(store.now().await.map_err(unavailable)?, after, limit);
    let page = store.list(&filter).await.map_err(unavailable)?;
    let shown: Vec<Value> = page.records.iter().map(summary).collect();
    let bad: Vec<Value> = page.unreadable.iter().map(unreadable).collect();
    let next = page.next.map(|id| id.to_string());
    Ok(AdminAnswer::json(&json!({ "records": shown, "unreadable": bad, "next": next })))
}

pub(crate) async fn show(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let id = call.operation_id()?;
    let found = find(&*call.admin.store, id).await.map_err(unavailable)?;
    let found = found.ok_or_else(|| Problem::new(ProblemKind::OperationNotFound, absent(id)))?;
    Ok(AdminAnswer::json(&found.to_json()))
}

/// Shows the stored response of a command, and records a note of the reader and the reason.
pub(crate) async fn response(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (id, note, admin) = (call.operation_id()?, call.note(content::RESPONSE)?, &call.admin);
    let read = content::read_response(&*admin.store, &*admin.audit, id, &note).await.map_err(unavailable)?;
    match read {
        ContentLookup::Kept(response) => Ok(AdminAnswer::json(&content::response_to_json(id, &response))),
        ContentLookup::Absent(why) => Err(Problem::new(ProblemKind::OperationNotFound, why)),
        ContentLookup::NotKept(why) => Err(Problem::new(ProblemKind::NotFound, why)),
        ContentLookup::Unreadable(why) => {
            Err(Problem::new(ProblemKind::ResponseUnreadable, format!("{why}.")))
        }
    }
}

pub(crate) async fn history(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let id = call.operation_id()?;
    let found = find(&*call.admin.store, id).await.map_err(unavailable)?;
    let found = found.ok_or_else(|| Problem::new(ProblemKind::OperationNotFound, absent(id)))?;
    let around = Around { same_store: "", config: &call.admin.config };
    Ok(AdminAnswer::json(&story::to_json(id, &found, &around)))
}

/// Shows the stored request of a command, and records a note of the reader and the reason.
pub(crate) async fn request(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (id, note) = (call.operation_id()?, call.note(requests::ACTION)?);
    match requests::read(&*call.admin.store, id, &note).await.map_err(unavailable)? {
        RequestLookup::Kept(request) => Ok(AdminAnswer::json(&requests::to_json(id, &request))),
        RequestLookup::Absent(why) => Err(Problem::new(ProblemKind::OperationNotFound, why)),
        RequestLookup::NotKept(why) => Err(Problem::new(ProblemKind::NotFound, why)),
        RequestLookup::Unreadable(why) => Err(refused(&why)),
    }
}

pub(crate) async fn resolve(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (id, note, said) = (call.operation_id()?, call.note("resolve")?, verdict(&call)?);
    let attempt = attempt(&call)?;
    let (admin, mut loses_its_body) = (&call.admin, false);
    let change = |record: &Record| {
        let policy = admin.config.policy_of(&record.operation);
        loses_its_body = said.loses_its_body(policy);
        said.change(policy, attempt)
    };
    let acted = act(&*admin.store, id, change, note).await.map_err(unavailable)?;
    told(acted, ProblemKind::OperationNotFound, |state| {
        let mut shown = done(id, state);
        if loses_its_body {
            shown["bodyStored"] = false.into();
        }
        shown
    })
}

pub(crate) async fn release(call: AdminCall) -> Result<AdminAnswer, Problem> {
    change_record(call, "release", Change::free()).await
}

pub(crate) async fn purge(call: AdminCall) -> Result<AdminAnswer, Problem> {
    change_record(call, "purge", Change::purge()).await
}

async fn change_record(call: AdminCall, action: &str, change: Change) -> Result<AdminAnswer, Problem> {
    let (id, note) = (call.operation_id()?, call.note(action)?);
    let acted = act(&*call.admin.store, id, |_| change, note).await.map_err(unavailable)?;
    told(acted, ProblemKind::OperationNotFound, |state| done(id, state))
}

/// Returns the attempt that the operator names.
fn attempt(call: &AdminCall) -> Result<Epoch, Problem> {
    verdicts::attempt(&call.members).map_err(malformed)
}

/// Returns the operator's verdict on an unknown outcome.
fn verdict(call: &AdminCall) -> Result<Said, Problem> {
    let (verdict, phase) = (call.member("verdict")?, call.member("phase")?);
    let output = call.members.get("output");
    if !matches!(verdict.as_deref(), Some("executed" | "not-executed" | "resume")) {
        return Err(malformed("`verdict` must be \"executed\", \"not-executed\" or \"resume\"."));
    }
    if phase.is_none() && output.is_none() && verdict.as_deref() != Some("resume") {
        return verdicts::verdict(&call.members).map_err(malformed);
    }
    if verdicts::RESPONSE.iter().any(|name| call.members.contains_key(*name)) {
        return Err(malformed("`status`, `headers` and `body` settle a whole command, not an open call."));
    }
    let output = output.map(|output| Bytes::from(output.to_string()));
    Said::of_call(attempt(call)?, phase.as_deref(), verdict.as_deref().unwrap_or_default(), output)
        .map_err(|wrong| malformed(format!("{wrong}.")))
}
