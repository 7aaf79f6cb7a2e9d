//! Writes of changes to the store, with retries: while the client waits, and in the background after that.
//!
//! Invariant: a change carries the fence of its executor, so a second write of it is harmless. A background write counts as
//! running, so a drain waits for it.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{Change, Claim, Decision, Fence, Reason, Record, RecordId, StoreAnswer, StoreError};
use tokio::time::Instant;
use tracing::Instrument;

use crate::acquired::Unexecuted;
use crate::running::Active;
use crate::shared::Shared;

/// The pauses before each try of a write while the client waits.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(250)];

/// The time for which a write is retried in the background.
const LAST_TRIES: Duration = Duration::from_secs(120);

/// The pauses between two offers of an outcome, whose client is answered: the first, and the longest.
const OFFER_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_OFFER_PAUSE: Duration = Duration::from_secs(10);

/// The pauses between two tries to take back what did not run, whose client may retry at once: the first, and the longest.
const WITHDRAWAL_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_WITHDRAWAL_PAUSE: Duration = Duration::from_secs(2);

/// The tries of a write in the background. Each pause is twice as long as the one before it.
struct Tries {
    begun: Instant,
    time: Duration,
    pause: Duration,
    longest: Duration,
}

impl Tries {
    /// Tries of an outcome that was just offered in vain.
    fn of_outcome() -> Tries {
        let (time, pause, longest) = (LAST_TRIES, OFFER_PAUSE, LONGEST_OFFER_PAUSE);
        Tries { begun: Instant::now(), time, pause, longest }
    }

    /// Tries to take back what did not run, the first of them at once.
    fn of_withdrawal(time: Duration) -> Tries {
        Tries { begun: Instant::now(), time, pause: Duration::ZERO, longest: LONGEST_WITHDRAWAL_PAUSE }
    }

    /// Waits for the next try. Returns false if the time is over.
    async fn next(&mut self) -> bool {
        let is_time_left = self.begun.elapsed() < self.time;
        if is_time_left && !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        self.pause = (self.pause * 2).clamp(WITHDRAWAL_PAUSE, self.longest);
        is_time_left
    }
}

/// Writes a change, with a few retries while the client waits.
pub(crate) async fn apply(
    shared: &Shared,
    id: &RecordId,
    change: &Change,
) -> Result<StoreAnswer, StoreError> {
    let mut last = StoreError::Unavailable("it was not tried".into());
    for pause in PAUSES {
        // tokio lets even a pause of nothing last a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match shared.within("apply", shared.store.apply(id, change)).await {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Ambiguous(_))) => {
                last = error;
            }
            settled => return settled,
        }
    }
    Err(last)
}

/// Retries a write in the background, since the late word of an executor is still evidence. `bare` is written instead if the
/// store rejects the change.
pub(crate) fn apply_later(shared: &Arc<Shared>, id: RecordId, change: Change, bare: Change) {
    let writing = keep_applying(shared.clone(), id, change, bare, shared.running.hold());
    tokio::spawn(writing.in_current_span());
}

async fn keep_applying(shared: Arc<Shared>, id: RecordId, mut change: Change, bare: Change, _held: Active) {
    let mut tries = Tries::of_outcome();
    while tries.next().await {
        match shared.within("apply", shared.store.apply(&id, &change)).await {
            Ok(_) => return,
            Err(StoreError::Rejected(_)) => change = bare.clone(),
            Err(_) => {}
        }
    }
}

/// Gives back a command that was acquired and not begun. Returns the record's answer if another request has
/// it by now.
pub(crate) async fn give_back(
    shared: &Arc<Shared>,
    record: &Record,
    unexecuted: Unexecuted,
    reason: Reason,
) -> Option<StoreAnswer> {
    let change = unexecuted.change(record.head.fence(), reason);
    match apply(shared, &record.id, &change).await {
        Ok(answer) => (answer.decision != Decision::Applied).then_some(answer),
        Err(_) => {
            apply_later(shared, record.id, change.clone(), change);
            None
        }
    }
}

/// Takes back a claim that could not be confirmed, so that no `Unknown` remains although nothing ran. The claim may yet
/// arrive, so this goes on for a while after the end of the lease that it asked for.
pub(crate) fn release_unconfirmed(shared: &Arc<Shared>, claim: Claim) {
    let releasing = keep_releasing(shared.clone(), claim, shared.running.hold());
    tokio::spawn(releasing.in_current_span());
}

async fn keep_releasing(shared: Arc<Shared>, claim: Claim, _held: Active) {
    let mut tries = Tries::of_withdrawal(claim.attempt.terms.lease + LAST_TRIES);
    while tries.next().await {
        for id in claim.record_ids() {
            let Ok(snapshot) = shared.within("get", shared.store.get(&id)).await else { continue };
            let Some(record) = snapshot.record else { continue };
            if record.head.token != claim.attempt.token {
                if record.operation_id == claim.operation_id {
                    // The claim arrived, and a worker that was to start the command has it by now.
                    return;
                }
                continue;
            }
            let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
            if shared.within("apply", shared.store.apply(&id, &release)).await.is_ok() {
                return;
            }
        }
    }
}

/// Takes back a start that could not be confirmed, so that no `Unknown` remains although nothing ran. The start may yet arrive,
/// so this goes on while the command still waits under its former fence.
pub(crate) fn requeue_unconfirmed(shared: &Arc<Shared>, waiting: Record, own: Fence) {
    tokio::spawn(keep_requeuing(shared.clone(), waiting, own, shared.running.hold()));
}

async fn keep_requeuing(shared: Arc<Shared>, waiting: Record, own: Fence, _held: Active) {
    let requeue = Change::requeue(own, Reason::ClaimUnconfirmed, Duration::ZERO);
    let mut tries = Tries::of_withdrawal(LAST_TRIES);
    while tries.next().await {
        if let Ok(answer) = shared.within("apply", shared.store.apply(&waiting.id, &requeue)).await {
            let still_waits = answer.record.is_some_and(|record| record.head.fence() == waiting.head.fence());
            if answer.decision == Decision::Applied || !still_waits {
                return;
            }
        }
    }
}
