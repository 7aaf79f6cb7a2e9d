//! Choices that can be followed, and that weaken the promise: each with the reason.

use std::time::Duration;

use semel_core::Policy;
use semel_core::policy::{KeyRequirement, OnLeaseExpired, OnServerError};

use super::findings::Findings;
use super::{Config, Identity, StoreLocation};

const SHORT_TTL: Duration = Duration::from_secs(60 * 60);
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// Warns of every weak choice.
pub(super) fn config(findings: &mut Findings, config: &Config) {
    if config.store == StoreLocation::Memory {
        findings.warn("store", "records are gone when the process ends: a retry after that runs again");
    }
    if !config.admin_listen.ip().is_loopback() {
        let message = "the admin listener asks nobody who they are: whoever can reach it is an operator";
        findings.warn("admin_listen", message);
    }
    if let Identity::TrustedHeaders { proxies, .. } = &config.identity
        && let Some(range) = proxies.iter().find(|range| range.is_everybody())
    {
        let message = format!("{range} is everybody: any client can claim to be any caller");
        findings.warn("identity.trusted_proxies", message);
    }
    policy(findings, "defaults", &config.defaults, &config.store);
    for operation in &config.operations {
        policy(findings, &format!("operation.{}", operation.name), &operation.policy, &config.store);
    }
}

/// Warns of what was set under `prefix`: what an operation has from the defaults was warned of there.
fn policy(findings: &mut Findings, prefix: &str, policy: &Policy, store: &StoreLocation) {
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
        ("lease", policy.lease < SHORT_LEASE, "a short pause of this process or its store ends the lease"),
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
            policy.store_credentials && *store != StoreLocation::Memory,
            "whoever can read the store can act as the caller: credentials are kept there in the clear until their \
             command is carried out",
        ),
    ];
    for (name, applies, message) in weak {
        let path = format!("{prefix}.{name}");
        if applies && findings.is_set(&path) {
            findings.warn(&path, message);
        }
    }
}
