//! Holds as operators see them, and the actions on one.

use semel_core::hold::MAX_HOLDS;
use semel_core::{
    Change, Decision, Filter, Hold, HoldChange, HoldTarget, Holds, Note, OperationName, Records, StateName,
    StoreError,
};
use semel_settings::{CertificateTenant, Config, OperationConfig, PrincipalSource, TenantSource, nearest};
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

/// Parses a target. The reconciler and the store have no name.
///
/// # Errors
/// Returns a description of the invalid part.
pub fn target(kind: &str, name: Option<&str>) -> Result<HoldTarget, String> {
    let known = HoldTarget::KINDS.join(", ");
    match (HoldTarget::KINDS.contains(&kind), name) {
        (false, _) => Err(format!("{:?} is not a kind of target: {known}", beginning(kind))),
        (true, None | Some("")) if HoldTarget::is_named(kind) => {
            Err(format!("the name of the {} is missing", named_part(kind)))
        }
        (true, name) => {
            HoldTarget::new(kind, name.unwrap_or_default()).ok_or_else(|| match HoldTarget::is_named(kind) {
                false => format!("the {kind} has no name"),
                true => format!(
                    "the name of the {} is too long, or has a control character: it cannot be the name of one",
                    named_part(kind)
                ),
            })
        }
    }
}

/// Returns the part of the system whose name a target of this kind has.
fn named_part(kind: &str) -> &str {
    match kind {
        "look-up-first" | "younger-keys" => "operation",
        other => other,
    }
}

/// Checks that new commands can have the name of a held operation. Returns the reason if they cannot: a mistyped
/// hold would stop nothing.
pub async fn check_operation(
    target: &HoldTarget,
    config: &Config,
    store: &dyn Records,
) -> Result<Result<(), String>, StoreError> {
    let (HoldTarget::Operation(name) | HoldTarget::LookUpFirst(name) | HoldTarget::YoungerKeys(name)) =
        target
    else {
        return Ok(Ok(()));
    };
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

/// Returns a warning if nothing is known of a held tenant: its name may be mistyped. It is held all the same, since its
/// first command may come at any moment. The look-up reads one page of the store, and so not every record.
pub async fn unknown_tenant(target: &HoldTarget, config: &Config, store: &dyn Records) -> Option<String> {
    let HoldTarget::Tenant(name) = target else { return None };
    if is_configured(name, config) {
        return None;
    }
    let filter = Filter { tenant: Some(name.clone()), limit: 1, ..Filter::default() };
    let shown = printable(name);
    let found = match store.list(&filter).await {
        Ok(page) if !page.records.is_empty() || !page.unreadable.is_empty() => return None,
        Ok(page) if page.next.is_none() => format!("no record of tenant {shown} is in the store"),
        Ok(_) => format!(
            "no record of tenant {shown} is among the oldest of the store; the look-up does not read the later ones"
        ),
        Err(error) => format!("the records of tenant {shown} could not be looked up: {error}"),
    };
    Some(format!(
        "{found}, and no setting names this tenant. It is held. If the name is mistyped, lift this hold, and hold the \
         right tenant"
    ))
}

/// Returns true if the settings name this tenant.
fn is_configured(tenant: &str, config: &Config) -> bool {
    let identity = match &config.identity {
        PrincipalSource::None => Some("local"),
        PrincipalSource::ClientCertificate(settings) => match &settings.tenant {
            CertificateTenant::Fixed(tenant) => Some(tenant.as_str()),
            CertificateTenant::Field(_) => None,
        },
        PrincipalSource::Introspection(settings) => match &settings.tenant {
            TenantSource::Fixed(tenant) => Some(tenant.as_str()),
            TenantSource::Claim(_) => None,
        },
        PrincipalSource::ApiKey | PrincipalSource::TrustedHeaders { .. } | PrincipalSource::Jwt(_) => None,
    };
    let quotas = config.limits.exceptions.iter().map(|exception| exception.tenant.as_str());
    let webhooks =
        config.webhooks.iter().flat_map(|webhook| webhook.tenants.iter().flatten().map(String::as_str));
    identity.into_iter().chain(quotas).chain(webhooks).any(|known| known == tenant)
}

/// Number of records that one page of a doubt has.
const PAGE: usize = 500;

/// Makes the commands unknown that the store had as open when it was fenced: it may have forgotten later attempts at them, and no
/// worker may start them again. Called before a fence is lifted. Returns their number; 0 without a fence.
///
/// # Errors
/// If the store fails. Called again, it goes on.
async fn doubt_open_commands(
    store: &dyn Records,
    holds: &dyn Holds,
    note: &Note,
) -> Result<usize, StoreError> {
    let holds = holds.holds().await?;
    let Some(fence) = holds.iter().find(|hold| hold.target == HoldTarget::Store) else { return Ok(0) };
    let mut doubted = 0;
    for state in [StateName::Claimed, StateName::Processing, StateName::Unknown] {
        let mut filter =
            Filter { state: Some(state), until: Some(fence.since), limit: PAGE, ..Filter::default() };
        loop {
            let page = store.list(&filter).await?;
            for record in &page.records {
                let note = Note { action: "doubt".to_owned(), ..note.clone() };
                let answer = store.apply(&record.id, &Change::doubt().noted(note)).await?;
                doubted += usize::from(answer.decision == Decision::Applied);
            }
            match page.next {
                Some(next) => filter.after = Some(next),
                None => break,
            }
        }
    }
    Ok(doubted)
}

/// Performs the action and records a note with the operator and the reason, in one write. The note's action is
/// replaced by that of the hold.
pub async fn act(
    store: &dyn Records,
    holds: &dyn Holds,
    target: &HoldTarget,
    action: HoldAction,
    note: Note,
) -> Result<Acted<HoldAction>, StoreError> {
    if (target, action) == (&HoldTarget::Store, HoldAction::Lift) {
        let doubted = doubt_open_commands(store, holds, &note).await?;
        if doubted > 0 {
            tracing::warn!(doubted, "commands whose end the store may have forgotten are unknown now");
        }
    }
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
        (HoldTarget::Store, HoldAction::Add) => {
            "the store is fenced: known commands are answered, and every other gets 503 IDEMPOTENCY_HELD and does not run; \
             workers, messages and look-ups wait"
        }
        (HoldTarget::Store, HoldAction::Lift) => {
            "the fence is lifted: a command without a record is new, and runs, even if it ran before the restore; commands \
             that the restored store had as waiting or running are unknown; workers, messages and look-ups go on"
        }
        (HoldTarget::LookUpFirst(_), HoldAction::Add) => {
            "while the store is fenced, commands of this operation without a record are unknown, and run only after a look-up \
             or a verdict has found that they did not"
        }
        (HoldTarget::LookUpFirst(_), HoldAction::Lift) => {
            "while the store is fenced, commands of this operation without a record are refused again"
        }
        (HoldTarget::YoungerKeys(_), HoldAction::Add) => {
            "while the store is fenced, commands of this operation without a record run if their key is a UUID of version 7 \
             that was drawn at least ten minutes after the fence"
        }
        (HoldTarget::YoungerKeys(_), HoldAction::Lift) => {
            "while the store is fenced, commands of this operation without a record are refused again"
        }
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
pub fn done(target: &HoldTarget, action: HoldAction, warning: Option<&str>) -> Value {
    let mut shown = target_json(target);
    if let Some(warning) = warning {
        shown["warning"] = warning.into();
    }
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
    use std::sync::Arc;

    use semel_stores::MemoryStore;

    use super::*;
    use crate::slow_store::SlowStore;

    fn config(file: &str) -> Config {
        let sources = semel_settings::Sources::new().file("semel.toml", file);
        let loaded = semel_settings::load(&sources, semel_gateway::service::ADDRESS_CHECKS);
        loaded.expect("it can be used").config
    }

    #[tokio::test]
    async fn a_tenant_without_records_and_settings_is_warned_of_in_words_that_are_true() {
        let memory = Arc::new(MemoryStore::new());
        let acme = HoldTarget::Tenant("acme\u{202e}".to_owned());
        let told = unknown_tenant(&acme, &config(""), &*memory).await.expect("nothing is known of it");
        assert!(told.starts_with("no record of tenant acme\u{fffd} is in the store"), "{told}");
        let slow = SlowStore::new(memory.clone());
        slow.gate.add_permits(1);
        let told = unknown_tenant(&acme, &config(""), &slow).await.expect("nothing is known of it");
        assert!(told.contains("is among the oldest of the store; the look-up does not read"), "{told}");
        assert_eq!(slow.reads(), 1, "one page, however many follow");

        let quota = "[[limit]]\ntenant = \"acme\"\nnew_keys = \"10/s\"\n";
        let acme = HoldTarget::Tenant("acme".to_owned());
        assert_eq!(unknown_tenant(&acme, &config(quota), &*memory).await, None);
        let local = HoldTarget::Tenant("local".to_owned());
        assert_eq!(
            unknown_tenant(&local, &config(""), &*memory).await,
            None,
            "without identity, the only one"
        );
        assert_eq!(unknown_tenant(&HoldTarget::Reconciler, &config(""), &*memory).await, None);
    }

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
