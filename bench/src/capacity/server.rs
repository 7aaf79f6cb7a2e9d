//! A private PostgreSQL with a store, and the server's own counters. Counters of a session reach the server when the
//! session ends, so each measurement opens the store anew and closes it.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Records;
use semel_stores::PostgresStore;
use semel_stores::postgres::DatabaseAddress;
use semel_testkit::postgres::{Cluster, Database};

use crate::Result;

/// Settings: only this program causes checkpoints and vacuums.
const SETTINGS: [(&str, &str); 4] = [
    ("autovacuum", "off"),
    ("checkpoint_timeout", "1h"),
    ("max_wal_size", "20GB"),
    ("shared_buffers", "256MB"),
];

/// A server with one database.
pub(super) struct Server {
    pub(super) database: Database,
    _cluster: Cluster,
}

/// Counters of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) bytes: f64,
    pub(super) records: f64,
    pub(super) pages: f64,
    pub(super) flushes: f64,
    pub(super) updates: f64,
    pub(super) updates_in_place: f64,
    pub(super) transactions: f64,
}

const COUNTERS: &str = "
    SELECT pg_current_wal_insert_lsn() - '0/0', wal_records, wal_fpi, wal_sync, n_tup_upd, n_tup_hot_upd, xact_commit
    FROM pg_stat_wal, pg_stat_user_tables, pg_stat_database
    WHERE relname = 'semel_records' AND datname = current_database()";

const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'";

impl Server {
    pub(super) async fn start() -> Result<Server> {
        let cluster = tokio::task::block_in_place(|| Cluster::start_with(&SETTINGS))?;
        let server = Server { database: cluster.create_database()?, _cluster: cluster };
        drop(server.open().await?);
        server.closed().await?;
        Ok(server)
    }

    pub(super) async fn open(&self) -> Result<Arc<dyn Records>> {
        let address: DatabaseAddress = self.database.url().parse()?;
        Ok(Arc::new(PostgresStore::open(&address).await?))
    }

    pub(super) fn number(&self, statement: &str) -> Result<f64> {
        Ok(self.database.sql(statement)?.trim().parse()?)
    }

    pub(super) fn sessions(&self) -> Result<f64> {
        self.number(SESSIONS)
    }

    /// Waits until no store is connected.
    async fn closed(&self) -> Result<()> {
        for _ in 0..500 {
            if self.sessions()? == 0.0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("a store does not close".into())
    }

    pub(super) fn counters(&self) -> Result<Counters> {
        let row = self.database.sql(COUNTERS)?;
        let numbers: Vec<f64> =
            row.trim().split('|').map(str::parse).collect::<std::result::Result<_, _>>()?;
        let [bytes, records, pages, flushes, updates, updates_in_place, transactions] = numbers[..] else {
            return Err(format!("counters are missing: {row}").into());
        };
        Ok(Counters { bytes, records, pages, flushes, updates, updates_in_place, transactions })
    }

    /// Returns what the server counted for each of `count` things while `work` ran.
    pub(super) async fn counted(
        &self,
        count: u64,
        work: impl AsyncFnOnce(&Arc<dyn Records>) -> Result<()>,
    ) -> Result<Counters> {
        let before = self.counters()?;
        let store = self.open().await?;
        work(&store).await?;
        drop(store);
        self.closed().await?;
        let after = self.counters()?;
        let each = |after: f64, before: f64| (after - before) / count as f64;
        Ok(Counters {
            bytes: each(after.bytes, before.bytes),
            records: each(after.records, before.records),
            pages: each(after.pages, before.pages),
            flushes: each(after.flushes, before.flushes),
            updates: each(after.updates, before.updates),
            updates_in_place: each(after.updates_in_place, before.updates_in_place),
            transactions: each(after.transactions, before.transactions),
        })
    }

    /// Inserts settled records that are copies of one record, with ids of their own, in groups. `expires_in` is the
    /// time to the first expiry in milliseconds; later ones follow a millisecond apart.
    pub(super) fn fill(&self, count: u64, expires_in: i64) -> Result<()> {
        const GROUP: u64 = 50_000;
        let columns = self.database.sql(
            "SELECT string_agg(column_name, ', ') FROM information_schema.columns
             WHERE table_name = 'semel_records' AND column_name NOT IN ('id', 'operation_id', 'expires_at')",
        )?;
        let mut begun = 0;
        while begun < count {
            let end = count.min(begun + GROUP);
            self.database.sql(&format!(
                "INSERT INTO semel_records (id, operation_id, expires_at, {columns})
                 SELECT sha256(uuid_send(gen_random_uuid())),
                     (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || lpad(to_hex(i), 4, '0')
                         || right(gen_random_uuid()::text, 17))::uuid,
                     (extract(epoch FROM now()) * 1000)::bigint + {expires_in} + i, {columns}
                 FROM (SELECT * FROM semel_records WHERE state = 'succeeded' LIMIT 1) AS one,
                     generate_series({begun} + 1, {end}) AS n(i)",
            ))?;
            begun = end;
        }
        Ok(())
    }
}
