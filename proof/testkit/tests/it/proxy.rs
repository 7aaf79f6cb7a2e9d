//! The fault proxy between a driver and a server, both real.

use std::time::Duration;

use semel_testkit::postgres::{self, Database, Server};
use semel_testkit::proxy::{Cut, FaultProxy, Matching};
use sqlx::{Connection, PgConnection};

use crate::{connect, execute};

const INSERT: &str = "INSERT INTO\n    records VALUES (1)";

/// A database with a table, and a proxy in front of it.
struct Lab {
    database: Database,
    proxy: FaultProxy,
}

impl Lab {
    async fn new() -> Lab {
        let database = postgres::shared().and_then(|server| server.create_database()).expect("it is made");
        database.sql("CREATE TABLE records (id int)").expect("it is made");
        let proxy = FaultProxy::before(&database.url()).await.expect("it listens");
        Lab { database, proxy }
    }

    fn url(&self) -> String {
        self.proxy.url(&self.database.url())
    }

    async fn connect(&self) -> PgConnection {
        connect(&self.url()).await
    }

    /// Returns the number of committed rows, read past the proxy.
    fn rows(&self) -> u64 {
        self.database.sql("SELECT count(*) FROM records").expect("it answers").parse().expect("a number")
    }

    /// Waits until `count` rows are committed.
    async fn rows_become(&self, count: u64) {
        while self.rows() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn insert() -> Matching {
    Matching::statement("insert into records")
}

/// Inserts with a prepared statement; `insert_plain` inserts as plain text.
async fn insert_prepared(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    execute(connection, INSERT).await
}

async fn insert_plain(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(INSERT).execute(connection).await.map(drop)
}

fn is_pending<T>(result: &Result<T, tokio::time::error::Elapsed>) -> bool {
    result.is_err()
}

/// Time in which everything that is not stopped arrives.
const A_WHILE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn without_faults_everything_gets_through() {
    let lab = Lab::new().await;
    let mut connection = lab.connect().await;
    let large = "x".repeat(3 << 20);
    let (echo,): (String,) =
        sqlx::query_as("SELECT $1").bind(&large).fetch_one(&mut connection).await.expect("it answers");
    assert!(echo == large);
    let error = execute(&mut connection, "SELECT no_such_column").await.expect_err("there is no such column");
    assert!(error.to_string().contains("no_such_column"), "{error}");
    insert_prepared(&mut connection).await.expect("it still works");
    insert_plain(&mut connection).await.expect("it still works");
    assert_eq!((lab.rows(), lab.proxy.cuts()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fault_proxy_declines_encryption_and_the_client_continues() {
    let lab = Lab::new().await;
    let through = Server::at(&lab.url()).expect("it is a URL");
    assert_eq!(through.sql(lab.database.name(), "SELECT 41 + 1").expect("it answers"), "42");
}

#[tokio::test]
async fn cut_before_it_was_sent_a_statement_did_not_happen() {
    let lab = Lab::new().await;
    for round in 1..=2 {
        let (mut prepared, mut plain) = (lab.connect().await, lab.connect().await);
        let cut = lab.proxy.cut_next(insert(), Cut::BeforeSent);
        insert_prepared(&mut prepared).await.expect_err("it was cut");
        cut.struck().await;
        lab.proxy.cut_next(insert(), Cut::BeforeSent);
        insert_plain(&mut plain).await.expect_err("it was cut");
        assert_eq!(lab.proxy.cuts_by_kind().before_sent, 2 * round);
    }
    // The server is done with everything that it received once no client is connected.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    while lab.database.sql(others).expect("it answers") != "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(lab.rows(), 0);
}

#[tokio::test]
async fn cut_after_the_server_answered_a_statement_happened_and_the_client_does_not_know() {
    let lab = Lab::new().await;
    let (mut prepared, mut plain) = (lab.connect().await, lab.connect().await);
    let cut = lab.proxy.cut_next(insert(), Cut::AfterServerAnswered);
    insert_prepared(&mut prepared).await.expect_err("it was cut");
    cut.struck().await;
    assert_eq!(lab.rows(), 1);
    lab.proxy.cut_next(insert(), Cut::AfterServerAnswered);
    insert_plain(&mut plain).await.expect_err("it was cut");
    assert_eq!(lab.rows(), 2);
    assert_eq!(lab.proxy.cuts_by_kind().after_server_answered, 2);
}

#[tokio::test]
async fn cut_after_it_was_sent_a_statement_reaches_the_server() {
    let lab = Lab::new().await;
    let (mut prepared, mut plain) = (lab.connect().await, lab.connect().await);
    lab.proxy.cut_next(insert(), Cut::AfterSent);
    insert_prepared(&mut prepared).await.expect_err("it was cut");
    lab.rows_become(1).await;
    lab.proxy.cut_next(insert(), Cut::AfterSent);
    insert_plain(&mut plain).await.expect_err("it was cut");
    lab.rows_become(2).await;
    assert_eq!(lab.proxy.cuts_by_kind().after_sent, 2);
}

#[tokio::test]
async fn a_statement_that_was_prepared_long_ago_is_known_by_its_text() {
    let lab = Lab::new().await;
    let mut connection = lab.connect().await;
    for _ in 0..3 {
        insert_prepared(&mut connection).await.expect("nothing is armed");
        execute(&mut connection, "SELECT 1").await.expect("nothing is armed");
    }
    lab.proxy.cut_next(insert().skipping(1), Cut::AfterServerAnswered);
    execute(&mut connection, "SELECT 1").await.expect("another is meant");
    insert_prepared(&mut connection).await.expect("the one after this is meant");
    insert_prepared(&mut connection).await.expect_err("it was cut");
    assert_eq!(lab.rows(), 5);
}

#[tokio::test]
async fn a_commit_can_be_cut_on_either_side_of_the_server() {
    for (cut, committed) in [(Cut::BeforeSent, 0), (Cut::AfterServerAnswered, 1)] {
        let lab = Lab::new().await;
        let mut connection = lab.connect().await;
        let mut transaction = connection.begin().await.expect("it begins");
        insert_prepared(&mut transaction).await.expect("it is inserted");
        let armed = lab.proxy.cut_next(Matching::commit(), cut);
        transaction.commit().await.expect_err("it was cut");
        armed.struck().await;
        assert_eq!(lab.rows(), committed, "{cut:?}");
    }
}

#[tokio::test]
async fn a_held_answer_is_that_of_something_done() {
    let lab = Lab::new().await;
    let mut connection = lab.connect().await;
    let held = lab.proxy.hold_answer(insert());
    let mut waiting = tokio::spawn(async move { insert_prepared(&mut connection).await });
    held.reached().await;
    assert_eq!(lab.rows(), 1);
    assert!(is_pending(&tokio::time::timeout(A_WHILE, &mut waiting).await));
    held.release();
    waiting.await.expect("no panic").expect("nothing was lost");
}

#[tokio::test]
async fn a_held_statement_is_not_done_yet() {
    let lab = Lab::new().await;
    let mut connection = lab.connect().await;
    let held = lab.proxy.hold_statement(insert());
    let waiting = tokio::spawn(async move { insert_prepared(&mut connection).await });
    held.reached().await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(lab.rows(), 0);
    held.release();
    waiting.await.expect("no panic").expect("nothing was lost");
    assert_eq!(lab.rows(), 1);
}

#[tokio::test]
async fn refusing_new_connections_keeps_the_open_ones() {
    let lab = Lab::new().await;
    let mut connection = lab.connect().await;
    lab.proxy.refuse().await;
    let error = PgConnection::connect(&lab.url()).await.expect_err("nobody listens");
    assert!(
        matches!(&error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused)
    );
    insert_prepared(&mut connection).await.expect("it was there before");
    lab.proxy.heal().await.expect("the port is still free");
    lab.connect().await;
}

#[tokio::test]
async fn a_black_hole_swallows_both_directions_until_it_is_healed() {
    let lab = Lab::new().await;
    let mut connection = lab.connect().await;
    let left = lab.connect().await;
    lab.proxy.blackhole();
    // The server does not learn of clients that leave.
    drop(left);
    let mut statement = tokio::spawn(async move { insert_prepared(&mut connection).await });
    let url = lab.url();
    let newcomer = tokio::spawn(async move { connect(&url).await });
    assert!(is_pending(&tokio::time::timeout(A_WHILE, &mut statement).await));
    assert!(!newcomer.is_finished());
    assert_eq!(lab.rows(), 0);
    let clients = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = '{}'",
        lab.database.name()
    );
    assert_eq!(lab.database.server().sql("postgres", &clients).expect("it answers"), "2");
    lab.proxy.heal().await.expect("it was listening all along");
    statement.await.expect("no panic").expect("nothing was lost");
    newcomer.await.expect("it is answered");
}

#[tokio::test]
async fn all_connections_can_be_cut_at_once() {
    let lab = Lab::new().await;
    let mut connections = [lab.connect().await, lab.connect().await];
    assert_eq!(lab.proxy.cut_all().await, 2);
    for connection in &mut connections {
        execute(connection, "SELECT 1").await.expect_err("it was cut");
    }
    assert_eq!(lab.proxy.cut_all().await, 0);
    lab.connect().await;
}

#[tokio::test]
async fn cuts_by_chance_are_counted_and_lose_no_acknowledged_row() {
    let lab = Lab::new().await;
    lab.proxy.cut_randomly(7, 5);
    let (mut acknowledged, mut failed) = (0, 0);
    let mut connection = lab.connect().await;
    for _ in 0..200 {
        match insert_prepared(&mut connection).await {
            Ok(()) => acknowledged += 1,
            Err(_) => {
                failed += 1;
                connection = lab.connect().await;
            }
        }
    }
    lab.proxy.heal().await.expect("it was listening all along");
    insert_prepared(&mut lab.connect().await).await.expect("no more cuts");
    let cuts = lab.proxy.cuts_by_kind();
    assert_eq!(cuts.total(), failed);
    assert!(cuts.before_sent > 0 && cuts.after_sent > 0 && cuts.after_server_answered > 0, "{cuts:?}");
    lab.rows_become(acknowledged + cuts.after_sent + cuts.after_server_answered + 1).await;
}
