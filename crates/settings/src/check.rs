//! Rules across tables: settings that do not go together, although each can be read.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use http::{Method, Uri};
use semel_core::OperationName;
use semel_core::route::RoutePath;

use crate::configuration::Config;
use crate::engine::findings::Findings;
use crate::parts::service;
use crate::tables::cors;
use crate::tables::identity::IdentitySource;
use crate::tables::limits;
use crate::tables::operation::{self, OperationConfig};
use crate::tables::pass;
use crate::tables::upstream::{UpstreamProtocol, is_encrypted, port_of};
use crate::tables::webhook::WebhookConfig;

fn webhooks_are_apart(findings: &mut Findings, config: &Config) {
    for (index, webhook) in config.webhooks.iter().enumerate() {
        let path = |name: &str| format!("webhook.{}.{name}", webhook.name);
        if config.webhooks[..index].iter().any(|other| other.name == webhook.name) {
            let path = path("name");
            findings.error(findings.origin(&path), &path, "another webhook has this name already");
        }
        let is_known = |name: &OperationName| {
            config.operations.iter().any(|operation| operation.names().any(|known| known == name))
        };
        if let Some(unknown) = webhook.operations.iter().find(|name| !is_known(name)) {
            let path = path("operations");
            let message = format!("there is no `[[operation]]` of the name `{unknown}`");
            findings.error(findings.origin(&path), &path, message);
        }
        // Two webhooks have two secrets, and the holder of one must not report on the other's commands.
        let shares = |other: &&WebhookConfig| {
            other.name != webhook.name
                && other.operations.iter().any(|operation| webhook.operations.contains(operation))
        };
        let other = config.webhooks.iter().find(shares).filter(|_| webhook.tenants.is_none());
        if let Some(other) = other.filter(|_| findings.are_readable(&[&path("tenants")])) {
            let (path, other) = (path("tenants"), &other.name);
            let message = format!(
                "missing: the webhook `{other}` has another secret for the same operations; name the \
                 tenants whose commands each webhook may settle"
            );
            findings.error(findings.origin(&format!("webhook.{}.operations", webhook.name)), &path, message);
        }
    }
}

/// Checks that the settings of a configuration go together.
pub(crate) fn config(findings: &mut Findings, config: &Config, source: IdentitySource) {
    webhooks_are_apart(findings, config);
    limits::check(findings, &config.limits);
    cors::check(findings, &config.cors);
    pass::check(findings, &config.pass);
    anonymous_callers_are_local(findings, config, source);
    anonymous_callers_need_no_authorization(findings, &config.operations);
    listeners_are_apart(findings, config);
    upstream_is_not_us(findings, config);
    tls_goes_together(findings, config, source);
    authorization(findings, config);
    names_are_unique(findings, &config.operations);
    routes_are_unique(findings, &config.operations);
    routes_are_apart(findings, &config.operations);
}

fn anonymous_callers_are_local(findings: &mut Findings, config: &Config, source: IdentitySource) {
    let readable = findings.are_readable(&["listen", "identity.source"]);
    if readable && source == IdentitySource::None && !config.listen.ip().is_loopback() {
        let message = format!(
            "{} is reachable from other machines, and without an identity all callers would count as the \
             same one. Either set a `source` in `[identity]`, such as \"api-key\", \"jwt\", or \
             \"trusted-headers\" behind a proxy that authenticates; or listen on a loopback address such as \
             127.0.0.1, for a proxy on the same machine or in the same pod",
            config.listen
        );
        findings.error(findings.origin("listen"), "listen", message);
    }
}

/// Checks that no anonymous operation has an authorization service, which cannot be asked about unknown
/// callers.
fn anonymous_callers_need_no_authorization(findings: &mut Findings, operations: &[OperationConfig]) {
    for operation in operations.iter().filter(|operation| operation.anonymous) {
        let path = format!("{}.anonymous", operation::path(&operation.name));
        if operation.authorization.url.is_some() {
            let message = "conflicts with `authorize_url`, which cannot authorize a caller without a name: \
                           set `authorize_url = \"off\"` for this operation, or remove `anonymous`";
            findings.error(findings.origin(&path), &path, message);
        }
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

/// Returns true if both cannot be bound. Port 0 is a different one each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_address = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && same_address
}

fn upstream_is_not_us(findings: &mut Findings, config: &Config) {
    let paths = ["upstream", "listen"];
    if findings.are_readable(&paths) && leads_to(&config.upstream, config.listen) {
        let message = format!(
            "leads back to `listen` ({}), so every request would loop: set the address of your service",
            config.listen
        );
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
    same_host && port_of(upstream) == listen.port()
}

fn names_are_unique(findings: &mut Findings, operations: &[OperationConfig]) {
    for (index, operation) in operations.iter().enumerate() {
        let others = || operations.iter().enumerate().filter(move |(other, _)| *other != index);
        let path = format!("{}.aliases", operation::path(&operation.name));
        if let Some((_, owner)) = others().find(|(_, other)| operation.aliases.contains(&other.name)) {
            let message = format!(
                "`{}` is the current name of another operation: an alias is a former name, so remove it \
                 here",
                owner.name
            );
            findings.error(findings.origin(&path), &path, message);
        }
        let mut earlier = operations[..index].iter().flat_map(|earlier| &earlier.aliases);
        let repeated = |(place, alias): &(usize, &OperationName)| {
            operation.aliases[..*place].contains(alias) || earlier.any(|other| other == *alias)
        };
        if let Some((_, twice)) = operation.aliases.iter().enumerate().find(repeated) {
            let message = format!(
                "`{twice}` is listed twice, perhaps in another spelling: a record belongs to one operation, \
                 so remove one of them"
            );
            findings.error(findings.origin(&path), &path, message);
        }
        if others().any(|(other, twin)| other < index && twin.name == operation.name) {
            let path = format!("{}.name", operation::path(&operation.name));
            findings.error(findings.origin(&path), &path, "another operation has this name already");
        }
    }
}

fn routes_are_unique(findings: &mut Findings, operations: &[OperationConfig]) {
    let mut by_method: HashMap<&Method, matchit::Router<&OperationConfig>> = HashMap::new();
    for operation in operations {
        let router = by_method.entry(&operation.route.method).or_default();
        let Err(error) = router.insert(operation.route.path.as_str(), operation) else { continue };
        let path = format!("{}.match", operation::path(&operation.name));
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

/// Checks that no path may be taken for one of two operations, and that each route can be asked for.
fn routes_are_apart(findings: &mut Findings, operations: &[OperationConfig]) {
    for (index, operation) in operations.iter().enumerate() {
        let path = format!("{}.match", operation::path(&operation.name));
        let Ok(route) = RoutePath::parse(&operation.route.path) else { continue };
        if let Some(refused) = route.refused_by(operation.allow.iter().copied().collect()) {
            findings.error(findings.origin(&path), &path, format!("{refused} Name it in `allow`"));
        }
        let confused = |other: &&OperationConfig| {
            other.route.method == operation.route.method
                && RoutePath::parse(&other.route.path).is_ok_and(|other_route| {
                    route.is_confused_with(&operation.policy, &other_route, &other.policy)
                })
        };
        if let Some(other) = operations[..index].iter().find(confused) {
            let message = format!(
                "is ambiguous with the route of `{}`: the two differ only by a slash at the end, by upper \
                 and lower case, or by percent-encoding; if they are different paths to the upstream, set \
                 `trailing_slash = \"other\"` or `letter_case = \"other\"` in both operations",
                other.name
            );
            findings.error(findings.origin(&path), &path, message);
        }
    }
}

/// Checks that the settings of TLS go with the identity and the upstream.
fn tls_goes_together(findings: &mut Findings, config: &Config, source: IdentitySource) {
    let asks = findings.is_set("tls.client_ca");
    if source == IdentitySource::ClientCertificate && !asks && findings.are_readable(&["identity.source"]) {
        let message = "\"client-certificate\" needs `client_ca` in `[tls]`, beside `certificate` and `key`: \
                       the authorities of client certificates";
        findings.error(findings.origin("identity.source"), "identity.source", message);
    }
    if !findings.are_readable(&["upstream", "upstream_protocol"]) {
        return;
    }
    let message = match (config.upstream_protocol, is_encrypted(&config.upstream)) {
        (UpstreamProtocol::H2c, true) => {
            "\"h2c\" is HTTP/2 without TLS, and `upstream` begins with https://: use \"h2\""
        }
        (UpstreamProtocol::H2, false) => {
            "\"h2\" is HTTP/2 over TLS, and `upstream` begins with http://: use \"h2c\""
        }
        (UpstreamProtocol::H2c, false) | (UpstreamProtocol::H2, true) | (UpstreamProtocol::Http1, _) => {
            return;
        }
    };
    findings.error(findings.origin("upstream_protocol"), "upstream_protocol", message);
}

/// Checks the files beside each `authorize_url`.
fn authorization(findings: &mut Findings, config: &Config) {
    service::check(
        findings,
        ("defaults", "authorize_"),
        &config.authorization.tls,
        config.authorization.url.as_ref(),
    );
    for operation in &config.operations {
        let (table, settings) = (operation::path(&operation.name), &operation.authorization);
        service::check(findings, (&table, "authorize_"), &settings.tls, settings.url.as_ref());
    }
}
