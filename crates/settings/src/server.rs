//! `[server]`: the bounds of the listener for clients, and the protocols that its connections may switch to.

use std::time::Duration;

use super::kind::Words;

/// The bounds of the listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The most connections at a time.
    pub max_connections: usize,
    /// The longest a request's head may take to arrive.
    pub head_timeout: Duration,
    /// The longest silence inside a request's body.
    pub body_timeout: Duration,
    /// How long a connection is kept between requests.
    pub idle_timeout: Duration,
    /// The largest head of a request, in bytes.
    pub max_head: usize,
    /// How long a connection that has switched protocols may be.
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

/// The bounds of a connection that has switched protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// The longest silence of both sides.
    pub idle: Duration,
    /// The longest life.
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
