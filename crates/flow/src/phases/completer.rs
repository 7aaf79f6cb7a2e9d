//! The loop that resumes commands whose executor died or postponed them.
//!
//! One completer at a time takes a command, also across processes: the first to start it holds it, under a new epoch.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    BootTime, Change, Decision, Ids, OperationId, RandomIds, Reason, Record, StoreAnswer, StoreError,
    Waiting, WaitingSearch,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::attempt::Taken;
use super::input::Input;
use super::lease::PhaseLease;
use super::operations::Phases;
use crate::outbox::{Drained, StopHandle, Wake};
use crate::unknown;

/// Maximum number of expired leases that are swept before each look.
const SWEEP_BATCH: usize = 500;

/// Time after which skipped commands are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Number of commands with an unreadable input that are remembered, so that each is reported once.
const MAX_REPORTED: usize = 1024;

/// Settings of a completer.
#[derive(Clone, Copy, Debug)]
pub struct CompleterOptions {
    /// Number of commands executed concurrently.
    pub concurrency: usize,
    /// Poll interval of an idle completer.
    pub poll: Duration,
    /// Time for running commands to end after the completer was told to stop.
    pub drain: Duration,
}

impl Default for CompleterOptions {
    fn default() -> CompleterOptions {
        CompleterOptions { concurrency: 8, poll: Duration::from_secs(1), drain: Duration::from_secs(15) }
    }
}

/// Resumes commands until it is told to stop. Any number of completers may share one database.
pub struct Completer<D> {
    phases: Phases<D>,
    options: CompleterOptions,
    names: Vec<String>,
    stop: watch::Sender<bool>,
    wake: Arc<Notify>,
}

impl<D: Clone + Send + Sync + 'static> Phases<D> {
    /// Returns a completer that resumes interrupted commands. At least one must run, in any process; any number may.
    pub fn completer(&self, options: CompleterOptions) -> Completer<D> {
        Completer::new(self.clone(), options)
    }
}

impl<D: Clone + Send + Sync + 'static> Completer<D> {
    fn new(phases: Phases<D>, options: CompleterOptions) -> Completer<D> {
        let options = CompleterOptions { concurrency: options.concurrency.max(1), ..options };
        let names = phases.operations.keys().cloned().collect();
        Completer { phases, options, names, stop: watch::Sender::new(false), wake: Arc::default() }
    }

    /// Returns a handle that stops the completer.
    pub fn stopper(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// Returns a handle that makes the completer look for commands at once.
    pub fn waker(&self) -> Wake {
        Wake(self.wake.clone())
    }

    /// Works until it is stopped, and then until the running commands end, at most for `drain`. Commands that are left,
    /// and those running when the future is dropped, are resumed when their leases expire.
    pub async fn run(self) -> Drained {
        let mut stopped = self.stop.subscribe();
        let mut running = JoinSet::new();
        let mut look = CompleterSearch::new(&self.names);
        let mut poll = interval(self.options.poll.max(Duration::from_millis(1)));
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = async { let _ = stopped.wait_for(|stopped| *stopped).await; } => break,
                Some(_) = running.join_next() => {}
                () = self.wake.notified() => self.take(&mut running, &mut look).await,
                _ = poll.tick() => self.take(&mut running, &mut look).await,
            }
        }
        let all = async { while running.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.options.drain, all).await;
        Drained { left: running.len() }
    }

    /// Takes as many commands as there are free slots, and starts them.
    async fn take(&self, running: &mut JoinSet<()>, look: &mut CompleterSearch) {
        while running.try_join_next().is_some() {}
        let places = self.options.concurrency.saturating_sub(running.len());
        if places == 0 {
            return;
        }
        // An expired lease is only noticed by a sweep.
        match self.phases.store.sweep(SWEEP_BATCH).await {
            Ok(swept) => unknown::swept(&swept),
            Err(error) => tracing::warn!(%error, "ended leases cannot be seen to"),
        }
        if let Err(error) = self.resume_waiting(places, running, look).await {
            tracing::warn!(%error, "commands that wait to be resumed cannot be found");
        }
    }

    /// Starts as many waiting commands as there are slots. Commands with an unreadable input occupy none.
    async fn resume_waiting(
        &self,
        places: usize,
        running: &mut JoinSet<()>,
        look: &mut CompleterSearch,
    ) -> Result<(), StoreError> {
        look.begin(places);
        while let Some(filter) = look.search.page() {
            let page = self.phases.store.waiting(&filter).await?;
            for waiting in page.found {
                let place = waiting.place();
                if !look.search.wants(&place) {
                    continue;
                }
                let Waiting { record, request } = waiting;
                match Input::decode(&request) {
                    Some(input) => {
                        look.search.took();
                        running.spawn(resume(self.phases.clone(), record, input));
                    }
                    None => {
                        look.report(record.operation_id);
                        look.search.pass_over(&place, page.now);
                    }
                }
            }
            look.search.turn(page.next);
        }
        Ok(())
    }
}

/// Position of a completer in the waiting commands.
struct CompleterSearch {
    search: WaitingSearch,
    /// Time at which skipped commands are looked at again.
    again: Instant,
    reported: HashSet<OperationId>,
}

impl CompleterSearch {
    fn new(operations: &[String]) -> CompleterSearch {
        let search = WaitingSearch::new(true, Some(operations.to_vec()));
        CompleterSearch { search, again: Instant::now() + LOOK_AGAIN, reported: HashSet::new() }
    }

    fn begin(&mut self, places: usize) {
        if Instant::now() >= self.again {
            self.search.forget();
            self.again = Instant::now() + LOOK_AGAIN;
        }
        self.search.begin(places);
    }

    /// Reports a command with an unreadable input, once.
    fn report(&mut self, id: OperationId) {
        if self.reported.len() < MAX_REPORTED && self.reported.insert(id) {
            tracing::error!(operation_id = %id, "the input of a command cannot be read: it is not resumed");
        }
    }
}

/// Takes a command, unless another executor is faster, and executes it.
async fn resume<D: Clone + Send + Sync + 'static>(phases: Phases<D>, record: Record, input: Input) {
    let resolved = is_verdict(record.head.reason);
    let id = record.operation_id;
    let Some(operation) = phases.operations.get(record.operation.as_str()) else { return };
    // Read before the store starts the lease, so that the executor's clock never lags behind the store's.
    let asked = BootTime::now();
    let start = Change::start(record.head.fence(), RandomIds.attempt_token());
    match phases.store.apply(&record.id, &start).await {
        Ok(StoreAnswer { decision: Decision::Execute, record: Some(record), .. }) => {
            let lease = PhaseLease::new(asked, record.head.terms.lease);
            tracing::info!(operation_id = %id, attempt = record.head.epoch, "a command is resumed");
            phases.carry_out(operation, Taken { record, input, lease, attended: false, resolved }).await;
        }
        Ok(answer) => unknown::observe(&record.operation, &answer, Some(&start)),
        Err(error) => tracing::warn!(%error, operation_id = %id, "a command could not be taken up"),
    }
}

/// Returns true if the command waits because of a verdict on its open call, or because an operator resumed it.
fn is_verdict(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::VerdictExecuted | Reason::VerdictNotExecuted | Reason::VerdictDeduplicated | Reason::Resumed
    )
}
