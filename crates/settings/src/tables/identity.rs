//! `[identity]`: the source of tenant and caller.

mod check;
mod rows;

pub(crate) use check::check;
pub(crate) use rows::IDENTITY;

use http::HeaderName;

use crate::engine::kind::Words;
use crate::parts::proxies::ProxyRange;
use crate::parts::service::ServiceTls;
use crate::tables::client_certificate::{CertificateTable, ClientCertificates};
use crate::tables::introspection::{IntrospectionSettings, IntrospectionTable};
use crate::tables::jwt::{JwtSettings, JwtTable};

/// The source of tenant and caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrincipalSource {
    /// No identity: every caller is `local`. Only for a listener that no other machine can reach.
    #[default]
    None,
    /// Key that `semel keys create` made.
    ApiKey,
    /// Headers that a proxy in front sets.
    TrustedHeaders {
        /// Peers that may name a caller; never empty.
        proxies: Vec<ProxyRange>,
        /// The header that names the tenant.
        tenant_header: HeaderName,
        /// The header that names the caller.
        caller_header: HeaderName,
    },
    /// Tokens that an issuer signs.
    Jwt(Box<JwtSettings>),
    /// Certificates that clients present when they connect.
    ClientCertificate(ClientCertificates),
    /// Service that knows opaque tokens and sessions.
    Introspection(Box<IntrospectionSettings>),
}

/// Value of `source`, before its own settings are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdentitySource {
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

/// The `[identity]` table, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityTable {
    pub(crate) source: IdentitySource,
    pub(crate) trusted_proxies: Option<Vec<ProxyRange>>,
    pub(crate) tenant_header: Option<HeaderName>,
    pub(crate) caller_header: Option<HeaderName>,
    pub(crate) jwt: JwtTable,
    pub(crate) certificate: CertificateTable,
    pub(crate) introspection: IntrospectionTable,
    pub(crate) tls: ServiceTls,
}
