//! `[[pass]]`: routes whose requests are exempt from some rules.

use std::collections::HashMap;

use http::Method;
use semel_core::method::is_command;
use semel_core::path::{PathException, PathExceptions};
use semel_core::route::RoutePath;

use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, List, Maybe, ValueKind, ValueRefusal, Words, quoted};
use crate::engine::setting::{Setting, setting};
use crate::engine::table::read_table;
use crate::engine::value::{SettingValue, Table, ValueContent};
use crate::parts::route::Route;

/// Exemption of requests by the `allow` of a `[[pass]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exemption {
    /// A body on a method that has none.
    Body,
    /// A gRPC call without a key, on a POST.
    Grpc,
    /// Ambiguous part of a path.
    Path(PathException),
}

/// A rule for the requests of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassConfig {
    /// Requests that the rule is for (`match`).
    pub route: Route,
    /// Their exemptions.
    pub allow: Vec<Exemption>,
}

/// A `[[pass]]`, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassTable {
    pub(crate) route: Option<Route>,
    pub(crate) allow: Vec<Exemption>,
}

impl PassTable {
    /// Returns the table of a rule.
    pub(crate) fn of(pass: PassConfig) -> PassTable {
        PassTable { route: Some(pass.route), allow: pass.allow }
    }
}

/// `[[pass]]`.
pub(crate) const PASS: &[Setting<PassTable>] = &[
    setting!(
        "match",
        Maybe<PassRoute>,
        route,
        "Method and path of the exempted requests",
        "\"GET /search/{*rest}\""
    ),
    setting!(
        "allow",
        List<Choice<Exemption>>,
        allow,
        "Parts that these requests may have although they are refused elsewhere: body; grpc (calls without \
         a key)",
        "[\"body\"]"
    ),
];

/// Route of requests that need not be commands.
pub(crate) struct PassRoute;

impl ValueKind for PassRoute {
    type Value = Route;

    fn expected() -> String {
        "a method and a path, such as \"GET /search/{*rest}\"".to_owned()
    }

    fn parse(text: &str) -> Result<Route, ValueRefusal> {
        let route = Route::parse_any(text)?;
        if route.method == Method::CONNECT {
            return Err(ValueRefusal::Because("CONNECT is never passed on".to_owned()));
        }
        Ok(route)
    }

    fn show(value: &Route) -> Option<String> {
        Route::show(value)
    }
}

impl Words for Exemption {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("body", Exemption::Body),
        ("grpc", Exemption::Grpc),
        (PathException::EncodedDot.as_str(), Exemption::Path(PathException::EncodedDot)),
        (PathException::EncodedSlash.as_str(), Exemption::Path(PathException::EncodedSlash)),
        (PathException::EncodedBackslash.as_str(), Exemption::Path(PathException::EncodedBackslash)),
        (PathException::EncodedPercent.as_str(), Exemption::Path(PathException::EncodedPercent)),
        (PathException::Semicolon.as_str(), Exemption::Path(PathException::Semicolon)),
        (PathException::EmptySegment.as_str(), Exemption::Path(PathException::EmptySegment)),
    ];
}

/// Returns true if requests of this method have no body. A server need not read one there, and may take it for the next request.
pub fn has_no_body(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT].contains(method)
}

/// Returns the exceptions of a rule that are about paths.
pub fn path_exceptions(allow: &[Exemption]) -> impl Iterator<Item = PathException> {
    allow.iter().filter_map(|exemption| match exemption {
        Exemption::Body | Exemption::Grpc => None,
        Exemption::Path(exception) => Some(*exception),
    })
}

/// Returns the path of a rule's settings, by its route.
pub(crate) fn path(route: &str) -> String {
    format!("pass.{}", quoted(route))
}

/// Reads one `[[pass]]`.
pub(crate) fn read(findings: &mut Findings, value: &SettingValue) -> Option<PassConfig> {
    let ValueContent::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[pass]]`, found {}", value.content);
        findings.error(value.origin.clone(), "pass", message);
        return None;
    };
    let prefix = route(entries).map_or_else(|| "pass".to_owned(), |route| path(&route.to_string()));
    let mut table = PassTable::default();
    read_table(findings, &prefix, PASS, &mut table, entries);
    for required in ["match", "allow"] {
        if !entries.iter().any(|entry| entry.name == required) {
            let message = "missing: every `[[pass]]` has a `match` and an `allow`";
            findings.error(value.origin.clone(), &format!("{prefix}.{required}"), message);
        }
    }
    Some(PassConfig { route: table.route?, allow: table.allow })
}

fn route(entries: &Table) -> Option<Route> {
    let route = entries.iter().find(|entry| entry.name == "match").map(|entry| &entry.value.content);
    match route {
        Some(ValueContent::Text(text)) => PassRoute::parse(text).ok(),
        Some(_) | None => None,
    }
}

/// Checks that no two rules match the same requests, and that each allows something that is refused by
/// default.
pub(crate) fn check(findings: &mut Findings, rules: &[PassConfig]) {
    let mut by_method: HashMap<&Method, matchit::Router<()>> = HashMap::new();
    for PassConfig { route, allow } in rules {
        let prefix = path(&route.to_string());
        let router = by_method.entry(&route.method).or_default();
        if let Err(error) = router.insert(route.path.as_str(), ()) {
            let message = match error {
                matchit::InsertError::Conflict { with } => {
                    format!("matches the same requests as the `[[pass]]` of `{} {with}`", route.method)
                }
                other => other.to_string(),
            };
            let path = format!("{prefix}.match");
            findings.error(findings.origin(&path), &path, message);
        }
        let path = format!("{prefix}.allow");
        if allow.is_empty() && findings.is_set(&path) && findings.are_readable(&[&path]) {
            findings.error(
                findings.origin(&path),
                &path,
                "is empty, so the rule has no effect: list at least one exemption",
            );
        }
        let exceptions: PathExceptions = path_exceptions(allow).collect();
        if !exceptions.is_empty() && is_command(&route.method) {
            let message = format!(
                "{} is a command: list the exemptions of its path with `allow` in its `[[operation]]`",
                route.method
            );
            findings.error(findings.origin(&path), &path, message);
        }
        if let Some(refused) =
            RoutePath::parse(&route.path).ok().and_then(|route| route.refused_by(exceptions))
        {
            findings.error(findings.origin(&path), &path, format!("{refused}"));
        }
        if allow.contains(&Exemption::Grpc) && route.method != Method::POST {
            let message = format!("\"grpc\" is for POST: gRPC has no calls by {}", route.method);
            findings.error(findings.origin(&path), &path, message);
        }
        if allow.contains(&Exemption::Body) && !has_no_body(&route.method) {
            let message = format!("\"body\" is not needed here: a {} may have a body anyway", route.method);
            findings.error(findings.origin(&path), &path, message);
        }
    }
}
