//! Who is calling: where tenant and caller come from.

use http::HeaderName;

use super::client_certificate::{CertificateTable, ClientCertificates};
use super::introspection::{IntrospectionSettings, IntrospectionTable};
use super::jwt::{JwtSettings, JwtTable};
use super::kind::Words;
use super::outgoing::ServiceTls;
use super::proxies::ProxyRange;

/// Where tenant and caller come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// From nowhere: everybody is `local`. Only where nobody else can connect.
    #[default]
    None,
    /// From a key that `semel keys create` made.
    ApiKey,
    /// From headers that a proxy in front sets.
    TrustedHeaders {
        /// The peers that may speak for a caller; never empty.
        proxies: Vec<ProxyRange>,
        /// The header that names the tenant.
        tenant_header: HeaderName,
        /// The header that names the caller.
        caller_header: HeaderName,
    },
    /// From tokens that an issuer signs.
    Jwt(Box<JwtSettings>),
    /// From certificates that clients show when they connect.
    ClientCertificate(ClientCertificates),
    /// From a service that knows opaque tokens and sessions.
    Introspection(Box<IntrospectionSettings>),
}

/// `source`, before the settings that go with it are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum IdentitySource {
    #[default]
    None,
    ApiKey,
    TrustedHeaders,
    Jwt,
    ClientCertificate,
    Introspection,
}

impl Words for IdentitySource {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", IdentitySource::None),
        ("api-key", IdentitySource::ApiKey),
        ("trusted-headers", IdentitySource::TrustedHeaders),
        ("jwt", IdentitySource::Jwt),
        ("client-certificate", IdentitySource::ClientCertificate),
        ("introspection", IdentitySource::Introspection),
    ];
}

/// The `[identity]` table as it was written.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentityTable {
    pub(super) source: IdentitySource,
    pub(super) trusted_proxies: Option<Vec<ProxyRange>>,
    pub(super) tenant_header: Option<HeaderName>,
    pub(super) caller_header: Option<HeaderName>,
    pub(super) jwt: JwtTable,
    pub(super) certificate: CertificateTable,
    pub(super) introspection: IntrospectionTable,
    pub(super) tls: ServiceTls,
}
