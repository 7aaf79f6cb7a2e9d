//! The address that events go to, and the secret that signs them.

use axum::http::Uri;
use axum::http::uri::InvalidUri;
use serde::Deserialize;

/// The receiver of events about charges.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    pub(super) url: String,
    pub(super) secret: String,
}

impl Endpoint {
    /// Creates an endpoint at this address, whose events are signed with this secret.
    pub fn new(url: String, secret: String) -> Result<Endpoint, String> {
        let wrong =
            |why: &str| format!("{url:?} is not an address such as http://127.0.0.1:8080/webhooks: {why}");
        let address: Uri = url.parse().map_err(|error: InvalidUri| wrong(&error.to_string()))?;
        if address.scheme_str() != Some("http") {
            return Err(wrong("it does not begin with http://"));
        }
        if address.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(wrong("a host is needed, and a user is not sent"));
        }
        if secret.is_empty() {
            return Err("the secret is empty".to_owned());
        }
        Ok(Endpoint { url, secret })
    }
}
