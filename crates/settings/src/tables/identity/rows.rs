//! The settings of `[identity]`.

use http::HeaderName;

use crate::engine::kind::{Choice, List, Maybe};
use crate::engine::setting::{Setting, setting};
use crate::parts::proxies::ProxyRange;
use crate::parts::scalar::{Period, Size, WaitTime};
use crate::parts::service::ServiceAddress;
use crate::parts::text::{FilePath, PrincipalName, Text, VariableName};
use crate::tables::client_certificate::CertificateField;
use crate::tables::identity::{IdentitySource, IdentityTable};
use crate::tables::introspection::{CookieName, Presentation};
use crate::tables::jwt::{JwtClaim, KeySource, SigningAlgorithm};

/// `[identity]`.
pub(crate) const IDENTITY: &[Setting<IdentityTable>] = &[
    setting!(
        "source",
        Choice<IdentitySource>,
        source,
        "Source of tenant and caller (none: on loopback only)"
    ),
    setting!(
        "trusted_proxies",
        Maybe<List<ProxyRange>>,
        trusted_proxies,
        "With trusted-headers: proxies whose requests name tenant and caller; no other peer may",
        "[\"127.0.0.1\", \"10.0.0.0/8\"]"
    ),
    setting!(
        "tenant_header",
        Maybe<HeaderName>,
        tenant_header,
        "With trusted-headers: the header that names the tenant",
        "\"X-Tenant\""
    ),
    setting!(
        "caller_header",
        Maybe<HeaderName>,
        caller_header,
        "With trusted-headers: the header that names the caller",
        "\"X-Caller\""
    ),
    setting!(
        "jwks",
        Maybe<KeySource>,
        jwt.jwks,
        "With jwt: the issuer's keys, in a file or at an http(s):// address",
        "\"https://issuer.example/jwks.json\""
    ),
    setting!(
        "issuer",
        Maybe<Text>,
        jwt.issuer,
        "With jwt: issuer of the tokens, their claim iss",
        "\"https://issuer.example\""
    ),
    setting!(
        "audience",
        Maybe<Text>,
        jwt.audience,
        "With jwt: audience of the tokens, their claim aud",
        "\"payments\""
    ),
    setting!(
        "algorithms",
        List<Choice<SigningAlgorithm>>,
        jwt.algorithms,
        "With jwt: accepted signature algorithms, each RS256, ES256, EdDSA or HS256"
    ),
    setting!(
        "tenant_claim",
        JwtClaim,
        jwt.tenant_claim,
        "With jwt and introspection: the claim that names the tenant, or a JSON Pointer to it"
    ),
    setting!(
        "caller_claim",
        JwtClaim,
        jwt.caller_claim,
        "With jwt and introspection: the claim that names the caller, or a JSON Pointer to it"
    ),
    setting!(
        "leeway",
        WaitTime,
        jwt.leeway,
        "With jwt: largest difference between the issuer's clock and this one"
    ),
    setting!(
        "jwks_refresh",
        Period,
        jwt.jwks_refresh,
        "With jwt: interval at which keys are fetched from an address"
    ),
    setting!(
        "max_token",
        Size<256>,
        jwt.max_token,
        "With jwt and introspection: the longest token or session"
    ),
    setting!(
        "introspection_url",
        Maybe<ServiceAddress>,
        introspection.url,
        "With introspection: address of the service that gets a token or a session, and names its tenant \
         and caller",
        "\"https://auth.example/introspect\""
    ),
    setting!(
        "introspection_request",
        Choice<Presentation>,
        introspection.presentation,
        "With introspection: request to that service (a form by POST, RFC 7662, or a GET with the client's \
         own header field)"
    ),
    setting!(
        "introspection_cookie",
        Maybe<CookieName>,
        introspection.cookie,
        "With introspection: the cookie that holds a session; without it, bearer tokens only",
        "\"session\""
    ),
    setting!(
        "introspection_authorization_env",
        Maybe<VariableName>,
        introspection.authorization_env,
        "With introspection: environment variable with the gateway's own Authorization header",
        "\"INTROSPECTION_AUTHORIZATION\""
    ),
    setting!(
        "introspection_timeout",
        Period,
        introspection.timeout,
        "With introspection: timeout of that request; after it, nothing runs"
    ),
    setting!(
        "introspection_cache",
        WaitTime,
        introspection.cache,
        "With introspection: time for which tenant and caller are cached, under a digest of the token"
    ),
    setting!(
        "introspection_refusal_cache",
        WaitTime,
        introspection.refusal_cache,
        "With introspection: time for which a refusal is cached; never longer than introspection_cache"
    ),
    setting!(
        "ca",
        Maybe<FilePath>,
        tls.ca,
        "With jwks or introspection_url at https://: file with the certificate authorities to trust, \
         instead of the system's",
        "\"/etc/semel/ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        tls.certificate,
        "With jwks or introspection_url at https://: file with the gateway's client certificate",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        tls.key,
        "With jwks or introspection_url at https://: file with the private key of the client certificate",
        "\"/etc/semel/gateway.key\""
    ),
    setting!(
        "tenant_field",
        Choice<CertificateField>,
        certificate.tenant_field,
        "With client-certificate: the part of a certificate that names the tenant"
    ),
    setting!(
        "caller_field",
        Choice<CertificateField>,
        certificate.caller_field,
        "With client-certificate: the part of a certificate that names the caller"
    ),
    setting!(
        "fixed_tenant",
        Maybe<PrincipalName>,
        certificate.fixed_tenant,
        "With client-certificate and introspection: the one tenant of all callers, instead of tenant_field or tenant_claim",
        "\"acme\""
    ),
];
