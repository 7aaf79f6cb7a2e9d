//! The configuration: what it is read from, what it holds, and what is said about it.
//!
//! Sources lie over each other, later wins: built-in defaults, a file, variables, flags. [`load`] reads them
//! all and either says everything that is wrong, each with its place, or gives a [`Config`] with warnings and
//! the origin of every value. The settings are one table ([`settings`]) that everything else follows.
//!
//! A flag or variable of a `[defaults]` setting changes the defaults; what an operation sets itself stays.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use semel_core::quota::Limits;
use semel_core::{OperationName, Policy};
use semel_flow::reconcile::ReconcilerOptions;
use semel_http::Maintenance;

use crate::authorize::Authorization;
use crate::cors::Cors;
use crate::forwarding::ForwardedMode;
use crate::hosts::ServiceHost;
use crate::ledger::Watch;
use crate::tunnel::TunnelLimits;
use crate::upgrade::UpgradeProtocol;
use crate::upstream::{Protocol, Reuse};

mod admin;
mod advice;
mod check;
mod cors;
mod diagnostic;
mod encryption;
mod findings;
mod identity;
mod init;
mod introspection;
mod jwt;
mod kind;
mod ledger;
mod limits;
mod load;
mod look_up;
mod nearest;
mod operation;
mod outgoing;
mod pass;
mod redact;
mod scalar;
mod secret;
mod setting;
mod settings;
mod show;
mod source;
mod sources;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod units;
mod upstream;
mod value;
mod warn;
mod webhook;

pub use admin::{AdminToken, Role};
pub use diagnostic::{Diagnostic, Errors, Severity};
pub use encryption::{Encryption, EncryptionKey};
pub use identity::{Identity, ProxyRange};
pub use init::init;
pub(crate) use ledger::parse_condition;
pub use load::{Loaded, load};
pub use look_up::{LookUpConfig, LookUpUrl, VariableName};
pub(crate) use nearest::nearest;
pub use operation::{OperationConfig, Route};
pub use outgoing::ServiceTls;
pub(crate) use outgoing::TlsFault;
pub use pass::PassConfig;
pub(crate) use redact::redact;
pub use secret::SecretSource;
pub use setting::SettingInfo;
pub use settings::settings;
pub use show::Row;
pub use source::{Location, Origin};
pub use sources::{DEFAULT_FILE, Sources};
pub use store::{PostgresUrl, StoreLocation};
pub use tls::{CertifiedKey, ListenerTls, UpstreamTls};
pub use units::parse_duration;
pub(crate) use upstream::{is_encrypted, port_of};
pub use webhook::{WebhookConfig, WebhookName};

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators and monitoring connect.
    pub admin_listen: SocketAddr,
    /// By which names browsers may ask for it, beside its own, where there are no tokens.
    pub admin_hosts: Vec<String>,
    /// The names of the service; none: the upstream is told its own.
    pub hosts: Vec<ServiceHost>,
    /// Treatment of fields about a request's origin, from a trusted proxy.
    pub forwarded: ForwardedMode,
    /// Proxies whose word about a request's origin counts, beside those of the identity.
    pub forwarded_from: Vec<ProxyRange>,
    /// Pages of other origins that may read the gateway's own answers.
    pub cors: Cors,
    /// Who may use it, in the order of the file. Nobody else may; if it is empty, whoever is on this machine.
    pub admin_tokens: Vec<AdminToken>,
    /// The service that commands are passed on to: a scheme and an authority.
    pub upstream: Uri,
    /// What it speaks.
    pub upstream_protocol: Protocol,
    /// Whether connections to it are used again.
    pub upstream_reuse: Reuse,
    /// Where records are kept.
    pub store: StoreLocation,
    /// The protocols that a connection may switch to.
    pub upgrade: Vec<UpgradeProtocol>,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// How long a shutdown waits for running commands.
    pub drain: Duration,
    /// The bounds of the listener for clients.
    pub server: Server,
    /// Where tenant and caller come from.
    pub identity: Identity,
    /// What operations want, where they say nothing else.
    pub defaults: Policy,
    /// Who is asked whether a caller may, where operations say nothing else.
    pub authorization: Authorization,
    /// The rules for single operations, in the order of the file.
    pub operations: Vec<OperationConfig>,
    /// Routes whose requests may have what is refused everywhere else, in the order of the file.
    pub pass: Vec<PassConfig>,
    /// Who may send events about commands, in the order of the file.
    pub webhooks: Vec<WebhookConfig>,
    /// How much tenants and callers may use.
    pub limits: Limits,
    /// How evidence about commands is sought whose outcome is unknown.
    pub reconcile: ReconcilerOptions,
    /// The work in the background.
    pub maintenance: Maintenance,
    /// The comparison of ledgers on a schedule, if there is one.
    pub ledger: Option<Watch>,
    /// The keys that what is stored is encrypted under, if it is.
    pub encryption: Option<Encryption>,
    /// TLS with clients, if it is spoken.
    pub tls: Option<ListenerTls>,
    /// TLS on the admin listener, if it is spoken.
    pub admin_tls: Option<ListenerTls>,
    /// TLS with the upstream, where its address begins with `https://`.
    pub upstream_tls: UpstreamTls,
}

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

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

impl Config {
    /// Returns the proxies whose word about a request's origin counts.
    pub fn trusted_proxies(&self) -> Vec<ProxyRange> {
        let mut trusted = self.forwarded_from.clone();
        if let Identity::TrustedHeaders { proxies, .. } = &self.identity {
            trusted.extend(proxies);
        }
        trusted
    }

    /// What the operation of this name wants, which may be a former one.
    pub fn policy_of(&self, name: &OperationName) -> &Policy {
        let named = self.operations.iter().find(|operation| operation.names().any(|own| own == name));
        named.map_or(&self.defaults, |operation| &operation.policy)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)),
            admin_hosts: Vec::new(),
            hosts: Vec::new(),
            forwarded: ForwardedMode::default(),
            forwarded_from: Vec::new(),
            cors: Cors::default(),
            admin_tokens: Vec::new(),
            upstream: Uri::from_static("http://127.0.0.1:3000"),
            upstream_protocol: Protocol::Http1,
            upstream_reuse: Reuse::Caller,
            store: StoreLocation::Sqlite(PathBuf::from("semel.db")),
            upgrade: vec![UpgradeProtocol::WebSocket],
            log_format: LogFormat::Text,
            drain: Duration::from_secs(30),
            server: Server::default(),
            identity: Identity::None,
            defaults: Policy { late_answer: Some(LATE_ANSWER), ..Policy::default() },
            authorization: Authorization::default(),
            operations: Vec::new(),
            pass: Vec::new(),
            webhooks: Vec::new(),
            limits: Limits::default(),
            reconcile: ReconcilerOptions::default(),
            maintenance: Maintenance::default(),
            ledger: None,
            encryption: None,
            tls: None,
            admin_tls: None,
            upstream_tls: UpstreamTls::default(),
        }
    }
}

/// How long a gateway reads an answer after its timeout, if nobody says otherwise.
const LATE_ANSWER: Duration = Duration::from_secs(30);

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
