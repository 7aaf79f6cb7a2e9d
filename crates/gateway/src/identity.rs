//! Identity of callers. It is established before any lookup and without the store: authentication must not
//! depend on the store.

mod caller;
pub(crate) mod client_certificate;
pub mod introspection;
pub mod jwt;
pub mod keys;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use semel_core::Principal;
use semel_http::{Builder, Denied};
use semel_settings::{Config, PrincipalSource, ProxyRange};
use semel_stores::Access;
use semel_stores::api_keys::{KEY_PREFIX, KeyMac, key_mac};

use self::keys::{API_KEY, StoredApiKeys};
use crate::peer::Peer;
use caller::IdentifyCaller;

/// Delay until a new key works and a revoked one stops working.
const REFRESH: Duration = Duration::from_secs(2);

/// Lets a layer identify callers by the configured source.
///
/// # Errors
/// Fails if a file, a variable, a store or a service that the source needs is missing.
pub async fn identify(config: &Config, builder: Builder) -> anyhow::Result<Builder> {
    Ok(match &config.identity {
        PrincipalSource::None => {
            let local = Principal::new("local", "local")?;
            builder.identify(move |_| Ok(local.clone()))
        }
        PrincipalSource::TrustedHeaders { proxies, tenant_header, caller_header } => {
            let (proxies, tenant, caller) = (proxies.clone(), tenant_header.clone(), caller_header.clone());
            builder.identify(move |parts| trusted(parts, &proxies, &tenant, &caller))
        }
        PrincipalSource::ApiKey => {
            builder.identify(api_keys(StoredApiKeys::open(&config.store, Access::Write).await?).await?)
        }
        PrincipalSource::Jwt(settings) => builder.identify(jwt::identify(settings).await?),
        PrincipalSource::ClientCertificate(settings) => {
            builder.identify(client_certificate::identify(settings))
        }
        PrincipalSource::Introspection(settings) => {
            builder.identify_async(introspection::identify(settings).context("`[identity]`")?)
        }
    })
}

/// Identifies callers by the names that a trusted proxy has set. Only configured proxies may name a caller.
fn trusted(
    parts: &Parts,
    proxies: &[ProxyRange],
    tenant: &HeaderName,
    caller: &HeaderName,
) -> Result<Principal, Denied> {
    let Some(peer) = parts.extensions.get::<Peer>() else { return Err(Denied::unauthenticated()) };
    if !proxies.iter().any(|range| range.contains(peer.address())) {
        return Err(Denied::Forbidden);
    }
    let only = |name: &HeaderName| {
        let mut lines = parts.headers.get_all(name).iter();
        match (lines.next(), lines.next()) {
            (Some(line), None) => line.to_str().ok(),
            _ => None,
        }
    };
    match (only(tenant), only(caller)) {
        (Some(tenant), Some(caller)) => Principal::new(tenant, caller).map_err(|_| Denied::unauthenticated()),
        _ if is_named(&parts.headers, tenant) || is_named(&parts.headers, caller) => {
            Err(Denied::unauthenticated())
        }
        _ => Err(Denied::anonymous()),
    }
}

/// Returns true if a head has a field that a server may take for one of this name.
fn is_named(headers: &HeaderMap, name: &HeaderName) -> bool {
    let hyphenated = |name: &HeaderName| name.as_str().replace('_', "-");
    headers.keys().any(|own| hyphenated(own) == hyphenated(name))
}

/// Active API keys, as they were read last.
struct Known {
    secret: [u8; 32],
    callers: RwLock<HashMap<KeyMac, Principal>>,
}

async fn api_keys(keys: StoredApiKeys) -> anyhow::Result<IdentifyCaller> {
    let callers: HashMap<KeyMac, Principal> = keys.active().await?.into_iter().collect();
    if callers.is_empty() {
        tracing::warn!("there are no API keys yet: make one with `semel keys create`");
    }
    let known = Arc::new(Known { secret: keys.secret(), callers: RwLock::new(callers) });
    tokio::spawn(refresh(keys, Arc::downgrade(&known)));
    Ok(Box::new(move |parts| {
        let challenge = || Some(HeaderValue::from_static("Bearer"));
        let denied = || Denied::Unauthenticated { challenge: challenge() };
        let is_shown = [AUTHORIZATION, API_KEY].iter().any(|name| parts.headers.contains_key(name));
        let nothing = || if is_shown { denied() } else { Denied::Anonymous { challenge: challenge() } };
        let key = presented(parts).ok_or_else(nothing)?;
        // The HMAC is compared instead of the key, so that the time of the comparison reveals nothing about
        // the key.
        let callers = known.callers.read().unwrap_or_else(PoisonError::into_inner);
        callers.get(&key_mac(&known.secret, key)).cloned().ok_or_else(denied)
    }))
}

/// Returns the API key of a request, if it has exactly one. A bearer token without the gateway's prefix
/// belongs to the upstream. With an unreadable credential line the request has no key.
fn presented(parts: &Parts) -> Option<&str> {
    let is_unreadable = |name| parts.headers.get_all(name).iter().any(|line| line.to_str().is_err());
    if is_unreadable(AUTHORIZATION) || is_unreadable(API_KEY) {
        return None;
    }
    let bearer = parts.headers.get_all(AUTHORIZATION).iter().filter_map(|line| {
        let (scheme, key) = line.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let own = parts.headers.get_all(API_KEY).iter().filter_map(|line| line.to_str().ok().map(str::trim));
    let mut keys = bearer.chain(own).filter(|key| key.starts_with(KEY_PREFIX));
    match (keys.next(), keys.next()) {
        (Some(key), None) => Some(key),
        _ => None,
    }
}

/// Reads the keys again and again until the identifier is dropped. A store that cannot be read changes
/// nothing.
async fn refresh(keys: StoredApiKeys, known: std::sync::Weak<Known>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        // The open connection is used, so that a file that was moved away is not created again.
        let active = keys.active().await;
        let Some(known) = known.upgrade() else { return };
        match active {
            Ok(callers) => {
                *known.callers.write().unwrap_or_else(PoisonError::into_inner) =
                    callers.into_iter().collect();
            }
            Err(error) => tracing::warn!(%error, "the API keys could not be read again"),
        }
    }
}
