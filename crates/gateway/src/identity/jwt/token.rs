//! Check of one token (RFC 7515, RFC 7519), from its size to its claims. Pure: keys and time are arguments.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use semel_core::{Principal, Timestamp};
use semel_settings::{JwtClaim, JwtSettings};
use serde_json::{Map, Value};

use super::keys::{KeySet, Missing, algorithm_of};

/// Reason for refusing a token: for the log only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenFault {
    /// The request has more than one `Authorization` line.
    Several,
    /// The token is longer than `max_token`.
    TooLong,
    /// The token is not a signed JWT.
    Malformed,
    /// The token has critical extensions, which must be understood.
    Critical,
    /// The token's algorithm is none, or not allowed.
    Algorithm,
    /// No key can check the token.
    Key(Missing),
    /// The token's signature is wrong.
    Signature,
    /// Another issuer made the token.
    Issuer,
    /// The token was made for another audience.
    Audience,
    /// The token has no `exp`, or `exp`, `nbf` or `iat` is not a number.
    Times,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    NotYetValid,
    /// The token's tenant is missing or cannot be used.
    Tenant,
    /// The token's caller is missing or cannot be used.
    Caller,
}

impl TokenFault {
    /// Returns the word for logs and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            TokenFault::Several => "several_authorization_lines",
            TokenFault::TooLong => "max_token",
            TokenFault::Malformed => "form",
            TokenFault::Critical => "crit",
            TokenFault::Algorithm => "alg",
            TokenFault::Key(Missing::Unknown) => "kid_unknown",
            TokenFault::Key(Missing::Unnamed) => "kid_missing",
            TokenFault::Signature => "signature",
            TokenFault::Issuer => "iss",
            TokenFault::Audience => "aud",
            TokenFault::Times => "times",
            TokenFault::Expired => "exp",
            TokenFault::NotYetValid => "nbf_or_iat",
            TokenFault::Tenant => "tenant_claim",
            TokenFault::Caller => "caller_claim",
        }
    }
}

/// Returns the caller that a valid token names.
///
/// # Errors
/// Returns the first failed check.
pub(super) fn check(
    token: &str,
    settings: &JwtSettings,
    keys: &KeySet,
    now: Timestamp,
) -> Result<Principal, TokenFault> {
    if token.len() > settings.max_token {
        return Err(TokenFault::TooLong);
    }
    let mut parts = token.split('.');
    let (Some(head), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenFault::Malformed);
    };
    let message = &token[..head.len() + 1 + claims.len()];
    let head = members(head).ok_or(TokenFault::Malformed)?;
    if head.contains_key("crit") {
        return Err(TokenFault::Critical);
    }
    let algorithm = head.get("alg").and_then(Value::as_str).and_then(algorithm_of);
    let algorithm =
        algorithm.filter(|algorithm| settings.algorithms.contains(algorithm)).ok_or(TokenFault::Algorithm)?;
    let id = match head.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().ok_or(TokenFault::Malformed)?),
    };
    let key = keys.find(algorithm, id).map_err(TokenFault::Key)?;
    if !key.has_signed(message, signature) {
        return Err(TokenFault::Signature);
    }
    let claims = Value::Object(members(claims).ok_or(TokenFault::Malformed)?);
    check_origin(&claims, settings)?;
    check_times(&claims, settings, now)?;
    principal(&claims, settings)
}

/// Returns the members of one part of a token.
fn members(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn check_origin(claims: &Value, settings: &JwtSettings) -> Result<(), TokenFault> {
    if claims["iss"] != *settings.issuer {
        return Err(TokenFault::Issuer);
    }
    let for_us = match &claims["aud"] {
        Value::Array(several) => several.iter().any(|one| *one == *settings.audience),
        one => *one == *settings.audience,
    };
    if for_us { Ok(()) } else { Err(TokenFault::Audience) }
}

fn check_times(claims: &Value, settings: &JwtSettings, now: Timestamp) -> Result<(), TokenFault> {
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(time) => time.as_f64().map(Some).ok_or(TokenFault::Times),
    };
    let (now, leeway) = (now.as_millis() as f64 / 1000.0, settings.leeway.as_secs_f64());
    let (expires, not_before, issued) = (time("exp")?.ok_or(TokenFault::Times)?, time("nbf")?, time("iat")?);
    if now >= expires + leeway {
        return Err(TokenFault::Expired);
    }
    match [not_before, issued].into_iter().flatten().any(|begins| begins > now + leeway) {
        true => Err(TokenFault::NotYetValid),
        false => Ok(()),
    }
}

fn principal(claims: &Value, settings: &JwtSettings) -> Result<Principal, TokenFault> {
    let text = |claim: &JwtClaim| claim.of(claims).and_then(Value::as_str);
    let tenant = text(&settings.tenant).ok_or(TokenFault::Tenant)?;
    let caller = text(&settings.caller).ok_or(TokenFault::Caller)?;
    // The tenant is at fault if it fails beside a valid caller, too.
    Principal::new(tenant, caller).map_err(|_| match Principal::new(tenant, "caller") {
        Ok(_) => TokenFault::Caller,
        Err(_) => TokenFault::Tenant,
    })
}
