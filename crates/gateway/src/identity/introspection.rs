//! Opaque tokens and sessions: a service receives the credential, and names its tenant and caller.
//!
//! `credential` takes the token or the session out of a request, `introspector` asks and caches, and
//! `verdict` reads the answer of the service.

mod credential;
mod introspector;
mod verdict;

use std::pin::Pin;
use std::sync::Arc;

use http::header::HeaderValue;
use http::request::Parts;
use metrics::counter;
use semel_core::Principal;
use semel_http::Denied;
use semel_outgoing::Client;
use semel_settings::IntrospectionSettings;

use crate::peer::{Peer, network};
use crate::service::tls_settings;
use credential::Credential;
use introspector::Introspector;

/// Reads everything from outside that introspection needs: the TLS files and the variable.
///
/// # Errors
/// Fails if something is missing or cannot be used.
pub fn check(settings: &IntrospectionSettings) -> anyhow::Result<()> {
    Introspector::new(settings).map(drop)
}

/// Returns the function that names the caller of a request.
///
/// # Errors
/// Fails if the service cannot be asked with these settings.
pub(crate) fn identify(
    settings: &IntrospectionSettings,
) -> anyhow::Result<impl Fn(&Parts) -> PendingPrincipal + Send + Sync + 'static> {
    let introspector = Arc::new(Introspector::new(settings)?);
    Ok(move |parts: &Parts| {
        let credential = Credential::of(parts, introspector.settings());
        let peer = parts.extensions.get::<Peer>().map(|peer| network(peer.address()));
        let introspector = introspector.clone();
        Box::pin(async move {
            match credential {
                Ok(Some(credential)) => introspector.principal(credential, peer).await,
                Ok(None) => Err(Denied::Anonymous { challenge: Some(HeaderValue::from_static("Bearer")) }),
                Err(fault) => {
                    refused(fault);
                    Err(challenge(INVALID))
                }
            }
        }) as PendingPrincipal
    })
}

/// Connects to the service and disconnects.
///
/// # Errors
/// Fails if the service cannot be asked with these settings, or accepts no connection.
pub async fn reach(settings: &IntrospectionSettings) -> anyhow::Result<()> {
    check(settings)?;
    Client::new(settings.url.address()?, tls_settings(&settings.tls))?.connect().await?;
    Ok(())
}

/// Pending identification of a caller.
type PendingPrincipal = Pin<Box<dyn Future<Output = Result<Principal, Denied>> + Send>>;

const INVALID: &str = "Bearer error=\"invalid_token\"";

fn challenge(challenge: &'static str) -> Denied {
    Denied::Unauthenticated { challenge: Some(HeaderValue::from_static(challenge)) }
}

fn refused(check: &'static str) {
    counter!("identity_tokens_refused_total", "check" => check).increment(1);
    tracing::info!(check, "a token or a session was refused");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use semel_settings::{
        IntrospectionSettings, JwtClaim, Presentation, ServiceAddress, ServiceTls, TenantSource,
    };

    /// Returns the settings that tests begin with.
    pub(in crate::identity::introspection) fn settings() -> IntrospectionSettings {
        IntrospectionSettings {
            url: ServiceAddress::new("http://127.0.0.1:1/introspect").expect("it is an address"),
            presentation: Presentation::Form,
            cookie: None,
            authorization_env: None,
            timeout: Duration::from_secs(2),
            cache: Duration::from_secs(30),
            refusal_cache: Duration::from_secs(5),
            tenant: TenantSource::Claim(JwtClaim::new("tenant")),
            caller: JwtClaim::new("sub"),
            max_token: 8 * 1024,
            tls: ServiceTls::default(),
        }
    }
}
