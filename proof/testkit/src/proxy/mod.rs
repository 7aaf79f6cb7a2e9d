//! A proxy between a client and PostgreSQL that breaks connections at chosen statements.
//!
//! It reads the protocol just far enough to know which statement is sent, and where its answer ends. A statement of
//! the extended protocol is struck when it is executed, not when it is prepared; it has been sent once the `Sync`
//! after it was. Encryption is refused: what is encrypted could not be read.
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

/// How many connections may be open at once; more are closed as soon as they come.
const MOST_CONNECTIONS: usize = 1_000;

const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// A proxy between a client and PostgreSQL. Dropping it ends its connections.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Who accepts connections, unless they are refused.
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
    /// In front of the server at this address, without faults.
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

    /// In front of the server that this URL names.
    pub async fn before(database_url: &str) -> Result<FaultProxy> {
        let (_, address, _) = split(database_url)?;
        let mut found = tokio::net::lookup_host(address).await?;
        let upstream = found.next().ok_or_else(|| Error::other(format!("{address} has no address")))?;
        FaultProxy::start(upstream).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL, with the proxy in the server's place.
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

    /// From now on, cuts about one in so many statements, at a place that chance chooses. The same seed draws the
    /// same numbers; which statement gets which depends on the order in which they come.
    pub fn cut_randomly(&self, seed: u64, one_in: u32) {
        self.shared.plan.cut_randomly(seed, one_in);
    }

    /// From now on, new connections lead to the server at this address. Those that there are stay.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// Cuts every connection now, and says how many there were.
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

    /// From now on, new connections are refused. Those that there are stay.
    pub async fn refuse(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listening) = listening {
            listening.abort();
            // The port is closed once the task is gone.
            let _ = listening.await;
        }
    }

    /// From now on, nothing gets through in either direction; new connections are accepted, and get no answer. What
    /// was sent meanwhile gets through after [`FaultProxy::heal`].
    pub fn blackhole(&self) {
        self.shared.blackhole.send_replace(true);
    }

    /// No more faults: nothing is refused, swallowed or cut, except what is held.
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

    /// How many connections were cut at a statement.
    pub fn cuts(&self) -> u64 {
        self.cuts_by_kind().total()
    }

    /// How many connections were cut at a statement, for each place.
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
            // A client that has left, or too many open files: later may be better.
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
    // How it ended is for the client to find out.
    let _ = connection::run(client, &shared).await;
}

/// A URL's part up to the host, its host and port, and the rest.
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
