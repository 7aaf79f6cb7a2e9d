//! Database below the gateways: Patroni's cluster in namespaces, or plain replication on the loopback address.
//! Functions block.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use semel_testkit::postgres::Server;

use crate::configuration::PORT;
use crate::health::{Health, wait};
use crate::network::GATEWAYS;
use crate::patroni::Patroni;
use crate::programs::Programs;
use crate::replication::Replication;
use crate::settings::Options;

/// Database, and role, of the gateways.
const NAME: &str = "semel";

/// Database that fails over.
pub(crate) enum Base {
    Patroni(Box<Patroni>),
    Plain(Box<Replication>),
}

impl Base {
    /// Starts the database, and makes the role and the database of the gateways.
    pub(crate) fn start(options: &Options, folder: &Path, patience: Duration) -> Result<Base, String> {
        let programs = Programs::find()?;
        let synchronous = !options.asynchronous;
        let base = if options.loopback {
            Base::Plain(Box::new(Replication::start(programs, folder, synchronous)?))
        } else {
            let shifts = options.faults.contains(&crate::faults::Fault::Clock);
            programs.check(shifts)?;
            Base::Patroni(Box::new(Patroni::start(programs, folder, synchronous, shifts, options.etcd)?))
        };
        base.wait_until_healthy(patience)?;
        let password = base.password();
        base.sql("postgres", &format!("CREATE ROLE {NAME} LOGIN PASSWORD '{password}'"))?;
        base.sql("postgres", &format!("CREATE DATABASE {NAME} OWNER {NAME}"))?;
        Ok(base)
    }

    pub(crate) fn password(&self) -> &str {
        match self {
            Base::Patroni(patroni) => &patroni.password,
            Base::Plain(replication) => &replication.password,
        }
    }

    /// Returns host and port of every node.
    pub(crate) fn hosts(&self) -> Vec<(Ipv4Addr, u16)> {
        match self {
            Base::Patroni(patroni) => {
                crate::network::NODES.iter().map(|seat| (patroni.network.address(*seat), PORT)).collect()
            }
            Base::Plain(replication) => replication.hosts(),
        }
    }

    /// Returns the value of the gateways' setting `store`, with every host.
    pub(crate) fn store(&self) -> String {
        let hosts: Vec<String> = self.hosts().iter().map(|(host, port)| format!("{host}:{port}")).collect();
        format!("postgres://{NAME}:{}@{}/{NAME}", self.password(), hosts.join(","))
    }

    /// Returns the address of clients and of the service, as gateways see it.
    pub(crate) fn own(&self) -> Ipv4Addr {
        match self {
            Base::Patroni(patroni) => patroni.network.own(),
            Base::Plain(_) => Ipv4Addr::LOCALHOST,
        }
    }

    /// Returns a gateway's address, and the words that run a program at its place.
    pub(crate) fn gateway(&self, number: usize) -> (Ipv4Addr, Vec<String>) {
        match self {
            Base::Patroni(patroni) => {
                let seat = GATEWAYS[number];
                (patroni.network.address(seat), patroni.network.enter(seat))
            }
            Base::Plain(_) => (Ipv4Addr::LOCALHOST, Vec::new()),
        }
    }

    /// Returns the state of the database, if it has recovered from every fault.
    pub(crate) fn health(&self) -> Option<Health> {
        match self {
            Base::Patroni(patroni) => patroni.health(),
            Base::Plain(replication) => {
                let (timeline, streaming) = replication.look()?;
                let leader = replication.primary();
                (streaming > 0).then_some(Health { leader, timeline, synchronous: None })
            }
        }
    }

    /// Waits until the database has recovered.
    pub(crate) fn wait_until_healthy(&self, patience: Duration) -> Result<Health, String> {
        match self {
            Base::Patroni(patroni) => patroni.wait_until_healthy(patience),
            Base::Plain(_) => wait(patience, || self.health()),
        }
    }

    /// Runs a statement on the leader, as its owner.
    pub(crate) fn sql(&self, database: &str, statement: &str) -> Result<String, String> {
        let address = match self {
            Base::Patroni(patroni) => {
                let leader = patroni.leader().ok_or("there is no leader")?;
                format!("{}:{PORT}", patroni.network.address(leader.seat))
            }
            Base::Plain(replication) => replication.address().to_string(),
        };
        let url = format!("postgres://postgres:{}@{address}/", self.password());
        let server = Server::at(&url).map_err(|error| error.to_string())?;
        server.sql(database, statement).map_err(|error| error.to_string())
    }

    /// Reads the records of the gateways' database.
    pub(crate) fn records(&self, statement: &str) -> Result<String, String> {
        self.sql(NAME, statement)
    }
}
