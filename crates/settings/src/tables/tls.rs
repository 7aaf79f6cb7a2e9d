//! `[tls]`, `[admin_tls]` and `[upstream_tls]`: the names of the files. Their contents are checked by their
//! users, and by `semel config check`.

use std::path::PathBuf;

use http::Uri;

use crate::engine::findings::Findings;
use crate::engine::kind::Maybe;
use crate::engine::setting::{Setting, setting};
use crate::parts::text::FilePath;
use crate::tables::upstream::is_encrypted;

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
    /// The certificate of the listener.
    pub own: CertifiedKey,
    /// Authorities of client certificates, if clients are to present one.
    pub client_ca: Option<PathBuf>,
    /// The list of revoked client certificates.
    pub client_crl: Option<PathBuf>,
}

/// TLS with the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Authorities of the upstream's certificate; without it, those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate that the upstream gets, if any.
    pub own: Option<CertifiedKey>,
}

/// The `[tls]` or `[admin_tls]` table, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsTable {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_crl: Option<PathBuf>,
}

/// The `[upstream_tls]` table, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamTlsTable {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// `[tls]`, and `[admin_tls]`.
pub(crate) const TLS: &[Setting<TlsTable>] = &[
    setting!(
        "certificate",
        Maybe<FilePath>,
        certificate,
        "File with the certificate and its intermediate certificates, in PEM; without it, TLS is off",
        "\"/etc/semel/server.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        key,
        "File with the private key of the certificate, in PEM; others must not be able to read it",
        "\"/etc/semel/server.key\""
    ),
    setting!(
        "client_ca",
        Maybe<FilePath>,
        client_ca,
        "File with the certificate authorities of clients, which must then show a certificate",
        "\"/etc/semel/clients.crt\""
    ),
    setting!(
        "client_crl",
        Maybe<FilePath>,
        client_crl,
        "File with the certificate revocation lists of those authorities, in PEM",
        "\"/etc/semel/clients.crl\""
    ),
];

/// `[upstream_tls]`.
pub(crate) const UPSTREAM_TLS: &[Setting<UpstreamTlsTable>] = &[
    setting!(
        "ca",
        Maybe<FilePath>,
        ca,
        "File with the certificate authorities to trust for the upstream, instead of the system's",
        "\"/etc/semel/upstream-ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        certificate,
        "File with the gateway's client certificate for the upstream",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        key,
        "File with the private key of the client certificate",
        "\"/etc/semel/gateway.key\""
    ),
];

/// Checks the table of a listener, and returns its TLS if the settings are consistent. Without a certificate,
/// there is no TLS.
pub(crate) fn check(findings: &mut Findings, table: &'static str, tls: &TlsTable) -> Option<ListenerTls> {
    let TlsTable { certificate, key, client_ca, client_crl } = tls.clone();
    let own = certified_key(findings, table, certificate, key);
    let path = |name: &str| format!("{table}.{name}");
    let has_own = findings.is_set(&path("certificate")) || findings.is_set(&path("key"));
    if !has_own {
        needs(
            findings,
            &path("client_ca"),
            "certificate",
            "a listener that requires client certificates needs one itself",
        );
    }
    if !findings.is_set(&path("client_ca")) {
        needs(findings, &path("client_crl"), "client_ca", "the authorities that issued the lists");
    }
    Some(ListenerTls { own: own?, client_ca, client_crl })
}

/// Checks `[upstream_tls]`, alone and with the upstream, and combines its settings.
pub(crate) fn check_upstream(findings: &mut Findings, tls: &UpstreamTlsTable, upstream: &Uri) -> UpstreamTls {
    let UpstreamTlsTable { ca, certificate, key } = tls.clone();
    let own = certified_key(findings, "upstream_tls", certificate, key);
    if findings.are_readable(&["upstream"]) && !is_encrypted(upstream) {
        for name in ["ca", "certificate", "key"].map(|name| format!("upstream_tls.{name}")) {
            if findings.is_set(&name) {
                let message = "has no effect while `upstream` begins with http://: write https://";
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

/// Reports a setting, if it is set, that needs another one beside it.
fn needs(findings: &mut Findings, path: &str, other: &str, why: &str) {
    if findings.is_set(path) {
        findings.error(findings.origin(path), path, format!("also needs `{other}`: {why}"));
    }
}
