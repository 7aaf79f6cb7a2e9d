//! The configuration as a whole, and the settings at its top level.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use semel_core::StoreLocation;
use semel_core::quota::Limits;
use semel_core::reconcile::ReconcilerOptions;
use semel_core::{OperationName, Policy};

use crate::engine::kind::{Choice, List, Words};
use crate::engine::setting::{Setting, setting};
use crate::parts::proxies::{ForwardedMode, ProxyRange};
use crate::parts::scalar::WaitTime;
use crate::tables::admin::{AdminToken, HostName};
use crate::tables::authorization::Authorization;
use crate::tables::cors::CorsSettings;
use crate::tables::encryption::Encryption;
use crate::tables::hosts::ServiceHost;
use crate::tables::identity::PrincipalSource;
use crate::tables::ledger::LedgerWatch;
use crate::tables::maintenance::MaintenanceSettings;
use crate::tables::operation::OperationConfig;
use crate::tables::pass::PassConfig;
use crate::tables::server::{Server, UpgradeProtocol};
use crate::tables::sso::AdminSso;
use crate::tables::tls::{ListenerTls, UpstreamTls};
use crate::tables::traces::TraceSettings;
use crate::tables::upstream::{UpstreamProtocol, UpstreamReuse};
use crate::tables::webhook::WebhookConfig;
use crate::tables::witness::WitnessPlace;

/// Complete configuration of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address for clients.
    pub listen: SocketAddr,
    /// The address for operators and monitoring.
    pub admin_listen: SocketAddr,
    /// Names by which browsers may address the admin listener, beside its own, if there are no tokens.
    pub admin_hosts: Vec<String>,
    /// Names of the service; without any, the upstream gets its own host.
    pub hosts: Vec<ServiceHost>,
    /// Treatment of forwarding fields from a trusted proxy.
    pub forwarded: ForwardedMode,
    /// Proxies whose forwarding fields are trusted, beside those of the identity.
    pub forwarded_from: Vec<ProxyRange>,
    /// Pages of other origins that may read the gateway's own answers.
    pub cors: CorsSettings,
    /// The tokens of the admin listener, in the order of the file. Without any, it is for this machine only.
    pub admin_tokens: Vec<AdminToken>,
    /// Single sign-on at the admin listener, if there is one.
    pub admin_sso: Option<AdminSso>,
    /// Service that commands are forwarded to: a scheme and an authority.
    pub upstream: Uri,
    /// The protocol of the upstream.
    pub upstream_protocol: UpstreamProtocol,
    /// Reuse of a connection to the upstream after its first request.
    pub upstream_reuse: UpstreamReuse,
    /// The place of records.
    pub store: StoreLocation,
    /// The place of the file that remembers how far the store had come.
    pub witness: WitnessPlace,
    /// The protocols that a connection may switch to.
    pub upgrade: Vec<UpgradeProtocol>,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The time that a shutdown waits for running commands.
    pub drain: Duration,
    /// The bounds of the listener for clients.
    pub server: Server,
    /// The source of tenant and caller.
    pub identity: PrincipalSource,
    /// Default policy of operations.
    pub defaults: Policy,
    /// Default service that authorizes callers.
    pub authorization: Authorization,
    /// The rules for single operations, in the order of the file.
    pub operations: Vec<OperationConfig>,
    /// Routes with exemptions, in the order of the file.
    pub pass: Vec<PassConfig>,
    /// The senders of events about commands, in the order of the file.
    pub webhooks: Vec<WebhookConfig>,
    /// The quotas of tenants and callers.
    pub limits: Limits,
    /// The search for evidence about commands whose outcome is unknown.
    pub reconcile: ReconcilerOptions,
    /// Background maintenance.
    pub maintenance: MaintenanceSettings,
    /// The comparison of ledgers on a schedule, if there is one.
    pub ledger: Option<LedgerWatch>,
    /// The collector of traces, if requests are traced.
    pub traces: Option<TraceSettings>,
    /// The keys that stored data is encrypted under, if it is.
    pub encryption: Option<Encryption>,
    /// TLS with clients, if it is spoken.
    pub tls: Option<ListenerTls>,
    /// TLS on the admin listener, if it is spoken.
    pub admin_tls: Option<ListenerTls>,
    /// TLS with the upstream, where its address begins with `https://`.
    pub upstream_tls: UpstreamTls,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

impl Config {
    /// Returns the proxies whose forwarding fields are trusted.
    pub fn trusted_proxies(&self) -> Vec<ProxyRange> {
        let mut trusted = self.forwarded_from.clone();
        if let PrincipalSource::TrustedHeaders { proxies, .. } = &self.identity {
            trusted.extend(proxies);
        }
        trusted
    }

    /// Returns the file that remembers how far the store had come; `None` if there is none.
    pub fn witness(&self) -> Option<PathBuf> {
        match (&self.witness, &self.store) {
            (WitnessPlace::File(path), _) => Some(path.clone()),
            (WitnessPlace::Beside, StoreLocation::Sqlite(path)) => {
                let mut name = path.clone().into_os_string();
                name.push(".witness");
                Some(PathBuf::from(name))
            }
            (WitnessPlace::Beside, StoreLocation::Memory | StoreLocation::Postgres(_)) => None,
        }
    }

    /// Returns the policy of the operation of this name, which may be a former one.
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
            admin_sso: None,
            upstream: Uri::from_static("http://127.0.0.1:3000"),
            upstream_protocol: UpstreamProtocol::Http1,
            upstream_reuse: UpstreamReuse::Caller,
            store: StoreLocation::Sqlite(PathBuf::from("semel.db")),
            witness: WitnessPlace::Beside,
            upgrade: vec![UpgradeProtocol::WebSocket],
            log_format: LogFormat::Text,
            drain: Duration::from_secs(30),
            server: Server::default(),
            identity: PrincipalSource::None,
            defaults: Policy { late_answer: Some(LATE_ANSWER), ..Policy::default() },
            authorization: Authorization::default(),
            operations: Vec::new(),
            pass: Vec::new(),
            webhooks: Vec::new(),
            limits: Limits::default(),
            reconcile: ReconcilerOptions::default(),
            maintenance: MaintenanceSettings::default(),
            ledger: None,
            traces: None,
            encryption: None,
            tls: None,
            admin_tls: None,
            upstream_tls: UpstreamTls::default(),
        }
    }
}

/// Default time for which a gateway reads an answer after its timeout.
const LATE_ANSWER: Duration = Duration::from_secs(30);

/// Settings of the top level.
pub(crate) const GENERAL: &[Setting<Config>] = &[
    setting!("listen", SocketAddr, listen, "Address of the listener for clients"),
    setting!(
        "admin_listen",
        SocketAddr,
        admin_listen,
        "Address of the admin listener, for operators and monitoring"
    ),
    setting!(
        "admin_hosts",
        List<HostName>,
        admin_hosts,
        "Without [[admin.token]] and [admin.sso]: host names by which browsers may open admin_listen, beside \
         localhost and its address"
    ),
    setting!(
        "hosts",
        List<ServiceHost>,
        hosts,
        "Host names of the service: requests for others get 421, and the upstream gets the client's Host; \
         without any, its own"
    ),
    setting!(
        "forwarded",
        Choice<ForwardedMode>,
        forwarded,
        "Treatment of X-Forwarded-For, -Proto, -Host and Forwarded from a trusted proxy (replace, append, \
         or pass on unchanged)"
    ),
    setting!(
        "forwarded_from",
        List<ProxyRange>,
        forwarded_from,
        "Proxies whose forwarding fields are trusted, beside trusted_proxies of [identity]; any other \
         peer's are replaced"
    ),
    setting!("upstream", Uri, upstream, "Address of the HTTP service behind the gateway"),
    setting!("upstream_protocol", Choice<UpstreamProtocol>, upstream_protocol, "Protocol of the upstream"),
    setting!(
        "upstream_reuse",
        Choice<UpstreamReuse>,
        upstream_reuse,
        "Reuse of a connection to the upstream (for the same caller, or never)"
    ),
    setting!(
        "upgrade",
        List<Choice<UpgradeProtocol>>,
        upgrade,
        "The protocols that a connection may switch to: websocket, or an empty list"
    ),
    setting!("store", StoreLocation, store, "Location of the store: memory:, sqlite:PATH or postgres://…"),
    setting!(
        "witness",
        WitnessPlace,
        witness,
        "File that remembers how far the store had come, so that a restored backup is noticed: a path, or beside a SQLite file"
    ),
    setting!("log_format", Choice<LogFormat>, log_format, "Format of log lines"),
    setting!("drain", WaitTime, drain, "Longest wait of a shutdown for running commands"),
];

impl Words for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
}
