//! The reconciler: findings settle commands, other commands are looked up again, by one reconciler at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel_core::reconcile::{Heard, is_dead_letter};
use semel_core::transition::{Proof, Verdict};
use semel_core::{
    Change, Decision, LookUpAnswer, OperationId, OperationName, Reason, Record, State, StateName, Statement,
    StoreAnswer, StoreError, Timestamp,
};
use semel_flow::reconcile::{
    Finding, LookUp, LookUpOutcome, NoLookUp, ReconcileReport, ReconcileTerms, Reconciler, ReconcilerOptions,
    Settle, SourceBounds,
};
use semel_testkit::sample;

use crate::lab::{Kept, Lab, both, stored};

both!(
    retries_get_the_result_of_the_provider,
    a_stable_failure_is_kept_as_one,
    not_executed_frees_the_key_only_after_the_quarantine,
    a_look_that_began_in_the_quarantine_frees_nothing,
    a_look_at_one_attempt_frees_no_other,
    a_provider_that_deduplicates_frees_the_key_at_once,
    one_of_several_reconcilers_looks_a_command_up,
    a_command_without_evidence_is_looked_up_again_and_then_left_to_an_operator,
    the_retry_after_of_a_provider_is_respected,
    a_look_up_that_hangs_or_panics_stops_no_other,
    a_deferred_command_is_never_free_by_time,
    evidence_that_came_early_waits_for_its_command,
    evidence_settles_a_dead_letter,
    evidence_that_contradicts_changes_nothing,
    evidence_counts_only_for_operations_bound_to_its_source,
    trouble_with_one_statement_does_not_silence_the_others,
    evidence_of_execution_wins_over_not_executed,
    nothing_frees_a_key_beside_evidence_that_cannot_be_read,
    evidence_is_found_behind_much_that_cannot_be_read,
);

/// A provider that answers as a test tells it, and counts its calls.
#[derive(Default)]
pub(crate) struct Provider {
    answers: Mutex<HashMap<OperationId, VecDeque<Finding>>>,
    pub(crate) asked: AtomicUsize,
    /// Moves the store's clock during the call.
    slow: Mutex<Option<(Kept, Duration)>>,
}

impl Provider {
    fn says(&self, about: &Record, found: LookUpAnswer) {
        let finding = Finding::new(found, "the provider said so");
        let mut answers = self.answers.lock().expect("nobody panics with it");
        answers.entry(about.operation_id).or_default().push_back(finding);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl LookUp for Provider {
    async fn look_up(&self, record: &Record) -> Finding {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some((kept, by)) = &*self.slow.lock().expect("nobody panics with it") {
            kept.shift_clock(*by);
        }
        let mut answers = self.answers.lock().expect("nobody panics with it");
        let answer = answers.get_mut(&record.operation_id).and_then(VecDeque::pop_front);
        answer.unwrap_or_else(|| Finding::no_answer("nobody told it what to say"))
    }
}

pub(crate) const TERMS: ReconcileTerms = ReconcileTerms {
    first_delay: Duration::from_secs(60),
    max_delay: Duration::from_secs(600),
    max_attempts: 3,
};

pub(crate) fn options() -> ReconcilerOptions {
    ReconcilerOptions { terms: TERMS, ..ReconcilerOptions::default() }
}

pub(crate) fn reconciler(kept: &Kept, look_up: Arc<dyn LookUp>) -> Reconciler {
    let reconciler = Reconciler::new(kept.store(), kept.store(), look_up, options());
    reconciler.bind("provider", SourceBounds::operations(vec![sample::claim("k").scope.operation().clone()]));
    reconciler
}

/// Returns a command whose outcome is unknown.
pub(crate) async fn unknown(kept: &Kept, key: &str) -> Record {
    let record = processing(kept, key).await;
    lost(kept, &record).await
}

/// Returns a command that is running.
pub(crate) async fn processing(kept: &Kept, key: &str) -> Record {
    let answer = kept.store().claim(&sample::claim(key)).await.expect("the store answers");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("it was just made")
}

/// Abandons a command: its executor cannot know its outcome.
pub(crate) async fn lost(kept: &Kept, record: &Record) -> Record {
    let abandon = Change::abandon(record.head.fence(), Reason::TimedOut);
    let answer = kept.store().apply(&record.id, &abandon).await.expect("the store answers");
    answer.record.expect("it is there")
}

pub(crate) async fn now_is(kept: &Kept, record: &Record) -> Record {
    let found = kept.store().find(record.operation_id).await.expect("the store answers");
    found.record.expect("it is there")
}

pub(crate) async fn state_of(kept: &Kept, record: &Record) -> StateName {
    now_is(kept, record).await.head.state.name()
}

fn quarantine_of(record: &Record) -> Timestamp {
    match record.head.state {
        State::Unknown { quarantine_until, .. } => quarantine_until,
        other => panic!("{other:?} has no quarantine"),
    }
}

fn outcome(report: &ReconcileReport) -> &LookUpOutcome {
    assert_eq!((report.looks.len(), &report.trouble), (1, &None), "{report:?}");
    &report.looks[0].outcome
}

pub(crate) fn created() -> LookUpAnswer {
    LookUpAnswer::Executed(sample::created("charged"))
}

async fn retries_get_the_result_of_the_provider(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    provider.says(&record, created());
    let report = reconciler(&kept, provider.clone()).once().await;
    assert_eq!(outcome(&report), &LookUpOutcome::Resolved(Verdict::Succeeded));
    let settled = now_is(&kept, &record).await;
    assert_eq!(settled.head.state.name(), StateName::Succeeded);
    assert_eq!(stored(&settled), (201, "charged".into()));
    let again = kept.store().claim(&sample::claim("k")).await.expect("the store answers");
    assert_eq!(again.decision, Decision::Replay);
    let notes = kept.store().notes(record.operation_id).await.expect("the store answers");
    let told: Vec<_> =
        notes.iter().map(|taken| (&*taken.note.who, &*taken.note.action, &*taken.note.why)).collect();
    assert_eq!(told, [("reconciler", "resolve executed", "the provider said so")], "the evidence is kept");
    assert!(reconciler(&kept, provider.clone()).once().await.looks.is_empty());
    assert_eq!(provider.asked(), 1);
}

async fn a_stable_failure_is_kept_as_one(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    provider.says(&record, LookUpAnswer::Failed(sample::result(&sample::response(402, "declined"))));
    let report = reconciler(&kept, provider).once().await;
    assert_eq!(outcome(&report), &LookUpOutcome::Resolved(Verdict::FailedFinal));
    let settled = now_is(&kept, &record).await;
    assert_eq!(settled.head.state.name(), StateName::FailedFinal);
    assert_eq!(stored(&settled), (402, "declined".into()));
}

async fn not_executed_frees_the_key_only_after_the_quarantine(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    let reconciler = reconciler(&kept, provider.clone());
    provider.says(&record, LookUpAnswer::NotExecuted(Proof::Quarantine));
    let end = quarantine_of(&record);
    match outcome(&reconciler.once().await) {
        LookUpOutcome::Again { at, .. } => assert_eq!(*at, end, "it is put off to the quarantine's end"),
        other => panic!("{other:?}"),
    }
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown);
    assert!(reconciler.once().await.looks.is_empty(), "nobody looks before");
    let now = kept.store().now().await.expect("it has a clock");
    kept.shift_clock(end.since(now) + Duration::from_secs(1));
    provider.says(&record, LookUpAnswer::NotExecuted(Proof::Quarantine));
    let freed = LookUpOutcome::Resolved(Verdict::NotExecuted(Proof::Quarantine));
    assert_eq!(outcome(&reconciler.once().await), &freed);
    assert_eq!(state_of(&kept, &record).await, StateName::FailedRetryable);
    let retry = kept.store().claim(&sample::claim("k")).await.expect("the store answers");
    assert_eq!(retry.decision, Decision::Execute, "one retry runs it");
}

async fn a_look_that_began_in_the_quarantine_frees_nothing(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    provider.says(&record, LookUpAnswer::NotExecuted(Proof::Quarantine));
    // During the call, the quarantine ends; until then, the effect may have landed.
    *provider.slow.lock().expect("nobody panics with it") = Some((kept.clone(), Duration::from_secs(300)));
    let report = reconciler(&kept, provider).once().await;
    assert!(matches!(outcome(&report), LookUpOutcome::Again { .. }), "{report:?}");
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown);
}

/// A provider that has no record of the first attempt, and answers so late that a second one has come and gone.
struct Late(Kept);

#[async_trait]
impl LookUp for Late {
    async fn look_up(&self, first: &Record) -> Finding {
        let (store, fence) = (self.0.store(), first.head.fence());
        // The first attempt's executor wakes: it has sent nothing.
        let release = Change::release(fence, Reason::NotExecuted);
        assert_eq!(
            store.apply(&first.id, &release).await.expect("the store answers").decision,
            Decision::Applied
        );
        // A retry executes, and its effect takes place; but its executor does not learn of it.
        let second = processing(&self.0, "k").await;
        assert_eq!(second.head.epoch, 2);
        lost(&self.0, &second).await;
        self.0.shift_clock(Duration::from_secs(300));
        Finding::new(LookUpAnswer::NotExecuted(Proof::Quarantine), "no record, when it was asked")
    }
}

async fn a_look_at_one_attempt_frees_no_other(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    kept.shift_clock(Duration::from_secs(300));
    let report = reconciler(&kept, Arc::new(Late(kept.clone()))).once().await;
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown, "{report:?}");
}

async fn a_provider_that_deduplicates_frees_the_key_at_once(lab: impl Lab) {
    for proof in [Proof::ProviderDeduplicates, Proof::ProviderTombstone] {
        let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
        let record = unknown(&kept, &format!("{proof:?}")).await;
        provider.says(&record, LookUpAnswer::NotExecuted(proof));
        let report = reconciler(&kept, provider).once().await;
        assert_eq!(outcome(&report), &LookUpOutcome::Resolved(Verdict::NotExecuted(proof)));
        assert_eq!(state_of(&kept, &record).await, StateName::FailedRetryable);
    }
}

async fn one_of_several_reconcilers_looks_a_command_up(lab: impl Lab) {
    const COMMANDS: usize = 12;
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    for number in 0..COMMANDS {
        unknown(&kept, &format!("k{number}")).await;
    }
    let mut passes = Vec::new();
    for _ in 0..4 {
        // Each with a store of its own, as another process would have.
        let reconciler = reconciler(&lab.kept().await, provider.clone());
        passes.push(tokio::spawn(async move { reconciler.once().await }));
    }
    let mut looked = 0;
    for pass in passes {
        let report = pass.await.expect("it does not panic");
        assert_eq!(report.trouble, None);
        looked += report.looks.iter().filter(|look| look.outcome != LookUpOutcome::Overtaken).count();
    }
    assert_eq!((looked, provider.asked()), (COMMANDS, COMMANDS), "each command was looked for once");
}

async fn a_command_without_evidence_is_looked_up_again_and_then_left_to_an_operator(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    let reconciler = reconciler(&kept, provider.clone());
    let mut last = Duration::ZERO;
    for look in 1..TERMS.max_attempts {
        let now = kept.store().now().await.expect("it has a clock");
        let LookUpOutcome::Again { at, .. } = outcome(&reconciler.once().await).clone() else {
            panic!("look {look} is not the last")
        };
        let wait = at.since(now);
        assert!(wait >= last && wait <= TERMS.max_delay, "look {look}: {wait:?} after {last:?}");
        last = Duration::from_secs(30) * (1 << (look - 1));
        assert!(reconciler.once().await.looks.is_empty(), "nobody looks in between");
        kept.shift_clock(wait + Duration::from_secs(1));
    }
    assert_eq!(reconciler.count_dead_letters().await.expect("it counts"), 0);
    assert!(matches!(outcome(&reconciler.once().await), LookUpOutcome::GivenUp { .. }));
    let dead = now_is(&kept, &record).await;
    assert!(is_dead_letter(&dead.head.state) && dead.head.state.name() == StateName::Unknown);
    assert_eq!(reconciler.count_dead_letters().await.expect("it counts"), 1);
    let retry = kept.store().claim(&sample::claim("k")).await.expect("the store answers");
    assert_eq!(retry.decision, Decision::Reconcile, "it is still unknown");
    kept.shift_clock(Duration::from_secs(365 * 24 * 3600));
    assert!(reconciler.once().await.looks.is_empty(), "nobody looks for it by itself");
    assert_eq!(provider.asked(), TERMS.max_attempts as usize);
    // An operator asks for another look-up, in vain, and for another.
    let asked = reconciler.look(record.operation_id).await.expect("the store answers").expect("it is there");
    assert!(matches!(asked.outcome, LookUpOutcome::GivenUp { .. }), "{asked:?}");
    provider.says(&record, created());
    let asked = reconciler.look(record.operation_id).await.expect("the store answers").expect("it is there");
    assert_eq!(asked.outcome, LookUpOutcome::Resolved(Verdict::Succeeded));
    let asked = reconciler.look(record.operation_id).await.expect("the store answers").expect("it is there");
    assert_eq!(asked.outcome, LookUpOutcome::NotUnknown(StateName::Succeeded));
    assert!(reconciler.look(OperationId::from_bytes([0; 16])).await.expect("the store answers").is_none());
}

async fn the_retry_after_of_a_provider_is_respected(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    let asked = Duration::from_secs(500);
    provider.says(&record, LookUpAnswer::NoAnswer { why: "busy".into(), retry_after: Some(asked) });
    let now = kept.store().now().await.expect("it has a clock");
    let report = reconciler(&kept, provider).once().await;
    let LookUpOutcome::Again { at, why } = outcome(&report) else { panic!("{report:?}") };
    assert_eq!(why, "busy");
    assert!(at.since(now) >= asked, "{at} is {asked:?} after {now}");
    let State::Unknown { reconcile_after, .. } = now_is(&kept, &record).await.head.state else {
        panic!("it is unknown")
    };
    assert_eq!(reconcile_after, *at);
}

/// Hangs, panics, or answers, by the command's key.
struct Moody(Mutex<HashMap<OperationId, &'static str>>);

#[async_trait]
impl LookUp for Moody {
    async fn look_up(&self, record: &Record) -> Finding {
        let mood = self.0.lock().expect("nobody panics with it").get(&record.operation_id).copied();
        match mood {
            Some("hangs") => std::future::pending().await,
            Some("panics") => panic!("a look-up that panics"),
            _ => Finding::new(created(), "it has it"),
        }
    }
}

async fn a_look_up_that_hangs_or_panics_stops_no_other(lab: impl Lab) {
    let kept = lab.kept().await;
    let (hangs, panics) = (unknown(&kept, "hangs").await, unknown(&kept, "panics").await);
    let mut others = Vec::new();
    for number in 0..6 {
        others.push(unknown(&kept, &format!("other-{number}")).await);
    }
    let moods = HashMap::from([(hangs.operation_id, "hangs"), (panics.operation_id, "panics")]);
    let options = ReconcilerOptions { timeout: Duration::from_millis(100), concurrency: 2, ..options() };
    let moody = Arc::new(Moody(Mutex::new(moods)));
    let report = Reconciler::new(kept.store(), kept.store(), moody, options).once().await;
    for other in &others {
        assert_eq!(state_of(&kept, other).await, StateName::Succeeded);
    }
    for left in [&hangs, &panics] {
        let State::Unknown { attempts, .. } = now_is(&kept, left).await.head.state else {
            panic!("it is unknown")
        };
        assert_eq!(attempts, 1, "it was put off before the look");
    }
    let hung = report.looks.iter().find(|look| look.operation_id == hangs.operation_id);
    let hung = hung.expect("it is reported");
    assert!(
        matches!(&hung.outcome, LookUpOutcome::Again { why, .. } if why == "no answer in time"),
        "{hung:?}"
    );
}

async fn a_deferred_command_is_never_free_by_time(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = processing(&kept, "k").await;
    let defer = Change::defer(record.head.fence(), Duration::from_secs(60));
    kept.store().apply(&record.id, &defer).await.expect("the store answers");
    kept.shift_clock(Duration::from_secs(61));
    kept.store().sweep(10).await.expect("the store answers");
    let reconciler = reconciler(&kept, provider.clone());
    for look in 1..=TERMS.max_attempts {
        provider.says(&record, LookUpAnswer::NotExecuted(Proof::Quarantine));
        let report = reconciler.once().await;
        match outcome(&report) {
            LookUpOutcome::Again { .. } => assert!(look < TERMS.max_attempts),
            LookUpOutcome::GivenUp { .. } => assert_eq!(look, TERMS.max_attempts),
            other => panic!("{other:?}"),
        }
        kept.shift_clock(Duration::from_secs(24 * 3600));
    }
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown);
}

pub(crate) async fn says(
    kept: &Kept,
    source: &str,
    event_id: &str,
    about: &Record,
    found: LookUpAnswer,
) -> Heard {
    let statement = Statement::new(
        source.to_owned(),
        event_id.to_owned(),
        about.operation_id,
        found,
        format!("{source} said {event_id}"),
    );
    kept.store().take_in(&statement.expect("it is a verdict")).await.expect("it is kept")
}

pub(crate) async fn open_about(kept: &Kept, record: &Record) -> usize {
    kept.store().open_statements(record.operation_id, None, 10).await.expect("it reads").statements.len()
}

async fn evidence_that_came_early_waits_for_its_command(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = processing(&kept, "k").await;
    assert_eq!(says(&kept, "provider", "e1", &record, created()).await, Heard::New);
    let reconciler = reconciler(&kept, provider.clone());
    assert_eq!(reconciler.once().await.by_evidence, 0);
    assert_eq!(state_of(&kept, &record).await, StateName::Processing, "its executor has the first word");
    assert_eq!(open_about(&kept, &record).await, 1);
    lost(&kept, &record).await;
    assert_eq!(reconciler.once().await.by_evidence, 1);
    let settled = now_is(&kept, &record).await;
    assert_eq!(stored(&settled), (201, "charged".into()));
    assert_eq!((open_about(&kept, &record).await, provider.asked()), (0, 0), "nobody had to be asked");
    let notes = kept.store().notes(record.operation_id).await.expect("the store answers");
    assert_eq!(notes.last().expect("it is noted").note.why, "provider said e1");
}

async fn evidence_settles_a_dead_letter(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    let given_up = Change::postpone(Timestamp::MAX, 0);
    kept.store().apply(&record.id, &given_up).await.expect("the store answers");
    says(&kept, "provider", "e1", &record, created()).await;
    let reconciler = reconciler(&kept, Arc::new(NoLookUp));
    assert_eq!(reconciler.once().await.by_evidence, 1, "although it is not due");
    assert_eq!(state_of(&kept, &record).await, StateName::Succeeded);
}

async fn evidence_that_contradicts_changes_nothing(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = processing(&kept, "k").await;
    let complete = Change::complete(record.head.fence(), sample::created("answered"));
    kept.store().apply(&record.id, &complete).await.expect("the store answers");
    says(&kept, "provider", "same", &record, created()).await;
    says(&kept, "provider", "otherwise", &record, LookUpAnswer::NotExecuted(Proof::ProviderTombstone)).await;
    let before = now_is(&kept, &record).await;
    let report = reconciler(&kept, Arc::new(NoLookUp)).once().await;
    assert_eq!((report.by_evidence, report.trouble), (0, None));
    assert_eq!(now_is(&kept, &record).await, before);
    assert_eq!(open_about(&kept, &record).await, 0, "both are done");
    let outcomes = "SELECT count(*) FROM semel_evidence WHERE
        (event_id = 'same' AND outcome = 'confirmed') OR (event_id = 'otherwise' AND outcome = 'contradicted')";
    assert_eq!(lab.number(outcomes).await, 2);
}

async fn evidence_counts_only_for_operations_bound_to_its_source(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    says(&kept, "bound", "e1", &record, created()).await;
    let reconciler = reconciler(&kept, Arc::new(NoLookUp));
    let refunds = OperationName::new("refunds.create").expect("it is a name");
    reconciler.bind("bound", SourceBounds::operations(vec![refunds]));
    assert_eq!(reconciler.once().await.by_evidence, 0);
    assert_eq!((state_of(&kept, &record).await, open_about(&kept, &record).await), (StateName::Unknown, 0));
    reconciler.bind("bound", SourceBounds::operations(vec![record.operation.clone()]));
    says(&kept, "bound", "e2", &record, created()).await;
    assert_eq!(reconciler.once().await.by_evidence, 1);
}

/// A service that refuses verdicts of failure.
struct Picky(Kept);

#[async_trait]
impl Settle for Picky {
    async fn settle(&self, record: &Record, change: &Change) -> Result<StoreAnswer, StoreError> {
        match change.result() {
            Some(result) if result.status < 400 => self.0.store().apply(&record.id, change).await,
            _ => Err(StoreError::Unavailable("it cannot be read".into())),
        }
    }
}

async fn trouble_with_one_statement_does_not_silence_the_others(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    let declined = LookUpAnswer::Failed(sample::result(&sample::response(402, "declined")));
    says(&kept, "provider", "e1", &record, declined).await;
    says(&kept, "provider", "e2", &record, created()).await;
    let reconciler = reconciler(&kept, Arc::new(NoLookUp)).settle_with(Arc::new(Picky(kept.clone())));
    reconciler.once().await;
    assert_eq!(state_of(&kept, &record).await, StateName::Succeeded);
}

async fn evidence_of_execution_wins_over_not_executed(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    says(&kept, "provider", "e1", &record, LookUpAnswer::NotExecuted(Proof::ProviderTombstone)).await;
    says(&kept, "provider", "e2", &record, created()).await;
    assert_eq!(reconciler(&kept, Arc::new(NoLookUp)).once().await.by_evidence, 1);
    assert_eq!(state_of(&kept, &record).await, StateName::Succeeded);
    let contradicted =
        "SELECT count(*) FROM semel_evidence WHERE event_id = 'e1' AND outcome = 'contradicted'";
    assert_eq!(lab.number(contradicted).await, 1, "somebody has to look at it");
}

/// Makes this evidence unreadable, like a damaged row or a newer version.
async fn petrify(lab: &impl Lab, source: &str) {
    lab.run(&format!("UPDATE semel_evidence SET verdict = 'petrified' WHERE source = '{source}'")).await;
}

async fn nothing_frees_a_key_beside_evidence_that_cannot_be_read(lab: impl Lab) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    let not_executed = || LookUpAnswer::NotExecuted(Proof::ProviderTombstone);
    says(&kept, "damaged", "e1", &record, created()).await;
    petrify(&lab, "damaged").await;
    says(&kept, "provider", "e2", &record, not_executed()).await;
    provider.says(&record, not_executed());
    let reconciler = reconciler(&kept, provider.clone());
    let report = reconciler.once().await;
    let why = "not executed as far as the look-up can see, and evidence that came by itself cannot be read";
    assert!(matches!(outcome(&report), LookUpOutcome::Again { why: told, .. } if told == why), "{report:?}");
    assert_eq!(report.by_evidence, 0);
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown, "what nobody has read may say otherwise");
    assert_eq!(open_about(&kept, &record).await, 1, "it waits");

    let other = unknown(&kept, "other").await;
    says(&kept, "damaged", "e3", &other, not_executed()).await;
    petrify(&lab, "damaged").await;
    provider.says(&other, created());
    reconciler.once().await;
    assert_eq!(state_of(&kept, &other).await, StateName::Succeeded, "what took place did");

    // Once it can be read, or has expired, the rest may be used.
    lab.run("DELETE FROM semel_evidence WHERE source = 'damaged'").await;
    assert_eq!(reconciler.once().await.by_evidence, 1);
    assert_eq!(state_of(&kept, &record).await, StateName::FailedRetryable);
}

async fn evidence_is_found_behind_much_that_cannot_be_read(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    for number in 0..70 {
        says(&kept, "damaged", &format!("e{number}"), &record, created()).await;
    }
    petrify(&lab, "damaged").await;
    kept.shift_clock(Duration::from_secs(1));
    says(&kept, "provider", "e1", &record, created()).await;
    assert_eq!(reconciler(&kept, Arc::new(NoLookUp)).once().await.by_evidence, 1);
    assert_eq!(state_of(&kept, &record).await, StateName::Succeeded);
}

/// Settles in a transaction of a service's own, which has a table of payments.
enum WithItsOwnRow {
    Postgres(sqlx::PgPool),
    Sqlite(std::path::PathBuf),
}

#[async_trait]
impl Settle for WithItsOwnRow {
    async fn settle(&self, record: &Record, change: &Change) -> Result<StoreAnswer, StoreError> {
        let away = |error: &dyn std::fmt::Display| StoreError::Unavailable(error.to_string());
        match self {
            WithItsOwnRow::Postgres(pool) => {
                let mut tx = pool.begin().await.map_err(|error| away(&error))?;
                let answer = semel_flow::postgres::apply_within(&mut tx, &record.id, change).await;
                let answer = answer.map_err(|error| error.store_error())?;
                let answer = answer.ok_or_else(|| StoreError::Unavailable("somebody was faster".into()))?;
                if answer.decision == Decision::Applied {
                    sqlx::raw_sql(crate::lab::PAY).execute(&mut *tx).await.map_err(|error| away(&error))?;
                    tx.commit().await.map_err(|error| away(&error))?;
                }
                Ok(answer)
            }
            WithItsOwnRow::Sqlite(path) => {
                let mut file = rusqlite::Connection::open(path).map_err(|error| away(&error))?;
                let tx = file
                    .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                    .map_err(|error| away(&error))?;
                let now = semel_stores::sqlite::now(&tx).map_err(|error| away(&error))?;
                let answer = semel_stores::sqlite::apply_within(&tx, &record.id, change, now)?;
                if answer.decision == Decision::Applied {
                    tx.execute_batch(crate::lab::PAY).map_err(|error| away(&error))?;
                    tx.commit().map_err(|error| away(&error))?;
                }
                Ok(answer)
            }
        }
    }
}

async fn rows_change_with_the_verdict(lab: impl Lab, settle: WithItsOwnRow) {
    let (kept, provider) = (lab.kept().await, Arc::new(Provider::default()));
    let record = unknown(&kept, "k").await;
    provider.says(&record, created());
    let reconciler = reconciler(&kept, provider.clone()).settle_with(Arc::new(settle));
    assert_eq!(outcome(&reconciler.once().await), &LookUpOutcome::Resolved(Verdict::Succeeded));
    assert_eq!(lab.counts().await.0, 1, "the service's own row is there");
    assert_eq!(state_of(&kept, &record).await, StateName::Succeeded);
    // A second verdict changes nothing.
    says(&kept, "provider", "e1", &record, created()).await;
    assert_eq!(reconciler.once().await.by_evidence, 0);
    assert_eq!(lab.counts().await.0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_services_own_rows_change_with_the_verdict_on_postgres() {
    let lab = crate::lab::Postgres::new().await;
    rows_change_with_the_verdict(lab.clone(), WithItsOwnRow::Postgres(lab.pool.clone())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_services_own_rows_change_with_the_verdict_on_sqlite() {
    let lab = crate::lab::Sqlite::new();
    rows_change_with_the_verdict(lab.clone(), WithItsOwnRow::Sqlite(lab.path.clone())).await;
}

/// Runs the loop as a process does: it finds new unknown commands, and ends when it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_reconciler_settles_new_unknown_commands_until_stopped() {
    let lab = crate::lab::Sqlite::new();
    let kept = lab.kept().await;
    let moody = Arc::new(Moody(Mutex::default()));
    let options = ReconcilerOptions { interval: Duration::from_millis(5), ..options() };
    let reconciler = Reconciler::new(kept.store(), kept.store(), moody, options);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        reconciler.run(async { drop(stopped.await) }).await;
    });
    let record = unknown(&kept, "k").await;
    let mut state = StateName::Unknown;
    for _ in 0..4000 {
        state = state_of(&kept, &record).await;
        if state == StateName::Succeeded {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(state, StateName::Succeeded);
    stop.send(()).expect("it runs");
    running.await.expect("it ends");
}
