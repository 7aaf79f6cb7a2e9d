//! PgBouncer in front of a server, as in deployments: a server connection belongs to a client for one
//! transaction only.

use std::time::{Duration, Instant};

use super::cluster::free_address;
use super::supervisor::{Supervisor, is_stopped};
use super::{Binaries, Error, Server};

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
/// Number of tries with another port if the port is taken.
const PORTS: usize = 20;

/// A private PgBouncer in transaction mode. Dropping it ends it and removes everything.
pub struct PgBouncer {
    through: Server,
    supervisor: Supervisor,
}

impl PgBouncer {
    /// Starts one in front of this server, for all its databases and the same login.
    pub fn start(server: &Server) -> Result<PgBouncer, Error> {
        PgBouncer::start_with(server, &[])
    }

    /// Starts one with these settings besides, or instead of, the usual ones.
    pub fn start_with(server: &Server, settings: &[(&str, &str)]) -> Result<PgBouncer, Error> {
        let program = Binaries::pgbouncer()?;
        // It keeps no state, and the meaning of its other signals depends on its version.
        let supervisor = Supervisor::start("KILL")?;
        let login = format!("\"{}\" \"{}\"", server.user, server.password);
        supervisor.order("write", &["users", &login], "written")?;
        let mut bouncer = PgBouncer { through: server.clone(), supervisor };
        for _ in 0..PORTS {
            bouncer.through.address = free_address()?;
            let lines = bouncer.configuration(server, settings);
            let lines: Vec<&str> = ["settings"].into_iter().chain(lines.iter().map(String::as_str)).collect();
            bouncer.supervisor.order("write", &lines, "written")?;
            let words = [&program.display().to_string(), "../settings"];
            let answer = bouncer.supervisor.order("start", &words, "started ")?;
            let process = answer.parse().map_err(|_| Error::new(format!("`{answer}` is not a process")))?;
            if bouncer.becomes_ready(process)? {
                return Ok(bouncer);
            }
        }
        Err(Error::new(format!("each of {PORTS} ports was taken before PgBouncer could have it")))
    }

    fn configuration(&self, server: &Server, settings: &[(&str, &str)]) -> Vec<String> {
        let (to, at) = (server.address, self.through.address);
        let mut lines = vec![
            "[databases]".to_owned(),
            format!("* = host={} port={}", to.ip(), to.port()),
            "[pgbouncer]".to_owned(),
            format!("listen_addr = {}", at.ip()),
            format!("listen_port = {}", at.port()),
            "unix_socket_dir =".to_owned(),
            "auth_type = scram-sha-256".to_owned(),
            "auth_file = ../users".to_owned(),
            "pool_mode = transaction".to_owned(),
            "default_pool_size = 20".to_owned(),
            "max_client_conn = 1000".to_owned(),
            // Drivers set it at login; it is the same for all of them.
            "ignore_startup_parameters = extra_float_digits".to_owned(),
        ];
        lines.extend(settings.iter().map(|(name, value)| format!("{name} = {value}")));
        lines
    }

    /// Waits until it answers a statement. Returns false if another process has its port.
    fn becomes_ready(&self, process: u32) -> Result<bool, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let dead = is_stopped(process).is_none();
            let answer =
                if dead { Err(Error::new("it ended")) } else { self.through.sql("postgres", "SELECT 1") };
            let why = match answer {
                Ok(_) => return Ok(true),
                Err(why) => why,
            };
            if dead || Instant::now() > deadline {
                self.supervisor.order("kill", &[], "gone")?;
                let log = self.supervisor.log_tail();
                if log.lines().rev().take(3).any(|line| line.contains("Address already in use")) {
                    return Ok(false);
                }
                return Err(Error::new(format!("PgBouncer is not ready: {why}. Its log ends with:\n{log}")));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Returns the server as seen through PgBouncer.
    pub fn server(&self) -> &Server {
        &self.through
    }

    /// Returns the URL of one of the server's databases, through PgBouncer.
    pub fn url(&self, database: &str) -> String {
        self.through.url(database)
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.supervisor.log_tail()
    }
}
