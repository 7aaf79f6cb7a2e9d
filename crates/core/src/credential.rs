//! Header fields with credentials. They are never stored with responses, and with requests only if the
//! operation asks for it.

use http::HeaderName;

/// Names of credential fields: those of specifications first, then customary ones.
const NAMES: [&str; 27] = [
    "authorization",
    "www-authenticate",
    "authentication-info",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-authentication-info",
    "cookie",
    "cookie2",
    "set-cookie",
    "set-cookie2",
    "dpop",
    "api-key",
    "apikey",
    "private-token",
    "x-access-token",
    "x-amz-security-token",
    "x-api-key",
    "x-apikey",
    "x-auth-token",
    "x-csrf-token",
    "x-csrftoken",
    "x-forwarded-access-token",
    "x-id-token",
    "x-refresh-token",
    "x-session-token",
    "x-vault-token",
    "x-xsrf-token",
];

/// Returns true if a field of this name is a credential.
pub fn is_credential(name: &HeaderName) -> bool {
    NAMES.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_header_names_are_recognised_in_any_case() {
        for name in ["Authorization", "SET-COOKIE", "Set-Cookie2", "x-api-key", "X-Amz-Security-Token"] {
            assert!(is_credential(&name.parse().expect("it is a name")), "{name}");
        }
        for name in ["Location", "X-Request-Id", "X-Next-Page-Token", "Proxy-Status"] {
            assert!(!is_credential(&name.parse().expect("it is a name")), "{name}");
        }
    }
}
