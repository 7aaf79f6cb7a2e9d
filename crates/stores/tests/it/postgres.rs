//! The PostgreSQL store conforms: with defaults, with serializable transactions of which many fail, without
//! prepared or grouped statements, behind a PgBouncer, and with a database clock that differs from ours.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use semel_core::{Clock, Decision, Holds, Records, Store, StoreError, SystemClock};
use semel_stores::PostgresStore;
use semel_stores::postgres::{DatabaseAddress, PostgresOptions, SCHEMA_VERSION, migrate_database};
use semel_testkit::conformance::{self, Capabilities, Subject};
use semel_testkit::postgres::{self, Database, PgBouncer, Server};
use semel_testkit::sample;

pub(crate) struct Postgres {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) database: Database,
    address: DatabaseAddress,
}

/// Returns an empty database with the current schema.
pub(crate) async fn database() -> Database {
    let migrate =
        async |url: String| migrate_database(&url.parse().expect("it is an address")).await.map(|_| ());
    let server = postgres::shared().expect("there is a server");
    server.database_from(&format!("semel-{SCHEMA_VERSION}"), migrate).await.expect("a database can be made")
}

/// Returns a store on a database of its own, reached with these parameters.
pub(crate) async fn postgres(parameters: &str) -> Postgres {
    let database = database().await;
    let address: DatabaseAddress =
        format!("{}{parameters}", database.url()).parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    Postgres { store: Arc::new(store), database, address }
}

/// Returns a store that reaches its database only through PgBouncer, in transaction mode.
pub(crate) async fn through_pgbouncer() -> Postgres {
    static BOUNCER: OnceLock<PgBouncer> = OnceLock::new();
    let database = database().await;
    let bouncer =
        BOUNCER.get_or_init(|| PgBouncer::start(database.server()).expect("PgBouncer can be started"));
    let url = format!("{}?prepared_statements=false", bouncer.url(database.name()));
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    Postgres { store: Arc::new(store), database, address }
}

/// Returns a store on a database whose clock is years behind that of this process. With the wrong clock,
/// every lease has expired, or none ever does.
async fn with_another_clock() -> Postgres {
    let database = database().await;
    for statement in [
        "CREATE SCHEMA behind",
        "CREATE FUNCTION behind.now() RETURNS timestamptz STABLE
             RETURN pg_catalog.now() - interval '3 years'",
    ] {
        database.sql(statement).expect("its owner may");
    }
    let url = format!("{}?options=-c%20search_path%3Dbehind%2Cpublic%2Cpg_catalog", database.url());
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    let (theirs, ours) = (store.now().await.expect("it has a clock"), SystemClock.now());
    assert!(theirs.plus(Duration::from_secs(2 * 365 * 24 * 3600)) < ours, "{theirs} is years before {ours}");
    Postgres { store: Arc::new(store), database, address }
}

/// Returns a store at this address.
pub(crate) async fn open(url: &str, options: &PostgresOptions) -> Arc<PostgresStore> {
    let address: DatabaseAddress = url.parse().expect("it is an address");
    Arc::new(PostgresStore::open_with(&address, options).await.expect("the database can be used"))
}

/// Returns the default options with this timeout.
pub(crate) fn patience(millis: u64) -> PostgresOptions {
    PostgresOptions { patience: Duration::from_millis(millis), ..PostgresOptions::default() }
}

/// Returns another client of the database; its connection ends with it.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("another client can connect");
    tokio::spawn(connection);
    client
}

/// Waits until a statement returns this answer. The wait is bounded.
pub(crate) async fn until(server: &Server, database: &str, statement: &str, answer: &str) {
    let mut last = String::new();
    for _ in 0..1_000 {
        last = server.sql(database, statement).expect("it can be read");
        if last == answer {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{statement} still answers {last:?}, not {answer:?}");
}

/// Returns the first answer that is not an error. The wait is bounded.
pub(crate) async fn eventually<T, F>(ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut last = None;
    for _ in 0..300 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it does not recover: {last:?}");
}

#[async_trait::async_trait]
impl Subject for Postgres {
    fn store(&self) -> Arc<dyn Records> {
        self.store.clone()
    }

    fn holds(&self) -> Arc<dyn Holds> {
        self.store.clone()
    }

    fn advance(&self, by: Duration) {
        self.store.shift_clock(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: true, loses_answers: true, references: true }
    }

    fn lose_next_answer(&self) {
        self.store.lose_next_answer();
    }

    async fn open_again(&self) -> Arc<dyn Records> {
        Arc::new(PostgresStore::open(&self.address).await.expect("the database can be used again"))
    }
}

semel_testkit::conformance_tests!(postgres("").await);

mod serializable {
    semel_testkit::conformance_tests!(
        super::postgres("?options=-c%20default_transaction_isolation%3Dserializable").await
    );
}

mod plain {
    semel_testkit::conformance_tests!(super::postgres("?prepared_statements=false&groups=false").await);
}

mod pgbouncer {
    semel_testkit::conformance_tests!(super::through_pgbouncer().await);
}

/// Runs every case in which time passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_clock_decides_and_no_other() {
    for name in [
        "a_command_that_no_worker_starts_is_free_again",
        "an_executor_that_was_replaced_is_fenced",
        "an_ended_lease_is_unknown_not_free",
        "a_sweep_makes_ended_leases_unknown",
        "a_renewal_extends_the_lease",
        "an_operation_declared_safe_is_run_again_by_one",
        "not_executed_is_refused_while_a_call_may_be_in_flight",
        "a_postponed_look_for_evidence_is_counted",
        "an_expired_key_is_a_new_command",
        "an_expired_key_with_a_tombstone_is_refused",
        "only_settled_records_are_reaped",
        "a_purge_leaves_a_tombstone_until_caches_have_noticed",
        "a_record_remembers_how_it_came_there",
        "a_reference_outlives_its_record",
    ] {
        conformance::run(name, &with_another_clock().await).await;
    }
}

#[tokio::test]
async fn a_claim_that_is_sent_again_without_a_doubt_writes_nothing() {
    let Postgres { store, database, .. } = postgres("").await;
    let (claim, mut revisions) = (sample::claim("k"), Vec::new());
    for _ in 0..2 {
        assert_eq!(store.claim(&claim).await.expect("it is claimed").decision, Decision::Execute);
        revisions.push(database.sql("SELECT revision FROM semel_records").expect("it is there"));
    }
    assert_eq!(revisions[0], revisions[1]);
}
