//! Opaque tokens and sessions: a service is shown one, and names its tenant and caller.
//!
//! `credential` takes the token or the session out of a request, `introspector` asks and remembers, and `verdict` reads the
//! answer of the service.

mod credential;
mod introspector;
mod verdict;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::request::Parts;
use metrics::counter;
use semel_core::Principal;
use semel_http::Denied;
use semel_outgoing::{Address, Client};

use crate::config::{ServiceTls, VariableName};
use crate::jwt::Claim;
use crate::peer::{Peer, network};
use credential::Credential;
use introspector::Introspector;

/// The service that knows tokens and sessions, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introspection {
    /// Its address.
    pub url: Address,
    /// The request that shows a credential.
    pub presentation: Presentation,
    /// The cookie that holds a session, if sessions count.
    pub cookie: Option<String>,
    /// The variable with the gateway's own `Authorization`.
    pub authorization_env: Option<VariableName>,
    /// The longest that an answer may take.
    pub timeout: Duration,
    /// The lifetime of a caller in memory.
    pub cache: Duration,
    /// The lifetime of a refusal in memory.
    pub refusal_cache: Duration,
    /// The source of the tenant.
    pub tenant: TenantSource,
    /// The member of the answer that names the caller.
    pub caller: Claim,
    /// The longest credential, in bytes.
    pub max_token: usize,
    /// TLS with the service.
    pub tls: ServiceTls,
}

/// The request that shows a credential to the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presentation {
    /// In a POST, as the field `token` of a form (RFC 7662).
    #[default]
    Form,
    /// In a GET, in the header field that the client has used.
    Forward,
}

/// The source of the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantSource {
    /// All callers have this one.
    Fixed(String),
    /// The answer names it in this member.
    Claim(Claim),
}

impl Introspection {
    /// Reads everything that asking needs from outside: the files for TLS and the variable.
    ///
    /// # Errors
    /// If something is missing, or cannot be used.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        Introspector::new(self).map(drop)
    }
}

/// Makes what names the caller of a request.
///
/// # Errors
/// If the service could not be asked with these settings.
pub(crate) fn identify(
    settings: &Introspection,
) -> anyhow::Result<impl Fn(&Parts) -> Identifying + Send + Sync + 'static> {
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
        }) as Identifying
    })
}

/// Connects to the service, and hangs up.
///
/// # Errors
/// If it cannot be asked with these settings, or takes no connection.
pub(crate) async fn reach(settings: &Introspection) -> anyhow::Result<()> {
    settings.check()?;
    Client::new(settings.url.clone(), settings.tls.settings())?.connect().await?;
    Ok(())
}

/// A caller that is being named.
type Identifying = Pin<Box<dyn Future<Output = Result<Principal, Denied>> + Send>>;

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
    use super::*;

    /// The settings that tests begin with.
    pub(in crate::introspection) fn settings() -> Introspection {
        Introspection {
            url: "http://127.0.0.1:1/introspect".parse().expect("it is an address"),
            presentation: Presentation::Form,
            cookie: None,
            authorization_env: None,
            timeout: Duration::from_secs(2),
            cache: Duration::from_secs(30),
            refusal_cache: Duration::from_secs(5),
            tenant: TenantSource::Claim(Claim::new("tenant")),
            caller: Claim::new("sub"),
            max_token: 8 * 1024,
            tls: ServiceTls::default(),
        }
    }
}
