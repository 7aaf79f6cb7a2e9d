//! Check of one token (RFC 7515, RFC 7519), from its size to its claims. Pure: keys and time are arguments.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use semel_core::{Principal, Timestamp};
use semel_settings::{Claim, JwtSettings};
use serde_json::{Map, Value};

use super::keys::{KeySet, Missing, algorithm_of};

/// Reason for refusing a token: for the log only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
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

impl Fault {
    /// Returns the word for logs and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Fault::Several => "several_authorization_lines",
            Fault::TooLong => "max_token",
            Fault::Malformed => "form",
            Fault::Critical => "crit",
            Fault::Algorithm => "alg",
            Fault::Key(Missing::Unknown) => "kid_unknown",
            Fault::Key(Missing::Unnamed) => "kid_missing",
            Fault::Signature => "signature",
            Fault::Issuer => "iss",
            Fault::Audience => "aud",
            Fault::Times => "times",
            Fault::Expired => "exp",
            Fault::NotYetValid => "nbf_or_iat",
            Fault::Tenant => "tenant_claim",
            Fault::Caller => "caller_claim",
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
) -> Result<Principal, Fault> {
    if token.len() > settings.max_token {
        return Err(Fault::TooLong);
    }
    let mut parts = token.split('.');
    let (Some(head), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::Malformed);
    };
    let message = &token[..head.len() + 1 + claims.len()];
    let head = members(head).ok_or(Fault::Malformed)?;
    if head.contains_key("crit") {
        return Err(Fault::Critical);
    }
    let algorithm = head.get("alg").and_then(Value::as_str).and_then(algorithm_of);
    let algorithm =
        algorithm.filter(|algorithm| settings.algorithms.contains(algorithm)).ok_or(Fault::Algorithm)?;
    let id = match head.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().ok_or(Fault::Malformed)?),
    };
    let key = keys.find(algorithm, id).map_err(Fault::Key)?;
    if !key.has_signed(message, signature) {
        return Err(Fault::Signature);
    }
    let claims = Value::Object(members(claims).ok_or(Fault::Malformed)?);
    check_origin(&claims, settings)?;
    check_times(&claims, settings, now)?;
    principal(&claims, settings)
}

/// Returns the members of one part of a token.
fn members(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn check_origin(claims: &Value, settings: &JwtSettings) -> Result<(), Fault> {
    if claims["iss"] != *settings.issuer {
        return Err(Fault::Issuer);
    }
    let for_us = match &claims["aud"] {
        Value::Array(several) => several.iter().any(|one| *one == *settings.audience),
        one => *one == *settings.audience,
    };
    if for_us { Ok(()) } else { Err(Fault::Audience) }
}

fn check_times(claims: &Value, settings: &JwtSettings, now: Timestamp) -> Result<(), Fault> {
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(time) => time.as_f64().map(Some).ok_or(Fault::Times),
    };
    let (now, leeway) = (now.as_millis() as f64 / 1000.0, settings.leeway.as_secs_f64());
    let (expires, not_before, issued) = (time("exp")?.ok_or(Fault::Times)?, time("nbf")?, time("iat")?);
    if now >= expires + leeway {
        return Err(Fault::Expired);
    }
    match [not_before, issued].into_iter().flatten().any(|begins| begins > now + leeway) {
        true => Err(Fault::NotYetValid),
        false => Ok(()),
    }
}

fn principal(claims: &Value, settings: &JwtSettings) -> Result<Principal, Fault> {
    let text = |claim: &Claim| claim.of(claims).and_then(Value::as_str);
    let tenant = text(&settings.tenant).ok_or(Fault::Tenant)?;
    let caller = text(&settings.caller).ok_or(Fault::Caller)?;
    // The tenant is at fault if it fails beside a valid caller, too.
    Principal::new(tenant, caller).map_err(|_| match Principal::new(tenant, "caller") {
        Ok(_) => Fault::Caller,
        Err(_) => Fault::Tenant,
    })
}
