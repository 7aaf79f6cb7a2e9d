//! Work that ends its own transaction, in every way: it may have committed anything, so its command is never reported
//! as rolled back. And work that changes its session: the next command gets an unchanged one.

use std::collections::BTreeMap;

use http::StatusCode;
use semel_core::{Decision, Reason, StateName, Transacted};
use semel_flow::phases::PhaseTerms;
use semel_flow::{Failure, PgRun, PostgresTransactions, Reply, Settled};
use semel_testkit::postgres::Cluster;
use sqlx::postgres::PgPoolOptions;

use crate::lab::{End, Lab, PAY, Postgres, Saw, Step, Work, command, pays, referring, saw};
use crate::rides::{Phased, RIDE};

/// Ways to end a transaction, each with what it commits: the payment, or another one outside of any transaction.
const WAYS: [(&str, &[Step]); 7] = [
    ("commit", &[Step::Sql("COMMIT")]),
    ("commit and begin", &[Step::Sql("COMMIT; BEGIN")]),
    ("commit and chain", &[Step::Sql("COMMIT AND CHAIN")]),
    ("commit, begin and fail", &[Step::Sql("COMMIT; BEGIN"), Step::Swallow("SELECT 1 / 0")]),
    ("commit twice", &[Step::Sql("COMMIT"), Step::Sql("BEGIN"), Step::Sql("COMMIT")]),
    ("roll back, pay and begin", &[Step::Sql("ROLLBACK"), Step::Sql(PAY), Step::Sql("BEGIN")]),
    (
        "roll back and chain",
        &[Step::Sql("ROLLBACK AND CHAIN"), Step::Sql(PAY), Step::Sql("COMMIT AND CHAIN")],
    ),
];

const ENDS: [(&str, End); 4] = [
    ("success", End::Created),
    ("failure for now", End::Retryable(503)),
    ("failure for good", End::Final(402)),
    ("panic", End::Panic),
];

fn ending(way: &[Step], end: End) -> Work {
    way.iter().cloned().fold(pays(), Work::then).ending(end)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_result_of_work_that_ended_its_transaction_is_in_doubt() {
    let lab = Postgres::new().await;
    let mut met = BTreeMap::new();
    for (way, steps) in WAYS {
        for (name, end) in ENDS {
            let key = format!("{way}-{name}").replace([' ', ','], "-");
            let first = referring(command(&key), &key);
            assert_eq!(lab.see(&first, ending(steps, end)).await, Saw::InDoubt, "{key}");
            let paid = lab.counts().await.0;
            // Neither the key nor its business reference is released, and no second payment is made.
            assert_eq!(lab.see(&first, pays()).await, Saw::Decided(Decision::Reconcile), "{key}");
            let other = referring(command(&format!("{key}-again")), &key);
            assert_eq!(lab.see(&other, pays()).await, Saw::Decided(Decision::Duplicate), "{key}");
            assert_eq!(lab.counts().await.0, paid, "{key}");
            *met.entry(way).or_insert(0) += 1;
        }
    }
    assert_eq!(met.len(), WAYS.len());
    assert!(met.values().all(|ends| *ends == ENDS.len()), "every situation is met: {met:?}");
    let paid = i64::try_from(WAYS.len() * ENDS.len()).expect("it is small");
    assert_eq!(lab.counts().await.0, paid, "each has committed one payment, and none is denied");
    let unknown = lab.number("SELECT count(*) FROM semel_records WHERE state = 'unknown'").await;
    assert_eq!(unknown, paid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_prepares_its_transaction_is_in_doubt_and_its_key_is_not_free() {
    let cluster =
        Cluster::start_with(&[("max_prepared_transactions", "5")]).expect("a server can be started");
    let lab = Postgres::on(cluster.server()).await;
    let prepares = pays().then(Step::Sql("PREPARE TRANSACTION 'own'")).ending(End::Retryable(503));
    assert_eq!(lab.see(&command("key"), prepares).await, Saw::InDoubt);
    lab.run("COMMIT PREPARED 'own'").await;
    let retry = lab.second().await.see(&command("key"), pays()).await;
    assert!(!retry.executed(), "{retry:?}");
    assert_eq!(lab.counts().await.0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_settles_and_ends_its_transaction_is_not_run_again() {
    for (way, steps) in WAYS {
        for (name, end) in ENDS {
            let lab = Postgres::new().await;
            let later = Work { steps: vec![Step::Sql(PAY), Step::Push("charge")], end: End::Deferred };
            let answered = lab.transact(&command("key"), later).await;
            let Transacted::Deferred { record, .. } = answered.outcome() else { panic!("{answered:?}") };
            let settling = Work { steps: vec![Step::Sql(PAY)], end };
            let settling = steps.iter().cloned().fold(settling, Work::then);
            let settled = lab.settle(record.operation_id, None, settling).await;
            assert!(matches!(settled, Settled::InDoubt), "{way}, {name}: {settled:?}");
            let again = Work { steps: vec![Step::Sql(PAY)], end: End::Created };
            let again = lab.settle(record.operation_id, None, again).await;
            let Settled::Before(record) = again else { panic!("{way}, {name}: {again:?}") };
            let (state, reason) = (record.head.state.name(), record.head.reason);
            assert_eq!((state, reason), (StateName::Unknown, Reason::HandlerUnsure), "{way}, {name}");
            assert_eq!(
                lab.counts().await.0,
                2,
                "{way}, {name}: the first payment, and that of the settlement"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_phase_that_ends_its_transaction_leaves_an_unknown() {
    for sql in ["COMMIT", "COMMIT; BEGIN", "COMMIT AND CHAIN", "ROLLBACK; BEGIN"] {
        for end in ["fails", "fails for good", "panics"] {
            let lab = Postgres::new().await;
            let kept = lab.kept().await;
            let code = move |mut run: PgRun, _| async move {
                run.local("ride_created", move |mut tx| async move {
                    sqlx::raw_sql(RIDE).execute(&mut *tx).await?;
                    sqlx::raw_sql(sql).execute(&mut *tx).await?;
                    match end {
                        "fails" => Err(Failure::Retryable(Reply::new(StatusCode::SERVICE_UNAVAILABLE))),
                        "fails for good" => Err(Failure::Final(Reply::new(StatusCode::PAYMENT_REQUIRED))),
                        _ if end == "panics" => panic!("work that panics"),
                        _ => Ok(()),
                    }
                })
                .await?;
                Ok(Reply::new(StatusCode::CREATED))
            };
            let rides = Postgres::with(lab.none(kept.store()), PhaseTerms::default(), code);
            let told = saw(&rides.start(&command("key"), "ride 7").await);
            assert_eq!(told, Saw::Decided(Decision::Reconcile), "{sql}, {end}");
        }
    }
}

/// Every property of a session that the next command on its connection would notice.
const SESSION: &str = "SELECT concat_ws('|', current_setting('default_transaction_read_only'),
    current_setting('synchronous_commit'), current_setting('search_path'), current_setting('role'),
    current_setting('session_replication_role'), current_setting('lock_timeout'), pg_my_temp_schema(),
    (SELECT count(*) FROM pg_cursors WHERE is_holdable), (SELECT count(*) FROM pg_listening_channels()),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";

/// Returns a lab with one connection, and a pool to inspect that connection.
async fn one_connection() -> (Postgres, sqlx::PgPool) {
    let lab = Postgres::new().await;
    let options = PgPoolOptions::new().max_connections(1).after_connect(|connection, _| {
        Box::pin(
            async move { sqlx::raw_sql("SET search_path = public").execute(connection).await.map(|_| ()) },
        )
    });
    let pool = options.connect(&lab.database.url()).await.expect("it connects");
    (Postgres { transactions: PostgresTransactions::new(pool.clone()), ..lab }, pool)
}

async fn text(pool: &sqlx::PgPool, sql: &'static str) -> String {
    sqlx::query_scalar(sql).fetch_one(pool).await.expect("it is a text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_work_has_changed_does_not_go_back_to_the_pool() {
    let (lab, pool) = one_connection().await;
    let fresh = text(&pool, SESSION).await;
    for (number, change) in [
        "SET default_transaction_read_only = on",
        "SET synchronous_commit = off",
        "SET search_path = public, pg_catalog",
        "SET ROLE semel",
        "SET session_replication_role = replica",
        "SET lock_timeout = '1ms'",
        "RESET ALL",
        "SELECT pg_advisory_lock(7)",
        "CREATE TEMP TABLE notes (n int)",
        "LISTEN payments",
        "DECLARE held CURSOR WITH HOLD FOR SELECT 1",
    ]
    .into_iter()
    .enumerate()
    {
        for end in [End::Created, End::Retryable(503)] {
            let name = format!("{change}, {}", matches!(end, End::Created));
            let key = format!("key-{number}-{}", matches!(end, End::Created));
            let told = lab.see(&command(&key), pays().then(Step::Sql(change)).ending(end)).await;
            assert!(matches!(told, Saw::Executed(..) | Saw::RolledBack(_)), "{name}: {told:?}");
            assert_eq!(text(&pool, SESSION).await, fresh, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_work_leaves_as_it_was_is_used_again() {
    let (lab, pool) = one_connection().await;
    let first = text(&pool, "SELECT pg_backend_pid()::text").await;
    for (name, work) in [
        ("plain", pays()),
        ("local", pays().then(Step::Sql("SET LOCAL lock_timeout = '1s'; SET LOCAL search_path = public"))),
        ("failed", pays().ending(End::Retryable(503))),
        ("final", pays().ending(End::Final(402))),
        ("undone", pays().then(Step::Sql("SET synchronous_commit = off")).ending(End::Retryable(503))),
    ] {
        let told = lab.see(&command(name), work).await;
        assert!(matches!(told, Saw::Executed(..) | Saw::RolledBack(_)), "{name}: {told:?}");
        assert_eq!(text(&pool, "SELECT pg_backend_pid()::text").await, first, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_commits_as_its_session_does_whatever_its_work_has_set() {
    let lab = Postgres::new().await;
    lab.run(
        "CREATE TABLE seen (setting text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER see AFTER INSERT ON payments DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION see()",
    )
    .await;
    let careless = pays().then(Step::Sql("SET LOCAL synchronous_commit = off"));
    assert!(lab.see(&command("key"), careless).await.executed());
    assert_eq!(lab.number("SELECT count(*) FROM seen WHERE setting = 'on'").await, 1);
}
