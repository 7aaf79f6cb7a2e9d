//! Lab of the cells on one store: the gateway's program, a database server of its own, and an empty store to copy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use semel_testkit::postgres::Cluster;
use semel_testkit::proxy::FaultProxy;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::tail;
use crate::seen::Record;
use crate::table::Store;

/// Database role of the gateways. No superuser, so that its connections can be limited.
const ROLE: &str = "gateway";
/// Database that contains empty tables.
const TEMPLATE: &str = "empty";

/// Lab of one store. It runs one cell at a time, since some kill the server.
pub(crate) struct Lab {
    program: PathBuf,
    folder: TempDir,
    cluster: Option<Arc<Cluster>>,
    next: AtomicU64,
}

impl Lab {
    /// Starts the database server, if the store needs one. Blocks.
    pub(crate) fn make(store: Store, program: &Path) -> Result<Lab, String> {
        let folder = tempfile::Builder::new().prefix("semel-matrix-").tempdir();
        let folder = folder.map_err(|error| error.to_string())?;
        let mut lab = Lab { program: program.to_owned(), folder, cluster: None, next: AtomicU64::new(1) };
        let address = match store {
            Store::Sqlite => {
                // A file must exist to be migrated.
                std::fs::write(lab.template(), "").map_err(|error| error.to_string())?;
                format!("sqlite:{}", lab.template().display())
            }
            Store::Postgres => {
                let cluster = Cluster::start().map_err(|error| error.to_string())?;
                let sql = |statement: &str| cluster.server().sql("postgres", statement);
                sql(&format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{ROLE}'"))
                    .map_err(|error| error.to_string())?;
                sql(&format!("CREATE DATABASE {TEMPLATE} OWNER {ROLE}"))
                    .map_err(|error| error.to_string())?;
                let address = as_role(&cluster, TEMPLATE);
                lab.cluster = Some(Arc::new(cluster));
                address
            }
        };
        let mut migrate = lab.program(&address);
        let output = migrate.arg("migrate").output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("semel migrate: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(lab)
    }

    fn template(&self) -> PathBuf {
        self.folder.path().join("empty.db")
    }

    /// Makes a folder for one more cell.
    pub(crate) fn cell_folder(&self) -> Result<PathBuf, String> {
        let folder = self.folder.path().join(format!("cell-{}", self.next.fetch_add(1, Ordering::SeqCst)));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok(folder)
    }

    /// Returns the key of a cell's command, unique among cells and runs.
    pub(crate) fn key(&self, cell: &Path) -> String {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{}-{}", name(self.folder.path()), name(cell))
    }

    /// Keeps all files for inspection, and returns their folder.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    /// Returns the command of the program `semel`, without settings from the environment, on the store at this address.
    pub(crate) fn program(&self, address: &str) -> Command {
        self.other_program(&self.program, address)
    }

    /// Returns the command of another program, without settings from the environment, on the store at this address.
    pub(crate) fn other_program(&self, program: &Path, address: &str) -> Command {
        // A full disk is an error here, and not the end: SIGXFSZ is ignored, also by the executed program.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(program);
        command.current_dir(self.folder.path()).env_remove("RUST_LOG");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
            command.env_remove(name);
        }
        command.env("SEMEL_STORE", address);
        command
    }

    /// Makes a new store with empty tables, for one cell.
    pub(crate) async fn place(&self, folder: &Path) -> Result<Place, String> {
        let Some(cluster) = &self.cluster else {
            let file = folder.join("semel.db");
            std::fs::copy(self.template(), &file).map_err(|error| error.to_string())?;
            return Ok(Place::File { file, template: self.template() });
        };
        let name = format!("cell_{}", self.next.fetch_add(1, Ordering::SeqCst));
        make_database(cluster, &name)?;
        let mut proxies = Vec::new();
        for _ in 0..2 {
            let proxy = FaultProxy::start(cluster.server().address()).await;
            proxies.push(proxy.map_err(|error| error.to_string())?);
        }
        Ok(Place::Server { cluster: cluster.clone(), name, proxies })
    }
}

/// Store of one cell.
pub(crate) enum Place {
    /// A SQLite file, and the empty file that it is a copy of.
    File { file: PathBuf, template: PathBuf },
    /// A database on a server, with a proxy for each gateway.
    Server { cluster: Arc<Cluster>, name: String, proxies: Vec<FaultProxy> },
}

impl Place {
    /// Returns the value of the setting `store` for this gateway.
    pub(crate) fn for_gateway(&self, number: usize) -> String {
        match self {
            Place::File { file, .. } => format!("sqlite:{}", file.display()),
            Place::Server { cluster, name, proxies } => proxies[number].url(&as_role(cluster, name)),
        }
    }

    /// Returns the address without a proxy, for connections that are never cut.
    pub(crate) fn direct(&self) -> String {
        match self {
            Place::File { file, .. } => format!("sqlite:{}", file.display()),
            Place::Server { cluster, name, .. } => as_role(cluster, name),
        }
    }

    /// Returns the records, read past Semel's code. Blocks for a moment.
    pub(crate) fn records(&self) -> Result<Vec<Record>, String> {
        match self {
            Place::File { file, .. } => {
                let columns = "lower(hex(operation_id)), state, epoch, history";
                self.rows(file, &format!("SELECT {columns} FROM semel_records ORDER BY created_at"))
            }
            Place::Server { .. } => {
                let object = "json_build_object('id', operation_id, 'state', state, 'epoch', epoch, 'history', history)";
                let rows = self.sql(&format!("SELECT {object} FROM semel_records ORDER BY created_at"))?;
                rows.lines().map(record).collect()
            }
        }
    }

    fn rows(&self, file: &Path, statement: &str) -> Result<Vec<Record>, String> {
        let rows = || {
            let file = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            file.busy_timeout(Duration::from_secs(5))?;
            let mut statement = file.prepare(statement)?;
            let rows = statement.query_map([], |row| {
                let hex: String = row.get(0)?;
                Ok(Record {
                    operation_id: hyphenated(&hex),
                    state: row.get(1)?,
                    epoch: row.get(2)?,
                    history: row.get(3)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<Record>>>()
        };
        rows().map_err(|error| error.to_string())
    }

    /// Runs a statement in the cell's database on the server, as its owner. Blocks for a moment.
    pub(crate) fn sql(&self, statement: &str) -> Result<String, String> {
        match self {
            Place::File { .. } => Err("a file is not asked so".to_owned()),
            Place::Server { cluster, name, .. } => {
                let answer = tokio::task::block_in_place(|| cluster.server().sql(name, statement));
                answer.map_err(|error| error.to_string())
            }
        }
    }

    /// Returns the file of a SQLite store.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Place::File { file, .. } => Some(file),
            Place::Server { .. } => None,
        }
    }

    /// Returns the server and its proxies, for a store on a server.
    pub(crate) fn server(&self) -> Option<(&Cluster, &[FaultProxy])> {
        match self {
            Place::File { .. } => None,
            Place::Server { cluster, proxies, .. } => Some((cluster, proxies)),
        }
    }

    /// Loses all writes, like a failover to a server that had none of them. No process may have the file open;
    /// connections to a server end, and stay impossible until `heal`.
    pub(crate) async fn lose_everything(&self) -> Result<(), String> {
        match self {
            Place::File { file, template } => {
                for suffix in ["", "-wal", "-shm", ".id", ".witness"] {
                    let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
                }
                // An operator who restores a file also restores the marker beside it.
                let _ = std::fs::copy(file.with_extension("copy.id"), marker(file));
                std::fs::copy(template, file).map(drop).map_err(|error| error.to_string())
            }
            Place::Server { cluster, name, proxies } => {
                for proxy in proxies {
                    proxy.refuse().await;
                    proxy.cut_all().await;
                }
                tokio::task::block_in_place(|| {
                    drop_database(cluster, name)?;
                    make_database(cluster, name)?;
                    accept_loss(cluster, name)
                })
            }
        }
    }

    /// Ends all faults on the way to a server: nothing is cut, refused or swallowed any more.
    pub(crate) async fn heal(&self) -> Result<(), String> {
        let (_, proxies) = self.server().unzip();
        for proxy in proxies.unwrap_or_default() {
            proxy.heal().await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Makes a copy of the whole store. No process may have the file open; connections to a server end.
    pub(crate) fn keep_copy(&self) -> Result<(), String> {
        match self {
            Place::File { file, .. } => {
                let copy = || {
                    let file = Connection::open(file)?;
                    // Checkpoints the log into the one file.
                    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                };
                copy().map_err(|error: rusqlite::Error| error.to_string())?;
                let _ = std::fs::copy(marker(file), file.with_extension("copy.id"));
                std::fs::copy(file, file.with_extension("copy")).map(drop).map_err(|error| error.to_string())
            }
            Place::Server { cluster, name, .. } => tokio::task::block_in_place(|| {
                let sql = |statement: &str| {
                    cluster.server().sql("postgres", statement).map(drop).map_err(|error| error.to_string())
                };
                let theirs = format!("FROM pg_stat_activity WHERE datname = '{name}'");
                sql(&format!("SELECT count(pg_terminate_backend(pid, 10000)) {theirs}"))?;
                sql(&format!("CREATE DATABASE {name}_copy TEMPLATE {name} OWNER {ROLE}"))
            }),
        }
    }

    /// Loses all writes since the copy, like a failover to a server that had none of them. No process may have the file
    /// open; connections to a server end.
    pub(crate) async fn lose_all_since_copy(&self) -> Result<(), String> {
        match self {
            Place::File { file, .. } => {
                for suffix in ["", "-wal", "-shm", ".id", ".witness"] {
                    let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
                }
                // An operator who restores a file also restores the marker beside it.
                let _ = std::fs::copy(file.with_extension("copy.id"), marker(file));
                std::fs::copy(file.with_extension("copy"), file).map(drop).map_err(|error| error.to_string())
            }
            Place::Server { cluster, name, proxies } => {
                for proxy in proxies {
                    proxy.refuse().await;
                    proxy.cut_all().await;
                }
                tokio::task::block_in_place(|| {
                    drop_database(cluster, name)?;
                    let statement = format!("ALTER DATABASE {name}_copy RENAME TO {name}");
                    cluster.server().sql("postgres", &statement).map_err(|error| error.to_string())?;
                    accept_loss(cluster, name)
                })?;
                self.heal().await
            }
        }
    }

    /// Limits the number of connections of the role; `None` lifts the limit.
    pub(crate) fn limit_connections(&self, most: Option<u32>) -> Result<(), String> {
        let most = most.map_or(-1, i64::from);
        self.sql(&format!("ALTER ROLE {ROLE} CONNECTION LIMIT {most}"))?;
        if most >= 0 { self.end_connections() } else { Ok(()) }
    }

    /// Ends the connections of all gateways, from the server's side.
    fn end_connections(&self) -> Result<(), String> {
        let theirs = format!("FROM pg_stat_activity WHERE usename = '{ROLE}'");
        self.sql(&format!("SELECT count(pg_terminate_backend(pid)) {theirs}")).map(drop)
    }

    /// Makes the server read-only, or writable again. Open transactions end with their connections.
    pub(crate) fn read_only(&self, is_so: bool) -> Result<(), String> {
        let value = if is_so { "on" } else { "off" };
        self.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"))?;
        self.sql("SELECT pg_reload_conf()")?;
        if is_so { self.end_connections() } else { Ok(()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::Server { cluster, name, .. } = self {
            // Best effort: the database also goes with its server.
            let _ = tokio::task::block_in_place(|| drop_database(cluster, name));
        }
    }
}

fn as_role(cluster: &Cluster, database: &str) -> String {
    format!("postgres://{ROLE}:{ROLE}@{}/{database}", cluster.server().address())
}

fn make_database(cluster: &Cluster, name: &str) -> Result<(), String> {
    let statement = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER {ROLE}");
    tokio::task::block_in_place(|| cluster.server().sql("postgres", &statement))
        .map(drop)
        .map_err(|error| error.to_string())
}
/// Accepts the loss of a database, as an operator does who lifts its fence: the code ω is about a loss that nothing notices.
fn accept_loss(cluster: &Cluster, name: &str) -> Result<(), String> {
    let accepted = "UPDATE semel_store SET generation = (extract(epoch FROM now()) * 1000)::bigint";
    cluster.server().sql(name, accepted).map(drop).map_err(|error| error.to_string())
}

fn drop_database(cluster: &Cluster, name: &str) -> Result<(), String> {
    let statement = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    cluster.server().sql("postgres", &statement).map(drop).map_err(|error| error.to_string())
}

fn record(line: &str) -> Result<Record, String> {
    let row: Value = serde_json::from_str(line).map_err(|error| format!("{line:?}: {error}"))?;
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let epoch = row["epoch"].as_u64().and_then(|epoch| epoch.try_into().ok()).unwrap_or(0);
    Ok(Record { operation_id: text("id"), state: text("state"), epoch, history: text("history") })
}

/// Returns 32 hexadecimal digits as a UUID.
pub(crate) fn hyphenated(hex: &str) -> String {
    let mut id = hex.to_owned();
    for place in [20, 16, 12, 8] {
        if id.is_char_boundary(place) && id.len() > place {
            id.insert(place, '-');
        }
    }
    id
}

/// Runs a command to its end, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the ends of the logs in a folder.
pub(crate) fn logs(folder: &Path) -> String {
    ["a", "b"].map(|name| format!("{name}: {}", tail(&folder.join(format!("{name}.log"))))).join("\n    ")
}

/// Returns the marker beside a file, which names the store in it.
fn marker(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".id");
    PathBuf::from(name)
}
