//! A service that the gateway asks: its address, and `ca`, `certificate` and `key` beside it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;
use semel_core::redact::redact;

use crate::engine::addresses::AddressChecks;
use crate::engine::findings::Findings;
use crate::engine::kind::{ValueKind, ValueRefusal, quoted};
use crate::parts::secret::is_readable_by_others;

/// The address of a service that the gateway asks: an `http://` or `https://` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddress {
    text: String,
    uri: Uri,
}

impl ServiceAddress {
    /// Returns the address, unless the text is no URL or has another scheme.
    pub fn new(text: &str) -> Option<ServiceAddress> {
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme()?;
        (*scheme == Scheme::HTTP || *scheme == Scheme::HTTPS)
            .then(|| ServiceAddress { text: text.to_owned(), uri })
    }

    /// Returns the address as the type that a client takes.
    ///
    /// # Errors
    /// If it is none for the client.
    pub fn address<A: FromStr>(&self) -> Result<A, A::Err> {
        self.text.parse()
    }

    /// Returns the address with its parts.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns host and port, as they were written.
    pub fn authority(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    /// Returns true if the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }

    /// Returns true if whatever is sent there crosses a network in the clear.
    pub fn is_exposed(&self) -> bool {
        let host = self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let is_local =
            host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        !self.is_encrypted() && !is_local
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

/// TLS with a service that the gateway asks, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceTls {
    /// The authorities that its certificate is checked against; without it, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The certificate that it is shown, if any.
    pub certificate: Option<PathBuf>,
    /// The private key of that certificate.
    pub key: Option<PathBuf>,
}

/// A setting that cannot be used, and the reason.
pub(crate) struct TlsFault {
    /// The name of the setting, without its table.
    pub(crate) setting: String,
    pub(crate) message: String,
}

impl ServiceTls {
    /// Returns every setting that cannot be used; their names begin with `prefix`.
    pub(crate) fn faults(&self, prefix: &str, is_encrypted: bool) -> Vec<TlsFault> {
        let named = [("ca", &self.ca), ("certificate", &self.certificate), ("key", &self.key)];
        let set = named.into_iter().filter(|(_, path)| path.is_some()).map(|(name, _)| name);
        let fault = |name: &str, message: String| TlsFault { setting: format!("{prefix}{name}"), message };
        if !is_encrypted {
            let message = "has no effect unless the address begins with https://: write https://";
            return set.map(|name| fault(name, message.to_owned())).collect();
        }
        let needs = |other: &str, why: &str| format!("also needs `{prefix}{other}`: {why}");
        match (&self.certificate, &self.key) {
            (Some(_), None) => vec![fault("certificate", needs("key", "the file with its private key"))],
            (None, Some(_)) => {
                let why = "the file with the certificate that it belongs to";
                vec![fault("key", needs("certificate", why))]
            }
            (Some(_), Some(_)) | (None, None) => Vec::new(),
        }
    }
}

/// Reports each setting below `table` that cannot be used. An unknown address is not compared.
pub(crate) fn check(
    findings: &mut Findings,
    (table, prefix): (&str, &str),
    tls: &ServiceTls,
    address: Option<&ServiceAddress>,
) {
    for TlsFault { setting, message } in tls.faults(prefix, address.is_none_or(ServiceAddress::is_encrypted))
    {
        let path = format!("{table}.{setting}");
        // Settings that an operation has from the defaults were checked there.
        if findings.is_set(&path) {
            findings.error(findings.origin(&path), &path, message);
        }
    }
}

/// Warns of a private key that others can read, if it is set here.
pub(crate) fn private_key(findings: &mut Findings, path: &str, tls: &ServiceTls) {
    if findings.is_set(path) && tls.key.as_ref().is_some_and(|key| is_readable_by_others(key)) {
        let message = "other users of this machine can read the private key: run `chmod 600` on the file";
        findings.warn(path, message);
    }
}

/// Warns of a credential that crosses a network in the clear, if the address is set here.
pub(crate) fn exposed(findings: &mut Findings, path: &str, what: &str) {
    if findings.is_set(path) {
        let message =
            format!("{what} the network unencrypted, where others can read and use them: use https");
        findings.warn(path, message);
    }
}

impl ValueKind for ServiceAddress {
    type Value = ServiceAddress;

    fn expected() -> String {
        "an address such as \"https://authz.internal/check\"".to_owned()
    }

    fn parse(text: &str) -> Result<ServiceAddress, ValueRefusal> {
        ServiceAddress::new(text).ok_or(ValueRefusal::Unexpected)
    }

    fn check_address(value: &ServiceAddress, checks: &AddressChecks) -> Result<(), ValueRefusal> {
        (checks.service)(&value.text).map_err(ValueRefusal::ReasonFirst)
    }

    fn show(value: &ServiceAddress) -> Option<String> {
        Some(quoted(&redact(&value.to_string())))
    }
}
