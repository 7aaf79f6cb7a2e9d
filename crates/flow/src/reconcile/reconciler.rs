//! The loop that looks for evidence, several commands at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::reconcile::{Evidence, ReconcileTerms, is_dead_letter};
use semel_core::transition::Verdict;
use semel_core::{Filter, Ids, Note, OperationId, RandomIds, Record, StateName, Store, StoreError};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::bounds::{BoundSources, SourceBounds};
use super::look::{Look, Outcome};
use super::look_up::LookUp;
use super::looker::Looker;
use super::metrics;
use super::settle::{Settle, ThroughTheStore};

/// How many batches of commands follow one another in one pass.
const MAX_BATCHES: usize = 20;
/// How many statements are deleted in one go, and how many goes follow one another.
const REAP_BATCH: usize = 500;
const REAP_BATCHES: usize = 20;
/// How many unknowns are read at a time to count the dead letters among them, and how many times.
const COUNT_PAGE: usize = 500;
const COUNT_PAGES: usize = 40;

/// How a reconciler works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcilerOptions {
    /// How often it looks for commands that are due.
    pub interval: Duration,
    /// How many commands it reads at a time.
    pub batch: usize,
    /// How many look-ups are made at the same time.
    pub concurrency: usize,
    /// How long one look-up may take. The next one comes after twice this time at the earliest.
    pub timeout: Duration,
    /// How often a command is looked for, and how long it waits in between.
    pub terms: ReconcileTerms,
    /// How long evidence that came by itself is kept, so that it is recognised when it comes again.
    pub retention: Duration,
    /// How often dead letters are counted, and old evidence deleted.
    pub upkeep: Duration,
}

impl Default for ReconcilerOptions {
    fn default() -> ReconcilerOptions {
        ReconcilerOptions {
            interval: Duration::from_secs(10),
            batch: 100,
            concurrency: 8,
            timeout: Duration::from_secs(5),
            terms: ReconcileTerms::default(),
            retention: Duration::from_secs(30 * 24 * 3600),
            upkeep: Duration::from_secs(30),
        }
    }
}

/// Looks for evidence about commands whose outcome is unknown. Any number may work on one store.
pub struct Reconciler {
    looker: Arc<Looker>,
    options: ReconcilerOptions,
    /// Where the search for evidence that was not used goes on.
    next: Mutex<Option<OperationId>>,
}

/// What one pass came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The looks that were made.
    pub looks: Vec<Look>,
    /// How many commands were settled by evidence that had come by itself, beside those that were due.
    pub by_evidence: usize,
    /// Why the pass is not complete, if it is not.
    pub trouble: Option<String>,
}

impl Reconciler {
    /// Looks for evidence about the commands of this store with this look-up, and keeps in it what comes by itself.
    pub fn new(
        store: Arc<dyn Store>,
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
        let looker = Looker { store, evidence, look_up, settle, terms, timeout, bounds, ids };
        Reconciler { looker: Arc::new(looker), options, next: Mutex::default() }
    }

    /// The same, with somebody else who writes verdicts down.
    pub fn settle_with(self, settle: Arc<dyn Settle>) -> Reconciler {
        let ids = self.looker.ids.clone();
        self.made_of(settle, ids)
    }

    /// The same, with waits drawn from these ids, so that a simulation can repeat them.
    pub fn ids(self, ids: Arc<dyn Ids>) -> Reconciler {
        let settle = self.looker.settle.clone();
        self.made_of(settle, ids)
    }

    fn made_of(self, settle: Arc<dyn Settle>, ids: Arc<dyn Ids>) -> Reconciler {
        let Looker { store, evidence, look_up, terms, timeout, .. } = &*self.looker;
        let (store, evidence, look_up) = (store.clone(), evidence.clone(), look_up.clone());
        let bounds = self.looker.bounds.clone();
        let looker =
            Looker { store, evidence, look_up, settle, terms: *terms, timeout: *timeout, bounds, ids };
        Reconciler { looker: Arc::new(looker), ..self }
    }

    /// From now on, what this source says counts within these bounds. A source without any is heard about nothing.
    pub fn bind(&self, source: &str, bounds: SourceBounds) {
        self.looker.bounds.bind(source, bounds);
    }

    /// Works until `stop` comes to its end. Looks that are being made are then given up; their commands are due again when
    /// the time is over for which they were put off.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
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

    /// One pass: everything that is due, and evidence that was not used when it came.
    pub async fn once(&self) -> Report {
        let mut report = Report::default();
        self.use_evidence(&mut report).await;
        for _ in 0..MAX_BATCHES {
            let due = match self.looker.store.due_to_reconcile(self.options.batch).await {
                Ok(due) => due,
                Err(error) => {
                    report.trouble = Some(error.to_string());
                    break;
                }
            };
            let full = due.len() == self.options.batch;
            let looks = self.look_for(due).await;
            // What could not be put off is still due, and would be all that there is.
            let stuck = looks.iter().any(|look| matches!(look.outcome, Outcome::Failed { .. }));
            report.looks.extend(looks);
            if !full || stuck {
                break;
            }
        }
        report
    }

    /// Looks for several commands, as many at a time as may be.
    async fn look_for(&self, due: Vec<Record>) -> Vec<Look> {
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
            // One that panicked is due again when the time is over for which it was put off.
            done.extend(look.ok());
        }
        done
    }

    /// Looks for one command now, whether or not it is due, a dead letter included. `None` if there is no such command.
    pub async fn look(&self, operation_id: OperationId) -> Result<Option<Look>, StoreError> {
        self.look_now(operation_id, None).await
    }

    /// The same at somebody's wish: the note is kept if the look is made. What the look finds is noted beside it.
    pub async fn look_noted(
        &self,
        operation_id: OperationId,
        note: Note,
    ) -> Result<Option<Look>, StoreError> {
        self.look_now(operation_id, Some(note)).await
    }

    async fn look_now(
        &self,
        operation_id: OperationId,
        note: Option<Note>,
    ) -> Result<Option<Look>, StoreError> {
        match self.looker.store.find(operation_id).await?.record {
            Some(record) => Ok(Some(self.looker.look(&record, note).await)),
            None => Ok(None),
        }
    }

    /// Uses what was said about this command. Answers with the verdict that settled it now, if one did.
    pub async fn use_evidence_about(&self, operation_id: OperationId) -> Result<Option<Verdict>, StoreError> {
        self.looker.use_statements_about(operation_id).await
    }

    /// Uses evidence that was not used when it came: some of it each time, in turn.
    async fn use_evidence(&self, report: &mut Report) {
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

    /// How many commands are left to an operator, as far as it can be counted in bounded time.
    pub async fn count_dead_letters(&self) -> Result<usize, StoreError> {
        let mut filter = Filter { state: Some(StateName::Unknown), limit: COUNT_PAGE, ..Filter::default() };
        let mut count = 0;
        for _ in 0..COUNT_PAGES {
            let page = self.looker.store.list(&filter).await?;
            count += page.iter().filter(|record| is_dead_letter(&record.head.state)).count();
            match page.last() {
                Some(last) if page.len() == COUNT_PAGE => filter.after = Some(last.operation_id),
                Some(_) | None => break,
            }
        }
        Ok(count)
    }

    /// Where its commands are.
    #[cfg(feature = "http-evidence")]
    pub(super) fn store(&self) -> &dyn Store {
        &*self.looker.store
    }

    /// Where evidence that came by itself is kept.
    #[cfg(feature = "http-evidence")]
    pub(super) fn evidence(&self) -> &dyn Evidence {
        &*self.looker.evidence
    }
}
