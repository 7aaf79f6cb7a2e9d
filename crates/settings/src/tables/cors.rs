//! `[cors]`: the pages of other origins that may read the gateway's own answers.

use std::time::Duration;

use http::Uri;

use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, List, ValueKind, ValueRefusal, Words, quoted};
use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Switch, WaitTime};

/// An origin whose pages may read answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigin {
    /// Every origin (`*`).
    Any,
    /// One origin, as browsers write it.
    Exact(String),
}

/// The side that answers preflights for routes of the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preflight {
    /// The upstream answers them.
    #[default]
    Upstream,
    /// The gateway answers them: listed origins may send any method and field.
    Gateway,
}

/// Settings of `[cors]`. Without origins, the gateway never writes a CORS field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsSettings {
    /// The origins whose pages may read answers.
    pub origins: Vec<CorsOrigin>,
    /// True if browsers may send cookies and other credentials.
    pub credentials: bool,
    /// The side that answers preflights for routes of the upstream.
    pub preflight: Preflight,
    /// Time for which browsers cache the answer to a preflight.
    pub max_age: Duration,
}

impl Default for CorsSettings {
    fn default() -> CorsSettings {
        CorsSettings {
            origins: Vec::new(),
            credentials: false,
            preflight: Preflight::default(),
            max_age: Duration::from_secs(600),
        }
    }
}

/// `[cors]`.
pub(crate) const CORS: &[Setting<CorsSettings>] = &[
    setting!(
        "origins",
        List<CorsOrigin>,
        origins,
        "Origins whose pages may read the gateway's own answers, or \"*\"; the upstream decides about its \
         answers itself"
    ),
    setting!(
        "credentials",
        Switch,
        credentials,
        "Permission for browsers to send cookies with such requests"
    ),
    setting!(
        "preflight",
        Choice<Preflight>,
        preflight,
        "Side that answers the preflights of commands and other routes of the upstream"
    ),
    setting!(
        "max_age",
        WaitTime,
        max_age,
        "Time for which browsers cache the gateway's answer to a preflight"
    ),
];

impl Words for Preflight {
    const WORDS: &'static [(&'static str, Self)] =
        &[("upstream", Preflight::Upstream), ("gateway", Preflight::Gateway)];
}

impl ValueKind for CorsOrigin {
    type Value = CorsOrigin;

    fn expected() -> String {
        "an origin as browsers write it, such as \"https://app.example.com\" or \"http://localhost:5173\", or \"*\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<CorsOrigin, ValueRefusal> {
        if text == "*" {
            return Ok(CorsOrigin::Any);
        }
        let uri: Uri = text.parse().map_err(|_| ValueRefusal::Unexpected)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(ValueRefusal::Unexpected);
        };
        if authority.as_str().contains('@') || authority.host().contains('*') {
            return Err(ValueRefusal::Unexpected);
        }
        let default_port = match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let host = authority.host().to_ascii_lowercase();
        let origin = match authority.port_u16().filter(|port| Some(*port) != default_port) {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        };
        if origin == text { Ok(CorsOrigin::Exact(origin)) } else { Err(ValueRefusal::DidYouMean(origin)) }
    }

    fn show(value: &CorsOrigin) -> Option<String> {
        Some(match value {
            CorsOrigin::Any => quoted("*"),
            CorsOrigin::Exact(origin) => quoted(origin),
        })
    }
}

/// Checks that the settings of `[cors]` are consistent.
pub(crate) fn check(findings: &mut Findings, cors: &CorsSettings) {
    if !findings.are_readable(&["cors.origins", "cors.credentials"]) {
        return;
    }
    if cors.credentials && cors.origins.contains(&CorsOrigin::Any) {
        let path = "cors.credentials";
        let message = "browsers send no credentials if `origins` is \"*\": list the origins";
        findings.error(findings.origin(path), path, message);
    }
    for path in ["cors.credentials", "cors.preflight", "cors.max_age"] {
        if cors.origins.is_empty() && findings.is_set(path) {
            findings.warn(path, "has no effect without `origins`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for text in ["https://app.example", "http://localhost:5173", "https://[::1]:8443", "*", "app://local"]
        {
            let shown = CorsOrigin::parse(text).ok().and_then(|origin| CorsOrigin::show(&origin));
            assert_eq!(shown, Some(quoted(text)), "{text}");
        }
        for (text, meant) in [
            ("https://App.Example", "https://app.example"),
            ("https://app.example/", "https://app.example"),
            ("https://app.example/path", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://app.example:80", "http://app.example"),
        ] {
            assert!(
                matches!(CorsOrigin::parse(text), Err(ValueRefusal::DidYouMean(near)) if near == meant),
                "{text}"
            );
        }
        for text in ["", "null", "app.example", "https://*.example", "https://u@app.example", "https://"] {
            assert!(matches!(CorsOrigin::parse(text), Err(ValueRefusal::Unexpected)), "{text}");
        }
    }
}
