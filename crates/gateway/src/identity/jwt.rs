//! Tokens of an issuer: a signed JWT names the caller.
//!
//! Tenant and caller are claims of the token and never its bytes, so that a new token keeps the caller.
//! `keys` reads a key set, `source` refreshes it, `token` checks one token with the keys in memory. A client
//! gets the same answer for every refused token; the log has the reason.

mod keys;
mod source;
mod token;

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::request::Parts;
use metrics::counter;
use semel_core::{Clock, Principal, SystemClock};
use semel_http::Denied;
use semel_settings::JwtSettings;
use tokio::sync::Notify;

use super::caller::IdentifyCaller;
use keys::{KeySet, Missing};
use source::Reader;
use token::TokenFault;

/// Reads the keys, and refreshes them in the background from then on.
///
/// # Errors
/// Fails if they cannot be read now.
pub(crate) async fn identify(settings: &JwtSettings) -> anyhow::Result<IdentifyCaller> {
    // Signatures are checked by this provider, even if another one is compiled in.
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    let reader = Reader::new(settings)?;
    let (text, keys) = read(&reader, settings).await?;
    tracing::info!(keys = keys.len(), source = %settings.keys, "the keys for tokens were read");
    let unknown = Arc::<Notify>::default();
    let verifier = Arc::new(TokenVerifier {
        settings: settings.clone(),
        keys: RwLock::new(Arc::new(keys)),
        unknown: unknown.clone(),
    });
    tokio::spawn(source::refresh(reader, text, settings.clone(), Arc::downgrade(&verifier), unknown));
    Ok(Box::new(move |parts| verifier.principal(parts)))
}

/// Returns the number of keys that tokens can be checked with now.
///
/// # Errors
/// Fails if they cannot be read.
pub async fn count_keys(settings: &JwtSettings) -> anyhow::Result<usize> {
    Ok(read(&Reader::new(settings)?, settings).await?.1.len())
}

/// Returns the current keys, with the text that they were read from.
async fn read(reader: &Reader, settings: &JwtSettings) -> anyhow::Result<(Bytes, KeySet)> {
    let reading = async {
        let text = reader.read().await?;
        let keys = KeySet::parse(&text, &settings.algorithms)?;
        anyhow::Ok((text, keys))
    };
    reading
        .await
        .with_context(|| format!("`jwks` in `[identity]`: no keys can be read from {}", settings.keys))
}

/// Checks tokens with the keys that were read last.
struct TokenVerifier {
    settings: JwtSettings,
    keys: RwLock<Arc<KeySet>>,
    /// Notified by a token that may be signed by a new key.
    unknown: Arc<Notify>,
}

impl TokenVerifier {
    fn principal(&self, parts: &Parts) -> Result<Principal, Denied> {
        let challenge =
            |challenge| Denied::Unauthenticated { challenge: Some(HeaderValue::from_static(challenge)) };
        let checked = match presented(parts) {
            None if parts.headers.contains_key(AUTHORIZATION) => return Err(challenge("Bearer")),
            None => {
                return Err(Denied::Anonymous { challenge: Some(HeaderValue::from_static("Bearer")) });
            }
            Some(token) => token.and_then(|token| self.check(token)),
        };
        checked.map_err(|fault| {
            counter!("identity_tokens_refused_total", "check" => fault.as_str()).increment(1);
            tracing::info!(check = fault.as_str(), "a token was refused");
            challenge("Bearer error=\"invalid_token\"")
        })
    }

    fn check(&self, token: &str) -> Result<Principal, TokenFault> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        let checked = token::check(token, &self.settings, &keys, SystemClock.now());
        if checked == Err(TokenFault::Key(Missing::Unknown)) {
            self.unknown.notify_one();
        }
        checked
    }

    /// Replaces the keys by what was read, if it is usable and has changed.
    fn replace(&self, before: &mut Bytes, text: Bytes) -> anyhow::Result<()> {
        if *before == text {
            return Ok(());
        }
        let keys = KeySet::parse(&text, &self.settings.algorithms)?;
        tracing::info!(keys = keys.len(), "the keys for tokens were read again, and have changed");
        *before = text;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        Ok(())
    }
}

/// Returns the bearer token of a request; `None` if it has no credentials that could be one.
///
/// # Errors
/// Returns the check that its credentials fail.
pub(crate) fn bearer(parts: &Parts) -> Result<Option<&str>, &'static str> {
    presented(parts).transpose().map_err(TokenFault::as_str)
}

/// Returns the bearer token of a request; `None` if it has no credentials that could be one.
fn presented(parts: &Parts) -> Option<Result<&str, TokenFault>> {
    let mut lines = parts.headers.get_all(AUTHORIZATION).iter();
    let line = match (lines.next()?, lines.next()) {
        (line, None) => line,
        (_, Some(_)) => return Some(Err(TokenFault::Several)),
    };
    let Ok(text) = line.to_str() else { return Some(Err(TokenFault::Malformed)) };
    let (scheme, token) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    scheme.eq_ignore_ascii_case("bearer").then(|| Ok(token.trim_matches([' ', '\t'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_bearer_authorization_line_is_accepted() {
        let present = |lines: &[&'static str]| {
            let mut request = http::Request::new(());
            for line in lines {
                request.headers_mut().append(AUTHORIZATION, HeaderValue::from_static(line));
            }
            let (parts, ()) = request.into_parts();
            presented(&parts).map(|token| token.map(str::to_owned))
        };
        assert_eq!(present(&[]), None);
        assert_eq!(present(&["Basic YTpi"]), None);
        assert_eq!(present(&["bearer a.b.c"]), Some(Ok("a.b.c".to_owned())));
        assert_eq!(present(&["Bearer  a.b.c "]), Some(Ok("a.b.c".to_owned())));
        assert_eq!(present(&["Bearer"]), Some(Ok(String::new())));
        assert_eq!(present(&["Bearer a.b.c", "Bearer a.b.c"]), Some(Err(TokenFault::Several)));
        assert_eq!(present(&["Basic YTpi", "Bearer a.b.c"]), Some(Err(TokenFault::Several)));
    }
}
