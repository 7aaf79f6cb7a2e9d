//! The PostgreSQL store conforms: as it comes, where every transaction is serializable and many fail, where
//! statements are neither prepared nor grouped, and behind a PgBouncer.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Store;
use semel_stores::PostgresStore;
use semel_stores::postgres::{Address, SCHEMA_VERSION, migrate_database};
use semel_testkit::conformance::{Capabilities, Subject};
use semel_testkit::postgres::{self, Database};

pub(crate) struct Postgres {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) database: Database,
    address: Address,
}

/// A database with the current schema and nothing in it.
pub(crate) async fn database() -> Database {
    let migrate =
        async |url: String| migrate_database(&url.parse().expect("it is an address")).await.map(|_| ());
    let server = postgres::shared().expect("there is a server");
    server.database_from(&format!("semel-{SCHEMA_VERSION}"), migrate).await.expect("a database can be made")
}

/// A store on a database of its own, reached with these parameters.
pub(crate) async fn postgres(parameters: &str) -> Postgres {
    let database = database().await;
    let address: Address = format!("{}{parameters}", database.url()).parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    Postgres { store: Arc::new(store), database, address }
}

#[async_trait::async_trait]
impl Subject for Postgres {
    fn store(&self) -> Arc<dyn Store> {
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

    async fn open_again(&self) -> Arc<dyn Store> {
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
