//! A proxy between a client and PostgreSQL that breaks connections at chosen statements.
//!
//! It parses the protocol just far enough to know each statement and the end of its answer. A statement of
//! the extended protocol is struck when it is executed, not when it is prepared; it is sent once the `Sync`
//! after it was. Encryption is refused, since the proxy could not read it.
//!
//! ```no_run
//! # use semel_testkit::proxy::{Cut, FaultProxy, Matching};
//! # async fn example(database_url: &str) -> std::io::Result<()> {
//! let proxy = FaultProxy::before(database_url).await?;
//! let url = proxy.url(database_url);
//! let cut = proxy.cut_next(Matching::statement("INSERT INTO semel_records"), Cut::AfterServerAnswered);
//! // … a client of `url` inserts, and cannot know that it did …
//! cut.struck().await;
//! # Ok(())
//! # }
//! ```

mod connection;
mod faults;
mod wire;

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use faults::{Armed, Cut, Cuts, Held, Matching};
use faults::{Fault, Plan, Signal};

use crate::ports;

/// Maximum number of open connections; more are closed at once.
const MOST_CONNECTIONS: usize = 1_000;

const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// A proxy between a client and PostgreSQL. Dropping it ends its connections.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The accepting task, unless connections are refused.
    listening: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    upstream: Mutex<SocketAddr>,
    plan: Plan,
    blackhole: watch::Sender<bool>,
    connections: Mutex<JoinSet<()>>,
}

impl Shared {
    fn upstream(&self) -> SocketAddr {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultProxy {
    /// Starts a proxy in front of the server at this address, without faults.
    pub async fn start(upstream: SocketAddr) -> Result<FaultProxy> {
        let listener = ports::listen()?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            plan: Plan::default(),
            blackhole: watch::Sender::new(false),
            connections: Mutex::default(),
        });
        let listening = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(FaultProxy { address, shared, listening: Mutex::new(Some(listening)) })
    }

    /// Starts a proxy in front of the server that this URL names.
    pub async fn before(database_url: &str) -> Result<FaultProxy> {
        let (_, address, _) = split(database_url)?;
        let mut found = tokio::net::lookup_host(address).await?;
        let upstream = found.next().ok_or_else(|| Error::other(format!("{address} has no address")))?;
        FaultProxy::start(upstream).await
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL with the proxy in the server's place.
    ///
    /// # Panics
    /// If it has no host and port.
    pub fn url(&self, database_url: &str) -> String {
        let (login, _, rest) = split(database_url).expect("a URL of a database names a host and a port");
        format!("{login}{}{rest}", self.address)
    }

    /// Cuts the connection on which the next matching statement is sent.
    pub fn cut_next(&self, matching: Matching, cut: Cut) -> Armed {
        let signal = Signal::new();
        self.shared.plan.arm(matching, Fault::Cut(cut, signal.clone()));
        Armed(signal)
    }

    /// Keeps the next matching statement from the server until it is released.
    pub fn hold_statement(&self, matching: Matching) -> Held {
        let signal = Signal::new();
        self.shared.plan.arm(matching, Fault::HoldStatement(signal.clone()));
        Held(signal)
    }

    /// Keeps the server's whole answer to the next matching statement from the client until it is released.
    pub fn hold_answer(&self, matching: Matching) -> Held {
        let signal = Signal::new();
        self.shared.plan.arm(matching, Fault::HoldAnswer(signal.clone()));
        Held(signal)
    }

    /// Cuts about one in `one_in` statements from now on, at a random point. The same seed draws the same
    /// numbers; their assignment to statements depends on the order of arrival.
    pub fn cut_randomly(&self, seed: u64, one_in: u32) {
        self.shared.plan.cut_randomly(seed, one_in);
    }

    /// Directs new connections to the server at this address from now on. Existing ones stay.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// Cuts every connection now. Returns their number.
    pub async fn cut_all(&self) -> usize {
        let mut connections =
            std::mem::take(&mut *self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner));
        connections.abort_all();
        let mut cut = 0;
        while let Some(ended) = connections.join_next().await {
            cut += usize::from(ended.is_err_and(|error| error.is_cancelled()));
        }
        cut
    }

    /// Refuses new connections from now on. Existing ones stay.
    pub async fn refuse(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listening) = listening {
            listening.abort();
            // The port is closed once the task is gone.
            let _ = listening.await;
        }
    }

    /// Blocks both directions from now on; new connections are accepted, and get no answer. Blocked data gets
    /// through after [`FaultProxy::heal`].
    pub fn blackhole(&self) {
        self.shared.blackhole.send_replace(true);
    }

    /// Removes all faults: nothing is refused, blocked or cut, except held statements and answers.
    pub async fn heal(&self) -> Result<()> {
        self.shared.plan.clear();
        self.shared.blackhole.send_replace(false);
        if self.listening.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            let listener = TcpListener::bind(self.address).await?;
            let listening = tokio::spawn(accept(listener, Arc::clone(&self.shared)));
            *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(listening);
        }
        Ok(())
    }

    /// Returns the number of connections that were cut at a statement.
    pub fn cuts(&self) -> u64 {
        self.cuts_by_kind().total()
    }

    /// Returns the number of connections that were cut at a statement, for each point.
    pub fn cuts_by_kind(&self) -> Cuts {
        self.shared.plan.cuts()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.get_mut().unwrap_or_else(PoisonError::into_inner) {
            listening.abort();
        }
        self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // A client that has left, or too many open files: a later try may succeed.
            tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            continue;
        };
        let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        while connections.try_join_next().is_some() {}
        if connections.len() < MOST_CONNECTIONS {
            connections.spawn(carry(client, Arc::clone(&shared)));
        }
    }
}

async fn carry(client: TcpStream, shared: Arc<Shared>) {
    // The client finds out how it ended.
    let _ = connection::run(client, &shared).await;
}

/// Returns a URL's part up to the host, its host and port, and the rest.
fn split(url: &str) -> Result<(&str, &str, &str)> {
    let parts = || {
        let begin = url.find("://")? + 3;
        let end = begin + url[begin..].find(['/', '?']).unwrap_or(url.len() - begin);
        let begin = begin + url[begin..end].rfind('@').map_or(0, |at| at + 1);
        let address = &url[begin..end];
        address.contains(':').then_some((&url[..begin], address, &url[end..]))
    };
    parts().ok_or_else(|| Error::other("this is not a URL with a host and a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_and_port_of_a_url_are_replaced() {
        let url = "postgres://semel:p%40ss@127.0.0.1:5432/test?application_name=a@b:1";
        let parts = split(url).expect("it has a host and a port");
        assert_eq!(parts, ("postgres://semel:p%40ss@", "127.0.0.1:5432", "/test?application_name=a@b:1"));
        assert!(split("postgres://localhost/test").is_err());
    }
}
