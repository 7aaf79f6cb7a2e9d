//! Configuration of Patroni and PostgreSQL, for one node.

use std::path::Path;

use serde_json::{Value, json};

use crate::network::{NODES, Network, Seat};
use crate::settings::{Etcd, LOOP_WAIT, RETRY_TIMEOUT, TTL};

/// Port of PostgreSQL, and of Patroni's REST interface.
pub(crate) const PORT: u16 = 5432;
pub(crate) const REST: u16 = 8008;

/// Facts about the node.
pub(crate) struct Node<'a> {
    pub(crate) seat: Seat,
    pub(crate) network: &'a Network,
    pub(crate) folder: &'a Path,
    pub(crate) binaries: &'a Path,
    pub(crate) password: &'a str,
    pub(crate) synchronous: bool,
    pub(crate) etcd: Etcd,
}

/// Returns Patroni's configuration: JSON, which is YAML.
pub(crate) fn patroni(node: &Node<'_>) -> String {
    let address = node.network.address(node.seat);
    let etcds: Vec<String> =
        NODES.iter().map(|seat| format!("{}:2379", node.network.address(*seat))).collect();
    let login = |name: &str| json!({ "username": name, "password": node.password });
    let range = node.network.range();
    let access = [
        format!("host all all {range} scram-sha-256"),
        format!("host replication all {range} scram-sha-256"),
        "local all all scram-sha-256".to_owned(),
    ];
    let api = match node.etcd {
        Etcd::Second => "etcd",
        Etcd::Third => "etcd3",
    };
    json!({
        "scope": "semel",
        "name": node.seat.name,
        "restapi": { "listen": format!("{address}:{REST}"), "connect_address": format!("{address}:{REST}") },
        (api): { "hosts": etcds },
        "bootstrap": {
            "dcs": {
                "ttl": TTL.as_secs(),
                "loop_wait": LOOP_WAIT.as_secs(),
                "retry_timeout": RETRY_TIMEOUT.as_secs(),
                // A PostgreSQL that has crashed is not waited for.
                "master_start_timeout": 5,
                "synchronous_mode": node.synchronous,
                "synchronous_mode_strict": node.synchronous,
                "postgresql": { "use_pg_rewind": true, "use_slots": true, "parameters": dynamic() },
            },
            "initdb": [{ "encoding": "UTF8" }, { "locale": "C" }, "data-checksums"],
            "pg_hba": access,
        },
        "postgresql": {
            "listen": format!("{address}:{PORT}"),
            "connect_address": format!("{address}:{PORT}"),
            "data_dir": node.folder.join("data"),
            "bin_dir": node.binaries,
            "pgpass": node.folder.join("pgpass"),
            "pg_hba": access,
            "authentication": {
                "superuser": login("postgres"),
                "replication": login("replicator"),
                "rewind": login("rewinder"),
            },
            "parameters": { "unix_socket_directories": node.folder },
        },
        // A watchdog resets the whole machine, on which all three nodes are.
        "watchdog": { "mode": "off" },
        "tags": {},
    })
    .to_string()
}

/// Settings of PostgreSQL that all nodes share.
fn dynamic() -> Value {
    json!({
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "wal_log_hints": "on",
        "wal_keep_size": "512MB",
        "max_wal_senders": 10,
        "max_replication_slots": 10,
        "max_connections": 100,
        "shared_buffers": "64MB",
        "wal_sender_timeout": "5s",
        "wal_receiver_timeout": "5s",
        // In files of the data folder: a killed server's shared memory of the system would stay.
        "dynamic_shared_memory_type": "mmap",
    })
}
