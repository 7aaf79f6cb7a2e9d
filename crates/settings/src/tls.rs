//! `[tls]`, `[admin_tls]` and `[upstream_tls]`, and what `[identity]` says about client certificates. Which files there
//! are, and not what they hold: that is looked at where they are used, and by `semel config check`.

use std::path::PathBuf;

use super::findings::Findings;
use super::identity::IdentitySource;
use super::secret::is_readable_by_others;
use super::upstream::{UpstreamProtocol, is_encrypted};
use super::{Config, Identity};

/// A certificate, and the key that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedKey {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// TLS on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// What the listener shows.
    pub own: CertifiedKey,
    /// Whose certificates clients show, if they are to show any.
    pub client_ca: Option<PathBuf>,
    /// Which of those do not count any more.
    pub client_crl: Option<PathBuf>,
}

/// TLS with the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Whose certificates the upstream may show; without it, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// What the upstream is shown, if anything.
    pub own: Option<CertifiedKey>,
}

/// The `[tls]` or `[admin_tls]` table as it was written.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsTable {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) client_crl: Option<PathBuf>,
}

/// The `[upstream_tls]` table as it was written.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamTlsTable {
    pub(super) ca: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// Puts the table of a listener together, if its settings go together. Without a certificate, no TLS is spoken.
pub(super) fn check(findings: &mut Findings, table: &'static str, tls: &TlsTable) -> Option<ListenerTls> {
    let TlsTable { certificate, key, client_ca, client_crl } = tls.clone();
    let own = certified_key(findings, table, certificate, key);
    let path = |name: &str| format!("{table}.{name}");
    let has_own = findings.is_set(&path("certificate")) || findings.is_set(&path("key"));
    if !has_own {
        needs(findings, &path("client_ca"), "certificate", "a listener that asks for one shows one first");
    }
    if !findings.is_set(&path("client_ca")) {
        needs(findings, &path("client_crl"), "client_ca", "it says whose list this is");
    }
    Some(ListenerTls { own: own?, client_ca, client_crl })
}

/// Puts `[upstream_tls]` together, if its settings go together and with the upstream.
pub(super) fn check_upstream(
    findings: &mut Findings,
    tls: &UpstreamTlsTable,
    config: &Config,
) -> UpstreamTls {
    let UpstreamTlsTable { ca, certificate, key } = tls.clone();
    let own = certified_key(findings, "upstream_tls", certificate, key);
    if findings.are_readable(&["upstream"]) && !is_encrypted(&config.upstream) {
        for name in ["ca", "certificate", "key"].map(|name| format!("upstream_tls.{name}")) {
            if findings.is_set(&name) {
                let message = "means nothing while `upstream` begins with http://: write https://";
                findings.error(findings.origin(&name), &name, message);
            }
        }
    }
    UpstreamTls { ca, own }
}

fn certified_key(
    findings: &mut Findings,
    table: &str,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Option<CertifiedKey> {
    let path = |name: &str| format!("{table}.{name}");
    if !findings.is_set(&path("key")) {
        needs(findings, &path("certificate"), "key", "the file with its private key");
    }
    if !findings.is_set(&path("certificate")) {
        needs(findings, &path("key"), "certificate", "the file with the certificate that it belongs to");
    }
    Some(CertifiedKey { certificate: certificate?, key: key? })
}

/// Says of a setting, where it is set, that another one beside it is missing.
fn needs(findings: &mut Findings, path: &str, other: &str, why: &str) {
    if findings.is_set(path) {
        findings.error(findings.origin(path), path, format!("needs `{other}` beside it: {why}"));
    }
}

/// Whether what is said about TLS goes with the rest.
pub(super) fn go_together(findings: &mut Findings, config: &Config, source: IdentitySource) {
    let asks = findings.is_set("tls.client_ca");
    if source == IdentitySource::ClientCertificate && !asks && findings.are_readable(&["identity.source"]) {
        let message = "\"client-certificate\" needs `client_ca` in `[tls]`, beside `certificate` and `key`: whose \
                       certificates count";
        findings.error(findings.origin("identity.source"), "identity.source", message);
    }
    if !findings.are_readable(&["upstream", "upstream_protocol"]) {
        return;
    }
    let message = match (config.upstream_protocol, is_encrypted(&config.upstream)) {
        (UpstreamProtocol::H2c, true) => {
            "\"h2c\" is HTTP/2 without TLS, and `upstream` begins with https://: use \"h2\""
        }
        (UpstreamProtocol::H2, false) => {
            "\"h2\" is HTTP/2 over TLS, and `upstream` begins with http://: use \"h2c\""
        }
        (UpstreamProtocol::H2c, false) | (UpstreamProtocol::H2, true) | (UpstreamProtocol::Http1, _) => {
            return;
        }
    };
    findings.error(findings.origin("upstream_protocol"), "upstream_protocol", message);
}

/// Warns of private keys that others can read, and of credentials that cross a network in the clear.
pub(super) fn warn(findings: &mut Findings, config: &Config) {
    let own = |tls: &Option<ListenerTls>| tls.as_ref().map(|tls| tls.own.clone());
    let keys = [
        ("tls.key", own(&config.tls)),
        ("admin_tls.key", own(&config.admin_tls)),
        ("upstream_tls.key", config.upstream_tls.own.clone()),
    ];
    for (path, own) in keys {
        if own.is_some_and(|own| is_readable_by_others(&own.key)) {
            let message = "others on this machine can read the private key: take their rights away, as with `chmod 600`";
            findings.warn(path, message);
        }
    }
    let credentials = match &config.identity {
        Identity::ApiKey => "API keys",
        Identity::Jwt(_) => "tokens",
        Identity::Introspection(_) => "tokens and sessions",
        Identity::None | Identity::TrustedHeaders { .. } | Identity::ClientCertificate(_) => return,
    };
    if config.tls.is_none() && !config.listen.ip().is_loopback() {
        let message = format!(
            "{credentials} cross the network in the clear, and whoever sees one can be its caller: set `[tls]`, unless \
             something in front ends TLS and nobody else reaches this address"
        );
        findings.warn("listen", message);
    }
}
