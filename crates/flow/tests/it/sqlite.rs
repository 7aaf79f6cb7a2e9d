//! Behaviour specific to SQLite: its effects on a command, and the effects of work on it.

use std::time::Duration;

use http::StatusCode;
use semel_flow::sqlite::SqliteTx;
use semel_flow::{Failure, Reply, SqliteTransactions};
use semel_stores::sqlite::SqliteOptions;

use crate::lab::{Gate, Lab, PAY, Saw, Sqlite, Step, command, pays, saw};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_cannot_commit_by_itself() {
    let lab = Sqlite::new();
    for (key, work) in [
        ("commit", pays().then(Step::Sql("COMMIT"))),
        ("swallowed", pays().then(Step::Swallow("COMMIT"))),
        ("rollback", pays().then(Step::Sql("ROLLBACK")).then(Step::Swallow(PAY))),
        (
            "anew",
            pays()
                .then(Step::Sql("ROLLBACK; BEGIN IMMEDIATE"))
                .then(Step::Sql(PAY))
                .then(Step::Sql("COMMIT")),
        ),
        ("begun", pays().then(Step::Sql("ROLLBACK; BEGIN IMMEDIATE")).then(Step::Sql(PAY))),
        ("released", pays().then(Step::Sql("RELEASE semel_work"))),
    ] {
        let saw = lab.see(&command(key), work).await;
        let kept = matches!(saw, Saw::Executed(..));
        assert_eq!(kept, key == "released", "{key}: {saw:?}");
        let told = matches!(saw, Saw::Executed(..) | Saw::RolledBack(500));
        assert!(told, "it is known that nothing happened: {key}: {saw:?}");
    }
    assert_eq!(lab.counts().await, (1, 1, 1), "only of the one that let its transaction be");
    for key in ["commit", "swallowed", "rollback", "anew", "begun"] {
        assert!(lab.see(&command(key), pays()).await.executed(), "{key} can be sent again");
    }
    assert_eq!(lab.counts().await, (6, 6, 6));
}

/// A statement that would run for hours.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e12) ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_holds_the_sqlite_file_for_too_long_is_rolled_back() {
    let patient = Sqlite::new();
    let transactions = patient.transactions.clone().hold(Duration::from_millis(50));
    let lab = Sqlite { transactions, ..patient.clone() };
    let reads: &'static str = Box::leak(format!("{ENDLESS} SELECT count(*) FROM n").into_boxed_str());
    let writes: &'static str =
        Box::leak(format!("{ENDLESS} INSERT INTO payments SELECT i FROM n").into_boxed_str());
    for (key, work) in [
        ("reads", pays().then(Step::Sql(reads))),
        ("writes", pays().then(Step::Sql(writes))),
        ("goes on", pays().then(Step::Swallow(writes)).then(Step::Swallow(PAY))),
    ] {
        assert_eq!(lab.see(&command(&key.replace(' ', "-")), work).await, Saw::RolledBack(500), "{key}");
        assert_eq!(lab.counts().await, (0, 0, 0), "{key}");
    }
    let gate = Gate::new();
    let sleeper = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&command("sleeps"), work).await })
    };
    gate.begun().await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    gate.open();
    assert_eq!(sleeper.await.expect("it ends"), Saw::RolledBack(500), "it was idle, but it held the file");
    assert!(patient.see(&command("reads"), pays()).await.executed(), "the next one is not interrupted");
    assert_eq!(lab.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_process_holds_runs_nothing() {
    let lab = Sqlite::new();
    let other = lab.file();
    other.execute_batch("BEGIN IMMEDIATE").expect("the file is free");
    let nothing_is_run = |_: &SqliteTx<'_>| -> Result<Reply, Failure> { panic!("nothing is run") };
    let answered = lab.transactions.transact(&command("key"), nothing_is_run).await;
    assert_eq!(saw(&answered), Saw::Unavailable);
    other.execute_batch("ROLLBACK").expect("it was begun");
    assert!(lab.see(&command("key"), pays()).await.executed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_leaves_nothing() {
    let lab = Sqlite::new();
    let pages = lab.number("PRAGMA page_count").await;
    let options = SqliteOptions {
        max_file_bytes: Some((pages as u64 + 40) * lab.number("PRAGMA page_size").await as u64),
        ..SqliteOptions::default()
    };
    let full = SqliteTransactions::open_with(&lab.path, &options).expect("the file opens");
    let room = full
        .transact(&command("small"), |tx| {
            tx.execute_batch(PAY)?;
            Ok(Reply::new(StatusCode::CREATED).body("there is room"))
        })
        .await;
    assert!(saw(&room).executed());
    for swallows in [false, true] {
        let answered = full
            .transact(&command("large"), move |tx| {
                tx.execute_batch(PAY)?;
                let large = tx.execute("INSERT INTO payments (note) VALUES (hex(zeroblob(200000)))", []);
                if !swallows {
                    large?;
                }
                let _ = tx.execute_batch(PAY);
                Ok(Reply::new(StatusCode::CREATED).body("done"))
            })
            .await;
        let saw = saw(&answered);
        assert!(matches!(saw, Saw::RolledBack(500) | Saw::Unavailable), "{swallows}: {saw:?}");
        assert_eq!(lab.counts().await, (1, 0, 1), "{swallows}");
    }
    // The response does not fit either.
    let answered = full
        .transact(&command("response"), |tx| {
            tx.execute_batch(PAY)?;
            Ok(Reply::new(StatusCode::CREATED).body(vec![b'x'; 300_000]))
        })
        .await;
    assert_eq!(saw(&answered), Saw::Unavailable);
    assert_eq!(lab.counts().await, (1, 0, 1));
    assert!(lab.see(&command("large"), pays()).await.executed(), "once there is room, it runs");
}

#[test]
fn commands_that_wait_for_the_file_hold_no_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let lab = Sqlite::new();
        let gate = Gate::new();
        let first = {
            let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
            tokio::spawn(async move { lab.see(&command("first"), work).await })
        };
        gate.begun().await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..20 {
            let lab = lab.clone();
            tasks.spawn(async move { lab.see(&command(&format!("key-{number}")), pays()).await });
        }
        // They start to wait meanwhile.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let free = tokio::time::timeout(Duration::from_secs(10), tokio::task::spawn_blocking(|| ())).await;
        gate.open();
        assert!(free.is_ok(), "there is a thread for others");
        assert!(first.await.expect("it ends").executed());
        assert!(tasks.join_all().await.iter().all(Saw::executed));
        assert_eq!(lab.counts().await, (21, 21, 21));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_gone_leaves_the_command_in_doubt() {
    let lab = Sqlite::new();
    let gate = Gate::new();
    let running = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&command("during"), work).await })
    };
    gate.begun().await;
    std::fs::remove_file(&lab.path).expect("it is there");
    gate.open();
    assert_eq!(
        running.await.expect("it ends"),
        Saw::InDoubt,
        "its commit went to a file that nobody will read"
    );
    assert_eq!(lab.see(&command("after"), pays()).await, Saw::Unavailable);
    assert!(!lab.path.exists(), "no other file was made in its place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_may_return_any_response_of_axum() {
    let lab = Sqlite::new();
    let work = |tx: &SqliteTx<'_>| {
        tx.execute(PAY, [])?;
        Ok((StatusCode::CREATED, [("x-made-by", "axum")], axum::Json("paid")))
    };
    let answered = lab.transactions.transact(&command("key"), work).await;
    assert_eq!(saw(&answered), Saw::Executed(201, "\"paid\"".to_owned()));
    assert_eq!(lab.see(&command("key"), pays()).await, Saw::Replayed(201, "\"paid\"".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_response_rolls_the_work_back() {
    let lab = Sqlite::new();
    let work = |tx: &SqliteTx<'_>| {
        tx.execute(PAY, [])?;
        Ok(axum::body::Body::new(NeverReady))
    };
    let answered = lab.transactions.transact(&command("key"), work).await;
    assert_eq!(saw(&answered), Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
}

/// A body whose first byte does not come.
struct NeverReady;

impl http_body::Body for NeverReady {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_axum_server_error_rolls_back_and_a_declared_reply_commits() {
    let lab = Sqlite::new();
    let failing = |tx: &SqliteTx<'_>| {
        tx.execute(PAY, [])?;
        // An inner error without a `?`.
        Ok(Err::<&str, _>(StatusCode::INTERNAL_SERVER_ERROR))
    };
    assert_eq!(saw(&lab.transactions.transact(&command("key"), failing).await), Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
    let elsewhere = |_: &SqliteTx<'_>| Ok(axum::Extension(semel_core::Outcome::NotExecuted));
    assert_eq!(saw(&lab.transactions.transact(&command("key"), elsewhere).await), Saw::RolledBack(500));
    let declared = |tx: &SqliteTx<'_>| {
        tx.execute(PAY, [])?;
        Ok(Reply::new(StatusCode::BAD_GATEWAY).body("final"))
    };
    let answered = lab.transactions.transact(&command("key"), declared).await;
    assert_eq!(saw(&answered), Saw::Executed(502, "final".to_owned()));
}

#[tokio::test]
async fn a_reply_is_the_response_that_it_describes() {
    use axum::response::IntoResponse;
    use semel_flow::IntoReply;

    let reply = || Reply::new(StatusCode::PAYMENT_REQUIRED).body("no funds");
    let response = reply().into_response();
    assert_eq!(response.status(), StatusCode::PAYMENT_REQUIRED, "a handler may return it");
    let body = axum::body::to_bytes(response.into_body(), 100).await.expect("it is there");
    assert_eq!(&body[..], b"no funds");
    let changed = (StatusCode::CREATED, [("x-made-by", "axum")], reply().deferred(Duration::from_secs(9)));
    let back = format!("{:?}", changed.into_reply().expect("it is whole"));
    for part in ["201", "x-made-by", "no funds", "9s"] {
        assert!(back.contains(part), "{part} in {back}");
    }
}
