//! The quota for new keys, checked before a claim.

use semel_core::{Event, StoreError, Write, transition};

use crate::answer::{Answer, problems};
use crate::command::CommandRequest;
use crate::quotas::ReservedKey;
use crate::shared::Shared;

/// Admits a command that memory does not know: under a new key, only if the quota has one left.
pub(crate) async fn admit(shared: &Shared, command: &CommandRequest) -> Result<ReservedKey, Box<Answer>> {
    let Some(quotas) = &shared.quotas else { return Ok(ReservedKey::UNCOUNTED) };
    let policy = &command.rule.policy;
    let unavailable = |error: StoreError| {
        tracing::warn!(%error, "a quota could not be checked: nothing is run");
        Box::new(problems::store_unavailable(policy))
    };
    let principal = command.command.scope.principal();
    let used_up = match quotas.new_key(principal).await.map_err(unavailable)? {
        Ok(new_key) => return Ok(new_key),
        Err(used_up) => used_up,
    };
    // A retry is not a new key, however much its sender has used.
    if is_known(shared, command).await.map_err(unavailable)? {
        return Ok(ReservedKey::UNCOUNTED);
    }
    shared.observer.quota_exceeded(principal, used_up.whose, used_up.exceeded.limit);
    Err(Box::new(problems::quota_exceeded(&used_up.problem(), policy)))
}

/// Returns true if a claim would find a record.
async fn is_known(shared: &Shared, command: &CommandRequest) -> Result<bool, StoreError> {
    let (id, token) = (shared.ids.operation_id(shared.clock.now()), shared.ids.attempt_token());
    let claim = command.command.claim(id, token);
    for id in claim.record_ids() {
        let found = shared.within("get", shared.store.get(&id)).await?;
        let Some(record) = found.record else { continue };
        match transition(Some(&record.head), &Event::Claim(claim.attempt), found.now).write {
            Write::Create(_) => {}
            Write::Keep | Write::Update(_) | Write::Delete => return Ok(true),
        }
    }
    Ok(false)
}
