//! Location of the records: the gateways' way to reach them, and reads from outside that use no code of Semel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};
use semel_chaos::record::{Columns, Found, OBJECT, condition, from_json, hyphenated};
use semel_testkit::postgres::{Cluster, Database};
use semel_testkit::proxy::FaultProxy;

use crate::settings::Store;
use crate::versions::known_reason;

/// Location of the records.
pub(crate) enum Place {
    /// SQLite file.
    File(PathBuf),
    /// PostgreSQL server of this run, with a proxy for each gateway and one for the service.
    Server {
        /// Database; dropped before its server.
        database: Database,
        cluster: Box<Cluster>,
        proxies: Vec<FaultProxy>,
    },
}

impl Place {
    /// Makes a new store.
    pub(crate) async fn make(store: Store, folder: &Path) -> Result<Place, String> {
        if store == Store::Sqlite {
            return Ok(Place::File(folder.join("semel.db")));
        }
        let cluster = tokio::task::spawn_blocking(Cluster::start).await.map_err(|error| error.to_string())?;
        let cluster = cluster.map_err(|error| error.to_string())?;
        let database = cluster.create_database().map_err(|error| error.to_string())?;
        let mut proxies = Vec::new();
        // One proxy for each gateway, and one for the service.
        for _ in 0..=store.gateways() {
            let proxy = FaultProxy::start(cluster.server().address()).await;
            proxies.push(proxy.map_err(|error| error.to_string())?);
        }
        Ok(Place::Server { database, cluster: Box::new(cluster), proxies })
    }

    /// Returns the value of a gateway's setting `store`.
    pub(crate) fn for_gateway(&self, gateway: usize) -> String {
        match self {
            Place::File(path) => format!("sqlite:{}", path.display()),
            Place::Server { database, proxies, .. } => proxies[gateway].url(&database.url()),
        }
    }

    /// Returns the store's address for the service.
    pub(crate) fn for_service(&self) -> String {
        match self {
            Place::File(_) => self.direct(),
            Place::Server { database, proxies, .. } => {
                proxies.last().map_or_else(|| self.direct(), |proxy| proxy.url(&database.url()))
            }
        }
    }

    /// Returns an address whose connections are never cut.
    pub(crate) fn direct(&self) -> String {
        match self {
            Place::File(path) => format!("sqlite:{}", path.display()),
            Place::Server { database, .. } => database.url(),
        }
    }

    /// Returns the file, if the store is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Place::File(path) => Some(path),
            Place::Server { .. } => None,
        }
    }

    /// Returns the server and its proxies, if the store is one.
    pub(crate) fn server(&self) -> Option<(&Cluster, &[FaultProxy])> {
        match self {
            Place::File(_) => None,
            Place::Server { cluster, proxies, .. } => Some((cluster, proxies)),
        }
    }

    /// Returns the number of records that meet a condition. Blocks.
    pub(crate) fn count(&self, condition: &str) -> Result<i64, String> {
        let sql = format!("SELECT count(*) FROM semel_records WHERE {condition}");
        match self {
            Place::File(path) => Ok(query(path, &sql, |row| row.get::<_, i64>(0))?.into_iter().sum()),
            Place::Server { database, .. } => {
                let count = database.sql(&sql).map_err(|error| error.to_string())?;
                count.trim().parse().map_err(|_| format!("{count:?} is no number"))
            }
        }
    }

    /// Returns all records, or only those that changed since or can still change. Blocks.
    pub(crate) fn records(&self, since: Option<i64>) -> Result<Vec<Found>, String> {
        let recent = condition(since);
        match self {
            Place::File(path) => {
                let columns = "lower(hex(operation_id)), tenant, caller, operation, state, reason, epoch, expires_at, \
                               status, response, history, quarantine_until";
                query(path, &format!("SELECT {columns} FROM semel_records{recent}"), |row| {
                    Ok(Columns {
                        operation_id: hyphenated(&row.get::<_, String>(0)?),
                        tenant: row.get(1)?,
                        caller: row.get(2)?,
                        operation: row.get(3)?,
                        state: row.get(4)?,
                        reason: row.get(5)?,
                        epoch: row.get(6)?,
                        expires_at: row.get(7)?,
                        status: row.get(8)?,
                        response: row.get(9)?,
                        history: row.get(10)?,
                        quarantine_until: row.get(11)?,
                    })
                })?
                .into_iter()
                .map(found)
                .collect()
            }
            Place::Server { database, .. } => {
                let rows = database.sql(&format!("SELECT {OBJECT} FROM semel_records{recent}"));
                let rows = rows.map_err(|error| error.to_string())?;
                rows.lines().map(|line| found(from_json(line)?)).collect()
            }
        }
    }
}

/// Returns the record of a row. The reason of the next version has its name in this one.
fn found(row: Columns) -> Result<Found, String> {
    let mut found = row.into_found()?;
    found.record.reason = known_reason(&found.record.reason).to_owned();
    Ok(found)
}

pub(crate) fn query<T>(
    path: &Path,
    statement: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, String> {
    let rows = || {
        let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        file.busy_timeout(Duration::from_secs(5))?;
        let mut statement = file.prepare(statement)?;
        let rows = statement.query_map([], read)?;
        rows.collect::<rusqlite::Result<Vec<T>>>()
    };
    rows().map_err(|error| error.to_string())
}
