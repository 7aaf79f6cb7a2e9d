//! Private PostgreSQL servers for tests, run from the programs that are on the machine.
//!
//! A test takes a database of its own on the server that all tests share:
//!
//! ```no_run
//! # use semel_testkit::postgres;
//! # async fn migrate(url: String) -> Result<(), std::io::Error> { Ok(()) }
//! # async fn example() -> Result<(), postgres::Error> {
//! let database = postgres::shared()?.database_from("schema-7", migrate).await?;
//! let url = database.url();
//! # Ok(())
//! # }
//! ```
//!
//! A test that kills the server starts its own with [`Cluster::start`]. All functions except
//! [`Server::database_from`] block their thread, for milliseconds; starting a cluster takes about a second. A
//! test that uses a proxy of its own, or tasks that continue meanwhile, needs a second thread. Everything is
//! ended and removed with its owner, even if that is killed: see `supervisor.sh`.

mod binaries;
mod cluster;
mod pgbouncer;
mod server;
mod supervisor;

use std::sync::{Mutex, OnceLock, PoisonError};

pub use binaries::Binaries;
pub use cluster::{Cluster, free_address};
pub use pgbouncer::PgBouncer;
pub use server::{Database, Server};
pub use supervisor::user_for_servers;

/// Variable with the URL of the server that all tests of a run share; `cargo xtask test` sets it.
pub const SHARED_URL: &str = "SEMEL_TEST_PG_URL";

/// Reason why a server is not available, with advice.
#[derive(Clone)]
pub struct Error(String);

impl Error {
    fn new(why: impl Into<String>) -> Error {
        Error(why.into())
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shows the text of the error, so that a failed `expect` is readable.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Returns the server that all tests share: the one that `SEMEL_TEST_PG_URL` names, else one that is started
/// at the first call and lives as long as this process.
pub fn shared() -> Result<Server, Error> {
    static OWN: OnceLock<Cluster> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    if let Ok(url) = std::env::var(SHARED_URL) {
        return Server::at(&url).map_err(|error| Error::new(format!("{SHARED_URL}: {error}")));
    }
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if OWN.get().is_none() {
        // A thread that waited for the lock finds it there, so it is never set twice.
        let _ = OWN.set(Cluster::start()?);
    }
    Ok(OWN.get().expect("it was set just now").server().clone())
}

/// Returns unguessable letters and digits, for names and passwords.
fn unguessable() -> String {
    semel_core::ids::secret()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
