//! Location of the records: the gateways' way to reach them, and reads from outside that use no code of Semel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};
use semel_checker::event::{Record, Step};
use semel_testkit::postgres::{Cluster, Database};
use semel_testkit::proxy::FaultProxy;
use serde_json::Value;

use crate::asked::{canaries, digest, effects};
use crate::settings::Store;

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

/// Record, with the end of its quarantine for the operator.
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) quarantine_until: Option<i64>,
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

    /// Returns all records, or only those that changed since or can still change. Blocks.
    pub(crate) fn records(&self, since: Option<i64>) -> Result<Vec<Found>, String> {
        let recent = match since {
            Some(since) => {
                format!(" WHERE updated_at >= {since} OR state IN ('claimed', 'processing', 'unknown')")
            }
            None => String::new(),
        };
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
                .map(Columns::into_found)
                .collect()
            }
            Place::Server { database, .. } => {
                let object = "json_build_object('operation_id', operation_id, 'tenant', tenant, 'caller', caller, \
                              'operation', operation, 'state', state, 'reason', reason, 'epoch', epoch, 'expires_at', \
                              expires_at, 'status', status, 'response', encode(response, 'hex'), 'history', history, \
                              'quarantine_until', quarantine_until)";
                let rows = database.sql(&format!("SELECT {object} FROM semel_records{recent}"));
                let rows = rows.map_err(|error| error.to_string())?;
                rows.lines().map(|line| from_json(line)?.into_found()).collect()
            }
        }
    }
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

/// Row of the table of records.
struct Columns {
    operation_id: String,
    tenant: String,
    caller: String,
    operation: String,
    state: String,
    reason: String,
    epoch: u32,
    expires_at: Option<i64>,
    status: Option<u16>,
    response: Option<Vec<u8>>,
    history: String,
    quarantine_until: Option<i64>,
}

impl Columns {
    fn into_found(self) -> Result<Found, String> {
        let response = self.response.as_deref();
        let unreadable = |line: &str| format!("{line:?} is no step of a record's history");
        let steps = self.history.lines().map(|line| step(line).ok_or_else(|| unreadable(line)));
        let steps = steps.collect::<Result<_, _>>()?;
        let record = Record {
            look: 0,
            operation_id: self.operation_id,
            tenant: self.tenant,
            caller: self.caller,
            operation: self.operation,
            state: self.state,
            reason: self.reason,
            epoch: self.epoch,
            expires_at: self.expires_at,
            status: self.status,
            response: response.map(digest),
            effects: response.map(effects).unwrap_or_default(),
            canaries: response.map(canaries).unwrap_or_default(),
            steps,
        };
        Ok(Found { record, quarantine_until: self.quarantine_until })
    }
}

/// Parses a step such as `1763207245123 1 processing claimed`, with an optional count of repeats.
fn step(line: &str) -> Option<Step> {
    let mut words = line.split(' ');
    Some(Step {
        at: words.next()?.parse().ok()?,
        epoch: words.next()?.parse().ok()?,
        state: words.next()?.to_owned(),
        reason: words.next()?.to_owned(),
    })
}

fn from_json(line: &str) -> Result<Columns, String> {
    let row: Value = serde_json::from_str(line).map_err(|error| format!("{line:?}: {error}"))?;
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| row[name].as_i64();
    Ok(Columns {
        operation_id: text("operation_id"),
        tenant: text("tenant"),
        caller: text("caller"),
        operation: text("operation"),
        state: text("state"),
        reason: text("reason"),
        epoch: number("epoch").and_then(|epoch| epoch.try_into().ok()).unwrap_or(0),
        expires_at: number("expires_at"),
        status: number("status").and_then(|status| status.try_into().ok()),
        response: row["response"].as_str().map(bytes),
        history: text("history"),
        quarantine_until: number("quarantine_until"),
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Returns 32 hex digits as a UUID.
pub(crate) fn hyphenated(hex: &str) -> String {
    let mut id = hex.to_owned();
    if id.contains('-') {
        return id;
    }
    for place in [20, 16, 12, 8] {
        if id.is_char_boundary(place) && id.len() > place {
            id.insert(place, '-');
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_digits_become_a_hyphenated_id_or_bytes() {
        assert_eq!(hyphenated("01a1df32caa3786da19645c465f24292"), "01a1df32-caa3-786d-a196-45c465f24292");
        assert_eq!(bytes("00ff7a"), [0, 255, 0x7a]);
    }

    #[test]
    fn step_is_read_with_and_without_a_repeat_count() {
        let plain = step("1763207245123 1 processing claimed").expect("it is one");
        let again = step("1763207245123 1 processing claimed 3 1763207245999").expect("it is one");
        assert_eq!(plain, again);
        assert_eq!((plain.epoch, plain.state.as_str(), plain.reason.as_str()), (1, "processing", "claimed"));
        assert_eq!(step("nonsense"), None);
    }
}
