//! Writes of changes to the store, with retries: while the client waits, and in the background after that.
//!
//! Invariant: a change carries the fence of its executor, so a second write of it is harmless. A background write counts as
//! running, so a drain waits for it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    Change, Claim, Decision, Event, Fence, OperationId, Reason, Record, RecordId, StoreAnswer, StoreError,
    Timestamp, Write, transition,
};
use tokio::time::Instant;
use tracing::Instrument;

use crate::acquired::Unexecuted;
use crate::running::{Active, Running};
use crate::shared::Shared;
use crate::store_return::StoreReturn;

/// The pauses before each try of a write while the client waits.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(250)];

/// The time for which a write is retried in the background.
const LAST_TRIES: Duration = Duration::from_secs(120);

/// The pauses between two offers of an outcome, whose client is answered: the first, and the longest. A write that the store takes
/// meanwhile ends them.
const OFFER_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_OFFER_PAUSE: Duration = Duration::from_secs(10);

/// The pauses between two tries to take back what did not run, whose client may retry at once: the first, and the longest.
const WITHDRAWAL_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_WITHDRAWAL_PAUSE: Duration = Duration::from_secs(2);

/// The share of a pause that no signal shortens: a write that fails for a reason of its own is not tried at every write of others.
const LEAST_SHARE: u32 = 8;

/// The time after which a claim or start is taken for lost in a shutdown, if the store does not have it. It is longer than a
/// store pursues a lost answer.
const ARRIVAL: Duration = Duration::from_secs(5);

/// The tries of a write in the background. Each pause is twice as long as the one before it.
struct WriteTries {
    begun: Instant,
    time: Duration,
    pause: Duration,
    longest: Duration,
    /// True once a try was made because of the shutdown.
    is_hurried: bool,
}

impl WriteTries {
    /// WriteTries of an outcome that was just offered in vain.
    fn of_outcome() -> WriteTries {
        let (time, pause, longest) = (LAST_TRIES, OFFER_PAUSE, LONGEST_OFFER_PAUSE);
        WriteTries { begun: Instant::now(), time, pause, longest, is_hurried: false }
    }

    /// WriteTries to take back what did not run, the first of them at once.
    fn of_withdrawal(time: Duration) -> WriteTries {
        WriteTries { pause: Duration::ZERO, longest: LONGEST_WITHDRAWAL_PAUSE, ..WriteTries::of_outcome() }
            .within(time)
    }

    fn within(self, time: Duration) -> WriteTries {
        WriteTries { time, ..self }
    }

    /// Waits for the next try: for its pause, for the store to take a change, for a turn, or for the shutdown. Returns false if
    /// the time is over.
    async fn next(&mut self, back: &StoreReturn, running: &Running) -> bool {
        let is_time_left = self.begun.elapsed() < self.time;
        if is_time_left && !self.pause.is_zero() {
            let mut written = pin!(back.written());
            written.as_mut().enable();
            let is_back = async {
                tokio::time::sleep(self.pause / LEAST_SHARE).await;
                written.await;
            };
            let is_closing = async {
                match self.is_hurried {
                    true => std::future::pending().await,
                    false => running.closed().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                () = back.turn() => {}
                () = is_back => {}
                () = is_closing => self.is_hurried = true,
            }
        }
        self.pause = (self.pause * 2).clamp(WITHDRAWAL_PAUSE, self.longest);
        is_time_left
    }

    /// Returns true if a claim or start that the store does not have is not waited for any longer.
    fn is_lost(&self, is_closing: bool) -> bool {
        is_closing && self.begun.elapsed() >= ARRIVAL
    }
}

/// Writes a change, with a few retries while the client waits.
pub(crate) async fn apply(
    shared: &Shared,
    record: &Record,
    change: &Change,
) -> Result<StoreAnswer, StoreError> {
    let mut last = StoreError::Unavailable("it was not tried".into());
    for pause in PAUSES {
        // tokio lets even a pause of nothing last a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match shared.apply(&record.id, Some(record.operation_id), change).await {
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
pub(crate) fn apply_later(shared: &Arc<Shared>, record: &Record, change: Change, bare: Change) {
    let of = (record.id, record.operation_id);
    let writing = keep_applying(shared.clone(), of, change, bare, shared.running.hold());
    tokio::spawn(writing.in_current_span());
}

async fn keep_applying(
    shared: Arc<Shared>,
    (id, operation_id): (RecordId, OperationId),
    mut change: Change,
    bare: Change,
    _held: Active,
) {
    let mut tries = WriteTries::of_outcome();
    while tries.next(&shared.back, &shared.running).await {
        match shared.apply(&id, Some(operation_id), &change).await {
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
    match apply(shared, record, &change).await {
        Ok(answer) => (answer.decision != Decision::Applied).then_some(answer),
        Err(_) => {
            apply_later(shared, record, change.clone(), change);
            None
        }
    }
}

/// Takes back a claim that could not be confirmed, so that no `Unknown` remains although nothing ran. The claim may yet
/// arrive, so this goes on for a while after the end of the lease that it asked for, unless the record has moved on.
pub(crate) fn release_unconfirmed(shared: &Arc<Shared>, claim: Claim) {
    let releasing = keep_releasing(shared.clone(), claim, shared.running.hold());
    tokio::spawn(releasing.in_current_span());
}

async fn keep_releasing(shared: Arc<Shared>, claim: Claim, _held: Active) {
    let mut tries = WriteTries::of_withdrawal(claim.attempt.terms.lease + LAST_TRIES);
    while tries.next(&shared.back, &shared.running).await {
        let is_closing = shared.running.is_closing();
        let mut is_there = false;
        for id in claim.record_ids() {
            let Ok(snapshot) = shared.within("get", shared.store.get(&id)).await else {
                // Nobody knows.
                is_there = true;
                continue;
            };
            let Some(record) = snapshot.record else { continue };
            if was_started(&record, &claim) {
                return;
            }
            if record.head.token != claim.attempt.token {
                if id == claim.scope.record_id() && has_moved_on(&record, &claim, snapshot.now) {
                    return;
                }
                continue;
            }
            is_there = true;
            let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
            if shared.apply(&id, Some(record.operation_id), &release).await.is_ok() {
                return;
            }
        }
        if !is_there && tries.is_lost(is_closing) {
            return;
        }
    }
}

/// Returns true if the claim, which the record does not carry, can no longer arrive. It inserts nothing beside the record, and it
/// changes only a version of the record that a claim acquires. If this version is none, that one is gone.
fn has_moved_on(record: &Record, claim: &Claim, now: Timestamp) -> bool {
    transition(Some(&record.head), &Event::Claim(claim.attempt), now).write == Write::Keep
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
    while tries.next(&shared.back, &shared.running).await {
        let is_closing = shared.running.is_closing();
        if let Ok(answer) = shared.apply(&waiting.id, Some(waiting.operation_id), &requeue).await
            && (is_taken_back(&answer, waiting.head.fence()) || tries.is_lost(is_closing))
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
    use semel_core::AttemptToken;
    use semel_testkit::sample;
    use tokio::task::JoinSet;

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

    #[test]
    fn a_claim_can_arrive_only_while_its_record_can_be_acquired() {
        let (claim, other) = (sample::claim("k"), sample::claim("k"));
        let of_other = record(&other);
        assert!(has_moved_on(&of_other, &claim, NOW), "another request executes it");
        let lease_ended = NOW.plus(other.attempt.terms.lease * 2);
        assert!(!has_moved_on(&of_other, &claim, lease_ended), "the claim may yet end that lease");
        let settled = |change: &Change| {
            let write = transition(Some(&of_other.head), change.event(), NOW).write;
            Record::after(Some(&of_other), write, None, change.result(), NOW).expect("it is changed")
        };
        let fence = of_other.head.fence();
        let succeeded = settled(&Change::complete(fence, sample::created("done")));
        assert!(has_moved_on(&succeeded, &claim, lease_ended), "retries get its response");
        let released = settled(&Change::release(fence, Reason::ClaimUnconfirmed));
        assert!(!has_moved_on(&released, &claim, NOW), "the claim may yet acquire it");
    }

    /// Returns the milliseconds after which each of the first tries begins.
    async fn begins(mut tries: WriteTries, back: &StoreReturn, number: usize) -> Vec<u128> {
        let (begun, running) = (Instant::now(), Running::new());
        let mut begins = Vec::new();
        while begins.len() < number && tries.next(back, &running).await {
            begins.push(begun.elapsed().as_millis());
        }
        begins
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_a_lone_write_has_every_turn() {
        let back = StoreReturn::default();
        let mut tries = WriteTries::of_outcome();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(tries.pause.as_millis());
            assert!(tries.next(&back, &Running::new()).await);
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(begins(WriteTries::of_outcome(), &back, 4).await, [500, 1_000, 1_500, 2_000]);
        let withdrawal = WriteTries::of_withdrawal(Duration::from_millis(1_150));
        assert_eq!(begins(withdrawal, &back, 99).await, [0, 50, 150, 350, 750, 1_250]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_waiting_writes_take_turns_to_try_the_store() {
        let (back, mut waiting) = (Arc::new(StoreReturn::default()), JoinSet::new());
        for _ in 0..20 {
            let back = back.clone();
            waiting.spawn(async move { begins(WriteTries::of_outcome(), &back, 4).await });
        }
        let begins = waiting.join_all().await.concat();
        // Pauses end after 0.5 s, 1.5 s, 3.5 s and 7.5 s; a turn, one in 500 ms, only makes the next pause begin sooner.
        for (after, own_pauses) in [(500, 20), (1_499, 20), (3_499, 40)] {
            let (tries, turns) = (begins.iter().filter(|begin| **begin <= after).count(), after / 500);
            assert!(tries <= own_pauses + 2 * usize::try_from(turns).expect("it is small"), "{begins:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_write_that_the_store_takes_wakes_all_that_wait() {
        let (back, mut waiting) = (Arc::new(StoreReturn::default()), JoinSet::new());
        for _ in 0..20 {
            let back = back.clone();
            waiting.spawn(async move {
                let mut tries = WriteTries { pause: LONGEST_OFFER_PAUSE, ..WriteTries::of_outcome() };
                tries.next(&back, &Running::new()).await
            });
        }
        let none = tokio::time::timeout(Duration::from_millis(400), waiting.join_next()).await;
        assert!(none.is_err(), "they wait");
        back.took();
        let taken = Instant::now();
        assert_eq!(waiting.join_all().await, [true; 20]);
        assert!(taken.elapsed() < LONGEST_OFFER_PAUSE / LEAST_SHARE, "{:?}", taken.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_hurries_a_waiting_write_once() {
        let (back, running) = (StoreReturn::default(), Running::new());
        let mut tries = WriteTries { pause: LONGEST_OFFER_PAUSE, ..WriteTries::of_outcome() };
        running.close();
        let begun = Instant::now();
        assert!(tries.next(&back, &running).await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(tries.next(&back, &running).await);
        assert_ne!(begun.elapsed(), Duration::ZERO, "it does not spin");
    }
}
