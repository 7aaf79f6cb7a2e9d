//! What is wrong although every single value can be read: settings that do not go together.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, Method, Uri, header};
use semel_core::Policy;
use semel_core::policy::PolicyError;

use super::Config;
use super::findings::Findings;
use super::identity::{Identity, IdentitySource, IdentityTable};
use super::operation::OperationConfig;
use super::source::Origin;

/// Whether the policy under `prefix` can be followed.
pub(super) fn policy(findings: &mut Findings, prefix: &str, policy: &Policy) {
    let Err(error) = policy.validate() else { return };
    let names: &[&str] = match &error {
        PolicyError::Zero(name) | PolicyError::TooLong(name, _) => &[*name],
        PolicyError::OnlyPhasesResume => &["on_lease_expired"],
        PolicyError::LeaseTooShort => &["lease"],
        PolicyError::KeyLengths => &["key_min_length", "key_max_length"],
    };
    let paths: Vec<_> = names.iter().map(|name| format!("{prefix}.{name}")).collect();
    match paths.iter().find(|path| findings.is_set(path)) {
        Some(path) => findings.error(findings.origin(path), path, error.to_string()),
        // What an operation does not set itself was checked with the defaults.
        None if prefix != "defaults" => {}
        None => findings.error(Origin::Default, prefix, error.to_string()),
    }
}

/// Puts the `[identity]` table together, if its settings go together.
pub(super) fn identity(findings: &mut Findings, table: &IdentityTable) -> Option<Identity> {
    if !findings.are_readable(&["identity.source"]) {
        return None;
    }
    match table.source {
        IdentitySource::None => no_header_settings(findings, "none").then_some(Identity::None),
        IdentitySource::ApiKey => no_header_settings(findings, "api-key").then_some(Identity::ApiKey),
        IdentitySource::TrustedHeaders => trusted_headers(findings, table),
    }
}

const HEADER_SETTINGS: [&str; 3] =
    ["identity.trusted_proxies", "identity.tenant_header", "identity.caller_header"];

/// A caller is never known by the bytes of its token.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

fn no_header_settings(findings: &mut Findings, source: &str) -> bool {
    let set: Vec<_> = HEADER_SETTINGS.into_iter().filter(|path| findings.is_set(path)).collect();
    for path in &set {
        let message = format!("goes with `source = \"trusted-headers\"` only, and `source` is \"{source}\"");
        findings.error(findings.origin(path), path, message);
    }
    set.is_empty()
}

fn trusted_headers(findings: &mut Findings, table: &IdentityTable) -> Option<Identity> {
    for path in HEADER_SETTINGS {
        if !findings.is_set(path) {
            let message = "missing: `source = \"trusted-headers\"` needs it";
            findings.error(findings.origin("identity.source"), path, message);
        }
    }
    for (path, header) in HEADER_SETTINGS[1..].iter().zip([&table.tenant_header, &table.caller_header]) {
        if let Some(header) = header.as_ref().filter(|header| CREDENTIALS.contains(header)) {
            let message = format!(
                "`{header}` carries a credential, which changes while the caller stays the same: expected a header \
                 that names who calls"
            );
            findings.error(findings.origin(path), path, message);
        }
    }
    if table.trusted_proxies.as_ref().is_some_and(Vec::is_empty) {
        let path = "identity.trusted_proxies";
        let message = "names no proxy, so nobody could send a command: expected at least one address";
        findings.error(findings.origin(path), path, message);
    }
    Some(Identity::TrustedHeaders {
        proxies: table.trusted_proxies.clone()?,
        tenant_header: table.tenant_header.clone()?,
        caller_header: table.caller_header.clone()?,
    })
}

/// Whether the settings of a configuration go together.
pub(super) fn config(findings: &mut Findings, config: &Config, source: IdentitySource) {
    anonymous_callers_are_local(findings, config, source);
    listeners_are_apart(findings, config);
    upstream_is_not_us(findings, config);
    names_are_unique(findings, &config.operations);
    routes_are_unique(findings, &config.operations);
}

fn anonymous_callers_are_local(findings: &mut Findings, config: &Config, source: IdentitySource) {
    let readable = findings.are_readable(&["listen", "identity.source"]);
    if readable && source == IdentitySource::None && !config.listen.ip().is_loopback() {
        let message = format!(
            "{} can be reached from elsewhere, and `source = \"none\"` in `[identity]` takes every caller for \
             the same one: listen on a loopback address such as 127.0.0.1, or choose another source",
            config.listen
        );
        findings.error(findings.origin("listen"), "listen", message);
    }
}

fn listeners_are_apart(findings: &mut Findings, config: &Config) {
    let paths = ["admin_listen", "listen"];
    if findings.are_readable(&paths) && overlap(config.listen, config.admin_listen) {
        let message =
            format!("{} is taken by `listen` ({}): choose another port", config.admin_listen, config.listen);
        let set = paths.into_iter().find(|path| findings.is_set(path)).unwrap_or(paths[0]);
        findings.error(findings.origin(set), "admin_listen", message);
    }
}

/// Whether both cannot be bound. Port 0 is a different one each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_address = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && same_address
}

fn upstream_is_not_us(findings: &mut Findings, config: &Config) {
    let paths = ["upstream", "listen"];
    if findings.are_readable(&paths) && leads_to(&config.upstream, config.listen) {
        let message =
            format!("leads back to `listen` ({}): every command would go round in a circle", config.listen);
        let set = paths.into_iter().find(|path| findings.is_set(path)).unwrap_or(paths[0]);
        findings.error(findings.origin(set), "upstream", message);
    }
}

fn leads_to(upstream: &Uri, listen: SocketAddr) -> bool {
    let host = upstream.host().unwrap_or_default().trim_matches(['[', ']']);
    let same_host = match host.parse::<IpAddr>() {
        Ok(ip) if listen.ip().is_unspecified() => ip.is_loopback() || ip.is_unspecified(),
        Ok(ip) => ip == listen.ip() || (ip.is_unspecified() && listen.ip().is_loopback()),
        Err(_) => {
            host.eq_ignore_ascii_case("localhost")
                && (listen.ip().is_loopback() || listen.ip().is_unspecified())
        }
    };
    same_host && upstream.port_u16().unwrap_or(80) == listen.port()
}

fn names_are_unique(findings: &mut Findings, operations: &[OperationConfig]) {
    for (index, operation) in operations.iter().enumerate() {
        let others = || operations.iter().enumerate().filter(move |(other, _)| *other != index);
        let path = format!("operation.{}.aliases", operation.name);
        if let Some((_, owner)) = others().find(|(_, other)| operation.aliases.contains(&other.name)) {
            let message = format!("`{}` is the name of another operation, and no former one", owner.name);
            findings.error(findings.origin(&path), &path, message);
        }
        if others().any(|(other, twin)| other < index && twin.name == operation.name) {
            let path = format!("operation.{}.name", operation.name);
            findings.error(findings.origin(&path), &path, "another operation has this name already");
        }
    }
}

fn routes_are_unique(findings: &mut Findings, operations: &[OperationConfig]) {
    let mut by_method: HashMap<&Method, matchit::Router<&OperationConfig>> = HashMap::new();
    for operation in operations {
        let router = by_method.entry(&operation.route.method).or_default();
        let Err(error) = router.insert(operation.route.path.as_str(), operation) else { continue };
        let path = format!("operation.{}.match", operation.name);
        let message = match error {
            matchit::InsertError::Conflict { with } => {
                let twin = operations
                    .iter()
                    .find(|other| other.route.method == operation.route.method && other.route.path == with);
                let name = twin.map_or(with.as_str(), |twin| twin.name.as_str());
                format!("matches the same requests as the operation `{name}`")
            }
            other => other.to_string(),
        };
        findings.error(findings.origin(&path), &path, message);
    }
}
