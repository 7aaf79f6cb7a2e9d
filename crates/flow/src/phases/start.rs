//! Starts a command with phases: claims it, and executes its first attempt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use semel_core::{
    BootTime, Change, Claim, Clock, Command, Decision, Event, Ids, RandomIds, Reason, Store, StoreAnswer,
    StoreError, SystemClock, Transacted, transition,
};

use super::attempt::{Taken, settle};
use super::input::Input;
use super::lease::PhaseLease;
use super::operations::Phases;
use crate::reply::Answered;
use crate::settle::{decided, in_progress, not_claimed};
use crate::unknown;

/// Time during which an unconfirmed claim is released, after the lease that it asked for would have expired.
const LAST_TRIES: Duration = Duration::from_secs(120);

impl<D: Clone + Send + Sync + 'static> Phases<D> {
    /// Executes a command: claims it, and runs its operation's code.
    ///
    /// The command runs to its end even if the caller stops waiting. The caller gets the reply; or "in progress", if
    /// the command will be resumed; or the record's state, if another executor has the command. `input` is stored until
    /// the command is settled, so that it can be resumed.
    pub async fn start(&self, command: &Command, input: impl Into<Bytes>) -> Answered {
        let (own, command, input) = (self.clone(), command.clone(), input.into());
        let running = tokio::spawn(async move { own.claim_and_run(&command, input).await });
        // Only a bug in this crate ends this task early, at an unknown point.
        Answered::new(running.await.unwrap_or(Transacted::InDoubt))
    }

    async fn claim_and_run(&self, command: &Command, input: Bytes) -> Transacted {
        let name = command.scope.operation().as_str();
        let Some(operation) = self.operations.get(name) else {
            tracing::error!(operation = name, "no phases are known for this operation: nothing is run");
            return Transacted::Unavailable;
        };
        let Some(_turn) = self.gate.enter(command.scope.record_id(), command.policy.wait).await else {
            return self.look(command).await;
        };
        let input = Input::new(&command.policy, input);
        let (id, token) = (RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token());
        let claim = command.claim_in_phases(id, token, input.encode(), operation.terms.resume_for);
        // Read before the store starts the lease, so that the executor's clock never lags behind the store's.
        let asked = BootTime::now();
        match self.store.claim(&claim).await {
            Ok(StoreAnswer { decision: Decision::Execute, record: Some(record), .. }) => {
                let lease = PhaseLease::new(asked, record.head.terms.lease);
                if !lease.is_held() {
                    // The claim took longer than the lease it asked for: nothing may start under it.
                    let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
                    let taken_back = settle(&*self.store, &record, &release).await;
                    return match taken_back {
                        Ok(StoreAnswer { decision: Decision::Applied, .. }) => Transacted::Unavailable,
                        // A completer may have it by now, so it may run.
                        Ok(_) | Err(_) => Transacted::InDoubt,
                    };
                }
                self.carry_out(operation, Taken { record, input, lease, attended: true, resolved: false })
                    .await
            }
            Ok(answer) => not_claimed(&claim, answer),
            Err(StoreError::Ambiguous(why)) => {
                // The release may come too late, after a completer took the command, so it may run.
                tracing::warn!(why, "a claim could not be confirmed: nothing is run, and it is taken back");
                tokio::spawn(release_unconfirmed(self.store.clone(), claim));
                Transacted::InDoubt
            }
            Err(error) => {
                tracing::warn!(%error, "a claim failed: nothing is run");
                Transacted::Unavailable
            }
        }
    }

    /// Returns the record's state for a request that timed out in this process's queue.
    async fn look(&self, command: &Command) -> Transacted {
        let Ok(found) = self.store.get(&command.scope.record_id()).await else { return in_progress() };
        let Some(record) = found.record else { return in_progress() };
        let look = Event::Look { fingerprint: command.fingerprint };
        let decision = transition(Some(&record.head), &look, found.now).decision;
        decided(StoreAnswer { decision, record: Some(record), now: found.now, holder: None, lapse: None })
    }
}

/// Releases a claim that could not be confirmed, so that no completer resumes a command without a waiting client. Once
/// its lease has expired, the command waits for a completer under another epoch, and is released under that one.
async fn release_unconfirmed(store: Arc<dyn Store>, claim: Claim) {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    while begun.elapsed() < claim.attempt.terms.lease + LAST_TRIES {
        for id in claim.record_ids() {
            if let Ok(found) = store.get(&id).await
                && let Some(record) = found.record
                && record.head.token == claim.attempt.token
            {
                let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
                if let Ok(answer) = store.apply(&id, &release).await {
                    unknown::observe(claim.scope.operation(), &answer, Some(&release));
                    if answer.decision == Decision::Applied {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}
