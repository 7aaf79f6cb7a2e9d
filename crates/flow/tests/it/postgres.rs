//! Behaviour specific to PostgreSQL: its effects on a command, and the session that work gets.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use semel_flow::{Failure, PostgresTransactions, Reply};
use semel_testkit::proxy::FaultProxy;
use sqlx::postgres::PgPoolOptions;

use crate::lab::{
    End, Gate, Lab, PAY, Postgres, Saw, Step, Work, command, command_with, pays, referring, saw,
};

/// Returns the value of `SHOW` inside the work of a command, without and with a business reference, on connections that
/// begin with this statement.
async fn shown(lab: &Postgres, prepare: &'static str, setting: &'static str) -> [String; 2] {
    let options = PgPoolOptions::new().max_connections(1).after_connect(move |connection, _| {
        Box::pin(async move { sqlx::raw_sql(prepare).execute(connection).await.map(|_| ()) })
    });
    let pool = options.connect(&lab.database.url()).await.expect("it connects");
    let transactions = PostgresTransactions::new(pool);
    let mut shown = Vec::new();
    for command in [command("plain"), referring(command("referring"), "order-7")] {
        let seen = Arc::new(std::sync::Mutex::new(String::new()));
        let seeing = seen.clone();
        let answered = transactions
            .transact(&command, move |mut tx| async move {
                let value = sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(format!("SHOW {setting}")));
                *seeing.lock().expect("nobody panics") = value.fetch_one(&mut *tx).await?;
                Ok(Reply::new(StatusCode::CREATED).body("shown"))
            })
            .await;
        assert!(saw(&answered).executed(), "{answered:?}");
        shown.push(seen.lock().expect("nobody panics").clone());
    }
    shown.try_into().expect("there are two")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_waits_for_locks_as_its_own_session_wants() {
    let lab = Postgres::new().await;
    assert_eq!(shown(&lab, "SELECT 1", "lock_timeout").await, ["0", "0"]);
    lab.run("TRUNCATE semel_records, semel_references").await;
    assert_eq!(shown(&lab, "SET lock_timeout = '7s'", "lock_timeout").await, ["7s", "7s"]);
    // Run again, in place of the expired record.
    lab.expire().await;
    lab.run("TRUNCATE semel_references").await;
    assert_eq!(shown(&lab, "SET lock_timeout = '7s'", "lock_timeout").await, ["7s", "7s"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_use_read_committed_whatever_the_default_isolation() {
    let lab = Postgres::new().await;
    let serializable = "SET default_transaction_isolation = 'serializable'";
    assert_eq!(shown(&lab, serializable, "transaction_isolation").await, ["read committed"; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_work_ignores_rolls_everything_back() {
    let lab = Postgres::new().await;
    let careless = pays().then(Step::Swallow("SELECT 1 / 0"));
    assert_eq!(lab.see(&command("key"), careless).await, Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
    assert!(lab.see(&command("key"), pays()).await.executed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_may_roll_back_to_a_savepoint() {
    let lab = Postgres::new().await;
    let work = pays().then(Step::Sql("SAVEPOINT part")).then(Step::Swallow("SELECT 1 / 0"));
    let work = work.then(Step::Sql("ROLLBACK TO part"));
    assert!(lab.see(&command("key"), work).await.executed());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_keeps_its_transaction_is_in_doubt() {
    let lab = Postgres::new().await;
    let (let_go, held) = tokio::sync::oneshot::channel::<()>();
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    let answered = lab
        .transactions
        .transact(&command("key"), move |mut tx| async move {
            sqlx::raw_sql(PAY).execute(&mut *tx).await?;
            tokio::spawn(async move {
                let _ = held.await;
                let late = sqlx::raw_sql(PAY).execute(&mut *tx).await.is_ok();
                drop(tx);
                let _ = gone.send(late);
            });
            Ok(Reply::new(StatusCode::CREATED))
        })
        .await;
    assert_eq!(saw(&answered), Saw::InDoubt, "it may still commit");
    assert_eq!(lab.counts().await, (0, 0, 0));
    let_go.send(()).expect("the task waits");
    is_gone.await.expect("the task ends");
    let lab = lab.second().await;
    assert!(lab.see(&command("key"), pays()).await.executed());
    assert_eq!(lab.counts().await, (1, 1, 1), "nothing of the first is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_its_transaction_is_not_answered_as_done() {
    let lab = Postgres::new().await;
    let rolls_back = pays().then(Step::Sql("ROLLBACK")).then(Step::Sql(PAY));
    assert_eq!(lab.see(&command("key"), rolls_back).await, Saw::InDoubt, "who knows what it has done");
    let commits = pays().then(Step::Sql("COMMIT"));
    assert_eq!(lab.see(&command("other"), commits).await, Saw::InDoubt);
    let retry = lab.see(&command("other"), pays()).await;
    assert!(!retry.executed(), "it has been committed, and is not run again: {retry:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_constraint_failure_at_commit_rolls_everything_back() {
    let lab = Postgres::new().await;
    lab.run("CREATE TABLE once (n INT UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    let twice = pays().then(Step::Sql("INSERT INTO once VALUES (1), (1)"));
    assert_eq!(lab.see(&command("key"), twice).await, Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
    assert!(lab.see(&command("key"), pays()).await.executed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_runs_nothing() {
    let lab = Postgres::new().await;
    let options = PgPoolOptions::new().acquire_timeout(Duration::from_millis(50));
    let nowhere = options.connect_lazy("postgres://semel:x@127.0.0.1:1/none").expect("it is an address");
    let answered =
        PostgresTransactions::new(nowhere).transact(&command("key"), |_| async { nothing_is_run() }).await;
    assert_eq!(saw(&answered), Saw::Unavailable);
    assert_eq!(lab.counts().await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_the_server_ends_during_the_work_leaves_nothing() {
    let lab = Postgres::new().await;
    let gate = Gate::new();
    let first = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&command("key"), work).await })
    };
    gate.begun().await;
    tokio::task::block_in_place(|| lab.database.terminate_backends()).expect("they are ended");
    gate.open();
    let first = first.await.expect("it ends");
    assert!(matches!(first, Saw::RolledBack(500) | Saw::Unavailable), "{first:?}");
    let lab = lab.second().await;
    assert!(lab.see(&command("key"), pays()).await.executed());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commands_share_few_connections() {
    let lab = Postgres::new().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..60 {
        let lab = lab.clone();
        let key = format!("key-{}", number % 20);
        tasks.spawn(async move {
            lab.see(&command_with(&key, |policy| policy.wait = Duration::from_secs(20)), pays()).await
        });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|saw| saw.executed()).count(), 20, "{all:?}");
    assert_eq!(all.iter().filter(|saw| saw.replayed()).count(), 40, "{all:?}");
    assert_eq!(lab.counts().await, (20, 20, 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_although_the_pooled_connections_died() {
    let lab = Postgres::new().await;
    let options = PgPoolOptions::new().max_connections(2).test_before_acquire(false);
    let pool = options.connect(&lab.database.url()).await.expect("it connects");
    // Two connections are in the pool, and both end.
    let both = (pool.acquire().await.expect("it connects"), pool.acquire().await.expect("it connects"));
    drop(both);
    let lab = Postgres { transactions: PostgresTransactions::new(pool), ..lab };
    assert!(lab.see(&command("first"), pays()).await.executed());
    tokio::task::block_in_place(|| lab.database.terminate_backends()).expect("they are ended");
    assert!(lab.see(&command("second"), pays()).await.executed());
    assert!(lab.see(&command("second"), pays()).await.replayed());
}

/// Ends every session in the middle of a transaction.
const END_SESSION: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_lost_its_session_gets_the_outcome_of_another_execution() {
    // The work notices it, or has nothing more to ask the database.
    for more in [Step::Sql("SELECT 1"), Step::Call(|| ())] {
        for is_taken_over in [true, false] {
            let lab = Postgres::new().await;
            let gate = Gate::new();
            let work = pays().then(Step::Wait(gate.clone())).then(more.clone());
            let first = tokio::spawn({
                let lab = lab.clone();
                async move { lab.see(&command("key"), work).await }
            });
            gate.begun().await;
            lab.run(END_SESSION).await;
            let mut second = None;
            while is_taken_over && second.is_none() {
                // It may take a moment until the session is gone.
                let saw = lab.second().await.see(&command("key"), pays()).await;
                second = saw.executed().then_some(saw);
            }
            gate.open();
            let first = first.await.expect("it ends");
            match second {
                Some(Saw::Executed(status, body)) => assert_eq!(first, Saw::Replayed(status, body)),
                _ => assert_eq!(first, Saw::RolledBack(500)),
            }
            let one = i64::from(is_taken_over);
            assert_eq!(lab.counts().await, (one, one, one));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_lost_its_session_replays_the_outcome_of_the_retry() {
    let lab = Postgres::new().await;
    let gate = Gate::new();
    let steps = vec![Step::Sql(PAY), Step::Wait(gate.clone())];
    let without_its_message = Work { steps, end: End::Deferred };
    let first = tokio::spawn({
        let lab = lab.clone();
        async move { lab.see(&command("key"), without_its_message).await }
    });
    gate.begun().await;
    lab.run(END_SESSION).await;
    let (status, body) = loop {
        // It may take a moment until the session is gone.
        if let Saw::Executed(status, body) = lab.second().await.see(&command("key"), pays()).await {
            break (status, body);
        }
    };
    gate.open();
    assert_eq!(first.await.expect("it ends"), Saw::Replayed(status, body));
    assert_eq!(lab.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_lost_its_session_is_in_doubt_while_the_database_is_away() {
    let (moment, long) = (Duration::from_millis(200), Duration::from_secs(60));
    // The pool times out soon, or later than the caller waits for the answer.
    for (patience, end) in [(moment, End::Final(402)), (moment, End::Panic), (long, End::Created)] {
        a_session_lost_to_another(patience, end).await;
    }
}

async fn a_session_lost_to_another(patience: Duration, end: End) {
    let direct = Postgres::new().await;
    let proxy = FaultProxy::before(&direct.database.url()).await.expect("a port is free");
    let options = PgPoolOptions::new().max_connections(1).acquire_timeout(patience);
    let pool = options.connect(&proxy.url(&direct.database.url())).await.expect("it connects");
    let lab = Postgres { transactions: PostgresTransactions::new(pool), ..direct.clone() };
    let gate = Gate::new();
    let work = pays().then(Step::Wait(gate.clone())).ending(end);
    let first = tokio::spawn(async move { lab.see(&command("key"), work).await });
    gate.begun().await;
    proxy.refuse().await;
    direct.run(END_SESSION).await;
    while !direct.see(&command("key"), pays()).await.executed() {}
    gate.open();
    assert_eq!(first.await.expect("it ends"), Saw::InDoubt, "another has done it: {patience:?}");
    assert_eq!(direct.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_wrong_clock_runs_nothing_again() {
    let lab = Postgres::new().await;
    let for_an_hour = |key| command_with(key, |policy| policy.ttl = Duration::from_secs(3600));
    assert!(lab.see(&for_an_hour("paid"), pays()).await.executed());
    let name = lab.database.name();
    let wrong = format!(
        "CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE
             AS $$ SELECT pg_catalog.now() + interval '3 hours' $$;
         ALTER DATABASE \"{name}\" SET search_path = public, pg_catalog"
    );
    lab.database.sql(&wrong).expect("the server takes it");
    lab.database.terminate_backends().expect("the server ends them");
    assert!(lab.see(&for_an_hour("paid"), pays()).await.replayed(), "three hours have not passed");
    let skipped = lab.database.sql("SELECT skipped_ms / 60000 FROM semel_store").expect("it reads");
    assert_eq!(skipped, "180");
}

fn nothing_is_run() -> Result<Reply, Failure> {
    panic!("nothing is run")
}
