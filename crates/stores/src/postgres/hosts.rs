//! The hosts of an address, in the order in which a new connection tries them. Called by `link.rs`.
//!
//! Invariant: every host is tried before a connection fails, each with a deadline of its own through the whole
//! start-up of the session, so a host that stands still hides none behind it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_postgres::config::Host;

use super::address::DatabaseAddress;
use super::errors::DbError;

/// Maximum number of addresses of one host name that are tried.
const MAX_ADDRESSES: usize = 16;

/// Place of a server: the number of its host in the address, and the network address that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPlace {
    number: usize,
    at: HostTarget,
}

/// Target of one attempt to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostTarget {
    /// A network address, and the name in the address of the store.
    Network(String, SocketAddr),
    /// A folder with a Unix socket.
    Folder(PathBuf, u16),
}

impl HostPlace {
    /// Returns the configuration that leads only there.
    pub(super) fn config(&self, all: &tokio_postgres::Config) -> tokio_postgres::Config {
        let mut one = without_hosts(all);
        match &self.at {
            // The name is for the certificate only.
            HostTarget::Network(name, address) => {
                one.host(name).hostaddr(address.ip()).port(address.port());
            }
            HostTarget::Folder(folder, port) => {
                one.host_path(folder).port(*port);
            }
        }
        one
    }

    /// Returns the name of the host with its port, and its network address if the name is another.
    fn describe(&self) -> String {
        match &self.at {
            HostTarget::Folder(folder, port) => format!("{}:{port}", folder.display()),
            HostTarget::Network(name, address) if name.parse().is_ok_and(|ip: IpAddr| ip == address.ip()) => {
                format!("{name}:{}", address.port())
            }
            HostTarget::Network(name, address) => format!("{name}:{} ({})", address.port(), address.ip()),
        }
    }
}

/// Returns the configuration without its hosts.
fn without_hosts(all: &tokio_postgres::Config) -> tokio_postgres::Config {
    let mut one = tokio_postgres::Config::new();
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(name) = all.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .target_session_attrs(all.get_target_session_attrs())
        .channel_binding(all.get_channel_binding());
    one
}

/// Order of the hosts, shared by all connections of one store: the one that answered last comes first, those
/// that were silent come last.
#[derive(Clone, Debug, Default)]
pub(super) struct HostOrder(Arc<Mutex<HostMemory>>);

#[derive(Debug, Default)]
struct HostMemory {
    good: Option<HostPlace>,
    /// Places that did not answer in time when they were last tried.
    silent: Vec<HostPlace>,
}

impl HostMemory {
    fn rank(&self, place: &HostPlace) -> u8 {
        match self.good.as_ref() == Some(place) {
            true => 0,
            false if self.silent.contains(place) => 2,
            false => 1,
        }
    }
}

impl HostOrder {
    fn memory(&self) -> MutexGuard<'_, HostMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the places of the address in the order of trial. Names are resolved at each call; one that
    /// cannot be resolved is a failure, and holds up no other for longer than `timeout`.
    pub(super) async fn places(
        &self,
        address: &DatabaseAddress,
        timeout: Duration,
    ) -> (Vec<HostPlace>, HostFailures) {
        let (hosts, addresses) = (address.config.get_hosts(), address.config.get_hostaddrs());
        let resolving = hosts.iter().enumerate().map(|(number, host)| async move {
            let port = address.port(number);
            let found = match (host, addresses.get(number)) {
                (Host::Unix(folder), _) => Ok(vec![HostTarget::Folder(folder.clone(), port)]),
                (Host::Tcp(name), None) => match tokio::time::timeout(timeout, resolve(name, port)).await {
                    Ok(found) => found.map_err(|why| (name.clone(), why)),
                    Err(_) => Err((name.clone(), "its name is not resolved in time".to_owned())),
                },
                (Host::Tcp(name), Some(ip)) => Ok(vec![network(name, *ip, port)]),
            };
            (number, port, found)
        });
        let (mut places, mut failures) = (Vec::new(), HostFailures::default());
        for (number, port, found) in futures_util::future::join_all(resolving).await {
            match found {
                Ok(found) => places.extend(found.into_iter().map(|at| HostPlace { number, at })),
                Err((name, why)) => failures.push(
                    number,
                    format!("{name}:{port}"),
                    DbError::Unconnected(format!("error connecting to server: {why}")),
                ),
            }
        }
        let memory = self.memory();
        places.sort_by_key(|place| memory.rank(place));
        (places, failures)
    }

    /// Remembers that a session began at this place.
    pub(super) fn answered(&self, place: &HostPlace) {
        let mut memory = self.memory();
        memory.silent.retain(|silent| silent != place);
        memory.good = Some(place.clone());
    }

    /// Remembers that this place gave no answer in time. Forgets places that are none any more.
    pub(super) fn silent(&self, place: &HostPlace, places: &[HostPlace]) {
        let mut memory = self.memory();
        memory.silent.retain(|silent| silent != place && places.contains(silent));
        memory.silent.push(place.clone());
        memory.good = memory.good.take().filter(|good| good != place);
    }
}

fn network(name: &str, ip: IpAddr, port: u16) -> HostTarget {
    HostTarget::Network(name.to_owned(), SocketAddr::new(ip, port))
}

async fn resolve(name: &str, port: u16) -> Result<Vec<HostTarget>, String> {
    let found = tokio::net::lookup_host((name, port)).await.map_err(|error| error.to_string())?;
    let mut targets: Vec<HostTarget> = Vec::new();
    for address in found.take(MAX_ADDRESSES) {
        let target = network(name, address.ip(), port);
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    if targets.is_empty() { Err("its name has no address".to_owned()) } else { Ok(targets) }
}

/// Reasons of all hosts that were tried, in the order of the address.
#[derive(Debug, Default)]
pub(super) struct HostFailures(Vec<(usize, String, DbError)>);

impl HostFailures {
    fn push(&mut self, number: usize, name: String, error: DbError) {
        self.0.push((number, name, error));
    }

    /// Adds the failure of a place.
    pub(super) fn of(&mut self, place: &HostPlace, error: DbError) {
        self.push(place.number, place.describe(), error);
    }

    /// Returns one error that has every host with its own reason.
    pub(super) fn together(mut self) -> DbError {
        self.0.sort_by_key(|(number, ..)| *number);
        let is_about_tls = self.0.iter().all(|(.., error)| matches!(error, DbError::Tls(_)));
        let reasons: Vec<String> = match &self.0[..] {
            [(_, _, only)] => vec![only.to_string()],
            several => several.iter().map(|(_, name, error)| format!("{name}: {error}")).collect(),
        };
        let why = format!("cannot connect: {}", reasons.join("; "));
        if is_about_tls { DbError::Tls(why) } else { DbError::Unconnected(why) }
    }
}
