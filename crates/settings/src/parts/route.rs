//! The route of an operation or of a `[[pass]]`: a method and a path.

use std::fmt;

use http::Method;
use semel_core::route::{RoutePath, check_method, check_path};

use crate::engine::kind::{ValueKind, ValueRefusal, quoted};

/// A method and a path pattern, such as `POST /accounts/{id}/payments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method: of an operation, one that can carry a command.
    pub method: Method,
    /// Path in its normal form: starts with a slash; `{name}` stands for any one segment.
    pub path: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl ValueKind for Route {
    type Value = Route;

    fn expected() -> String {
        "a method and a path, such as \"POST /payments/{id}\"".to_owned()
    }

    fn parse(text: &str) -> Result<Route, ValueRefusal> {
        let route = Route::parse_any(text)?;
        if route.method.is_safe() || route.method == Method::CONNECT {
            return Err(ValueRefusal::Because(format!("{} is never a command", route.method)));
        }
        Ok(route)
    }

    fn show(value: &Route) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

impl Route {
    /// Reads a route of any method.
    pub(crate) fn parse_any(text: &str) -> Result<Route, ValueRefusal> {
        let because = |reason: &str| ValueRefusal::Because(reason.to_owned());
        let (word, path) = text.split_once(' ').ok_or(ValueRefusal::Unexpected)?;
        let path = path.trim_start();
        check_method(word).and(check_path(path)).map_err(|error| because(&error.to_string()))?;
        let method: Method = word.parse().map_err(|_| ValueRefusal::Unexpected)?;
        if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(ValueRefusal::Unexpected);
        }
        if word.contains(|c: char| c.is_ascii_lowercase()) {
            return Err(ValueRefusal::DidYouMean(format!("{} {path}", word.to_ascii_uppercase())));
        }
        if !path.is_ascii() {
            return Err(because(
                "a request's path is ASCII: write other characters percent-encoded, as they arrive",
            ));
        }
        if path.contains(['?', '#']) {
            return Err(because("a route has no query: remove it"));
        }
        let mut alone = matchit::Router::new();
        alone.insert(path, ()).map_err(|error| because(pattern_error(&error)))?;
        let path = RoutePath::parse(path).map_err(|error| because(&error.to_string()))?;
        Ok(Route { method, path: path.to_string() })
    }
}

fn pattern_error(error: &matchit::InsertError) -> &'static str {
    match error {
        matchit::InsertError::InvalidParamSegment => "a segment holds at most one `{name}`",
        matchit::InsertError::InvalidCatchAll => "`{*name}` must be the last segment",
        _ => "a placeholder is written `{name}`",
    }
}
