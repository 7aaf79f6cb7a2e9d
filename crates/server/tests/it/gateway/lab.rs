//! Gateway in its own process, and an upstream that follows a test's instructions.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http_body_util::BodyExt;
pub(crate) use semel_testkit::client::{KEY, Reply, Send, pay, problem, stripe_error};
use semel_testkit::postgres::Database;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Upstream that counts requests, and does what `x-do` says.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) seen: AtomicUsize,
    pub(crate) effects: AtomicUsize,
    pub(crate) begun: Semaphore,
    pub(crate) gate: Semaphore,
}

impl Upstream {
    /// Starts an upstream on a free port.
    pub(crate) async fn start() -> Arc<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        Upstream::start_on(listener)
    }

    /// Starts an upstream on this listener.
    pub(crate) fn start_on(listener: TcpListener) -> Arc<Upstream> {
        let upstream = Arc::new(Upstream {
            address: listener.local_addr().expect("it is bound"),
            seen: AtomicUsize::new(0),
            effects: AtomicUsize::new(0),
            begun: Semaphore::new(0),
            gate: Semaphore::new(0),
        });
        let app = Router::new().fallback(handle).with_state(upstream.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        upstream
    }

    /// Returns the number of requests.
    pub(crate) fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }

    /// Returns the number of its effects.
    pub(crate) fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }

    /// Waits until a request has arrived.
    pub(crate) async fn begun(&self) {
        self.begun.acquire().await.expect("it is never closed").forget();
    }

    /// Lets a waiting request continue.
    pub(crate) fn open_gate(&self) {
        self.gate.add_permits(1);
    }
}

async fn handle(State(upstream): State<Arc<Upstream>>, request: Request) -> Response {
    upstream.seen.fetch_add(1, Ordering::SeqCst);
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let what = header("x-do");
    upstream.begun.add_permits(1);
    if what.contains("gate") {
        upstream.gate.acquire().await.expect("it is never closed").forget();
    }
    let number = upstream.effects.fetch_add(1, Ordering::SeqCst) + 1;
    let status = what.split("status-").nth(1).and_then(|rest| rest.get(..3)).unwrap_or("201");
    let mut response = Response::builder()
        .status(status.parse::<u16>().expect("tests ask for real statuses"))
        .header("location", format!("/payments/{number}"))
        .header("set-cookie", "session=secret")
        .header("link", "</a>; rel=\"x, y\", </b>")
        .header("link", "</c>");
    for (name, value) in &parts.headers {
        response = response.header(format!("seen-{name}"), value);
    }
    if let Some(outcome) = what.split("outcome-").nth(1) {
        response = response.header("semel-outcome", outcome);
    }
    let body = if let Some(mebibytes) = what.strip_prefix("large-") {
        vec![b'x'; mebibytes.parse::<usize>().expect("tests ask for a number") << 20]
    } else if what.contains("large") {
        vec![b'x'; 3 << 20]
    } else {
        [format!("{number}:").as_bytes(), &body].concat()
    };
    response.body(Body::from(body)).expect("valid")
}

/// Gateway in its own process.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Arc<Mutex<String>>,
    _output: BufReader<std::process::ChildStdout>,
}

/// Folder and store of gateways.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    postgres: Option<Database>,
    /// Environment variables of the program.
    pub(crate) variables: Vec<(&'static str, &'static str)>,
}

/// Variable that selects the store: `postgres` runs the gateway's tests on PostgreSQL, otherwise they run on
/// SQLite.
const STORE: &str = "SEMEL_TEST_STORE";

impl Site {
    pub(crate) fn new() -> Site {
        let postgres = std::env::var(STORE).ok().map(|store| {
            assert_eq!(store, "postgres", "{STORE} is unset or `postgres`");
            let server = semel_testkit::postgres::shared().expect("there is a server");
            server.create_database().expect("a database can be made")
        });
        Site::with(postgres)
    }

    /// Makes a site with its records in PostgreSQL, whatever the other tests use.
    pub(crate) fn on_postgres() -> Site {
        let server = semel_testkit::postgres::shared().expect("there is a server");
        Site::with(Some(server.create_database().expect("a database can be made")))
    }

    fn with(postgres: Option<Database>) -> Site {
        let folder = TempDir::new().expect("there is room for a test");
        Site { folder, postgres, variables: Vec::new() }
    }

    /// Returns the PostgreSQL database with the records.
    pub(crate) fn postgres(&self) -> &Database {
        self.postgres.as_ref().expect("the records are in PostgreSQL")
    }

    /// Returns the file with the records.
    pub(crate) fn database(&self) -> PathBuf {
        assert!(self.postgres.is_none(), "the records are not in a file");
        self.folder.path().join("semel.db")
    }

    /// Returns a command that runs the program at this site.
    pub(crate) fn semel(&self) -> Command {
        let mut command = semel(self.folder.path());
        command.envs(self.variables.iter().copied());
        if let Some(database) = &self.postgres {
            command.env("SEMEL_STORE", database.url());
        }
        command
    }

    /// Blocks writes to the store until the result is dropped.
    pub(crate) fn block_store(&self) -> Blocked<'_> {
        match &self.postgres {
            None => {
                let other = rusqlite::Connection::open(self.database()).expect("the file opens");
                other.busy_timeout(Duration::from_secs(20)).expect("it can wait");
                other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes for long");
                Blocked::File(other)
            }
            Some(database) => {
                let sql = |statement: &str| database.sql(statement).expect("the server takes it");
                sql(&format!(
                    "ALTER DATABASE \"{}\" SET default_transaction_read_only = on",
                    database.name()
                ));
                database.terminate_backends().expect("the server ends them");
                Blocked::Postgres(database)
            }
        }
    }

    /// Returns the states of all records, in order.
    pub(crate) fn states(&self) -> Vec<String> {
        self.column("SELECT state FROM semel_records ORDER BY state")
    }

    /// Returns the result of a query of one column.
    pub(crate) fn column(&self, query: &str) -> Vec<String> {
        match &self.postgres {
            None => {
                let file = rusqlite::Connection::open(self.database()).expect("the file opens");
                let mut query = file.prepare(query).expect("it is there");
                let rows = query.query_map([], |row| row.get(0)).expect("it reads");
                rows.collect::<Result<_, _>>().expect("it reads")
            }
            Some(database) => database.sql(query).expect("it reads").lines().map(str::to_owned).collect(),
        }
    }

    /// Returns true if the records are in PostgreSQL.
    pub(crate) fn is_postgres(&self) -> bool {
        self.postgres.is_some()
    }

    /// Starts a gateway in front of this upstream.
    pub(crate) fn start(&self, upstream: SocketAddr, arguments: &[&str]) -> Gateway {
        self.start_with(upstream, "", arguments)
    }

    /// Starts a gateway with a configuration file.
    pub(crate) fn start_with(&self, upstream: SocketAddr, file: &str, arguments: &[&str]) -> Gateway {
        self.start_in(upstream, file, arguments, &[])
    }

    /// Starts a gateway with a configuration file and these variables.
    pub(crate) fn start_in(
        &self,
        upstream: SocketAddr,
        file: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Gateway {
        self.start_at(&format!("http://{upstream}"), file, arguments, variables)
    }

    /// Starts a gateway with a configuration file, these variables and an upstream at this address.
    pub(crate) fn start_at(
        &self,
        upstream: &str,
        file: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Gateway {
        let config = self.folder.path().join("semel.toml");
        std::fs::write(&config, file).expect("there is room");
        let format: &[&str] =
            if arguments.contains(&"--log-format") { &[] } else { &["--log-format", "json"] };
        let mut process = self
            .semel()
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(format)
            .args(["--upstream", upstream])
            .args(arguments)
            // Stores the instructions for the upstream with every command, including waiting ones.
            .env("SEMEL_STORE_REQUEST_HEADERS", "x-do")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let log = Arc::new(Mutex::new(String::new()));
        let (mut errors, writing) = (process.stderr.take().expect("it is piped"), log.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = errors.read(&mut chunk) {
                let text = String::from_utf8_lossy(&chunk[..length]).into_owned();
                writing.lock().expect("nobody panics with it").push_str(&text);
            }
        });
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut address_after = |label: &str| {
            let mut line = String::new();
            output.read_line(&mut line).expect("it can be read");
            let address = line.trim().strip_prefix(label).and_then(|rest| rest.split_once("://"));
            let address = address.and_then(|(_, address)| address.parse().ok());
            address.unwrap_or_else(|| panic!("{line:?}: {}", log.lock().expect("nobody panics with it")))
        };
        let address = address_after("listening on ");
        let admin = address_after("admin on ");
        Gateway { process, address, admin, log: log.clone(), _output: output }
    }
}

/// Store that cannot be written.
pub(crate) enum Blocked<'a> {
    /// Another connection holds the write lock of the file.
    File(rusqlite::Connection),
    /// The database is read-only.
    Postgres(&'a Database),
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        match self {
            Blocked::File(other) => other.execute_batch("ROLLBACK").expect("it gives the file back"),
            Blocked::Postgres(database) => {
                let name = database.name();
                let reset = format!("ALTER DATABASE \"{name}\" RESET default_transaction_read_only");
                database.server().sql("postgres", &reset).expect("the server takes it");
            }
        }
    }
}

/// Returns a command that runs the program in this folder, without settings from outside.
pub(crate) fn semel(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command.current_dir(folder).env_remove("RUST_LOG");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command
}

impl Gateway {
    /// Sends a request on its own connection.
    pub(crate) async fn send(&self, request: Send) -> Reply {
        request.to(self.address).await
    }

    /// Sends a GET to the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> Reply {
        self.ask("GET", path).to(self.admin).await
    }

    /// Returns a request to the admin listener, by its own address.
    pub(crate) fn ask(&self, method: &'static str, path: &str) -> Send {
        let request = pay("").method(method).target(path).with("host", self.admin.to_string());
        request.without("idempotency-key").without("x-user")
    }

    /// Returns a counter by its name and labels; `None` if it does not exist yet.
    pub(crate) async fn counted(&self, counter: &str) -> Option<u64> {
        let metrics = self.admin("/metrics").await.body;
        let metrics = String::from_utf8_lossy(&metrics);
        metrics.lines().find_map(|line| line.strip_prefix(counter)?.trim().parse().ok())
    }

    /// Returns its log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }

    /// Waits until it has logged this text: log lines come with a delay.
    pub(crate) async fn logs(&self, text: &str) {
        for _ in 0..400 {
            if self.log().contains(text) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        panic!("it does not log {text:?}: {}", self.log());
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("SIGKILL is delivered");
        self.process.wait().expect("it is gone");
    }

    /// Sends it SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> std::process::ExitStatus {
        loop {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns its memory in use, in MiB.
    pub(crate) fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says so");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("it is a number")
            / 1024
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts an upstream and a gateway in front of it, in a folder.
pub(crate) async fn lab(arguments: &[&str]) -> (Site, Arc<Upstream>, Gateway) {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start(upstream.address, arguments);
    (site, upstream, gateway)
}
