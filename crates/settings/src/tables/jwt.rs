//! `source = "jwt"`: its settings in `[identity]`, and addresses that the gateway asks.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use semel_core::JsonPointer;
use semel_core::redact::redact;
use serde_json::Value;

use crate::engine::addresses::AddressChecks;
use crate::engine::findings::Findings;
use crate::engine::kind::{ValueKind, ValueRefusal, Words, quoted};
use crate::parts::service::{self, ServiceAddress, ServiceTls};

/// Rules for checking a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// The source of the issuer's keys.
    pub keys: KeySource,
    /// The issuer of every accepted token.
    pub issuer: String,
    /// The audience of every accepted token.
    pub audience: String,
    /// The algorithms that may sign a token.
    pub algorithms: Vec<SigningAlgorithm>,
    /// The claim that names the tenant.
    pub tenant: JwtClaim,
    /// The claim that names the caller within the tenant.
    pub caller: JwtClaim,
    /// Largest difference between the issuer's clock and this machine's.
    pub leeway: Duration,
    /// Interval between two fetches of the keys.
    pub refresh: Duration,
    /// Longest token in bytes.
    pub max_token: usize,
    /// TLS with the address of the keys.
    pub tls: ServiceTls,
}

/// The source of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// File with the keys.
    File(PathBuf),
    /// Address of the keys.
    Url(ServiceAddress),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => path.display().fmt(f),
            KeySource::Url(address) => address.fmt(f),
        }
    }
}

/// An algorithm that signs tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// EdDSA on Ed25519.
    EdDsa,
    /// HMAC with SHA-256: every verifier of such a token can make one.
    Hs256,
}

impl SigningAlgorithm {
    /// Every algorithm and its registered name.
    pub const NAMES: &'static [(&'static str, SigningAlgorithm)] = &[
        ("RS256", SigningAlgorithm::Rs256),
        ("ES256", SigningAlgorithm::Es256),
        ("EdDSA", SigningAlgorithm::EdDsa),
        ("HS256", SigningAlgorithm::Hs256),
    ];
}

/// A claim: the name of a member, or a JSON Pointer to one further down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtClaim {
    text: String,
    pointer: String,
}

impl JwtClaim {
    /// Makes the claim of this name, which begins with a slash if it is a pointer.
    pub fn new(text: &str) -> JwtClaim {
        let pointer = match text.starts_with('/') {
            true => text.to_owned(),
            false => format!("/{}", text.replace('~', "~0").replace('/', "~1")),
        };
        JwtClaim { text: text.to_owned(), pointer }
    }

    /// Returns the value of this claim.
    pub fn of<'a>(&self, claims: &'a Value) -> Option<&'a Value> {
        claims.pointer(&self.pointer)
    }
}

impl fmt::Display for JwtClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Settings of `[identity]` about tokens, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct JwtTable {
    pub(crate) jwks: Option<KeySource>,
    pub(crate) issuer: Option<String>,
    pub(crate) audience: Option<String>,
    pub(crate) algorithms: Vec<SigningAlgorithm>,
    pub(crate) tenant_claim: JwtClaim,
    pub(crate) caller_claim: JwtClaim,
    pub(crate) leeway: Duration,
    pub(crate) jwks_refresh: Duration,
    pub(crate) max_token: usize,
}

impl Default for JwtTable {
    fn default() -> JwtTable {
        JwtTable {
            jwks: None,
            issuer: None,
            audience: None,
            algorithms: vec![SigningAlgorithm::Rs256, SigningAlgorithm::Es256, SigningAlgorithm::EdDsa],
            tenant_claim: JwtClaim::new("tenant"),
            caller_claim: JwtClaim::new("sub"),
            leeway: Duration::from_secs(30),
            jwks_refresh: Duration::from_secs(5 * 60),
            max_token: 8 * 1024,
        }
    }
}

/// Settings that `source = "jwt"` requires. Those with a default may be in the file without effect.
pub(crate) const REQUIRED: [(&str, &str); 3] = [
    (
        "identity.jwks",
        "the issuer's keys, in a file or at an address such as \"https://issuer.example/jwks.json\"",
    ),
    ("identity.issuer", "the issuer of the tokens, their claim `iss`"),
    ("identity.audience", "the audience of the tokens, their claim `aud`"),
];

/// Largest leeway: with a larger one, clocks are wrong, and an expired token is valid for too long.
const MAX_LEEWAY: Duration = Duration::from_secs(10 * 60);

/// Checks the settings, and combines them if they are consistent.
pub(crate) fn check(findings: &mut Findings, table: &JwtTable, tls: &ServiceTls) -> Option<JwtSettings> {
    for (path, what) in REQUIRED {
        if !findings.is_set(path) {
            let message = format!("missing: {what}; `source = \"jwt\"` needs it");
            findings.error(findings.origin("identity.source"), path, message);
        }
    }
    if table.algorithms.is_empty() {
        let path = "identity.algorithms";
        let message = "is empty, so every token would be refused: expected at least one, such as [\"RS256\"]";
        findings.error(findings.origin(path), path, message);
    }
    if table.leeway > MAX_LEEWAY {
        let path = "identity.leeway";
        let message =
            "a token would stay valid for more than 10 minutes after it expires: expected \"10m\" or less";
        findings.error(findings.origin(path), path, message);
    }
    let address = match &table.jwks {
        Some(KeySource::Url(address)) => Some(address),
        Some(KeySource::File(_)) | None => None,
    };
    service::check(findings, ("identity", ""), tls, address);
    let JwtTable { algorithms, tenant_claim, caller_claim, leeway, jwks_refresh, max_token, .. } =
        table.clone();
    Some(JwtSettings {
        keys: table.jwks.clone()?,
        issuer: table.issuer.clone()?,
        audience: table.audience.clone()?,
        algorithms,
        tenant: tenant_claim,
        caller: caller_claim,
        leeway,
        refresh: jwks_refresh,
        max_token,
        tls: tls.clone(),
    })
}

/// Warns of keys that others may know or change.
pub(crate) fn warn(findings: &mut Findings, settings: &JwtSettings) {
    service::private_key(findings, "identity.key", &settings.tls);
    let KeySource::Url(address) = &settings.keys else { return };
    if address.is_exposed() {
        let message = "an attacker on the network can replace the keys, and act as any caller: use https";
        findings.warn("identity.jwks", message);
    }
    if settings.algorithms.contains(&SigningAlgorithm::Hs256) {
        let message =
            "keys of HS256 are shared secrets, and anybody who can fetch that address has them: use a file";
        findings.warn("identity.jwks", message);
    }
}

impl Words for SigningAlgorithm {
    const WORDS: &'static [(&'static str, Self)] = SigningAlgorithm::NAMES;
}

impl ValueKind for KeySource {
    type Value = KeySource;

    fn expected() -> String {
        "a file, or an address that begins with http:// or https://".to_owned()
    }

    fn parse(text: &str) -> Result<KeySource, ValueRefusal> {
        if text.contains("://") {
            return ServiceAddress::parse(text).map(KeySource::Url);
        }
        match text {
            "" => Err(ValueRefusal::Unexpected),
            text if text.contains(char::is_control) => {
                Err(ValueRefusal::Because("it holds a control character".to_owned()))
            }
            path => Ok(KeySource::File(PathBuf::from(path))),
        }
    }

    fn check_address(value: &KeySource, checks: &AddressChecks) -> Result<(), ValueRefusal> {
        match value {
            KeySource::Url(address) => ServiceAddress::check_address(address, checks),
            KeySource::File(_) => Ok(()),
        }
    }

    fn show(value: &KeySource) -> Option<String> {
        Some(quoted(&redact(&value.to_string())))
    }
}

impl ValueKind for JwtClaim {
    type Value = JwtClaim;

    fn expected() -> String {
        "the name of a claim, or a JSON Pointer such as \"/organization/id\"".to_owned()
    }

    fn parse(text: &str) -> Result<JwtClaim, ValueRefusal> {
        if text.is_empty() {
            return Err(ValueRefusal::Unexpected);
        }
        if text.starts_with('/') {
            JsonPointer::parse(text).map_err(|error| ValueRefusal::Because(error.to_string()))?;
        }
        Ok(JwtClaim::new(text))
    }

    fn show(value: &JwtClaim) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_a_member_or_a_pointer() {
        for (text, pointer) in [
            ("sub", "/sub"),
            ("https://issuer.example/tenant", "/https:~1~1issuer.example~1tenant"),
            ("a~b", "/a~0b"),
            ("/organization/id", "/organization/id"),
        ] {
            assert_eq!(JwtClaim::new(text).pointer, pointer);
            assert_eq!(JwtClaim::new(text).to_string(), text);
        }
    }
}
