//! PostgreSQL with streaming replication on the loopback address, without a manager: the run itself promotes a standby.
//!
//! Needs no root and no namespaces. Servers work below the folder of their node, by which they are found. Functions block.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use semel_testkit::postgres::{Server, free_address};
use semel_testkit::process::Process;
use semel_testkit::processes;

use crate::network::{NODES, Seat};
use crate::programs::{Programs, as_server, command, make_folder, password, write_for_server};

/// Longest time for a server to do what was asked.
const PATIENCE: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(50);
/// Synchronous standbys of a primary: one of all.
const ANY: &str = "ANY 1 (*)";
/// Time for which an asynchronous primary goes on without its standbys before it is killed.
const ALONE: Duration = Duration::from_secs(3);

/// A primary and its standbys.
pub(crate) struct Replication {
    pub(crate) password: String,
    pub(crate) synchronous: bool,
    programs: Programs,
    folder: PathBuf,
    addresses: Vec<SocketAddr>,
    state: Mutex<State>,
}

struct State {
    servers: BTreeMap<usize, Process>,
    primary: usize,
}

impl Replication {
    /// Starts a primary with two standbys.
    pub(crate) fn start(programs: Programs, folder: &Path, synchronous: bool) -> Result<Replication, String> {
        let addresses = NODES.iter().map(|_| free_address().map_err(|error| error.to_string()));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let state = Mutex::new(State { servers: BTreeMap::new(), primary: 0 });
        let (folder, password) = (folder.to_owned(), password());
        let replication = Replication { password, synchronous, programs, folder, addresses, state };
        replication.initialize()?;
        replication.launch(0)?;
        for standby in 1..NODES.len() {
            replication.copy(standby)?;
            replication.launch(standby)?;
        }
        if synchronous {
            replication.sql(0, &format!("ALTER SYSTEM SET synchronous_standby_names = '{ANY}'"))?;
            replication.sql(0, "SELECT pg_reload_conf()")?;
        }
        Ok(replication)
    }

    fn node(&self, server: usize) -> PathBuf {
        self.folder.join(NODES[server].name).join("database")
    }

    fn initialize(&self) -> Result<(), String> {
        for server in 0..NODES.len() {
            make_folder(&self.node(server))?;
        }
        let mut words = self.words("initdb")?;
        words.extend(
            ["-D", "data", "--username=postgres", "--pwfile=password", "--auth=scram-sha-256"]
                .map(str::to_owned),
        );
        words.extend(["--encoding=UTF8", "--locale=C", "--no-sync"].map(str::to_owned));
        write_for_server(&self.node(0).join("password"), &format!("{}\n", self.password))?;
        run(command(&words, &self.node(0)))?;
        let lines = [
            "fsync = on",
            "synchronous_commit = on",
            "full_page_writes = on",
            "listen_addresses = '127.0.0.1'",
            "unix_socket_directories = ''",
            "dynamic_shared_memory_type = mmap",
            "shared_buffers = 32MB",
            "max_wal_senders = 10",
            "wal_keep_size = 512MB",
            "wal_receiver_timeout = 5s",
            "wal_retrieve_retry_interval = 500ms",
            "primary_slot_name = ''",
        ];
        let file = self.node(0).join("data/postgresql.conf");
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        std::fs::write(&file, text + &lines.join("\n") + "\n").map_err(|error| error.to_string())
    }

    /// Copies the primary to a new standby, which follows it.
    fn copy(&self, server: usize) -> Result<(), String> {
        let mut words = self.words("pg_basebackup")?;
        let from = format!("{} application_name={}", self.place(0), NODES[server].name);
        words.extend(
            ["-D", "data", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &from].map(str::to_owned),
        );
        let mut copying = command(&words, &self.node(server));
        copying.env("PGPASSWORD", &self.password);
        run(copying)?;
        let file = self.node(server).join("data/postgresql.conf");
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        // A standby does not look at it before it is promoted.
        let names = if self.synchronous { ANY } else { "" };
        let text = format!("{text}synchronous_standby_names = '{names}'\n");
        std::fs::write(&file, text).map_err(|error| error.to_string())
    }

    fn place(&self, server: usize) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.addresses[server].port())
    }

    fn words(&self, program: &str) -> Result<Vec<String>, String> {
        let mut words = as_server()?;
        words.push(self.programs.postgres.folder().join(program).display().to_string());
        Ok(words)
    }

    /// Starts a server, and waits until it answers.
    fn launch(&self, server: usize) -> Result<(), String> {
        let mut words = self.words("postgres")?;
        words.extend([
            "-D".to_owned(),
            "data".to_owned(),
            "-p".to_owned(),
            self.addresses[server].port().to_string(),
        ]);
        let log = self.folder.join(format!("{}-postgres.log", NODES[server].name));
        let process = Process::start(command(&words, &self.node(server)), &[], &log)?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).servers.insert(server, process);
        self.until("answer", || self.sql(server, "SELECT 1").is_ok())
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > deadline {
                return Err(format!(
                    "a server did not {what} in time; its log is in {}",
                    self.folder.display()
                ));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn sql(&self, server: usize, statement: &str) -> Result<String, String> {
        self.server(server)?.sql("postgres", statement).map_err(|error| error.to_string())
    }

    fn server(&self, server: usize) -> Result<Server, String> {
        let url = format!("postgres://postgres:{}@{}/", self.password, self.addresses[server]);
        Server::at(&url).map_err(|error| error.to_string())
    }

    /// Returns the primary.
    pub(crate) fn primary(&self) -> Seat {
        NODES[self.state.lock().unwrap_or_else(PoisonError::into_inner).primary]
    }

    /// Returns the primary's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[self.state.lock().unwrap_or_else(PoisonError::into_inner).primary]
    }

    /// Returns hosts and ports for the gateways.
    pub(crate) fn hosts(&self) -> Vec<(Ipv4Addr, u16)> {
        self.addresses.iter().map(|address| (Ipv4Addr::LOCALHOST, address.port())).collect()
    }

    /// Kills the primary and promotes the standby that has most. Under asynchronous replication, the standbys are away
    /// for the primary's last seconds.
    pub(crate) fn fail_over(&self) -> Result<(), String> {
        let (old, standbys) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let standbys = state.servers.keys().copied().filter(|server| *server != state.primary);
            (state.primary, standbys.collect::<Vec<_>>())
        };
        if !self.synchronous {
            for standby in &standbys {
                self.kill(*standby)?;
            }
            std::thread::sleep(ALONE);
        }
        self.kill(old)?;
        if !self.synchronous {
            for standby in &standbys {
                self.launch(*standby)?;
            }
        }
        let received = |standby: usize| {
            let position =
                "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn";
            self.sql(standby, position).ok().and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0)
        };
        let new = standbys.iter().copied().max_by_key(|standby| received(*standby));
        let new = new.ok_or("no standby is left to be promoted")?;
        self.sql(new, "SELECT pg_promote(true, 30)")?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).primary = new;
        for standby in standbys.into_iter().filter(|standby| *standby != new) {
            let name = NODES[standby].name;
            let to = format!("{} password={} application_name={name}", self.place(new), self.password);
            self.sql(standby, &format!("ALTER SYSTEM SET primary_conninfo = '{to}'"))?;
            self.sql(standby, "SELECT pg_reload_conf()")?;
        }
        Ok(())
    }

    fn kill(&self, server: usize) -> Result<(), String> {
        processes::suspend_within(&self.node(server));
        processes::kill_within(&self.node(server))?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).servers.remove(&server);
        Ok(())
    }

    /// Returns timeline and number of streaming standbys of the primary, if it answers.
    pub(crate) fn look(&self) -> Option<(u64, usize)> {
        let primary = self.state.lock().unwrap_or_else(PoisonError::into_inner).primary;
        let question = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, count(*) \
                        FROM pg_stat_replication WHERE state = 'streaming' AND NOT pg_is_in_recovery()";
        let row = self.sql(primary, question).ok()?;
        let (timeline, streaming) = row.split_once('|')?;
        Some((timeline.parse().ok()?, streaming.parse().ok()?))
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        for server in 0..NODES.len() {
            let _ = self.kill(server);
        }
        crate::leftovers::forget_shared_memory(&self.folder);
    }
}

/// Runs a program of PostgreSQL to its end.
fn run(mut command: Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("a program of PostgreSQL cannot be run: {error}"))?;
    let why = String::from_utf8_lossy(&output.stderr);
    let shown = || format!("a program of PostgreSQL has failed with {}: {}", output.status, why.trim());
    output.status.success().then_some(()).ok_or_else(shown)
}
