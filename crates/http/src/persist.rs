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
use crate::observe;
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
struct WriteTries {
    begun: Instant,
    time: Duration,
    pause: Duration,
    longest: Duration,
}

impl WriteTries {
    /// WriteTries of an outcome that was just offered in vain.
    fn of_outcome() -> WriteTries {
        let (time, pause, longest) = (LAST_TRIES, OFFER_PAUSE, LONGEST_OFFER_PAUSE);
        WriteTries { begun: Instant::now(), time, pause, longest }
    }

    /// WriteTries to take back what did not run, the first of them at once.
    fn of_withdrawal(time: Duration) -> WriteTries {
        WriteTries { begun: Instant::now(), time, pause: Duration::ZERO, longest: LONGEST_WITHDRAWAL_PAUSE }
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
    let mut tries = WriteTries::of_outcome();
    while tries.next().await {
        match shared.within("apply", shared.store.apply(&id, &change)).await {
            Ok(answer) => return observe_given_up(&shared, &answer),
            Err(StoreError::Rejected(_)) => change = bare.clone(),
            Err(_) => {}
        }
    }
}

/// Counts a command that this write made unknown. One whose lease had expired before was counted then.
fn observe_given_up(shared: &Shared, answer: &StoreAnswer) {
    let Some(record) = &answer.record else { return };
    let label = shared.operations.labels().of(record.operation.as_str());
    let given_up = Some(record.head.reason);
    let is_own = answer.decision == Decision::Applied && record.head.reason != Reason::LeaseExpired;
    observe::became_unknown(&label, answer, given_up.filter(|_| is_own));
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
    let mut tries = WriteTries::of_withdrawal(claim.attempt.terms.lease + LAST_TRIES);
    while tries.next().await {
        for id in claim.record_ids() {
            let Ok(snapshot) = shared.within("get", shared.store.get(&id)).await else { continue };
            let Some(record) = snapshot.record else { continue };
            if was_started(&record, &claim) {
                return;
            }
            if record.head.token != claim.attempt.token {
                continue;
            }
            let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
            if shared.within("apply", shared.store.apply(&id, &release)).await.is_ok() {
                return;
            }
        }
    }
}

/// Returns true if the claim arrived, and a worker that was to start the command has it by now.
fn was_started(record: &Record, claim: &Claim) -> bool {
    record.operation_id == claim.operation_id && record.head.token != claim.attempt.token
}

/// Takes back a start that could not be confirmed, so that no `Unknown` remains although nothing ran. The start may yet arrive,
/// so this goes on while the command still waits under its former fence.
pub(crate) fn requeue_unconfirmed(shared: &Arc<Shared>, waiting: Record, own: Fence) {
    tokio::spawn(keep_requeuing(shared.clone(), waiting, own, shared.running.hold()));
}

async fn keep_requeuing(shared: Arc<Shared>, waiting: Record, own: Fence, _held: Active) {
    let requeue = Change::requeue(own, Reason::ClaimUnconfirmed, Duration::ZERO);
    let mut tries = WriteTries::of_withdrawal(LAST_TRIES);
    while tries.next().await {
        if let Ok(answer) = shared.within("apply", shared.store.apply(&waiting.id, &requeue)).await
            && is_taken_back(&answer, waiting.head.fence())
        {
            return;
        }
    }
}

/// Returns true once a start is taken back, or can no longer arrive: the command does not wait under its former fence.
fn is_taken_back(answer: &StoreAnswer, former: Fence) -> bool {
    let still_waits = answer.record.as_ref().is_some_and(|record| record.head.fence() == former);
    answer.decision == Decision::Applied || !still_waits
}

#[cfg(test)]
mod tests {
    use semel_core::{AttemptToken, Event, OperationId, Timestamp, transition};
    use semel_testkit::sample;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(0);

    /// Returns the record that this claim makes.
    fn record(claim: &Claim) -> Record {
        let write = transition(None, &Event::Claim(claim.attempt), NOW).write;
        Record::after(None, write, Some(claim), None, NOW).expect("it is made")
    }

    #[test]
    fn only_a_fenced_start_under_its_former_token_is_not_over() {
        let record = record(&sample::for_worker(sample::claim("k"), Duration::from_secs(60)));
        let former = record.head.fence();
        let other = Fence { token: AttemptToken::from_bytes([9; 16]), ..former };
        for (decision, record, waited_under, is_over) in [
            (Decision::Fenced, Some(&record), former, false),
            (Decision::Fenced, Some(&record), other, true),
            (Decision::Fenced, None, former, true),
            (Decision::Applied, Some(&record), former, true),
        ] {
            let answer =
                StoreAnswer { decision, record: record.cloned(), now: NOW, holder: None, lapse: None };
            assert_eq!(is_taken_back(&answer, waited_under), is_over, "{decision:?}");
        }
    }

    #[test]
    fn a_claim_was_started_if_its_command_has_another_token() {
        let claim = sample::claim("k");
        let own = record(&claim);
        let mut started = own.clone();
        started.head.token = AttemptToken::from_bytes([9; 16]);
        let another = Record { operation_id: OperationId::from_bytes([9; 16]), ..started.clone() };
        assert!(was_started(&started, &claim) && !was_started(&own, &claim));
        assert!(!was_started(&another, &claim), "it is that of another claim");
    }

    /// Returns the milliseconds after which each of the first tries begins.
    async fn begins(mut tries: WriteTries, number: usize) -> Vec<u128> {
        let begun = Instant::now();
        let mut begins = Vec::new();
        while begins.len() < number && tries.next().await {
            begins.push(begun.elapsed().as_millis());
        }
        begins
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_end_with_the_time() {
        assert_eq!(
            begins(WriteTries::of_outcome(), 7).await,
            [500, 1_500, 3_500, 7_500, 15_500, 25_500, 35_500]
        );
        let withdrawals = begins(WriteTries::of_withdrawal(Duration::from_millis(7_150)), 99).await;
        assert_eq!(withdrawals, [0, 50, 150, 350, 750, 1_550, 3_150, 5_150, 7_150]);
    }
}
