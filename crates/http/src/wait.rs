//! Waits for the request that holds a command. A waiter never executes the command.

use std::time::Duration;

use semel_core::{Decision, Event, Policy, Record, transition};
use tokio::time::Instant;

use crate::answer::{Answer, problems};
use crate::recall;
use crate::shared::Shared;

/// The pause of a waiter between two looks at the store, at first and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// Waits for the executor of a record, as long as the policy allows. An executor in this process signals its end, with the
/// settled record; for one elsewhere, the store is polled.
pub(crate) async fn wait(shared: &Shared, record: &Record, look: Event, policy: &Policy) -> Answer {
    let deadline = Instant::now() + policy.wait;
    let mut pause = FIRST_PAUSE;
    while Instant::now() < deadline {
        if let Some(mut signal) = shared.running.subscribe(&record.id) {
            match tokio::time::timeout_at(deadline, signal.recv()).await {
                Ok(Ok(Some(settled))) => {
                    let (record, now) = &*settled;
                    return recall::looked(shared, Some(record), look, *now, None, policy);
                }
                Ok(Ok(None) | Err(_)) => {}
                Err(_) => break,
            }
        }
        let asked = Instant::now();
        // A store that does not answer proves nothing: the claim has shown that another request has the
        // command.
        if let Ok(snapshot) = shared.within("get", shared.store.get(&record.id)).await {
            let current = snapshot.record.as_ref();
            let decision = transition(current.map(|record| &record.head), &look, snapshot.now).decision;
            if decision != Decision::Wait {
                return recall::decided(shared, decision, current, snapshot.now, Some(asked), policy);
            }
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    problems::in_progress(record, policy)
}
