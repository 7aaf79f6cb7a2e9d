//! Warnings of valid choices that weaken a guarantee, each with the reason.

use std::time::Duration;

use semel_core::Policy;
use semel_core::StoreLocation;
use semel_core::policy::{KeepRequest, KeyRequirement, OnLeaseExpired, OnServerError, Profile, Spelling};
use semel_core::reading::{NotFound, Scheme};

use crate::configuration::Config;
use crate::engine::findings::Findings;
use crate::parts::proxies::ForwardedMode;
use crate::parts::route::Route;
use crate::parts::secret::is_readable_by_others;
use crate::parts::service::{ServiceAddress, exposed, private_key};
use crate::tables::authorization::Authorization;
use crate::tables::encryption;
use crate::tables::identity::PrincipalSource;
use crate::tables::introspection;
use crate::tables::jwt;
use crate::tables::ledger::LedgerSource;
use crate::tables::look_up::LookUpConfig;
use crate::tables::operation::{self, OperationConfig};
use crate::tables::sso;
use crate::tables::tls::ListenerTls;
use crate::tables::traces;

const SHORT_TTL: Duration = Duration::from_secs(60 * 60);
const LONG_MEMORY: Duration = Duration::from_secs(60);
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// Warns of every weak choice.
pub(crate) fn config(findings: &mut Findings, config: &Config) {
    if config.store == StoreLocation::Memory {
        findings.warn("store", "records are lost when the process ends: a retry after that runs again");
    }
    admin(findings, config);
    if let PrincipalSource::TrustedHeaders { proxies, .. } = &config.identity
        && let Some(range) = proxies.iter().find(|range| range.is_everybody())
    {
        let message = format!("{range} includes every address: any client can claim to be any caller");
        findings.warn("identity.trusted_proxies", message);
    }
    if let Some(range) = config.forwarded_from.iter().find(|range| range.is_everybody()) {
        let message =
            format!("{range} includes every address: any client can claim to come from any address");
        findings.warn("forwarded_from", message);
    }
    if config.forwarded != ForwardedMode::Set
        && findings.is_set("forwarded")
        && config.trusted_proxies().is_empty()
    {
        let message =
            "no proxy is trusted, so every peer's fields are replaced: name proxies in `forwarded_from`";
        findings.warn("forwarded", message);
    }
    if let PrincipalSource::Jwt(settings) = &config.identity {
        jwt::warn(findings, settings);
    }
    if let PrincipalSource::Introspection(settings) = &config.identity {
        introspection::warn(findings, settings);
    }
    tls(findings, config);
    services(findings, config);
    if let Some(traces) = &config.traces {
        traces::warn(findings, traces);
    }
    if let Some(encryption) = &config.encryption {
        encryption::warn(findings, encryption);
    }
    // Records in memory, and encrypted ones, are in the clear in no file.
    let in_the_clear = config.store != StoreLocation::Memory && config.encryption.is_none();
    policy(findings, "defaults", &config.defaults, in_the_clear);
    long_memory(findings, "defaults", &config.authorization);
    for operation in &config.operations {
        let prefix = operation::path(&operation.name);
        policy(findings, &prefix, &operation.policy, in_the_clear);
        trailing_slash(findings, &prefix, operation);
        if operation.anonymous {
            let message = match config.identity {
                PrincipalSource::None => {
                    "has no effect with `source = \"none\"`: every caller is known as `local`"
                }
                _ => "a command of an unknown caller passes unprotected: its retry runs again",
            };
            findings.warn(&format!("{prefix}.anonymous"), message);
        }
        long_memory(findings, &prefix, &operation.authorization);
        if let Some(asked) = &operation.reconcile {
            look_up(findings, &format!("{prefix}.reconcile"), asked);
        }
    }
    for webhook in config.webhooks.iter().filter(|webhook| matches!(webhook.scheme, Scheme::Body(_))) {
        let message = "its signatures carry no time: anybody who has seen an event can send it again at any \
                       time";
        findings.warn(&format!("webhook.{}.scheme", webhook.name), message);
    }
}

fn long_memory(findings: &mut Findings, prefix: &str, authorization: &Authorization) {
    let path = format!("{prefix}.authorize_cache");
    if authorization.cache > LONG_MEMORY && findings.is_set(&path) {
        findings.warn(
            &path,
            "a caller whose permission was revoked keeps access, and gets stored responses, for up to this \
             time",
        );
    }
}

/// Warns of a route that ends in a slash, which a client easily leaves out.
fn trailing_slash(findings: &mut Findings, prefix: &str, operation: &OperationConfig) {
    let Route { method, path } = &operation.route;
    let Some(without) = path.strip_suffix('/').filter(|rest| !rest.is_empty()) else { return };
    let is_meant = [&format!("{prefix}.trailing_slash"), "defaults.trailing_slash"]
        .iter()
        .any(|path| findings.is_set(path));
    if operation.policy.trailing_slash == Spelling::Refuse && !is_meant {
        let message = format!(
            "ends in a slash, and `{method} {without}` is refused: did you mean \"{method} {without}\"? If \
             not, set `trailing_slash`, the treatment of the path without the slash"
        );
        findings.warn(&format!("{prefix}.match"), message);
    }
}

/// Warns of weak conclusions from a provider's answers.
fn look_up(findings: &mut Findings, prefix: &str, asked: &LookUpConfig) {
    let reading = &asked.reading;
    if reading.not_found == NotFound::NotExecuted && !reading.deduplicates {
        let message = "a provider that shows commands late, or a wrong address, gives the same answer: the \
                       command can run twice";
        findings.warn(&format!("{prefix}.not_found"), message);
    }
    if reading.reference.is_none() && asked.url.asks_by_query() {
        let message = "a provider that ignores this parameter answers with other commands: set `reference`, \
                       the JSON Pointer to the operation id in its answer";
        findings.warn(&format!("{prefix}.url"), message);
    }
}

/// Warns of settings under `prefix`: those that an operation has from the defaults were warned of there.
fn policy(findings: &mut Findings, prefix: &str, policy: &Policy, in_the_clear: bool) {
    let weak = [
        (
            "key",
            policy.key == KeyRequirement::Optional,
            "a command without a key passes unprotected: its retry runs again",
        ),
        ("key", policy.key == KeyRequirement::Ignored, "nothing is protected here: every retry runs again"),
        (
            "ttl",
            policy.ttl < SHORT_TTL,
            "clients retry for longer than this after an outage: a retry after the ttl runs again",
        ),
        (
            "lease",
            policy.lease < SHORT_LEASE,
            "a short pause of this process or its store lets the lease expire",
        ),
        (
            "on_lease_expired",
            policy.on_lease_expired == OnLeaseExpired::Rerun,
            "an executor that lost its lease may have done the work: the command can run twice",
        ),
        (
            "on_server_error",
            policy.on_server_error == OnServerError::Retry,
            "a server error can follow the effect: the command can run twice",
        ),
        (
            "store_credentials",
            policy.store_credentials && in_the_clear,
            "credentials are stored unencrypted until their command is executed, and anybody who can read \
             the store can act as the caller: set `[encryption]`",
        ),
        (
            "keep_request",
            policy.keep_request == KeepRequest::WhileUnknown && in_the_clear,
            "requests are stored unencrypted until their outcome is known, and anybody who can read the \
             store can read them: set `[encryption]`",
        ),
    ];
    for (name, applies, message) in weak {
        let path = format!("{prefix}.{name}");
        if applies && findings.is_set(&path) {
            findings.warn(&path, message);
        }
    }
    let profile = format!("{prefix}.profile");
    let is_silent = ["defaults", prefix].iter().all(|table| !findings.is_set(&format!("{table}.key")));
    if policy.profile == Profile::Stripe && findings.is_set(&profile) && is_silent {
        let message = "commands without a key are refused, but Stripe's API accepts them: write `key = \
                       \"optional\"` to let them pass unprotected, or `key = \"required\"` to keep refusing \
                       them";
        findings.warn(&profile, message);
    }
}

/// Warns of a parameter in the query of an address that looks like a credential.
pub(crate) fn credential(findings: &mut Findings, path: &str, parameter: &str) {
    let message = format!(
        "`{parameter}` in the query looks like a credential: queries are written to the logs of proxies and services; use \
         `authorization_env` or a client certificate, where the service can read it"
    );
    findings.warn(path, message);
}

/// Warns of tokens that others can read.
fn admin(findings: &mut Findings, config: &Config) {
    let tokens = &config.admin_tokens;
    for token in tokens.iter().filter(|token| token.source.is_readable_by_others()) {
        let message = "other users of this machine can read the token: run `chmod 600` on the file";
        findings.warn(&token.setting(), message);
    }
    if let Some(settings) = &config.admin_sso {
        sso::warn(findings, settings);
    }
    let is_clear = config.admin_tls.is_none() && !config.admin_listen.ip().is_loopback();
    if !tokens.is_empty() && is_clear {
        let message = "tokens reach this listener unencrypted, and anybody on the network can read them: \
                       set `[admin_tls]`";
        findings.warn("admin_listen", message);
    }
}

/// Warns of private keys that others can read, and of credentials that cross a network in the clear.
fn tls(findings: &mut Findings, config: &Config) {
    let own = |tls: &Option<ListenerTls>| tls.as_ref().map(|tls| tls.own.clone());
    let keys = [
        ("tls.key", own(&config.tls)),
        ("admin_tls.key", own(&config.admin_tls)),
        ("upstream_tls.key", config.upstream_tls.own.clone()),
    ];
    for (path, own) in keys {
        if own.is_some_and(|own| is_readable_by_others(&own.key)) {
            let message = "other users of this machine can read the private key: run `chmod 600` on the \
                           file";
            findings.warn(path, message);
        }
    }
    let credentials = match &config.identity {
        PrincipalSource::ApiKey => "API keys",
        PrincipalSource::Jwt(_) => "tokens",
        PrincipalSource::Introspection(_) => "tokens and sessions",
        PrincipalSource::None
        | PrincipalSource::TrustedHeaders { .. }
        | PrincipalSource::ClientCertificate(_) => return,
    };
    if config.tls.is_none() && !config.listen.ip().is_loopback() {
        let message = format!(
            "{credentials} cross the network unencrypted, and anybody who sees one can act as its caller: \
             set `[tls]`, unless a proxy in front terminates TLS and nothing else reaches this address"
        );
        findings.warn("listen", message);
    }
}

/// Warns of credentials that cross a network in the clear, and of private keys that others can read.
fn services(findings: &mut Findings, config: &Config) {
    authorization(findings, "defaults", &config.authorization);
    for operation in &config.operations {
        let table = operation::path(&operation.name);
        authorization(findings, &table, &operation.authorization);
        if let Some(asked) = &operation.reconcile {
            let table = format!("{table}.reconcile");
            private_key(findings, &format!("{table}.key"), &asked.tls);
            if asked.authorization_env.is_some()
                && asked.url.address().is_some_and(ServiceAddress::is_exposed)
            {
                exposed(findings, &format!("{table}.url"), "the credential in `authorization_env` crosses");
            }
        }
    }
    if let Some(watch) = &config.ledger
        && let LedgerSource::Url(url) = &watch.comparison.theirs.source
    {
        private_key(findings, "ledger.key", &url.tls);
        if url.authorization_env.is_some() && url.address.is_exposed() {
            exposed(findings, "ledger.theirs", "the credential in `authorization_env` crosses");
        }
    }
}

fn authorization(findings: &mut Findings, table: &str, settings: &Authorization) {
    private_key(findings, &format!("{table}.authorize_key"), &settings.tls);
    if settings.url.as_ref().is_some_and(ServiceAddress::is_exposed) {
        exposed(findings, &format!("{table}.authorize_url"), "the callers' credentials cross");
    }
}
