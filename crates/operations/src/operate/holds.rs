//! Holds as operators see them, and the actions on one.

use semel_core::hold::MAX_HOLDS;
use semel_core::{Hold, HoldChange, HoldTarget, Holds, Note, OperationName, Records, StoreError};
use semel_settings::{Config, OperationConfig, nearest};
use serde_json::{Value, json};

use super::names::unknown_operation;
use super::{Acted, beginning, printable};

/// Time after which every gateway knows of a change.
const KNOWN_AFTER: &str = "2 seconds";

/// Action on a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldAction {
    /// Holds the target.
    Add,
    /// Lifts the hold of the target.
    Lift,
}

impl HoldAction {
    /// Returns the name of the action in notes and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            HoldAction::Add => "hold",
            HoldAction::Lift => "lift",
        }
    }
}

/// Parses a target. The reconciler has no name.
///
/// # Errors
/// Returns a description of the invalid part.
pub fn target(kind: &str, name: Option<&str>) -> Result<HoldTarget, String> {
    let known = HoldTarget::KINDS.join(", ");
    match (HoldTarget::KINDS.contains(&kind), name) {
        (false, _) => Err(format!("{:?} is not a kind of target: {known}", beginning(kind))),
        (true, None | Some("")) if kind != HoldTarget::Reconciler.kind() => {
            Err(format!("the name of the {kind} is missing"))
        }
        (true, name) => HoldTarget::new(kind, name.unwrap_or_default()).ok_or_else(|| {
            match kind == HoldTarget::Reconciler.kind() {
                true => "the reconciler has no name".to_owned(),
                false => format!(
                    "the name of the {kind} is too long, or has a control character: it cannot be the name of one"
                ),
            }
        }),
    }
}

/// Checks that new commands can have the name of a held operation. Returns the reason if they cannot: a mistyped
/// hold would stop nothing.
pub async fn check_operation(
    target: &HoldTarget,
    config: &Config,
    store: &dyn Records,
) -> Result<Result<(), String>, StoreError> {
    let HoldTarget::Operation(name) = target else { return Ok(Ok(())) };
    let is = |own: &OperationName| own.as_str() == name;
    let is_former = |operation: &&OperationConfig| operation.aliases.iter().any(is);
    if config.operations.iter().any(|operation| is(&operation.name)) {
        return Ok(Ok(()));
    }
    let shown = printable(name);
    if let Some(operation) = config.operations.iter().find(is_former) {
        let now = &operation.name;
        return Ok(Err(format!(
            "{shown} is a former name of {now}, which its commands have now: hold {now}"
        )));
    }
    Ok(unknown_operation(name, config, store).await?.map_or(Ok(()), Err))
}

/// Performs the action and records a note with the operator and the reason, in one write. The note's action is
/// replaced by that of the hold.
pub async fn act(
    holds: &dyn Holds,
    target: &HoldTarget,
    action: HoldAction,
    note: Note,
) -> Result<Acted<HoldAction>, StoreError> {
    let note = Note { action: format!("{} {target}", action.as_str()), ..note };
    let change = match action {
        HoldAction::Add => holds.hold(target, &note).await?,
        HoldAction::Lift => holds.lift(target, &note).await?,
    };
    let shown = printable(&target.to_string());
    Ok(match (change, action) {
        (HoldChange::Done, _) => Acted::Done(Some(action)),
        (HoldChange::AlreadySo, HoldAction::Add) => {
            Acted::Refused(format!("{shown} is held already; `semel hold list` shows since when and why"))
        }
        (HoldChange::AlreadySo, HoldAction::Lift) => {
            let held: Vec<String> =
                holds.holds().await?.into_iter().map(|hold| hold.target.to_string()).collect();
            let near = nearest(&target.to_string(), held.iter().map(String::as_str));
            let advice = match (near, held.is_empty()) {
                (Some(near), _) => format!("; {} is", printable(near)),
                (None, true) => "; nothing is".to_owned(),
                (None, false) => "; `semel hold list` shows what is".to_owned(),
            };
            Acted::Refused(format!("{shown} is not held{advice}"))
        }
        (HoldChange::TooMany, _) => Acted::Refused(format!(
            "{MAX_HOLDS} holds are in force, and there can be no more: lift one first"
        )),
    })
}

/// Describes the effect of an action.
pub fn effect(target: &HoldTarget, action: HoldAction) -> String {
    let what = match (target, action) {
        (HoldTarget::Operation(_) | HoldTarget::Tenant(_), HoldAction::Add) => {
            "new commands get 503 IDEMPOTENCY_HELD and do not run, workers start none that wait, and retries of \
             known commands are answered as before; commands that run already are not stopped"
        }
        (HoldTarget::Operation(_) | HoldTarget::Tenant(_), HoldAction::Lift) => {
            "new commands run again, and workers start those that wait"
        }
        (HoldTarget::Sink(_), HoldAction::Add) => {
            "messages of this kind are kept and not delivered; later messages of the same command wait too"
        }
        (HoldTarget::Sink(_), HoldAction::Lift) => "messages of this kind are delivered again",
        (HoldTarget::Reconciler, HoldAction::Add) => "unknown outcomes are not looked up on schedule",
        (HoldTarget::Reconciler, HoldAction::Lift) => "unknown outcomes are looked up on schedule again",
    };
    format!("within {KNOWN_AFTER}, in every gateway of this store: {what}")
}

/// Returns a hold as JSON. The names are stable.
pub fn summary(hold: &Hold) -> Value {
    let mut shown = target_json(&hold.target);
    shown["since"] = hold.since.to_rfc3339().into();
    shown["who"] = hold.who.as_str().into();
    shown["why"] = hold.why.as_str().into();
    shown
}

/// Returns the result of an action as JSON. The names are stable.
pub fn done(target: &HoldTarget, action: HoldAction) -> Value {
    let mut shown = target_json(target);
    shown["held"] = (action == HoldAction::Add).into();
    shown["effect"] = effect(target, action).into();
    shown
}

fn target_json(target: &HoldTarget) -> Value {
    let name = Some(target.name()).filter(|name| !name.is_empty());
    json!({ "kind": target.kind(), "name": name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_needs_a_known_kind_and_a_usable_name() {
        assert_eq!(target("tenant", Some("acme")), Ok(HoldTarget::Tenant("acme".to_owned())));
        for nameless in [None, Some("")] {
            assert_eq!(target("reconciler", nameless), Ok(HoldTarget::Reconciler));
        }
        for (kind, name, why) in [
            ("caller", Some("x"), "not a kind of target: operation, tenant, sink, reconciler"),
            ("sink", None, "the name of the sink is missing"),
            ("operation", Some(""), "the name of the operation is missing"),
            ("tenant", Some("a\u{7}"), "control character"),
            ("reconciler", Some("x"), "has no name"),
        ] {
            let refused = target(kind, name).expect_err("it is no target");
            assert!(refused.contains(why), "{kind} {name:?}: {refused}");
        }
    }
}
