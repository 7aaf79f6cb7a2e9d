//! `[server]`: limits of the listener for clients, and the protocols that its connections may switch to.

use std::time::Duration;

use crate::engine::kind::Words;
use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Count, Period, Size};

/// Limits of the listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Largest number of connections.
    pub max_connections: usize,
    /// Timeout of a request's head.
    pub head_timeout: Duration,
    /// Timeout for the next bytes of a request's body.
    pub body_timeout: Duration,
    /// Timeout between two requests of a connection.
    pub idle_timeout: Duration,
    /// Largest head of a request in bytes.
    pub max_head: usize,
    /// Limits of a connection that has switched protocols.
    pub tunnels: TunnelLimits,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            max_connections: 10_000,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_head: 64 * 1024,
            tunnels: TunnelLimits { idle: Duration::from_secs(300), total: Duration::from_secs(24 * 3600) },
        }
    }
}

/// `[server]`. The smallest head is the smallest buffer that hyper reads one into.
pub(crate) const SERVER: &[Setting<Server>] = &[
    setting!("max_connections", Count<1, 1_000_000>, max_connections, "Largest number of client connections"),
    setting!("head_timeout", Period, head_timeout, "Timeout for the head of a request"),
    setting!("body_timeout", Period, body_timeout, "Timeout for the next bytes of a request's body"),
    setting!("idle_timeout", Period, idle_timeout, "Timeout of a connection between two requests"),
    setting!("max_head", Size<8192>, max_head, "The largest head of a request"),
    setting!(
        "tunnel_idle_timeout",
        Period,
        tunnels.idle,
        "Timeout without bytes from either side, after a switch of protocols"
    ),
    setting!(
        "tunnel_lifetime",
        Period,
        tunnels.total,
        "The longest life of a connection after a switch of protocols"
    ),
];

/// Limits of a connection that has switched protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// Timeout without bytes from either side.
    pub idle: Duration,
    /// Largest total duration.
    pub total: Duration,
}

/// A protocol that a connection may switch to, if the setting `upgrade` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeProtocol {
    /// `websocket`.
    WebSocket,
}

impl Words for UpgradeProtocol {
    const WORDS: &'static [(&'static str, Self)] = &[("websocket", UpgradeProtocol::WebSocket)];
}
