//! COMMITs whose answer was lost: the result is found out, and never guessed.

use std::time::Duration;

use semel_core::{Decision, Filter};
use semel_flow::{PostgresTransactions, Settled};
use semel_testkit::postgres::Cluster;
use semel_testkit::proxy::{Cut, FaultProxy, Matching};
use sqlx::postgres::PgPoolOptions;

use crate::deferred::{charged, pays_later};
use crate::lab::{End, Lab, Postgres, Saw, Work, command, pays, referring};

struct Faulty {
    lab: Postgres,
    proxy: FaultProxy,
}

impl Faulty {
    /// Creates a database behind a proxy.
    async fn new() -> Faulty {
        let direct = Postgres::new().await;
        let proxy = FaultProxy::before(&direct.database.url()).await.expect("a port is free");
        let lab = direct.through(&proxy.url(&direct.database.url())).await;
        Faulty { lab, proxy }
    }
}

/// Checks that the client's answer is true, and that a retry gets the same, or runs the command now.
async fn check(lab: &Postgres, first: Saw, is_committed: bool, work: Work) {
    if is_committed {
        let Saw::Executed(status, body) = first else { panic!("it was committed: {first:?}") };
        assert_eq!(lab.see(&command("key"), work).await, Saw::Replayed(status, body));
    } else {
        assert_eq!(first, Saw::Unavailable, "it was not committed");
        assert!(lab.see(&command("key"), work).await.executed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_was_made_is_answered_as_made() {
    let Faulty { lab, proxy } = Faulty::new().await;
    proxy.cut_next(Matching::commit(), Cut::AfterServerAnswered);
    let first = lab.see(&command("key"), pays()).await;
    assert_eq!((lab.counts().await, proxy.cuts()), ((1, 1, 1), 1));
    check(&lab, first, true, pays()).await;
    assert_eq!(lab.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_was_never_sent_is_answered_as_not_made() {
    let Faulty { lab, proxy } = Faulty::new().await;
    proxy.cut_next(Matching::commit(), Cut::BeforeSent);
    let first = lab.see(&command("key"), pays()).await;
    assert_eq!((lab.counts().await, proxy.cuts()), ((0, 0, 0), 1));
    check(&lab, first, false, pays()).await;
    assert_eq!(lab.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_cut_after_sending_is_resolved_to_its_true_outcome() {
    for round in 0..10 {
        let Faulty { lab, proxy } = Faulty::new().await;
        proxy.cut_next(Matching::commit(), Cut::AfterSent);
        let first = lab.see(&command("key"), pays()).await;
        let (payments, messages, records) = lab.counts().await;
        assert!(payments == messages && messages == records, "all or nothing, round {round}");
        check(&lab, first, records == 1, pays()).await;
        assert_eq!(lab.counts().await, (1, 1, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_check_for_a_lost_commit_is_repeated() {
    // The questions: another claim, which waits for the lost one, and then a COMMIT that confirms the result.
    let faults = [
        vec![(Matching::statement("INSERT INTO semel_records").skipping(1), Cut::AfterSent)],
        vec![(Matching::statement("BEGIN").skipping(1), Cut::BeforeSent)],
        vec![(Matching::commit().skipping(1), Cut::BeforeSent)],
        vec![
            (Matching::commit().skipping(1), Cut::AfterServerAnswered),
            (Matching::statement("INSERT INTO semel_records").skipping(2), Cut::BeforeSent),
        ],
    ];
    for (number, faults) in faults.into_iter().enumerate() {
        for lost in [Cut::BeforeSent, Cut::AfterServerAnswered] {
            let Faulty { lab, proxy } = Faulty::new().await;
            proxy.cut_next(Matching::commit(), lost);
            for (matching, cut) in faults.clone() {
                proxy.cut_next(matching, cut);
            }
            let first = lab.see(&command("key"), pays()).await;
            let is_committed = lost == Cut::AfterServerAnswered;
            let expected = if is_committed { (1, 1, 1) } else { (0, 0, 0) };
            assert_eq!(lab.counts().await, expected, "{number} {lost:?}: {first:?}");
            proxy.heal().await.expect("its port is free");
            check(&lab, first, is_committed, pays()).await;
            assert_eq!(lab.counts().await, (1, 1, 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_lost_before_its_commit_is_asked_about_until_there_is_an_answer() {
    let questions = ["BEGIN", "INSERT INTO semel_records"];
    for question in questions {
        let Faulty { lab, proxy } = Faulty::new().await;
        proxy.cut_next(Matching::statement("INSERT INTO semel_outbox"), Cut::BeforeSent);
        let asked = proxy.cut_next(Matching::statement(question).skipping(1), Cut::BeforeSent);
        let first = lab.see(&command("key"), pays()).await;
        asked.struck().await;
        assert!(matches!(first, Saw::RolledBack(500)), "{question}: {first:?}");
        assert_eq!(lab.counts().await, (0, 0, 0));
        assert!(lab.see(&command("key"), pays()).await.executed());
        assert_eq!(lab.counts().await, (1, 1, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_is_in_doubt_while_the_database_is_away() {
    let direct = Postgres::new().await;
    let proxy = FaultProxy::before(&direct.database.url()).await.expect("a port is free");
    let options = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(200));
    let pool = options.connect(&proxy.url(&direct.database.url())).await.expect("it connects");
    let lab = Postgres { transactions: PostgresTransactions::new(pool), ..direct.clone() };
    for (key, lost) in [("made", Cut::AfterServerAnswered), ("not-made", Cut::BeforeSent)] {
        assert!(lab.see(&command(&format!("{key}-before")), pays()).await.executed());
        // The connection stays, and no other can be opened.
        proxy.refuse().await;
        proxy.cut_next(Matching::commit(), lost);
        assert_eq!(lab.see(&command(key), pays()).await, Saw::InDoubt);
        proxy.heal().await.expect("its port is free");
        let retry = lab.see(&command(key), pays()).await;
        assert_eq!((retry.replayed(), retry.executed()), (key == "made", key != "made"), "{retry:?}");
    }
    assert_eq!(direct.counts().await, (4, 4, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_command_that_is_settled_before_its_lost_commit_is_found_gets_the_final_response() {
    let Faulty { lab, proxy } = Faulty::new().await;
    proxy.cut_next(Matching::commit(), Cut::AfterServerAnswered);
    let question = proxy.hold_statement(Matching::statement("BEGIN").skipping(1));
    let deferring = tokio::spawn({
        let lab = lab.clone();
        async move { lab.see(&command("key"), pays_later()).await }
    });
    question.reached().await;
    let direct = lab.second().await;
    let page = direct.store().await.list(&Filter::default()).await.expect("it can be read");
    let id = page.records.first().expect("its commit was made").operation_id;
    assert!(matches!(direct.settle(id, None, charged()).await, Settled::Now(_)));
    question.release();
    let told = deferring.await.expect("it does not panic");
    assert!(matches!(&told, Saw::Replayed(201, _)), "the message has settled it: {told:?}");
    assert_eq!(direct.see(&command("key"), pays_later()).await, told);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commits_of_failures_and_references_get_their_true_outcome() {
    for (lost, expected) in [(Cut::AfterServerAnswered, true), (Cut::BeforeSent, false)] {
        let Faulty { lab, proxy } = Faulty::new().await;
        proxy.cut_next(Matching::commit(), lost);
        let declined = pays().ending(End::Final(402));
        let first = lab.see(&command("key"), declined.clone()).await;
        assert_eq!(first.executed(), expected, "{first:?}");
        check(&lab, first, expected, declined).await;
        assert_eq!(lab.counts().await, (0, 0, 1));

        let order = |key: &str| referring(command(key), "order-7");
        proxy.cut_next(Matching::commit(), lost);
        let first = lab.see(&order("other"), pays()).await;
        assert_eq!(first.executed(), expected, "{first:?}");
        let retry = lab.see(&order("other"), pays()).await;
        assert_eq!(retry.replayed(), expected, "{retry:?}");
        assert_eq!(lab.see(&order("third"), pays()).await, Saw::Decided(Decision::Duplicate));
        assert_eq!(lab.counts().await, (1, 1, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_connection_cuts_leave_no_half_or_double_payment() {
    let Faulty { lab, proxy } = Faulty::new().await;
    proxy.cut_randomly(7, 6);
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..4 {
        let lab = lab.clone();
        tasks.spawn(async move {
            let mut told = Vec::new();
            for number in 0..15 {
                let key = format!("key-{client}-{number}");
                told.push((key.clone(), lab.see(&command(&key), pays()).await));
            }
            told
        });
    }
    let told: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    proxy.heal().await.expect("its port is free");
    assert!(proxy.cuts() > 10, "{} cuts", proxy.cuts());
    for (key, first) in told {
        let retry = lab.see(&command(&key), pays()).await;
        match first {
            Saw::Executed(status, body) => assert_eq!(retry, Saw::Replayed(status, body), "{key}"),
            Saw::InDoubt => assert!(retry.executed() || retry.replayed(), "{key}: {retry:?}"),
            other => assert!(retry.executed(), "nothing had happened: {key}: {other:?}, then {retry:?}"),
        }
    }
    assert_eq!(lab.counts().await, (60, 60, 60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_a_database_crash_at_commit_replays_or_executes_once() {
    let cluster = Cluster::start().expect("a server can be started");
    let direct = Postgres::on(cluster.server()).await;
    for (round, is_sent) in [(0, false), (1, true)] {
        let proxy = FaultProxy::before(&direct.database.url()).await.expect("a port is free");
        let lab = direct.through(&proxy.url(&direct.database.url())).await;
        let key = format!("key-{round}");
        let held = if is_sent {
            proxy.hold_answer(Matching::commit())
        } else {
            proxy.hold_statement(Matching::commit())
        };
        let first = {
            let (lab, key) = (lab.clone(), key.clone());
            tokio::spawn(async move { lab.see(&command(&key), pays()).await })
        };
        held.reached().await;
        tokio::task::block_in_place(|| cluster.kill9()).expect("it is killed");
        // The client does not hear of a COMMIT that is released now.
        proxy.cut_all().await;
        held.release();
        tokio::task::block_in_place(|| cluster.restart()).expect("it comes back");
        let first = first.await.expect("it ends");
        let retry = direct.second().await.see(&command(&key), pays()).await;
        if is_sent {
            let Saw::Executed(status, body) = first else { panic!("it was committed: {first:?}") };
            assert_eq!(retry, Saw::Replayed(status, body));
        } else {
            assert_eq!(first, Saw::Unavailable);
            assert!(retry.executed(), "{retry:?}");
        }
    }
    assert_eq!(direct.second().await.number("SELECT count(*) FROM payments").await, 2);
}
