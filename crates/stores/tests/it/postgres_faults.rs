//! Lost answers of a real server, cut at the statement: every change is made exactly once, or the store
//! reports `Ambiguous`.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use semel_core::transition::Proof;
use semel_core::{
    Change, Claim, Decision, Fence, Note, Reason, Record, StateName, Store, StoreError, Timestamp,
};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::Database;
use semel_testkit::proxy::{Cut, FaultProxy, Matching};
use semel_testkit::sample;
use tokio::task::JoinHandle;

use crate::postgres::{client, database, open, patience, until};

const CUTS: [Cut; 3] = [Cut::BeforeSent, Cut::AfterSent, Cut::AfterServerAnswered];

/// Parameters for every way to send statements.
const WAYS: [&str; 3] = ["", "?prepared_statements=false", "?groups=false"];

const INSERT: &str = "INSERT INTO semel_records";
const UPDATE: &str = "UPDATE semel_records";

/// A store behind a proxy, and direct access to its database.
pub(crate) struct Bed {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) proxy: FaultProxy,
    pub(crate) database: Database,
}

pub(crate) async fn bed(parameters: &str, options: &PostgresOptions) -> Bed {
    let database = database().await;
    let proxy = FaultProxy::before(&database.url()).await.expect("a proxy can be started");
    let store = open(&format!("{}{parameters}", proxy.url(&database.url())), options).await;
    Bed { store, proxy, database }
}

/// Returns a bed with one connection for changes, so that a test knows which changes share a group.
pub(crate) async fn one_lane() -> Bed {
    bed("", &PostgresOptions { lanes: 1, ..PostgresOptions::default() }).await
}

impl Bed {
    pub(crate) async fn acquire(&self, claim: &Claim) -> Record {
        let answer = self.store.claim(claim).await.expect("it is decided");
        assert_eq!(answer.decision, Decision::Execute);
        let record = answer.record.expect("an acquired command has a record");
        assert_eq!((record.head.token, record.head.epoch), (claim.attempt.token, 1));
        record
    }

    async fn apply(&self, record: &Record, change: Change) -> Result<Decision, StoreError> {
        self.store.apply(&record.id, &change).await.map(|answer| answer.decision)
    }

    /// Returns a command in state `Unknown`.
    async fn unknown(&self, key: &str) -> Record {
        let record = self.acquire(&sample::claim(key)).await;
        let abandoned = Change::abandon(record.head.fence(), Reason::TimedOut);
        assert_eq!(self.apply(&record, abandoned).await.expect("it is decided"), Decision::Applied);
        record
    }

    /// Returns the record's state on the server, if there is one, and the number of its notes, at one moment.
    fn state_and_notes(&self, record: &Record) -> (String, usize) {
        let command = record.operation_id;
        let statement = format!(
            "SELECT (SELECT state FROM semel_records WHERE operation_id = '{command}'),
                (SELECT count(*) FROM semel_audit WHERE operation_id = '{command}')"
        );
        let row = self.database.sql(&statement).expect("it can be read");
        let (state, notes) = row.split_once('|').expect("it has two columns");
        (state.to_owned(), notes.parse().expect("it is a number"))
    }

    fn count(&self, table: &str) -> String {
        self.database.sql(&format!("SELECT count(*) FROM {table}")).expect("it can be read")
    }

    /// Starts tasks while the one lane is busy, so that they share a group once it is free.
    pub(crate) async fn together<T: Send + 'static>(
        &self,
        tasks: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
    ) -> Vec<JoinHandle<T>> {
        let busy = self.proxy.hold_answer(Matching::statement("LEFT JOIN semel_records"));
        let store = self.store.clone();
        let first = tokio::spawn(async move { store.now().await });
        busy.reached().await;
        let mut running = Vec::new();
        for task in tasks {
            // A task queues its change as soon as it is polled.
            let mut task = Box::pin(task);
            let polled = std::future::poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx))).await;
            assert!(polled.is_pending(), "the lane is busy");
            running.push(tokio::spawn(task));
        }
        busy.release();
        first.await.expect("it does not panic").expect("it is answered");
        running
    }
}

fn settlement(name: &str, fence: Fence) -> Change {
    match name {
        "complete" => Change::complete(fence, sample::created("mine")),
        "fail" => Change::fail(fence, Reason::Answered, sample::created("mine")),
        "release" => Change::release(fence, Reason::NotExecuted),
        _ => Change::abandon(fence, Reason::TimedOut),
    }
}

fn note(why: &str) -> Note {
    Note { who: "op".into(), action: "resolve".into(), why: why.into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_is_acquired_once() {
    for way in WAYS {
        let bed = bed(way, &PostgresOptions::default()).await;
        for (number, cut) in CUTS.into_iter().enumerate() {
            let commits = way.contains("groups=false");
            for at_commit in [false, true].into_iter().filter(|at_commit| commits || !at_commit) {
                let claim = sample::claim(&format!("key-{number}-{at_commit}"));
                let statement = if at_commit { Matching::commit() } else { Matching::statement(INSERT) };
                let armed = bed.proxy.cut_next(statement, cut);
                let record = bed.acquire(&claim).await;
                armed.struck().await;
                let rival = bed.store.claim(&sample::claim(&format!("key-{number}-{at_commit}"))).await;
                assert_eq!(rival.expect("it is decided").decision, Decision::Wait, "{way} {cut:?}");
                let again = bed.store.claim(&claim).await.expect("it is decided");
                assert_eq!(again.decision, Decision::Execute, "the same claim, sent again by its caller");
                let done = Change::complete(record.head.fence(), sample::created("done"));
                assert_eq!(bed.apply(&record, done).await.expect("it is decided"), Decision::Applied);
            }
        }
        let (claims, cuts) = (bed.count("semel_records"), bed.proxy.cuts());
        assert_eq!(claims, cuts.to_string(), "{way}: one record for each cut");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_whose_answer_is_lost_is_made_once() {
    for way in WAYS {
        let bed = bed(way, &PostgresOptions::default()).await;
        for (number, cut) in CUTS.into_iter().enumerate() {
            for (name, state) in [
                ("complete", StateName::Succeeded),
                ("fail", StateName::FailedFinal),
                ("release", StateName::FailedRetryable),
                ("abandon", StateName::Unknown),
            ] {
                let claim = sample::claim(&format!("{name}-{number}"));
                let record = bed.acquire(&claim).await;
                let armed = bed.proxy.cut_next(Matching::statement(UPDATE), cut);
                let decision = bed.apply(&record, settlement(name, record.head.fence())).await;
                armed.struck().await;
                assert_eq!(decision.expect("it is decided"), Decision::Applied, "{way} {name} {cut:?}");
                let found = bed.store.get(&record.id).await.expect("it reads").record.expect("it is there");
                assert_eq!(found.head.state.name(), state, "{way} {name} {cut:?}");
                assert_eq!(found.head.fence(), record.head.fence());
                let steps: Vec<_> = found.history.steps().map(|step| (step.state, step.again)).collect();
                let expected = vec![(StateName::Processing, None), (state, None)];
                assert_eq!(steps, expected, "{way} {name} {cut:?}: one step for one change");
                if state == StateName::Succeeded {
                    let replay = bed.store.claim(&sample::claim(&format!("{name}-{number}"))).await;
                    let replay = replay.expect("it is decided");
                    assert_eq!(replay.decision, Decision::Replay);
                    let result = replay.record.and_then(|record| record.result);
                    assert_eq!(result, Some(sample::created("mine")));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_whose_answer_is_lost_extends_the_lease() {
    for way in WAYS {
        let bed = bed(way, &PostgresOptions::default()).await;
        for (number, cut) in CUTS.into_iter().enumerate() {
            let record = bed.acquire(&sample::claim(&format!("key-{number}"))).await;
            // Half a lease later.
            bed.store.shift_clock(Duration::from_secs(15));
            let armed = bed.proxy.cut_next(Matching::statement(UPDATE), cut);
            let renewed = Change::renew(record.head.fence());
            let renewed = bed.store.apply(&record.id, &renewed).await.expect("it is decided");
            armed.struck().await;
            assert_eq!(renewed.decision, Decision::Applied);
            let until = |record: &Record| record.head.state.due_to_sweep().expect("it has a lease");
            let renewed = renewed.record.expect("it is there");
            assert!(until(&renewed) >= until(&record).plus(Duration::from_secs(15)), "{way} {cut:?}");
            assert_eq!(renewed.head.fence(), record.head.fence());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_reference_whose_commit_is_lost_holds_it_once() {
    let bed = bed("", &PostgresOptions::default()).await;
    for (number, cut) in CUTS.into_iter().enumerate() {
        for (place, statement) in [
            ("insert", Matching::statement(INSERT)),
            ("reference", Matching::statement("INSERT INTO semel_references")),
            ("commit", Matching::commit()),
        ] {
            let key = format!("{place}-{number}");
            let claim = sample::with_reference(sample::claim(&key), &format!("order-{key}"));
            let armed = bed.proxy.cut_next(statement, cut);
            let record = bed.acquire(&claim).await;
            armed.struck().await;
            let other = sample::claim(&format!("other-{key}"));
            let other = sample::with_reference(other, &format!("order-{key}"));
            let other = bed.store.claim(&other).await.expect("it is decided");
            assert_eq!(other.decision, Decision::Duplicate, "{place} {cut:?}");
            assert_eq!(other.holder.map(|holder| holder.operation_id), Some(record.operation_id));
        }
    }
    assert_eq!((bed.count("semel_records"), bed.count("semel_references")), ("9".into(), "9".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_answer_is_lost_is_settled_one_and_all() {
    const COUNT: usize = 200;
    for cut in CUTS {
        let bed = one_lane().await;
        // Every key is claimed twice, by different requests, in the same group.
        let before = bed.store.sent();
        let armed = bed.proxy.cut_next(Matching::statement(INSERT), cut);
        let claims: Vec<Claim> =
            (0..COUNT).map(|number| sample::claim(&format!("key-{}", number / 2))).collect();
        let tasks = claims.iter().cloned().map(|claim| {
            let store = bed.store.clone();
            async move { (claim.clone(), store.claim(&claim).await.expect("it is decided")) }
        });
        let mut won = Vec::new();
        for task in bed.together(tasks).await {
            let (claim, answer) = task.await.expect("it does not panic");
            match answer.decision {
                Decision::Execute => {
                    let record = answer.record.expect("it is there");
                    assert_eq!(record.head.token, claim.attempt.token);
                    won.push(record);
                }
                other => assert_eq!(other, Decision::Wait),
            }
        }
        armed.struck().await;
        let ids: std::collections::HashSet<_> = won.iter().map(|record| *record.id.as_bytes()).collect();
        assert_eq!((won.len(), ids.len()), (COUNT / 2, COUNT / 2), "{cut:?}: one winner for each key");
        let sent = bed.store.sent();
        assert!(sent.writes - before.writes < 20, "{cut:?}: they travelled together: {sent:?}");

        let armed = bed.proxy.cut_next(Matching::statement(UPDATE), cut);
        let tasks = won.iter().cloned().map(|record| {
            let store = bed.store.clone();
            async move {
                let change =
                    Change::complete(record.head.fence(), sample::created(&record.operation_id.to_string()));
                store.apply(&record.id, &change).await.expect("it is decided").decision
            }
        });
        for task in bed.together(tasks).await {
            assert_eq!(task.await.expect("it does not panic"), Decision::Applied);
        }
        armed.struck().await;
        for record in &won {
            let found = bed.store.get(&record.id).await.expect("it reads").record.expect("it is there");
            assert_eq!(found.result, Some(sample::created(&record.operation_id.to_string())));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_cut_again_and_again_is_still_one() {
    let bed = bed("", &PostgresOptions::default()).await;
    let claim = sample::claim("k");
    let first = bed.proxy.cut_next(Matching::statement(INSERT), Cut::AfterServerAnswered);
    // Its confirmations, and the reads before them.
    let cuts: Vec<_> = [Cut::AfterServerAnswered, Cut::AfterSent, Cut::BeforeSent, Cut::AfterServerAnswered]
        .into_iter()
        .map(|cut| bed.proxy.cut_next(Matching::statement(UPDATE), cut))
        .collect();
    let reads: Vec<_> = [Cut::AfterSent, Cut::BeforeSent]
        .into_iter()
        .map(|cut| bed.proxy.cut_next(Matching::statement("LEFT JOIN semel_records"), cut))
        .collect();
    let record = bed.acquire(&claim).await;
    for armed in [first].iter().chain(&cuts).chain(&reads) {
        armed.struck().await;
    }
    assert_eq!(bed.proxy.cuts(), 7);
    let found = bed.store.get(&record.id).await.expect("it reads").record.expect("it is there");
    assert_eq!(found.head, record.head);
    assert_eq!(bed.count("semel_records"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_cannot_be_settled_says_so_and_is_settled_when_it_is_sent_again() {
    let bed = bed("", &PostgresOptions::default()).await;
    let claim = sample::claim("k");
    let held = bed.proxy.hold_answer(Matching::statement(INSERT));
    let waiting = tokio::spawn({
        let (store, claim) = (bed.store.clone(), claim.clone());
        async move { store.claim(&claim).await }
    });
    held.reached().await;
    bed.proxy.refuse().await;
    bed.proxy.cut_all().await;
    let error = waiting.await.expect("it does not panic").expect_err("nobody can know");
    assert!(matches!(error, StoreError::Ambiguous(_)), "{error}");
    let fresh = bed.store.claim(&sample::claim("other")).await.expect_err("the server cannot be reached");
    assert!(matches!(fresh, StoreError::Unavailable(_)), "nothing of it was sent: {fresh}");
    bed.proxy.heal().await.expect("the port is free");
    let rival = bed.store.claim(&sample::claim("k")).await.expect("it is decided");
    assert_eq!(rival.decision, Decision::Wait, "it was written");
    bed.acquire(&claim).await;
    assert_eq!(bed.count("semel_records"), "1", "the other claim was not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_answer_is_lost_is_read_again() {
    for way in WAYS {
        let bed = bed(way, &PostgresOptions::default()).await;
        let record = bed.acquire(&sample::claim("k")).await;
        for cut in CUTS {
            let armed = bed.proxy.cut_next(Matching::statement("LEFT JOIN semel_records"), cut);
            let found = bed.store.get(&record.id).await.expect("it reads").record;
            armed.struck().await;
            assert_eq!(found.as_ref(), Some(&record), "{way} {cut:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_is_not_answered_wrote_nothing() {
    for way in WAYS {
        let bed = bed(way, &PostgresOptions::default()).await;
        let record = bed.acquire(&sample::claim("k")).await;
        let held = bed.proxy.hold_answer(Matching::statement("LEFT JOIN semel_records"));
        let reading = tokio::spawn({
            let store = bed.store.clone();
            async move { store.get(&record.id).await }
        });
        held.reached().await;
        bed.proxy.refuse().await;
        bed.proxy.cut_all().await;
        let error = reading.await.expect("it does not panic").expect_err("the server cannot be reached");
        assert!(matches!(error, StoreError::Unavailable(_)), "{way}: {error}");
    }
}

/// An operator's change carries no token. If its answer is lost, it is not repeated, and its note exists as
/// often as its change: once, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_change_is_never_made_twice() {
    for way in WAYS {
        let bed = bed(way, &PostgresOptions::default()).await;
        let mut ambiguous = 0;
        for (number, cut) in CUTS.into_iter().enumerate() {
            for (place, statement) in [
                ("update", Matching::statement(UPDATE)),
                ("note", Matching::statement("semel_audit")),
                ("commit", Matching::commit()),
            ] {
                let key = format!("{place}-{number}");
                let record = bed.unknown(&format!("resolve-{key}")).await;
                let resolve = Change::resolve_executed(sample::created("found")).noted(note("seen"));
                let armed = bed.proxy.cut_next(statement, cut);
                let answer = bed.apply(&record, resolve).await;
                armed.struck().await;
                let (state, notes) = bed.state_and_notes(&record);
                match answer {
                    Ok(decision) => {
                        assert_eq!(
                            (decision, &*state, notes),
                            (Decision::Applied, "succeeded", 1),
                            "{way} {key}"
                        );
                        assert_ne!(place, "commit", "{way} {cut:?}: nobody can know");
                    }
                    Err(StoreError::Ambiguous(_)) => {
                        ambiguous += 1;
                        let made = usize::from(state == "succeeded");
                        assert_eq!(notes, made, "{way} {key} {cut:?}: the note is kept with its change");
                        if place != "commit" || cut == Cut::BeforeSent {
                            assert_eq!(made, 0, "{way} {key} {cut:?}: without a commit nothing is written");
                        }
                        if place == "commit" && cut == Cut::AfterServerAnswered {
                            assert_eq!(made, 1, "{way} {key}: it was committed");
                        }
                    }
                    Err(other) => panic!("{way} {key} {cut:?}: {other}"),
                }
            }
        }
        assert!(ambiguous >= CUTS.len(), "{way}: a lost commit is never guessed about");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_change_cut_at_its_statement_is_ambiguous_and_not_resent() {
    for way in WAYS {
        let bed = bed(way, &PostgresOptions::default()).await;
        for (number, cut) in CUTS.into_iter().enumerate() {
            let record = bed.unknown(&format!("postpone-{number}")).await;
            let matching =
                if way.contains("groups=false") { Matching::commit() } else { Matching::statement(UPDATE) };
            let armed = bed.proxy.cut_next(matching, cut);
            let until = Timestamp::from_millis(record.updated_at.as_millis() + 60_000);
            let error = bed.apply(&record, Change::postpone(until, 0)).await.expect_err("nobody can know");
            armed.struck().await;
            assert!(matches!(error, StoreError::Ambiguous(_)), "{way} {cut:?}: {error}");
            let found = bed.store.get(&record.id).await.expect("it reads").record.expect("it is there");
            let semel_core::State::Unknown { attempts, .. } = found.head.state else {
                panic!("it is still unknown: {found:?}");
            };
            let expected = match cut {
                Cut::BeforeSent => 0..=0,
                Cut::AfterSent => 0..=1,
                Cut::AfterServerAnswered => 1..=1,
            };
            assert!(expected.contains(&attempts), "{way} {cut:?}: {attempts}");

            let purged = bed.acquire(&sample::claim(&format!("purge-{number}"))).await;
            let complete = Change::complete(purged.head.fence(), sample::created("done"));
            assert_eq!(bed.apply(&purged, complete).await.expect("it is decided"), Decision::Applied);
            let armed = bed.proxy.cut_next(Matching::commit(), cut);
            let error = bed.apply(&purged, Change::purge().noted(note("asked for"))).await;
            armed.struck().await;
            assert!(matches!(error, Err(StoreError::Ambiguous(_))), "{way} {cut:?}: {error:?}");
            let (state, notes) = bed.state_and_notes(&purged);
            assert_eq!(notes, usize::from(state == "expired"), "{way} {cut:?}");

            let freed = bed.unknown(&format!("free-{number}")).await;
            let proof = Change::resolve_not_executed(Proof::ProviderTombstone);
            assert_eq!(bed.apply(&freed, proof).await.expect("it is decided"), Decision::Applied);
            let armed = bed.proxy.cut_next(Matching::commit(), cut);
            let error = bed.apply(&freed, Change::free().noted(note("asked for"))).await;
            armed.struck().await;
            assert!(matches!(error, Err(StoreError::Ambiguous(_))), "{way} {cut:?}: {error:?}");
            let (state, notes) = bed.state_and_notes(&freed);
            assert_eq!(notes, usize::from(state.is_empty()), "{way} {cut:?}");
        }
    }
}

/// The statement of a claim without a waiting caller may still be on its way into the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_outlives_its_connection_is_recognised_as_the_same() {
    // As behind a pooler that does not forward our limit: the server waits for locks without end.
    let bed = bed("?options=-c%20lock_timeout%3D0", &patience(300)).await;
    let claim = sample::claim("k");
    let locker = client(&bed.database.url()).await;
    locker.batch_execute("BEGIN; LOCK TABLE semel_records IN SHARE MODE").await.expect("nobody else writes");
    let waiting = tokio::spawn({
        let (store, claim) = (bed.store.clone(), claim.clone());
        async move { store.claim(&claim).await }
    });
    // The first claim has lost its connection, and another one waits beside it.
    let waits = "SELECT count(*) >= 2 FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()";
    until(bed.database.server(), bed.database.name(), waits, "t").await;
    locker.batch_execute("ROLLBACK").await.expect("it gives the lock back");
    let answer = waiting.await.expect("it does not panic").expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute);
    let rival = bed.store.claim(&sample::claim("k")).await.expect("it is decided");
    assert_eq!(rival.decision, Decision::Wait);
    assert_eq!(bed.count("semel_records"), "1");
}

/// The caller has left, and takes back any claim that it finds. A claim that is acquired after that would end
/// as unknown although nothing ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_doubt_whose_caller_left_acquires_no_command() {
    let bed = bed("", &PostgresOptions { lanes: 1, ..patience(3_000) }).await;
    let others = open(&bed.database.url(), &PostgresOptions::default()).await;
    let (claim, retry) = (sample::claim("k"), sample::claim("k"));
    let held = bed.proxy.hold_answer(Matching::statement(INSERT));
    let waiting = tokio::spawn({
        let (store, claim) = (bed.store.clone(), claim.clone());
        async move { store.claim(&claim).await }
    });
    held.reached().await;
    waiting.abort();
    let release = async |record: &Record, reason| {
        let change = Change::release(record.head.fence(), reason);
        let answer = others.apply(&record.id, &change).await.expect("it is decided");
        assert_eq!(answer.decision, Decision::Applied);
    };
    let found = others.get(&sample::id(&claim)).await.expect("it reads").record.expect("it was made");
    release(&found, Reason::ClaimUnconfirmed).await;
    let retried = others.claim(&retry).await.expect("it is decided");
    assert_eq!(retried.decision, Decision::Execute);
    release(&retried.record.expect("an acquired command has a record"), Reason::NotExecuted).await;

    // The only lane processes this once it is done with the claim.
    let found = bed.store.get(&sample::id(&claim)).await.expect("it reads").record.expect("it is there");
    assert_eq!(found.head.state.name(), StateName::FailedRetryable, "{}", found.history.as_text());
}
