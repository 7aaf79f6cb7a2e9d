//! Commands whose store has dropped below the tier that their operation needs: nothing runs, and records are still read.

use semel_core::{Decision, Event, TierTooLow, transition};
use tokio::time::Instant;

use crate::answer::{Answer, problems};
use crate::command::CommandRequest;
use crate::layer::Shared;
use crate::service;

/// Answers from the command's record, and refuses what would run.
pub(crate) async fn answer(shared: &Shared, command: &CommandRequest, shortfall: TierTooLow) -> Answer {
    let (policy, asked) = (&*command.rule.policy, &command.command);
    let look = Event::Look { fingerprint: asked.fingerprint };
    for id in asked.record_ids() {
        let begun = Instant::now();
        let Ok(snapshot) = shared.within("get", shared.store.get(&id)).await else {
            return problems::store_unavailable(policy);
        };
        let (record, now) = (snapshot.record.as_ref(), snapshot.now);
        let decision = transition(record.map(|record| &record.head), &look, now).decision;
        if decision != Decision::Vacant {
            return service::decided(shared, decision, record, now, Some(begun), policy);
        }
    }
    let (needed, promised) = (shortfall.needed.number(), shortfall.promised.number());
    tracing::warn!(operation = &*command.rule.label, needed, promised, "the tier is too low: nothing is run");
    problems::tier_too_low(shortfall, policy)
}
