//! `source = "introspection"`: its settings in `[identity]`.

use std::time::Duration;

use crate::engine::findings::Findings;
use crate::engine::kind::{ValueKind, ValueRefusal, Words, quoted};
use crate::parts::service::{self, ServiceAddress, ServiceTls};
use crate::parts::text::VariableName;
use crate::tables::client_certificate::CertificateTable;
use crate::tables::jwt::{JwtClaim, JwtTable};

/// Service that knows tokens and sessions, and its questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionSettings {
    /// Address of the service.
    pub url: ServiceAddress,
    /// Form of the request with a credential.
    pub presentation: Presentation,
    /// Cookie that holds a session, if sessions are accepted.
    pub cookie: Option<String>,
    /// Variable with the gateway's own `Authorization`.
    pub authorization_env: Option<VariableName>,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// Time for which a caller is cached.
    pub cache: Duration,
    /// Time for which a refusal is cached.
    pub refusal_cache: Duration,
    /// The source of the tenant.
    pub tenant: TenantSource,
    /// Member of the answer that names the caller.
    pub caller: JwtClaim,
    /// Longest credential in bytes.
    pub max_token: usize,
    /// TLS with the service.
    pub tls: ServiceTls,
}

/// Form of the request with a credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presentation {
    /// POST with the form field `token` (RFC 7662).
    #[default]
    Form,
    /// GET with the client's own header field.
    Forward,
}

/// The source of the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantSource {
    /// One tenant for all callers.
    Fixed(String),
    /// Member of the answer that names the tenant.
    Claim(JwtClaim),
}

/// Settings of `[identity]` about introspection, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct IntrospectionTable {
    pub(crate) url: Option<ServiceAddress>,
    pub(crate) presentation: Presentation,
    pub(crate) cookie: Option<String>,
    pub(crate) authorization_env: Option<VariableName>,
    pub(crate) timeout: Duration,
    pub(crate) cache: Duration,
    pub(crate) refusal_cache: Duration,
}

impl Default for IntrospectionTable {
    fn default() -> IntrospectionTable {
        IntrospectionTable {
            url: None,
            presentation: Presentation::Form,
            cookie: None,
            authorization_env: None,
            timeout: Duration::from_secs(2),
            cache: Duration::from_secs(30),
            refusal_cache: Duration::from_secs(5),
        }
    }
}

/// Settings without a default, which have no effect under another source.
pub(crate) const OWN: [&str; 3] = [
    "identity.introspection_url",
    "identity.introspection_cookie",
    "identity.introspection_authorization_env",
];

/// Cache time above which a logged-out caller is accepted for too long.
const LONG_MEMORY: Duration = Duration::from_secs(60);

/// Checks the settings, and combines them if they are consistent.
pub(crate) fn check(
    findings: &mut Findings,
    own: &IntrospectionTable,
    claims: &JwtTable,
    certificate: &CertificateTable,
    tls: &ServiceTls,
) -> Option<IntrospectionSettings> {
    let url = "identity.introspection_url";
    if !findings.is_set(url) {
        let message = "missing: the address of the introspection service, such as \
                       \"https://auth.example/introspect\"; `source = \"introspection\"` needs it";
        findings.error(findings.origin("identity.source"), url, message);
    }
    let credential = "identity.introspection_authorization_env";
    if own.presentation == Presentation::Forward && findings.is_set(credential) {
        let message = "goes with `introspection_request = \"form\"` only: \"forward\" sends the client's own credential";
        findings.error(findings.origin(credential), credential, message);
    }
    let claim = "identity.tenant_claim";
    if findings.is_set(claim) && certificate.fixed_tenant.is_some() {
        let message = "conflicts with `fixed_tenant`, which also names the tenant: remove one of them";
        findings.error(findings.origin(claim), claim, message);
    }
    service::check(findings, ("identity", ""), tls, own.url.as_ref());
    if !findings.are_readable(&["identity.fixed_tenant", claim, "identity.caller_claim"]) {
        return None;
    }
    let tenant = match &certificate.fixed_tenant {
        Some(name) => TenantSource::Fixed(name.clone()),
        None => TenantSource::Claim(claims.tenant_claim.clone()),
    };
    Some(IntrospectionSettings {
        url: own.url.clone()?,
        presentation: own.presentation,
        cookie: own.cookie.clone(),
        authorization_env: own.authorization_env.clone(),
        timeout: own.timeout,
        cache: own.cache,
        refusal_cache: own.refusal_cache.min(own.cache),
        tenant,
        caller: claims.caller_claim.clone(),
        max_token: claims.max_token,
        tls: tls.clone(),
    })
}

/// Warns of tokens that others can read on their way, and of answers that are cached for long.
pub(crate) fn warn(findings: &mut Findings, settings: &IntrospectionSettings) {
    service::private_key(findings, "identity.key", &settings.tls);
    if settings.url.is_exposed() {
        let message = "tokens cross the network unencrypted, and an attacker there can answer with any \
                       caller: use https";
        findings.warn("identity.introspection_url", message);
    }
    if settings.cache > LONG_MEMORY {
        let message = "a caller who logged out keeps access, and gets stored responses, for up to this time";
        findings.warn("identity.introspection_cache", message);
    }
}

impl Words for Presentation {
    const WORDS: &'static [(&'static str, Self)] =
        &[("form", Presentation::Form), ("forward", Presentation::Forward)];
}

/// The name of a cookie: a token of RFC 9110.
pub(crate) struct CookieName;

impl ValueKind for CookieName {
    type Value = String;

    fn expected() -> String {
        "the name of a cookie, such as \"session\"".to_owned()
    }

    fn parse(text: &str) -> Result<String, ValueRefusal> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        match !text.is_empty() && text.chars().all(allowed) {
            true => Ok(text.to_owned()),
            false => Err(ValueRefusal::Unexpected),
        }
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}
