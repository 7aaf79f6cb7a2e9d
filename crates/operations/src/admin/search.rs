//! Search for a command at the admin listener: `semel records find`. The terms are in a body, since a URL, which may
//! have a key, ends up in logs.

use semel_core::Problem;
use semel_core::problem::ProblemKind;
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::unavailable;
use crate::operate::find::{CommandMatch, FoundCommands, SearchTerms};

/// Names of the terms.
pub(crate) const TERMS: &[&str] = &["operationId", "tenant", "caller", "operation", "reference", "key"];

pub(crate) async fn find(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let found = found(&call).await?;
    let shown: Vec<Value> = found.commands.iter().map(CommandMatch::to_json).collect();
    Ok(AdminAnswer::json(&json!({ "records": shown, "omitted": found.omitted })))
}

/// Finds the commands that the terms in the body describe: at least one.
pub(super) async fn found(call: &AdminCall) -> Result<FoundCommands, Problem> {
    let terms = SearchTerms {
        operation_id: call.member("operationId")?,
        tenant: call.member("tenant")?,
        caller: call.member("caller")?,
        operation: call.member("operation")?,
        reference: call.member("reference")?,
        key: call.member("key")?.map(String::into_bytes),
    };
    let wanted = terms.read(&call.admin.config).map_err(|wrong| malformed(format!("{wrong}.")))?;
    let found = wanted.find(&*call.admin.store).await.map_err(unavailable)?;
    if found.commands.is_empty() {
        return Err(Problem::new(ProblemKind::OperationNotFound, format!("{}.", wanted.absent())));
    }
    Ok(found)
}
