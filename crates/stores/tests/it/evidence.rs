//! Received evidence is stored the same in every store.

use std::sync::Arc;
use std::time::Duration;

use semel_core::reconcile::{Heard, StatementOutcome};
use semel_core::transition::{Proof, Verdict};
use semel_core::{Clock, Evidence, Ids, LookUpAnswer, OperationId, RandomIds, Statement, SystemClock};
use semel_stores::{MemoryStore, SqliteStore};
use semel_testkit::{ManualClock, sample};

use crate::postgres::{database, open, patience, postgres};

fn command() -> OperationId {
    RandomIds.operation_id(SystemClock.now())
}

fn statement(source: &str, event_id: &str, about: OperationId, found: LookUpAnswer) -> Statement {
    Statement::new(source.to_owned(), event_id.to_owned(), about, found, format!("{event_id} was seen"))
        .expect("it is a verdict")
}

fn executed() -> LookUpAnswer {
    LookUpAnswer::Executed(sample::created("charged"))
}

async fn take_in(evidence: &dyn Evidence, statement: &Statement) -> Heard {
    evidence.take_in(statement).await.expect("it is kept")
}

async fn open_about(evidence: &dyn Evidence, about: OperationId) -> Vec<Statement> {
    let page = evidence.open_statements(about, None, 100).await.expect("it reads");
    assert_eq!((page.unreadable, page.last), (0, None));
    as_said(page.statements)
}

/// Returns statements without their time of receipt.
fn as_said(statements: Vec<Statement>) -> Vec<Statement> {
    let as_said = |mut statement: Statement| {
        assert!(statement.received_at.take().is_some(), "it says when it was heard");
        statement
    };
    statements.into_iter().map(as_said).collect()
}

async fn is_kept_and_heard_once(evidence: &dyn Evidence) {
    let (one, other) = (command(), command());
    let said = [
        statement("provider", "e1", one, executed()),
        statement("provider", "e2", one, LookUpAnswer::Failed(sample::result(&sample::response(402, "no")))),
        statement("provider", "e3", one, LookUpAnswer::NotExecuted(Proof::ProviderTombstone)),
        statement("provider", "e4", one, LookUpAnswer::NotExecuted(Proof::ProviderDeduplicates)),
        statement("somebody else", "e1", other, executed()).of_attempt(Some(2)),
    ];
    for statement in &said {
        assert_eq!(take_in(evidence, statement).await, Heard::New, "{statement:?}");
    }
    assert_eq!(take_in(evidence, &said[0]).await, Heard::Before, "the same again");
    // The id is known, whatever the statement says; and the store reports the different content.
    let others = [
        statement("provider", "e1", other, executed()),
        statement("provider", "e1", one, LookUpAnswer::NotExecuted(Proof::ProviderTombstone)),
        statement("provider", "e1", one, LookUpAnswer::Executed(sample::created("charged twice"))),
        statement("provider", "e1", one, executed()).of_attempt(Some(1)),
    ];
    for forged in others {
        assert_eq!(take_in(evidence, &forged).await, Heard::Other, "{forged:?}");
    }
    let mut found = open_about(evidence, one).await;
    found.sort_by(|one, other| one.event_id.cmp(&other.event_id));
    assert_eq!(found, said[..4], "with everything that they say");
    assert_eq!(open_about(evidence, other).await, said[4..]);
    let (mut paged, mut last) = (Vec::new(), None);
    for expected in [2, 2, 0] {
        let page = evidence.open_statements(one, last.as_ref(), 2).await.expect("it reads");
        assert_eq!((page.statements.len(), page.last.is_some()), (expected, expected == 2));
        paged.extend(as_said(page.statements));
        last = page.last;
    }
    paged.sort_by(|one, other| one.event_id.cmp(&other.event_id));
    assert_eq!(paged, said[..4], "each once");
    assert!(open_about(evidence, command()).await.is_empty());
}

async fn is_done_once(evidence: &dyn Evidence) {
    let about = command();
    let said = statement("closing", "e1", about, executed());
    take_in(evidence, &said).await;
    let close =
        async |outcome| evidence.close_statement("closing", "e1", outcome).await.expect("it is written");
    assert!(close(StatementOutcome::Used).await);
    assert!(!close(StatementOutcome::Contradicted).await, "it is done already");
    assert!(open_about(evidence, about).await.is_empty());
    assert_eq!(take_in(evidence, &said).await, Heard::Before, "what is done is still known");
    let nobody = evidence.close_statement("closing", "nothing", StatementOutcome::Used).await;
    assert!(!nobody.expect("it is written"));
}

async fn its_commands_are_found_in_pages(evidence: &dyn Evidence) {
    let mut known = Vec::new();
    for number in 0..5 {
        let about = command();
        for twice in ["a", "b"] {
            take_in(evidence, &statement("pages", &format!("{number}{twice}"), about, executed())).await;
        }
        known.push(about);
    }
    known.sort();
    let mut found = Vec::new();
    loop {
        let page = evidence.commands_with_evidence(found.last().copied(), 2).await.expect("it reads");
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        found.extend(page);
    }
    found.retain(|id| known.contains(id));
    assert_eq!(found, known, "each once, in order");
}

async fn is_forgotten_after_its_time(evidence: &dyn Evidence, advance: impl Fn(Duration)) {
    let (day, about) = (Duration::from_secs(24 * 3600), command());
    while evidence.reap_statements(Duration::ZERO, 100).await.expect("it is written") > 0 {}
    for number in 0..3 {
        take_in(evidence, &statement("old", &number.to_string(), about, executed())).await;
    }
    advance(day);
    let young = statement("young", "1", about, executed());
    take_in(evidence, &young).await;
    assert_eq!(evidence.reap_statements(day, 2).await.expect("it is written"), 2, "no more than asked for");
    assert_eq!(evidence.reap_statements(day, 2).await.expect("it is written"), 1);
    assert_eq!(open_about(evidence, about).await, [young]);
}

/// Checks that of many concurrent receivers of one statement, one is the first.
async fn is_new_to_one(evidence: Arc<dyn Evidence>) {
    let said = statement("race", "e1", command(), executed());
    let takers = (0..16).map(|_| {
        let (evidence, said) = (evidence.clone(), said.clone());
        tokio::spawn(async move { take_in(&*evidence, &said).await })
    });
    let mut new = 0;
    for taker in takers.collect::<Vec<_>>() {
        new += usize::from(taker.await.expect("it does not panic") == Heard::New);
    }
    assert_eq!(new, 1);
}

async fn all(evidence: Arc<dyn Evidence>, advance: impl Fn(Duration)) {
    is_kept_and_heard_once(&*evidence).await;
    is_done_once(&*evidence).await;
    its_commands_are_found_in_pages(&*evidence).await;
    is_forgotten_after_its_time(&*evidence, advance).await;
    is_new_to_one(evidence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_is_kept_in_memory() {
    let clock = ManualClock::new();
    all(Arc::new(MemoryStore::with_clock(clock.clone())), |by| clock.advance(by)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_is_kept_in_sqlite_and_outlives_its_process() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let path = folder.path().join("semel.db");
    let store = Arc::new(SqliteStore::open(&path).expect("a new file can be opened"));
    all(store.clone(), |by| store.shift_clock(by)).await;
    let said = statement("last", "e1", command(), executed());
    take_in(&*store, &said).await;
    let again = SqliteStore::open(&path).expect("the file can be opened again");
    assert_eq!(open_about(&again, said.operation_id).await, std::slice::from_ref(&said));
    // A commit whose answer is lost is repeated without harm.
    store.lose_next_commit_answer();
    let lost = statement("last", "e2", command(), executed());
    store.take_in(&lost).await.expect("it is found out");
    assert_eq!(open_about(&*store, lost.operation_id).await, [lost]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_is_kept_in_postgresql_and_outlives_its_process() {
    let bed = postgres("").await;
    all(bed.store.clone(), |by| bed.store.shift_clock(by)).await;
    let database = database().await;
    let (first, second) =
        (open(&database.url(), &patience(10_000)).await, open(&database.url(), &patience(10_000)).await);
    let said = statement("last", "e1", command(), executed());
    take_in(&*first, &said).await;
    assert_eq!(take_in(&*second, &said).await, Heard::Before);
    assert_eq!(open_about(&*second, said.operation_id).await[0].verdict(), Verdict::Succeeded);
}

/// Returns the statement that corrupts a row.
fn petrify(event_id: &str) -> String {
    format!("UPDATE semel_evidence SET verdict = 'petrified' WHERE event_id = '{event_id}'")
}

/// Checks that the second of two statements is found if the first is unreadable.
async fn the_other_is_still_found(evidence: &dyn Evidence, poison: impl FnOnce(&str)) {
    let about = command();
    let (bad, good) =
        (statement("poison", "e1", about, executed()), statement("poison", "e2", about, executed()));
    take_in(evidence, &bad).await;
    take_in(evidence, &good).await;
    poison(&petrify("e1"));
    let page = evidence.open_statements(about, None, 100).await.expect("it reads");
    assert_eq!((as_said(page.statements), page.unreadable), (vec![good.clone()], 1));
    let first = evidence.open_statements(about, None, 1).await.expect("it reads");
    assert_eq!((first.statements, first.unreadable), (vec![], 1));
    let second = evidence.open_statements(about, first.last.as_ref(), 1).await.expect("it reads");
    assert_eq!((as_said(second.statements), second.unreadable), (vec![good], 0));
    assert_eq!(take_in(evidence, &bad).await, Heard::Before, "it is still known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_that_cannot_be_read_keeps_no_other_from_being_found() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let path = folder.path().join("semel.db");
    let store = SqliteStore::open(&path).expect("a new file can be opened");
    the_other_is_still_found(&store, |sql| {
        let file = rusqlite::Connection::open(&path).expect("the file opens");
        assert_eq!(file.execute(sql, []).expect("it runs"), 1);
    })
    .await;
    let bed = postgres("").await;
    the_other_is_still_found(&*bed.store, |sql| drop(bed.database.sql(sql).expect("it runs"))).await;
}
