//! Rules of `[identity]`: the settings that belong to each `source`.

use http::{HeaderName, header};

use crate::engine::findings::Findings;
use crate::tables::client_certificate;
use crate::tables::identity::{IdentitySource, IdentityTable, PrincipalSource};
use crate::tables::introspection;
use crate::tables::jwt;

/// Checks the `[identity]` table, and returns the identity if its settings are consistent.
pub(crate) fn check(findings: &mut Findings, table: &IdentityTable) -> Option<PrincipalSource> {
    if !findings.are_readable(&["identity.source"]) {
        return None;
    }
    match table.source {
        IdentitySource::None => {
            let alone = no_header_settings(findings, "none")
                & no_token_settings(findings, "none")
                & no_introspection_settings(findings, "none")
                & no_fixed_tenant(findings, "none");
            alone.then_some(PrincipalSource::None)
        }
        IdentitySource::ApiKey => {
            let alone = no_header_settings(findings, "api-key")
                & no_token_settings(findings, "api-key")
                & no_introspection_settings(findings, "api-key")
                & no_fixed_tenant(findings, "api-key");
            alone.then_some(PrincipalSource::ApiKey)
        }
        IdentitySource::TrustedHeaders => {
            no_token_settings(findings, "trusted-headers");
            no_introspection_settings(findings, "trusted-headers");
            no_fixed_tenant(findings, "trusted-headers");
            trusted_headers(findings, table)
        }
        IdentitySource::Jwt => {
            no_header_settings(findings, "jwt");
            no_introspection_settings(findings, "jwt");
            no_fixed_tenant(findings, "jwt");
            jwt::check(findings, &table.jwt, &table.tls)
                .map(|settings| PrincipalSource::Jwt(Box::new(settings)))
        }
        IdentitySource::ClientCertificate => {
            no_header_settings(findings, "client-certificate");
            no_token_settings(findings, "client-certificate");
            no_introspection_settings(findings, "client-certificate");
            Some(PrincipalSource::ClientCertificate(client_certificate::check(findings, &table.certificate)?))
        }
        IdentitySource::Introspection => {
            no_header_settings(findings, "introspection");
            no_token_settings(findings, "introspection");
            introspection::check(findings, &table.introspection, &table.jwt, &table.certificate, &table.tls)
                .map(|settings| PrincipalSource::Introspection(Box::new(settings)))
        }
    }
}

const HEADER_SETTINGS: [&str; 3] =
    ["identity.trusted_proxies", "identity.tenant_header", "identity.caller_header"];

/// Headers with credentials: a caller is never identified by the bytes of its token.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

fn no_header_settings(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &HEADER_SETTINGS, "trusted-headers", source)
}

fn no_token_settings(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &jwt::REQUIRED.map(|(path, _)| path), "jwt", source)
}

/// Reports introspection settings under another source. Those with a default may be in the file without
/// effect.
fn no_introspection_settings(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &introspection::OWN, "introspection", source)
}

fn no_fixed_tenant(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &["identity.fixed_tenant"], "client-certificate\"` or `\"introspection", source)
}

/// Reports each of these settings that is set without effect under this source; returns true if none is.
fn go_with(findings: &mut Findings, paths: &[&str], owner: &str, source: &str) -> bool {
    let set: Vec<_> = paths.iter().copied().filter(|path| findings.is_set(path)).collect();
    for path in &set {
        let message = format!("goes with `source = \"{owner}\"` only, and `source` is \"{source}\"");
        findings.error(findings.origin(path), path, message);
    }
    set.is_empty()
}

fn trusted_headers(findings: &mut Findings, table: &IdentityTable) -> Option<PrincipalSource> {
    for path in HEADER_SETTINGS {
        if !findings.is_set(path) {
            let message = "missing: `source = \"trusted-headers\"` needs it";
            findings.error(findings.origin("identity.source"), path, message);
        }
    }
    for (path, header) in HEADER_SETTINGS[1..].iter().zip([&table.tenant_header, &table.caller_header]) {
        if let Some(header) = header.as_ref().filter(|header| CREDENTIALS.contains(header)) {
            let message = format!(
                "`{header}` carries a credential, which changes while the caller stays the same: expected a \
                 header that names the tenant or caller"
            );
            findings.error(findings.origin(path), path, message);
        }
    }
    if table.trusted_proxies.as_ref().is_some_and(Vec::is_empty) {
        let path = "identity.trusted_proxies";
        let message = "is empty, so every command would be refused: list the address of at least one proxy";
        findings.error(findings.origin(path), path, message);
    }
    Some(PrincipalSource::TrustedHeaders {
        proxies: table.trusted_proxies.clone()?,
        tenant_header: table.tenant_header.clone()?,
        caller_header: table.caller_header.clone()?,
    })
}
