//! TLS files of the configuration, read like at a gateway's start: for `semel config check` and `semel
//! doctor`.

use anyhow::Context;
use semel_core::Timestamp;
use semel_gateway::authorize::Authorizer;
use semel_gateway::identity::introspection;
use semel_gateway::tls;
use semel_gateway::tls::client::Connecting;
use semel_gateway::tls::live::{Recipe, make};
use semel_gateway::tls::server::Accepting;
use semel_settings::{Config, PrincipalSource};

use crate::ledger;

/// Certificate of the gateway, with its expiry.
pub struct GatewayCertificate {
    /// Setting that names it.
    pub setting: String,
    /// Expiry, if it can be read.
    pub ends: Option<Timestamp>,
}

/// Reads all files like a gateway at its start, and returns the gateway's own certificates.
///
/// # Errors
/// Fails if a gateway could not start with them.
pub fn look(config: &Config) -> anyhow::Result<Vec<GatewayCertificate>> {
    let mut shown = Vec::new();
    for settings in tls::for_clients(config).into_iter().chain(tls::for_admins(config)) {
        let Accepting { ends, .. } = make(&settings)?;
        shown.push(GatewayCertificate { setting: format!("{}.certificate", settings.table), ends });
    }
    if let Some(settings) = tls::for_upstream(config) {
        let Connecting { ends, .. } = make(&settings)?;
        if settings.tls.own.is_some() {
            shown.push(GatewayCertificate { setting: format!("{}.certificate", settings.table()), ends });
        }
    }
    Authorizer::new(config).context("`authorize_url`")?;
    if let PrincipalSource::Introspection(settings) = &config.identity {
        introspection::check(settings)?;
    }
    if let Some(watch) = &config.ledger {
        ledger::check_files(watch).context("`[ledger]`")?;
    }
    Ok(shown)
}
