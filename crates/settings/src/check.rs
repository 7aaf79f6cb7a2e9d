//! What is wrong although every single value can be read: settings that do not go together.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, Method, Uri, header};
use semel_core::policy::PolicyError;
use semel_core::route::RoutePath;
use semel_core::{OperationName, Policy};
use semel_flow::reconcile::http::Gone;

use super::Config;
use super::client_certificate;
use super::cors;
use super::findings::Findings;
use super::identity::{Identity, IdentitySource, IdentityTable};
use super::introspection;
use super::jwt;
use super::limits;
use super::look_up::{LookUpTable, LookUpUrl, ambiguous};
use super::operation::{self, OperationConfig};
use super::outgoing;
use super::pass;
use super::source::Origin;
use super::tls;
use super::upstream::port_of;
use super::webhook::{SchemeName, WebhookConfig, WebhookTable};

/// Whether the policy under `prefix` can be followed.
pub(super) fn policy(findings: &mut Findings, prefix: &str, policy: &Policy) {
    let Err(error) = policy.validate() else { return };
    let names: &[&str] = match &error {
        PolicyError::Zero(name) | PolicyError::TooLong(name, _) => &[*name],
        PolicyError::OnlyPhasesResume => &["on_lease_expired"],
        PolicyError::LeaseTooShort => &["lease"],
        PolicyError::KeyLengths => &["key_min_length", "key_max_length"],
        PolicyError::ResponseTooLarge => &["max_stored_response"],
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
        IdentitySource::None => {
            let alone = no_header_settings(findings, "none")
                & no_token_settings(findings, "none")
                & no_introspection_settings(findings, "none")
                & no_fixed_tenant(findings, "none");
            alone.then_some(Identity::None)
        }
        IdentitySource::ApiKey => {
            let alone = no_header_settings(findings, "api-key")
                & no_token_settings(findings, "api-key")
                & no_introspection_settings(findings, "api-key")
                & no_fixed_tenant(findings, "api-key");
            alone.then_some(Identity::ApiKey)
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
            jwt::check(findings, &table.jwt, &table.tls).map(|settings| Identity::Jwt(Box::new(settings)))
        }
        IdentitySource::ClientCertificate => {
            no_header_settings(findings, "client-certificate");
            no_token_settings(findings, "client-certificate");
            no_introspection_settings(findings, "client-certificate");
            Some(Identity::ClientCertificate(client_certificate::check(findings, &table.certificate)?))
        }
        IdentitySource::Introspection => {
            no_header_settings(findings, "introspection");
            no_token_settings(findings, "introspection");
            introspection::check(findings, table).map(|settings| Identity::Introspection(Box::new(settings)))
        }
    }
}

const HEADER_SETTINGS: [&str; 3] =
    ["identity.trusted_proxies", "identity.tenant_header", "identity.caller_header"];

/// A caller is never known by the bytes of its token.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

fn no_header_settings(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &HEADER_SETTINGS, "trusted-headers", source)
}

fn no_token_settings(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &jwt::REQUIRED.map(|(path, _)| path), "jwt", source)
}

/// Those that have a default may stand in the file and mean nothing.
fn no_introspection_settings(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &introspection::OWN, "introspection", source)
}

fn no_fixed_tenant(findings: &mut Findings, source: &str) -> bool {
    go_with(findings, &["identity.fixed_tenant"], "client-certificate\"` or `\"introspection", source)
}

/// Says of each of these settings that it means nothing with this source; whether none is set.
fn go_with(findings: &mut Findings, paths: &[&str], owner: &str, source: &str) -> bool {
    let set: Vec<_> = paths.iter().copied().filter(|path| findings.is_set(path)).collect();
    for path in &set {
        let message = format!("goes with `source = \"{owner}\"` only, and `source` is \"{source}\"");
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

/// Whether the settings of an `[operation.reconcile]` go together.
pub(super) fn look_up(findings: &mut Findings, prefix: &str, table: &LookUpTable) {
    let reading = &table.reading;
    outgoing::check(findings, (prefix, ""), &table.tls, table.url.as_ref().map(LookUpUrl::address));
    let path = |name: &str| format!("{prefix}.{name}");
    let words = ["executed", "failed", "pending"];
    if reading.status.is_none() {
        for name in words.map(path) {
            if findings.is_set(&name) {
                let message = "goes with `status` only, which says where in the answer it is looked for";
                findings.error(findings.origin(&name), &name, message);
            }
        }
    } else if reading.executed.is_empty() && findings.are_readable(&[&path("executed")]) {
        let message = "says where a word is, and `executed` does not say which word means that it took place";
        findings.error(findings.origin(&path("status")), &path("status"), message);
    }
    if reading.status.is_none() && reading.reference.is_none() && table.url.is_some() {
        let message = "missing, and so is `status`: with neither of them, nothing in an answer tells that it is about the \
                       command";
        if findings.are_readable(&[&path("reference"), &path("status")]) {
            findings.error(findings.origin(&path("url")), &path("reference"), message);
        }
    }
    if reading.gone == Gone::Tombstone
        && reading.reference.is_none()
        && findings.are_readable(&[&path("reference")])
    {
        let message = "needs `reference`: a tombstone names its command";
        findings.error(findings.origin(&path("gone")), &path("gone"), message);
    }
    if let Some(word) = ambiguous(&[&reading.executed, &reading.failed, &reading.pending]) {
        let lists: [(&str, &[String]); 3] =
            [("executed", &reading.executed), ("failed", &reading.failed), ("pending", &reading.pending)];
        twofold(findings, prefix, &lists, word);
    }
}

/// Whether the settings of a `[[webhook]]` go together.
pub(super) fn webhook(findings: &mut Findings, prefix: &str, table: &WebhookTable, origin: &Origin) {
    let path = |name: &str| format!("{prefix}.{name}");
    let mut wrong = |name: &str, message: &str| {
        let path = path(name);
        let place = if findings.is_set(&path) { findings.origin(&path) } else { origin.clone() };
        if findings.are_readable(&[&path]) {
            findings.error(place, &path, message);
        }
    };
    if table.event_id.is_none() && table.scheme != SchemeName::Semel {
        wrong("event_id", "missing: without it nobody knows whether an event came before");
    }
    if table.signature_header.is_some() && table.scheme != SchemeName::Body {
        wrong("signature_header", "goes with `scheme = \"body\"` only");
    }
    if table.executed.is_empty() && table.failed.is_empty() && table.not_executed.is_empty() {
        wrong("executed", "missing: no event would be a verdict");
    }
    match (table.not_executed.is_empty(), table.proof) {
        (false, None) => wrong(
            "not_executed",
            "frees keys, and a call may still be on its way: say with `proof` why none can take effect any more",
        ),
        (true, Some(_)) => wrong("proof", "goes with `not_executed` only"),
        (true, None) | (false, Some(_)) => {}
    }
    for (name, empty) in
        [("secret_env", table.secret_env.is_empty()), ("operations", table.operations.is_empty())]
    {
        let set = path(name);
        if empty && findings.is_set(&set) && findings.are_readable(&[&set]) {
            findings.error(findings.origin(&set), &set, "is empty: nothing that comes would be believed");
        }
    }
    if let Some(word) = ambiguous(&[&table.executed, &table.failed, &table.not_executed]) {
        let lists: [(&str, &[String]); 3] =
            [("executed", &table.executed), ("failed", &table.failed), ("not_executed", &table.not_executed)];
        twofold(findings, prefix, &lists, word);
    }
}

/// A word that is in two lists means two things.
fn twofold(findings: &mut Findings, prefix: &str, lists: &[(&str, &[String])], word: &str) {
    let mut holders = lists.iter().filter(|(_, words)| words.iter().any(|own| own == word));
    let (Some((first, _)), second) = (holders.next(), holders.next()) else { return };
    let path = format!("{prefix}.{}", second.map_or(*first, |(name, _)| *name));
    if findings.is_set(&path) {
        let message = format!("\"{word}\" is there twice, also in `{first}`, and would mean two things");
        findings.error(findings.origin(&path), &path, message);
    }
}

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
        // Two sources have two secrets, and whoever has one must not speak about the other's commands.
        let shares = |other: &&WebhookConfig| {
            other.name != webhook.name
                && other.operations.iter().any(|operation| webhook.operations.contains(operation))
        };
        let other = config.webhooks.iter().find(shares).filter(|_| webhook.tenants.is_none());
        if let Some(other) = other.filter(|_| findings.are_readable(&[&path("tenants")])) {
            let (path, other) = (path("tenants"), &other.name);
            let message = format!(
                "missing: the webhook `{other}` speaks about the same operations with another secret; name the tenants \
                 whose commands each of them may settle"
            );
            findings.error(findings.origin(&format!("webhook.{}.operations", webhook.name)), &path, message);
        }
    }
}

/// Whether the settings of a configuration go together.
pub(super) fn config(findings: &mut Findings, config: &Config, source: IdentitySource) {
    webhooks_are_apart(findings, config);
    limits::check(findings, config);
    cors::check(findings, config);
    pass::check(findings, &config.pass);
    anonymous_callers_are_local(findings, config, source);
    anonymous_callers_need_no_authorization(findings, &config.operations);
    listeners_are_apart(findings, config);
    upstream_is_not_us(findings, config);
    tls::go_together(findings, config, source);
    outgoing::check_authorization(findings, config);
    names_are_unique(findings, &config.operations);
    routes_are_unique(findings, &config.operations);
    routes_are_apart(findings, &config.operations);
}

fn anonymous_callers_are_local(findings: &mut Findings, config: &Config, source: IdentitySource) {
    let readable = findings.are_readable(&["listen", "identity.source"]);
    if readable && source == IdentitySource::None && !config.listen.ip().is_loopback() {
        let message = format!(
            "{} can be reached from elsewhere, and without an identity every caller would be the same one. There are two \
             ways out: say who calls, with a `source` in `[identity]` such as \"api-key\", \"jwt\", or \"trusted-headers\" \
             behind a proxy that authenticates; or listen on a loopback address such as 127.0.0.1, for a proxy beside it on \
             the same machine or in the same pod",
            config.listen
        );
        findings.error(findings.origin("listen"), "listen", message);
    }
}

/// Checks that no operation asks whether callers may whom nobody knows.
fn anonymous_callers_need_no_authorization(findings: &mut Findings, operations: &[OperationConfig]) {
    for operation in operations.iter().filter(|operation| operation.anonymous) {
        let path = format!("{}.anonymous", operation::path(&operation.name));
        if operation.authorization.url.is_some() {
            let message = "does not go with `authorize_url`, which cannot be asked about a caller without a name: set \
                           `authorize_url = \"off\"` for this operation, or leave this out";
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
    same_host && port_of(upstream) == listen.port()
}

fn names_are_unique(findings: &mut Findings, operations: &[OperationConfig]) {
    for (index, operation) in operations.iter().enumerate() {
        let others = || operations.iter().enumerate().filter(move |(other, _)| *other != index);
        let path = format!("{}.aliases", operation::path(&operation.name));
        if let Some((_, owner)) = others().find(|(_, other)| operation.aliases.contains(&other.name)) {
            let message = format!("`{}` is the name of another operation, and no former one", owner.name);
            findings.error(findings.origin(&path), &path, message);
        }
        let mut earlier = operations[..index].iter().flat_map(|earlier| &earlier.aliases);
        let repeated = |(place, alias): &(usize, &OperationName)| {
            operation.aliases[..*place].contains(alias) || earlier.any(|other| other == *alias)
        };
        if let Some((_, twice)) = operation.aliases.iter().enumerate().find(repeated) {
            let message = format!("`{twice}` is there twice, in its one form: records have one operation");
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

/// Whether no path may be taken for one of two operations, and each route can be asked for.
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
                "may be taken for the route of `{}`: they differ by a slash at the end, by upper and lower case, or by what \
                 is encoded only; if these are other paths to the upstream, say so in both with `trailing_slash = \
                 \"other\"` or `letter_case = \"other\"`",
                other.name
            );
            findings.error(findings.origin(&path), &path, message);
        }
    }
}
