//! A private server of one test, which may kill, stop, pause and restart it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::server::{Database, Server, count};
use super::supervisor::{Supervisor, is_stopped, signal};
use super::{Binaries, Error, unguessable};
use crate::ports;

/// Settings of the server: as in production for durability, and without traces outside of its folder.
const SETTINGS: [(&str, &str); 10] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("max_connections", "200"),
    // In files of the data folder: a killed server's shared memory of the system would stay.
    ("dynamic_shared_memory_type", "mmap"),
    ("shared_buffers", "64MB"),
    ("timezone", "UTC"),
    ("log_line_prefix", "%m [%p] "),
];
/// Timeout of every order to the server's processes.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// Number of tries with another port if the port is taken, or with the same one if it is fixed.
const PORTS: usize = 20;
/// Number of tries with another client if the one to be killed has left.
const VICTIMS: usize = 100;

/// A private server with a folder and a port of its own. Dropping it ends it and removes everything.
pub struct Cluster {
    server: Server,
    supervisor: Supervisor,
    postmaster: Mutex<Option<u32>>,
}

impl Cluster {
    /// Returns a new server.
    pub fn start() -> Result<Cluster, Error> {
        Cluster::start_with(&[])
    }

    /// Returns a new server with these settings besides, or instead of, the usual ones.
    pub fn start_with(settings: &[(&str, &str)]) -> Result<Cluster, Error> {
        Cluster::start_from(Binaries::find()?, settings)
    }

    /// Returns a new server from these programs.
    pub fn start_from(binaries: Binaries, settings: &[(&str, &str)]) -> Result<Cluster, Error> {
        let supervisor = Supervisor::start("QUIT")?;
        let server =
            Server { binaries, address: free_address()?, user: "semel".into(), password: unguessable() };
        let mut cluster = Cluster { server, supervisor, postmaster: Mutex::new(None) };
        cluster.initialize(settings)?;
        for _ in 0..PORTS {
            match cluster.launch()? {
                Launch::Ready => return Ok(cluster),
                Launch::PortTaken => cluster.server.address = free_address()?,
            }
        }
        Err(Error::new(format!("each of {PORTS} ports was taken before the server could have it")))
    }

    fn initialize(&self, settings: &[(&str, &str)]) -> Result<(), Error> {
        // By the supervisor, since other users can read argument lists.
        self.supervisor.order("write", &["password", &self.server.password], "written")?;
        let initdb = self.server.binaries.program("initdb");
        let data = self.supervisor.data();
        let user = format!("--username={}", self.server.user);
        let words = [
            text(&initdb)?,
            "--pgdata",
            text(&data)?,
            &user,
            "--pwfile=../password",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ];
        let status = self.supervisor.order("do", &words, "done ")?;
        if status != "0" {
            return Err(Error::new(format!(
                "{} failed with status {status}. As root, servers run as another user, who must be able to reach \
                 this program. Its log ends with:\n{}",
                initdb.display(),
                self.supervisor.log_tail(),
            )));
        }
        // A database is a folder with 300 files. ext4 without a journal seeks a free inode for each of them
        // among all that were deleted in the last minutes, which dominates once some databases were dropped.
        // With this flag it spreads the folders over the disk. On other file systems it changes nothing, and
        // may fail.
        self.supervisor.order("do", &["chattr", "+T", "base"], "done ")?;
        let file = data.join("postgresql.conf");
        let mut lines = std::fs::read_to_string(&file).unwrap_or_default();
        for (name, value) in SETTINGS.iter().chain(settings) {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        std::fs::write(&file, lines).map_err(|error| Error::new(format!("{}: {error}", file.display())))
    }

    /// Starts the server on its port and waits until it accepts connections.
    fn launch(&self) -> Result<Launch, Error> {
        let (program, data) = (self.server.binaries.program("postgres"), self.supervisor.data());
        let port = self.server.address.port().to_string();
        let words = [text(&program)?, "-D", text(&data)?, "-p", &port];
        let answer = self.supervisor.order("start", &words, "started ")?;
        let process: u32 = answer.parse().map_err(|_| Error::new(format!("`{answer}` is not a process")))?;
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready(process) {
            if is_stopped(process).is_none() {
                self.supervisor.order("wait", &["1000"], "gone")?;
                let log = self.supervisor.log_tail();
                if log.lines().rev().take(3).any(|line| line.contains("could not create any TCP/IP sockets"))
                {
                    return Ok(Launch::PortTaken);
                }
                return Err(Error::new(format!("the server ended. Its log ends with:\n{log}")));
            }
            if Instant::now() > deadline {
                self.supervisor.order("kill", &[], "gone")?;
                let log = self.supervisor.log_tail();
                return Err(Error::new(format!(
                    "the server was not ready in time. Its log ends with:\n{log}"
                )));
            }
            std::thread::sleep(POLL);
        }
        *self.postmaster.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Ok(Launch::Ready)
    }

    /// Returns true if the server's own file says "ready" for this process: the word of an older one does not
    /// count.
    fn is_ready(&self, process: u32) -> bool {
        let file = std::fs::read_to_string(self.supervisor.data().join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<&str> = file.lines().map(str::trim).collect();
        lines.first() == Some(&process.to_string().as_str()) && lines.get(7) == Some(&"ready")
    }

    /// Returns its address and login.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        self.server.url(database)
    }

    /// Returns a new empty database, made by [`Server::create_database`].
    pub fn create_database(&self) -> Result<Database, Error> {
        self.server.create_database()
    }

    /// Returns the end of the server's log.
    pub fn log_tail(&self) -> String {
        self.supervisor.log_tail()
    }

    /// Returns its processes: the postmaster and all that it started.
    pub fn processes(&self) -> Vec<u32> {
        self.supervisor.processes()
    }

    /// Returns the folder with all its files.
    pub fn folder(&self) -> &Path {
        self.supervisor.folder()
    }

    /// Kills every process of the server at once with SIGKILL, and waits until they are gone.
    pub fn kill9(&self) -> Result<(), Error> {
        self.supervisor.order("kill", &[], "gone")?;
        *self.postmaster.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Stops the server as an operator would: open transactions are rolled back, everything is written.
    pub fn stop_fast(&self) -> Result<(), Error> {
        let postmaster = self.running()?;
        self.resume()?;
        signal("INT", &[postmaster])?;
        self.supervisor.order("wait", &[&(PATIENCE.as_secs() * 100).to_string()], "gone")?;
        *self.postmaster.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Starts the server again, on the same port and data. If it still runs, it is stopped first.
    pub fn restart(&self) -> Result<(), Error> {
        if self.running().is_ok() {
            self.stop_fast()?;
        }
        for _ in 0..PORTS {
            if let Launch::Ready = self.launch()? {
                return Ok(());
            }
            std::thread::sleep(POLL * 20);
        }
        Err(Error::new(format!("somebody else has taken the server's address {}", self.server.address)))
    }

    /// Restarts the server with TLS, under this certificate and key.
    pub fn use_certificate(&self, certificate: &Path, key: &Path) -> Result<(), Error> {
        let data = self.supervisor.data();
        let put = |from: &Path, name: &str| {
            let to = data.join(name);
            let owner = fs::metadata(&data)?;
            fs::copy(from, &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600))?;
            chown(&to, Some(owner.uid()), Some(owner.gid()))
        };
        for (from, name) in [(certificate, "server.crt"), (key, "server.key")] {
            put(from, name).map_err(|error| Error::new(format!("{}: {error}", from.display())))?;
        }
        self.server.sql("postgres", "ALTER SYSTEM SET ssl = on")?;
        self.restart()
    }

    /// Suspends every process of the server, as if the machine stood still. Returns once all are suspended.
    pub fn pause(&self) -> Result<(), Error> {
        let postmaster = self.running()?;
        signal("STOP", &[postmaster])?;
        // Only a suspended postmaster makes no more processes.
        self.wait_until("stand still", || is_stopped(postmaster) != Some(false))?;
        signal("STOP", &self.processes())?;
        self.wait_until("stand still", || {
            self.processes().into_iter().all(|process| is_stopped(process) != Some(false))
        })
    }

    /// Resumes a paused server.
    pub fn resume(&self) -> Result<(), Error> {
        signal("CONT", &self.processes())
    }

    /// Limits the files of the server's processes to this length, as on a full disk; `None` removes the
    /// limit. The supervisor does it, since only the server's own user may.
    pub fn limit_files(&self, length: Option<u64>) -> Result<(), Error> {
        let limit =
            format!("--fsize={}:", length.map_or("unlimited".to_owned(), |length| length.to_string()));
        for process in self.processes() {
            let words = ["prlimit", "--pid", &process.to_string(), &limit];
            let status = self.supervisor.order("do", &words, "done ")?;
            if status != "0" && is_stopped(process).is_some() {
                return Err(Error::new(format!("prlimit failed with status {status}")));
            }
        }
        Ok(())
    }

    /// Ends every client's connection from the server's side. Returns their number.
    pub fn terminate_backends(&self) -> Result<usize, Error> {
        let statement = format!("SELECT count(pg_terminate_backend(pid)) {CLIENTS}");
        count(&self.server.sql("postgres", &statement)?)
    }

    /// Kills the process of any one client with SIGKILL. Returns true if there was one. The server ends all
    /// others before this returns, then recovers and accepts connections again: see
    /// [`Cluster::wait_until_ready`].
    pub fn kill_one_backend(&self) -> Result<bool, Error> {
        let choose = format!("SELECT pid {CLIENTS} ORDER BY random() LIMIT 1");
        for _ in 0..VICTIMS {
            let Ok(process) = self.server.sql("postgres", &choose)?.parse() else { return Ok(false) };
            // A suspended process cannot end by itself before it is killed, which the server would not mind.
            signal("STOP", &[process])?;
            self.wait_until("stand still", || is_stopped(process) != Some(false))?;
            if is_stopped(process).is_none() {
                continue;
            }
            let postmaster = self.running()?;
            let mut all = self.processes();
            all.retain(|process| *process != postmaster);
            signal("KILL", &[process])?;
            self.wait_until("end its processes", || {
                all.iter().all(|process| is_stopped(*process).is_none())
            })?;
            return Ok(true);
        }
        Err(Error::new(format!("each of {VICTIMS} clients had left before it could be killed")))
    }

    /// Waits until the server answers a statement.
    pub fn wait_until_ready(&self) -> Result<(), Error> {
        self.wait_until("answer", || self.server.sql("postgres", "SELECT 1").is_ok())
    }

    fn running(&self) -> Result<u32, Error> {
        let postmaster = *self.postmaster.lock().unwrap_or_else(PoisonError::into_inner);
        postmaster.ok_or_else(|| Error::new("the server does not run: a test has stopped it"))
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > deadline {
                let log = self.supervisor.log_tail();
                return Err(Error::new(format!(
                    "the server did not {what} in time. Its log ends with:\n{log}"
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

/// Selects the processes of clients other than the asking one.
const CLIENTS: &str =
    "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

enum Launch {
    Ready,
    PortTaken,
}

/// Returns an address on which no process listens; another process may still take it first.
pub fn free_address() -> Result<SocketAddr, Error> {
    ports::listen().and_then(|listener| listener.local_addr()).map_err(|error| Error::new(error.to_string()))
}

fn text(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::new(format!("the path {} is not text", path.display())))
}
