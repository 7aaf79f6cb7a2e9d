//! A service that the gateway asks: its address, and `ca`, `certificate` and `key` beside it.

use std::path::PathBuf;

use semel_core::redact::redact;
use semel_outgoing::{Address, AddressError, CertificateFiles, TlsSettings};

use crate::engine::findings::Findings;
use crate::engine::kind::{Kind, Refusal, quoted};
use crate::parts::secret::is_readable_by_others;

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
    /// Returns the TLS settings.
    pub fn settings(&self) -> TlsSettings {
        let own = self.certificate.clone().zip(self.key.clone());
        let own = own.map(|(certificate, key)| CertificateFiles { certificate, key });
        TlsSettings { trust: self.ca.clone().into(), own }
    }

    /// Returns every setting that cannot be used; their names begin with `prefix`.
    pub(crate) fn faults(&self, prefix: &str, is_encrypted: bool) -> Vec<TlsFault> {
        let named = [("ca", &self.ca), ("certificate", &self.certificate), ("key", &self.key)];
        let set = named.into_iter().filter(|(_, path)| path.is_some()).map(|(name, _)| name);
        let fault = |name: &str, message: String| TlsFault { setting: format!("{prefix}{name}"), message };
        if !is_encrypted {
            let message = "means nothing while the address does not begin with https://: write https://";
            return set.map(|name| fault(name, message.to_owned())).collect();
        }
        let needs = |other: &str, why: &str| format!("needs `{prefix}{other}` beside it: {why}");
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
    address: Option<&Address>,
) {
    for TlsFault { setting, message } in tls.faults(prefix, address.is_none_or(Address::is_encrypted)) {
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
        let message =
            "others on this machine can read the private key: take their rights away, as with `chmod 600`";
        findings.warn(path, message);
    }
}

/// Warns of a credential that crosses a network in the clear, if the address is set here.
pub(crate) fn exposed(findings: &mut Findings, path: &str, what: &str) {
    if findings.is_set(path) {
        let message =
            format!("{what} the network in the clear, where others can read and use them: use https");
        findings.warn(path, message);
    }
}

impl Kind for Address {
    type Value = Address;

    fn expected() -> String {
        "an address such as \"https://authz.internal/check\"".to_owned()
    }

    fn parse(text: &str) -> Result<Address, Refusal> {
        text.parse().map_err(|error| match error {
            AddressError::Malformed | AddressError::Scheme => Refusal::Unexpected,
            other => Refusal::Because(other.to_string()),
        })
    }

    fn show(value: &Address) -> Option<String> {
        Some(quoted(&redact(&value.to_string())))
    }
}
