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

mod admin;
mod advice;
mod authorization;
mod check;
mod client_certificate;
mod cors;
mod diagnostic;
mod encryption;
mod findings;
mod hosts;
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
mod proxies;
mod redact;
mod scalar;
mod secret;
mod server;
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
pub use authorization::Authorization;
pub use client_certificate::{CertificateField, CertificateTenant, ClientCertificates};
pub use cors::{CorsOrigin, CorsSettings, Preflight};
pub use diagnostic::{Diagnostic, Errors, Severity};
pub use encryption::{Encryption, EncryptionKey};
pub use hosts::ServiceHost;
pub use identity::Identity;
pub use init::init;
pub use introspection::{IntrospectionSettings, Presentation, TenantSource};
pub use jwt::{Claim, JwtSettings, KeySource, SigningAlgorithm};
pub use ledger::{
    LedgerComparison, LedgerFault, LedgerSettings, LedgerSide, LedgerSource, LedgerUrl, LedgerWatch,
    parse_condition, plan as plan_ledger,
};
pub use load::{Loaded, load};
pub use look_up::{LookUpConfig, LookUpUrl, VariableName};
pub use nearest::nearest;
pub use operation::{OperationConfig, Route};
pub use outgoing::ServiceTls;
pub use pass::{Exemption, PassConfig, has_no_body, path_exceptions};
pub use proxies::{ForwardedMode, ProxyRange};
pub use redact::redact;
pub use secret::SecretSource;
pub use server::{Server, TunnelLimits, UpgradeProtocol};
pub use setting::SettingInfo;
pub use settings::settings;
pub use show::Row;
pub use source::{Location, Origin};
pub use sources::{DEFAULT_FILE, Sources};
pub use store::{PostgresUrl, StoreLocation};
pub use tls::{CertifiedKey, ListenerTls, UpstreamTls};
pub use units::parse_duration;
pub use upstream::{UpstreamProtocol, UpstreamReuse};
pub use upstream::{is_encrypted, port_of};
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
    pub cors: CorsSettings,
    /// Who may use it, in the order of the file. Nobody else may; if it is empty, whoever is on this machine.
    pub admin_tokens: Vec<AdminToken>,
    /// The service that commands are passed on to: a scheme and an authority.
    pub upstream: Uri,
    /// What it speaks.
    pub upstream_protocol: UpstreamProtocol,
    /// Whether connections to it are used again.
    pub upstream_reuse: UpstreamReuse,
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
    pub ledger: Option<LedgerWatch>,
    /// The keys that what is stored is encrypted under, if it is.
    pub encryption: Option<Encryption>,
    /// TLS with clients, if it is spoken.
    pub tls: Option<ListenerTls>,
    /// TLS on the admin listener, if it is spoken.
    pub admin_tls: Option<ListenerTls>,
    /// TLS with the upstream, where its address begins with `https://`.
    pub upstream_tls: UpstreamTls,
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
            cors: CorsSettings::default(),
            admin_tokens: Vec::new(),
            upstream: Uri::from_static("http://127.0.0.1:3000"),
            upstream_protocol: UpstreamProtocol::Http1,
            upstream_reuse: UpstreamReuse::Caller,
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
