//! The loop that looks up commands, several at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use semel_core::reconcile::ReconcilerOptions;
use semel_core::reconcile::{Evidence, is_dead_letter};
use semel_core::transition::Verdict;
use semel_core::{Filter, Ids, Note, OperationId, RandomIds, Record, Records, StateName, StoreError, Tracer};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::bounds::{BoundSources, SourceBounds};
use super::look::{LookUpOutcome, LookUpResult};
use super::look_up::LookUp;
use super::looker::Looker;
use super::metrics;
use super::settle::{Settle, ThroughTheStore};

/// Maximum number of batches of commands in one pass.
const MAX_BATCHES: usize = 20;
/// Number of statements deleted in one batch, and number of batches in one run.
const REAP_BATCH: usize = 500;
const REAP_BATCHES: usize = 20;
/// Number of unknown commands read per page to count the dead letters among them, and number of pages.
const COUNT_PAGE: usize = 500;
const COUNT_PAGES: usize = 40;

/// Returns true while an operator holds the reconciler.
type IsHeld = dyn Fn() -> bool + Send + Sync;

/// Looks for evidence about commands whose outcome is unknown. Any number of reconcilers may share one store.
pub struct Reconciler {
    looker: Arc<Looker>,
    options: ReconcilerOptions,
    /// Position at which the search for unused evidence continues.
    next: Mutex<Option<OperationId>>,
    is_held: Box<IsHeld>,
}

/// Result of one pass.
#[derive(Clone, Debug, Default)]
pub struct ReconcileReport {
    /// Look-ups of this pass.
    pub looks: Vec<LookUpResult>,
    /// Number of commands that received evidence settled, besides the due ones.
    pub by_evidence: usize,
    /// Error that ended the pass early, if any.
    pub trouble: Option<String>,
}

impl Reconciler {
    /// Creates a reconciler for the commands of this store with this look-up. It stores received evidence in
    /// `evidence`.
    pub fn new(
        store: Arc<dyn Records>,
        evidence: Arc<dyn Evidence>,
        look_up: Arc<dyn LookUp>,
        options: ReconcilerOptions,
    ) -> Reconciler {
        let settle = Arc::new(ThroughTheStore(store.clone()));
        let options = ReconcilerOptions {
            batch: options.batch.max(1),
            concurrency: options.concurrency.max(1),
            ..options
        };
        let (terms, timeout) = (options.terms, options.timeout);
        let (bounds, ids) = (BoundSources::default(), Arc::new(RandomIds));
        let tracer = None;
        let looker = Looker { store, evidence, look_up, settle, terms, timeout, bounds, ids, tracer };
        let is_held = Box::new(|| false);
        Reconciler { looker: Arc::new(looker), options, next: Mutex::default(), is_held }
    }

    /// Sets the writer of verdicts.
    pub fn settle_with(self, settle: Arc<dyn Settle>) -> Reconciler {
        let (ids, tracer) = (self.looker.ids.clone(), self.looker.tracer.clone());
        self.made_of(settle, ids, tracer)
    }

    /// Sets the tracer that takes a span of each look-up, with a link to the request that made the command. Without it, nothing
    /// is traced.
    pub fn tracer(self, tracer: Arc<dyn Tracer>) -> Reconciler {
        let (settle, ids) = (self.looker.settle.clone(), self.looker.ids.clone());
        self.made_of(settle, ids, Some(tracer))
    }

    /// Makes no scheduled look-ups while `is_held` returns true. Evidence that arrives is still used, and an operator can still
    /// ask for a look-up. With a board of holds: `.hold_while(move || board.holds_reconciler())`.
    pub fn hold_while(self, is_held: impl Fn() -> bool + Send + Sync + 'static) -> Reconciler {
        Reconciler { is_held: Box::new(is_held), ..self }
    }

    /// Sets the source of random waits, so that a simulation can repeat them.
    pub fn ids(self, ids: Arc<dyn Ids>) -> Reconciler {
        let (settle, tracer) = (self.looker.settle.clone(), self.looker.tracer.clone());
        self.made_of(settle, ids, tracer)
    }

    fn made_of(
        self,
        settle: Arc<dyn Settle>,
        ids: Arc<dyn Ids>,
        tracer: Option<Arc<dyn Tracer>>,
    ) -> Reconciler {
        let Looker { store, evidence, look_up, terms, timeout, .. } = &*self.looker;
        let (store, evidence, look_up) = (store.clone(), evidence.clone(), look_up.clone());
        let bounds = self.looker.bounds.clone();
        let (terms, timeout) = (*terms, *timeout);
        let looker = Looker { store, evidence, look_up, settle, terms, timeout, bounds, ids, tracer };
        Reconciler { looker: Arc::new(looker), ..self }
    }

    /// Sets the bounds of this source from now on. Statements of a source without bounds are not used.
    pub fn bind(&self, source: &str, bounds: SourceBounds) {
        self.looker.bounds.bind(source, bounds);
    }

    /// Works until `stop` returns. Running look-ups are then aborted; their commands are due again when their
    /// postponement ends.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        metrics::begin_metrics();
        let mut pass = interval(self.options.interval.max(Duration::from_millis(1)));
        pass.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut upkeep = interval(self.options.upkeep.max(Duration::from_millis(1)));
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let passing = async {
            loop {
                pass.tick().await;
                if let Some(why) = self.once().await.trouble {
                    tracing::warn!(why, "not everything that is due was looked for; it is tried again");
                }
            }
        };
        let keeping = async {
            loop {
                upkeep.tick().await;
                self.look_after().await;
            }
        };
        tokio::select! {
            biased;
            () = stop => {}
            () = passing => {}
            () = keeping => {}
        }
    }

    /// Makes one pass: looks up all due commands, and uses evidence that was not used when it arrived.
    pub async fn once(&self) -> ReconcileReport {
        let mut report = ReconcileReport::default();
        self.use_evidence(&mut report).await;
        for _ in 0..MAX_BATCHES {
            if (self.is_held)() {
                break;
            }
            let due = match self.looker.store.due_to_reconcile(self.options.batch).await {
                Ok(due) => due,
                Err(error) => {
                    report.trouble = Some(error.to_string());
                    break;
                }
            };
            let full = due.len() == self.options.batch;
            let looks = self.look_for(due).await;
            // A command that could not be postponed is still due, and the next batch would be the same.
            let stuck = looks.iter().any(|look| matches!(look.outcome, LookUpOutcome::Failed { .. }));
            report.looks.extend(looks);
            if !full || stuck {
                break;
            }
        }
        report
    }

    /// Returns the number of concurrent look-ups.
    pub fn concurrency(&self) -> usize {
        self.options.concurrency.max(1)
    }

    /// Looks several commands up, at most `concurrency` at a time.
    async fn look_for(&self, due: Vec<Record>) -> Vec<LookUpResult> {
        let mut done = Vec::with_capacity(due.len());
        let mut running = JoinSet::new();
        for record in due {
            if running.len() >= self.options.concurrency {
                done.extend(running.join_next().await.and_then(Result::ok));
            }
            let looker = self.looker.clone();
            running.spawn(async move { looker.look(&record, None).await });
        }
        while let Some(look) = running.join_next().await {
            // A command whose look-up panicked is due again when its postponement ends.
            done.extend(look.ok());
        }
        done
    }

    /// Looks one command up now, due or not, even a dead letter. `None` if there is no such command.
    pub async fn look(&self, operation_id: OperationId) -> Result<Option<LookUpResult>, StoreError> {
        self.look_now(operation_id, None).await
    }

    /// Looks one command up at an operator's request: the note is stored if the look-up is made, and the finding beside
    /// it.
    pub async fn look_noted(
        &self,
        operation_id: OperationId,
        note: Note,
    ) -> Result<Option<LookUpResult>, StoreError> {
        self.look_now(operation_id, Some(note)).await
    }

    async fn look_now(
        &self,
        operation_id: OperationId,
        note: Option<Note>,
    ) -> Result<Option<LookUpResult>, StoreError> {
        match self.looker.store.find(operation_id).await?.record {
            Some(record) => Ok(Some(self.looker.look(&record, note).await)),
            None => Ok(None),
        }
    }

    /// Uses the stored statements about this command. Returns the verdict that settled it now, if any.
    pub async fn use_evidence_about(&self, operation_id: OperationId) -> Result<Option<Verdict>, StoreError> {
        self.looker.use_statements_about(operation_id).await
    }

    /// Uses evidence that was not used when it arrived: a part of it in each pass, in rotation.
    async fn use_evidence(&self, report: &mut ReconcileReport) {
        let after = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let commands = match self.looker.evidence.commands_with_evidence(after, self.options.batch).await {
            Ok(commands) => commands,
            Err(error) => {
                report.trouble = Some(error.to_string());
                return;
            }
        };
        let next = if commands.len() == self.options.batch { commands.last().copied() } else { None };
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = next;
        for command in commands {
            match self.looker.use_statements_about(command).await {
                Ok(settled) => report.by_evidence += usize::from(settled.is_some()),
                Err(error) => report.trouble = Some(error.to_string()),
            }
        }
    }

    /// Counts dead letters, and deletes old evidence.
    async fn look_after(&self) {
        match self.count_dead_letters().await {
            Ok(count) => metrics::dead_letters(count),
            Err(error) => tracing::warn!(%error, "dead letters cannot be counted"),
        }
        for _ in 0..REAP_BATCHES {
            match self.looker.evidence.reap_statements(self.options.retention, REAP_BATCH).await {
                Ok(REAP_BATCH) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "old evidence cannot be deleted");
                    break;
                }
            }
        }
    }

    /// Returns the number of commands that are left to an operator, as far as it can be counted in bounded time.
    pub async fn count_dead_letters(&self) -> Result<usize, StoreError> {
        let mut filter = Filter { state: Some(StateName::Unknown), limit: COUNT_PAGE, ..Filter::default() };
        let mut count = 0;
        for _ in 0..COUNT_PAGES {
            let page = self.looker.store.list(&filter).await?;
            count += page.records.iter().filter(|record| is_dead_letter(&record.head.state)).count();
            if page.next.is_none() {
                break;
            }
            filter.after = page.next;
        }
        Ok(count)
    }

    /// Returns the store with its commands.
    #[cfg(feature = "http-evidence")]
    pub(super) fn store(&self) -> &dyn Records {
        &*self.looker.store
    }

    /// Returns the store of received evidence.
    #[cfg(feature = "http-evidence")]
    pub(super) fn evidence(&self) -> &dyn Evidence {
        &*self.looker.evidence
    }
}
