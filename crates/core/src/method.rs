//! HTTP methods whose requests are commands.

use http::Method;

/// Returns true if a request with this method is a command even without a matching rule. An unregistered
/// method counts as one: a request that changes state without protection must be reported.
pub fn is_command(method: &Method) -> bool {
    let idempotent = method.is_idempotent() || *method == Method::CONNECT;
    !idempotent && !IDEMPOTENT_EXTENSIONS.contains(&method.as_str())
}

/// Registered methods beyond RFC 9110 that are idempotent by definition.
const IDEMPOTENT_EXTENSIONS: [&str; 26] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_is_not_idempotent_or_not_registered_is_a_command() {
        let is = |name: &str| is_command(&Method::from_bytes(name.as_bytes()).expect("it is a method"));
        for name in ["POST", "PATCH", "LOCK", "UPDATE", "PURGE", "post"] {
            assert!(is(name), "{name}");
        }
        for name in
            ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "CONNECT", "QUERY", "MKCOL", "UNLOCK"]
        {
            assert!(!is(name), "{name}");
        }
    }
}
