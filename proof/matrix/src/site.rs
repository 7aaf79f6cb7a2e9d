//! Environment of the rows about maintenance: a store, an upstream with a ledger, gateways without maintenance tasks,
//! and the command lines that maintain. Rows of the store are read past Semel's code, with every column.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use semel_faults::Point;
use serde_json::Value;

use crate::client::{self, Asked};
use crate::lab::{Lab, Place, hyphenated, output};
use crate::patience::PATIENCE;
use crate::process::Process;
use crate::seen::Told;
use crate::upstream::{Mood, Upstream};

/// Common configuration of every gateway here.
const CONFIGURATION: &str = r#"
[identity]
source = "trusted-headers"
trusted_proxies = ["127.0.0.1"]
tenant_header = "X-Tenant"
caller_header = "X-Caller"

[defaults]
lease = "5m"
timeout = "30s"
quarantine_margin = "1s"

[maintenance]
sweep_interval = "1h"
reap_interval = "1h"

[[operation]]
name = "payments.create"
match = "POST /payments"
"#;

/// One row of a table, column by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row(pub(crate) BTreeMap<String, String>);

impl Row {
    /// Returns the value of a column; `None`, if it is null.
    pub(crate) fn get(&self, column: &str) -> Option<&str> {
        self.0.get(column).map(String::as_str)
    }

    /// Returns the operation id, by which clients and operators name the command.
    pub(crate) fn operation_id(&self) -> &str {
        self.get("operation_id").unwrap_or_default()
    }

    pub(crate) fn state(&self) -> &str {
        self.get("state").unwrap_or_default()
    }

    /// Returns the row without these columns.
    pub(crate) fn without(&self, columns: &[&str]) -> Row {
        let mut row = self.clone();
        row.0.retain(|name, _| !columns.contains(&name.as_str()));
        row
    }
}

/// Environment of one cell. The process under fault uses the first way to the store, all others the second.
pub(crate) struct Site<'a> {
    lab: &'a Lab,
    pub(crate) folder: PathBuf,
    pub(crate) place: Place,
    pub(crate) upstream: Upstream,
    /// Common suffix of the keys of all commands.
    key: String,
    secret: Option<(&'static str, &'static str)>,
}

impl Site<'_> {
    pub(crate) async fn start(lab: &Lab, mood: Mood) -> Result<Site<'_>, String> {
        let folder = lab.cell_folder()?;
        let place = lab.place(&folder).await?;
        let key = lab.key(&folder);
        let upstream = Upstream::start(mood, &key).await?;
        let site = Site { lab, folder, place, upstream, key, secret: None };
        site.configure("semel.toml", "")?;
        Ok(site)
    }

    /// Sets an environment variable for processes from now on.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: &'static str) {
        self.secret = Some((name, value));
    }

    /// Writes a configuration under this name: the common one, and `more`.
    pub(crate) fn configure(&self, name: &str, more: &str) -> Result<(), String> {
        std::fs::write(self.folder.join(name), format!("{CONFIGURATION}{more}"))
            .map_err(|error| error.to_string())
    }

    /// Starts a command line, on the first or the second way to the store, and arms these points.
    pub(crate) fn tool(
        &self,
        name: &str,
        way: usize,
        arguments: &[&str],
        armed: &[Point],
    ) -> Result<Process, String> {
        self.run(name, way, arguments, &[], armed)
    }

    /// Starts a gateway with this configuration.
    pub(crate) fn gateway(&self, name: &str, way: usize, configuration: &str) -> Result<Process, String> {
        let words = ["listening on http://", "admin on http://"];
        let arguments = self.serving(configuration);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.run(name, way, &arguments, &words, &[])
    }

    /// Returns the command line of a gateway with this configuration.
    pub(crate) fn serving(&self, configuration: &str) -> Vec<String> {
        let upstream = format!("http://{}", self.upstream.address);
        let words = ["serve", "--config", configuration, "--log-format", "json", "--listen", "127.0.0.1:0"];
        let words = words.into_iter().chain(["--admin-listen", "127.0.0.1:0", "--upstream", &upstream]);
        words.map(str::to_owned).collect()
    }

    fn run(
        &self,
        name: &str,
        way: usize,
        arguments: &[&str],
        words: &[&str],
        armed: &[Point],
    ) -> Result<Process, String> {
        let mut command = self.lab.program(&self.place.for_gateway(way));
        command.current_dir(&self.folder).args(arguments);
        command.envs(self.secret);
        let log = self.folder.join(format!("{name}.log"));
        let faults = self.folder.join(format!("faults-{name}"));
        tokio::task::block_in_place(|| Process::start_armed(command, words, &log, &faults, armed))
            .map_err(|why| format!("{name}: {why}"))
    }

    /// Repeats a command line until it exits with this code.
    pub(crate) async fn finish(&self, arguments: &[&str], code: i32) -> Result<i32, String> {
        let begun = Instant::now();
        loop {
            let ended = self.tool("last", 1, arguments, &[])?.ended().await?;
            if ended == code || begun.elapsed() > PATIENCE {
                return Ok(ended);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Resolves the command as an operator: executed, with this response.
    pub(crate) fn resolve(&self, operation_id: &str, body: &str) -> Result<(), String> {
        let file = self.folder.join("verdict.json");
        std::fs::write(&file, body).map_err(|error| error.to_string())?;
        let mut command = self.lab.program(&self.place.direct());
        command.args(["records", "resolve", operation_id, "--verdict", "executed", "--status", "201"]);
        command.arg("--body").arg(&file).args(["--header", "Content-Type: application/json"]);
        command.args(["--reason", "the ledger of the provider shows it"]);
        tokio::task::block_in_place(|| output(&mut command)).map(drop)
    }

    /// Makes a payment under a key of this name.
    pub(crate) fn payment(&self, name: &str) -> Asked {
        Asked::command("/payments", &format!("{name}-{}", self.key))
    }

    /// Sends a payment under this key.
    pub(crate) async fn pay(&self, gateway: &Process, key: &str) -> Told {
        client::send(gateway.address(), self.payment(key)).await
    }

    /// Sends a payment with another body under this key.
    pub(crate) async fn pay_otherwise(&self, gateway: &Process, key: &str) -> Told {
        let body = bytes::Bytes::from_static(br#"{"amount":999,"currency":"EUR"}"#);
        client::send(gateway.address(), Asked { body, ..self.payment(key) }).await
    }

    /// Sends a payment under this key, which must succeed. Returns the result and the operation id.
    pub(crate) async fn must_pay(&self, gateway: &Process, key: &str) -> Result<(Told, String), String> {
        let told = self.pay(gateway, key).await;
        let id = told.as_answer().and_then(|answer| answer.operation_id.clone());
        match id {
            Some(id) if told.is_done() => Ok((told, id)),
            _ => Err(format!("{key} got {told}")),
        }
    }

    /// Returns the rows of a table, with every column, ordered by operation id.
    pub(crate) fn rows(&self, table: &str) -> Result<Vec<Row>, String> {
        self.ask(&format!("SELECT * FROM {table} ORDER BY operation_id"))
    }

    /// Returns the rows of a query.
    pub(crate) fn ask(&self, query: &str) -> Result<Vec<Row>, String> {
        match self.place.file() {
            Some(file) => rows_of_file(file, query).map_err(|error| error.to_string()),
            None => {
                let rows = self.place.sql(&format!("SELECT row_to_json(r) FROM ({query}) AS r"))?;
                rows.lines().map(row_of_json).collect()
            }
        }
    }

    /// Changes the store past Semel's code.
    pub(crate) fn change(&self, statements: &str) -> Result<(), String> {
        match self.place.file() {
            Some(file) => {
                let change = || {
                    let file = Connection::open(file)?;
                    file.busy_timeout(Duration::from_secs(5))?;
                    file.execute_batch(statements)
                };
                change().map_err(|error: rusqlite::Error| format!("{statements}: {error}"))
            }
            None => self.place.sql(statements).map(drop),
        }
    }

    /// Changes the records of these commands past Semel's code.
    pub(crate) fn change_records(&self, ids: &[&str], changes: &str) -> Result<(), String> {
        let ids: Vec<String> = ids.iter().map(|id| self.literal(id)).collect();
        self.change(&format!("UPDATE semel_records SET {changes} WHERE operation_id IN ({})", ids.join(", ")))
    }

    /// Returns the SQL literal of an operation id, in the store's dialect.
    pub(crate) fn literal(&self, operation_id: &str) -> String {
        match self.place.file() {
            Some(_) => format!("x'{}'", operation_id.replace('-', "")),
            None => format!("'{operation_id}'::uuid"),
        }
    }
}

fn rows_of_file(file: &std::path::Path, query: &str) -> rusqlite::Result<Vec<Row>> {
    let file = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    file.busy_timeout(Duration::from_secs(5))?;
    let mut statement = file.prepare(query)?;
    let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let rows = statement.query_map([], |row| {
        let mut columns = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let text = match row.get_ref(index)? {
                ValueRef::Null => continue,
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                ValueRef::Blob(bytes) if name == "operation_id" => hyphenated(&hex(bytes)),
                ValueRef::Blob(bytes) => hex(bytes),
            };
            columns.insert(name.clone(), text);
        }
        Ok(Row(columns))
    })?;
    rows.collect()
}

fn row_of_json(line: &str) -> Result<Row, String> {
    let row: Value = serde_json::from_str(line).map_err(|error| format!("{line:?}: {error}"))?;
    let columns = row.as_object().into_iter().flatten().filter_map(|(name, value)| match value {
        Value::Null => None,
        Value::String(text) => Some((name.clone(), text.clone())),
        other => Some((name.clone(), other.to_string())),
    });
    Ok(Row(columns.collect()))
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
