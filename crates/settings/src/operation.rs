//! The rules for single operations.

use std::fmt;

use http::Method;
use semel_core::path::PathException;
use semel_core::route::{RoutePath, check_method, check_path};
use semel_core::{JsonPointer, OperationName, Policy};

use super::authorization::Authorization;
use super::kind::{Kind, Refusal, quoted};
use super::look_up::LookUpConfig;

/// A rule for the commands of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationConfig {
    /// Part of the scope of its records.
    pub name: OperationName,
    /// Which requests are meant (`match`).
    pub route: Route,
    /// What the operation wants: the defaults, with its own settings over them.
    pub policy: Policy,
    /// Who is asked whether a caller may: the default, with its own settings over it.
    pub authorization: Authorization,
    /// The member of the body that names the business transaction.
    pub business_reference: Option<JsonPointer>,
    /// Members of the body that are no part of the fingerprint (`fingerprint_exclude`).
    pub exclude: Vec<JsonPointer>,
    /// Former names: their live records still count.
    pub aliases: Vec<OperationName>,
    /// What its paths may have that is refused otherwise.
    pub allow: Vec<PathException>,
    /// Whether callers without credentials pass through unprotected, if they send no key.
    pub anonymous: bool,
    /// How a provider is asked what became of a command whose outcome is unknown.
    pub reconcile: Option<LookUpConfig>,
}

impl OperationConfig {
    /// The names of its records: its own, and its former ones.
    pub fn names(&self) -> impl Iterator<Item = &OperationName> {
        std::iter::once(&self.name).chain(&self.aliases)
    }
}

/// What the settings of an operation are called. Its name is quoted where it could be taken for something else: dots may be
/// in it as they are, but `operation.a.reconcile` is the look-up of `a`.
pub(super) fn path(name: &OperationName) -> String {
    let name = name.as_str();
    let is_plain = |part: &str| {
        !part.is_empty()
            && part != "reconcile"
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    if name.split('.').all(is_plain) {
        format!("operation.{name}")
    } else {
        format!("operation.{}", quoted(name))
    }
}

/// What an `[[operation]]` has beside a policy, as far as it was written.
#[derive(Clone, Debug, Default)]
pub(super) struct OperationTable {
    pub(super) name: Option<OperationName>,
    pub(super) route: Option<Route>,
    pub(super) business_reference: Option<JsonPointer>,
    pub(super) exclude: Vec<JsonPointer>,
    pub(super) aliases: Vec<OperationName>,
    pub(super) allow: Vec<PathException>,
    pub(super) anonymous: bool,
}

/// A method and a path pattern, such as `POST /accounts/{id}/payments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method: of an operation, one that can carry a command.
    pub method: Method,
    /// The path in its one form: starts with a slash; `{name}` stands for any one segment.
    pub path: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Kind for Route {
    type Value = Route;

    fn expected() -> String {
        "a method and a path, such as \"POST /payments/{id}\"".to_owned()
    }

    fn parse(text: &str) -> Result<Route, Refusal> {
        let route = Route::parse_any(text)?;
        if route.method.is_safe() || route.method == Method::CONNECT {
            return Err(Refusal::Because(format!("{} is never a command", route.method)));
        }
        Ok(route)
    }

    fn show(value: &Route) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

impl Route {
    /// Reads a route of any method.
    pub(super) fn parse_any(text: &str) -> Result<Route, Refusal> {
        let because = |reason: &str| Refusal::Because(reason.to_owned());
        let (word, path) = text.split_once(' ').ok_or(Refusal::Unexpected)?;
        let path = path.trim_start();
        check_method(word).and(check_path(path)).map_err(|error| because(&error.to_string()))?;
        let method: Method = word.parse().map_err(|_| Refusal::Unexpected)?;
        if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(Refusal::Unexpected);
        }
        if word.contains(|c: char| c.is_ascii_lowercase()) {
            return Err(Refusal::DidYouMean(format!("{} {path}", word.to_ascii_uppercase())));
        }
        if !path.is_ascii() {
            return Err(because(
                "a request's path is ASCII: write anything else as it arrives, percent-encoded",
            ));
        }
        if path.contains(['?', '#']) {
            return Err(because("a query is no part of the path"));
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
        matchit::InsertError::InvalidCatchAll => "`{*name}` stands at the end",
        _ => "a placeholder is written `{name}`",
    }
}
