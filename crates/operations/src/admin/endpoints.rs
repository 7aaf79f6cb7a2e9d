//! Table of the admin listener's endpoints. The router follows it; tests compare it with the OpenAPI
//! document.

use std::pin::Pin;

use http::Method;
use percent_encoding::percent_decode_str;
use semel_core::Problem;
use semel_settings::Role;

use super::call::{AdminAnswer, AdminCall};
use super::{bulk, holds, log_level, outbox, pages, records, search};

/// Access to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAccess {
    /// Open to every caller.
    Open,
    /// Requires at least this role.
    Needs(Role),
}

const VIEWER: EndpointAccess = EndpointAccess::Needs(Role::Viewer);
const OPERATOR: EndpointAccess = EndpointAccess::Needs(Role::Operator);

type PendingAdminAnswer = Pin<Box<dyn Future<Output = Result<AdminAnswer, Problem>> + Send>>;

/// Endpoint of the admin listener.
pub struct Endpoint {
    /// Method. GET includes HEAD.
    pub method: Method,
    /// Path; at most one segment is a name in braces.
    pub path: &'static str,
    /// Required access.
    pub access: EndpointAccess,
    /// Known query parameters.
    pub query: &'static [&'static str],
    /// Members that its body may have.
    pub members: &'static [&'static str],
    /// Name of its action in the log, if it changes something.
    pub action: Option<&'static str>,
    pub(crate) answer: fn(AdminCall) -> PendingAdminAnswer,
}

const fn get(
    path: &'static str,
    access: EndpointAccess,
    query: &'static [&'static str],
    answer: fn(AdminCall) -> PendingAdminAnswer,
) -> Endpoint {
    Endpoint { method: Method::GET, path, access, query, members: &[], action: None, answer }
}

const fn post(
    path: &'static str,
    action: &'static str,
    members: &'static [&'static str],
    answer: fn(AdminCall) -> PendingAdminAnswer,
) -> Endpoint {
    let (method, access, action) = (Method::POST, OPERATOR, Some(action));
    Endpoint { method, path, access, query: &[], members, action, answer }
}

/// Returns an endpoint that reads only, and takes its terms in a body: they must not be in a URL.
const fn ask(
    path: &'static str,
    members: &'static [&'static str],
    answer: fn(AdminCall) -> PendingAdminAnswer,
) -> Endpoint {
    Endpoint { method: Method::POST, path, access: VIEWER, query: &[], members, action: None, answer }
}

const REASON: &[&str] = &["reason"];
const HOLD: &[&str] = &["kind", "name", "reason"];

/// Every endpoint.
pub static ENDPOINTS: [Endpoint; 28] = [
    get("/healthz", EndpointAccess::Open, &[], |call| Box::pin(pages::healthz(call))),
    get("/readyz", EndpointAccess::Open, &[], |call| Box::pin(pages::readyz(call))),
    get("/metrics", VIEWER, &[], |call| Box::pin(pages::metrics(call))),
    get("/admin/v1/openapi.json", VIEWER, &[], |call| Box::pin(pages::openapi(call))),
    get("/admin/v1/status", VIEWER, &[], |call| Box::pin(pages::status(call))),
    get("/admin/v1/audit", VIEWER, &["before", "limit"], |call| Box::pin(pages::audit(call))),
    get(
        "/admin/v1/records",
        VIEWER,
        &["state", "operation", "tenant", "caller", "olderThan", "since", "until", "after", "limit"],
        |call| Box::pin(records::list(call)),
    ),
    get(
        "/admin/v1/records/export",
        VIEWER,
        &["state", "operation", "tenant", "caller", "olderThan", "since", "until", "after"],
        |call| Box::pin(bulk::export(call)),
    ),
    post("/admin/v1/records/settle", "settle", &["reason", "dryRun", "verdicts"], |call| {
        Box::pin(bulk::settle(call))
    }),
    ask(
        "/admin/v1/records/find",
        &["operationId", "tenant", "caller", "operation", "reference", "key"],
        |call| Box::pin(search::find(call)),
    ),
    get("/admin/v1/records/{operationId}", VIEWER, &["body"], |call| Box::pin(records::show(call))),
    get("/admin/v1/records/{operationId}/history", VIEWER, &[], |call| Box::pin(records::history(call))),
    post("/admin/v1/records/{operationId}/request", "request", REASON, |call| {
        Box::pin(records::request(call))
    }),
    post(
        "/admin/v1/records/{operationId}/resolve",
        "resolve",
        &["reason", "verdict", "attempt", "phase", "output", "status", "headers", "body", "bodyBase64"],
        |call| Box::pin(records::resolve(call)),
    ),
    post("/admin/v1/records/{operationId}/release", "release", REASON, |call| {
        Box::pin(records::release(call))
    }),
    post("/admin/v1/records/{operationId}/purge", "purge", REASON, |call| Box::pin(records::purge(call))),
    post("/admin/v1/records/{operationId}/reconcile", "reconcile", REASON, |call| {
        Box::pin(records::reconcile(call))
    }),
    get("/admin/v1/outbox", VIEWER, &["state", "kind", "olderThan", "after", "limit"], |call| {
        Box::pin(outbox::list(call))
    }),
    get("/admin/v1/outbox/{eventId}", VIEWER, &["body"], |call| Box::pin(outbox::show(call))),
    post("/admin/v1/outbox/{eventId}/retry", "outbox retry", REASON, |call| Box::pin(outbox::retry(call))),
    post("/admin/v1/outbox/{eventId}/discard", "outbox discard", REASON, |call| {
        Box::pin(outbox::discard(call))
    }),
    get("/admin/v1/holds", VIEWER, &[], |call| Box::pin(holds::list(call))),
    post("/admin/v1/holds", "hold", HOLD, |call| Box::pin(holds::add(call))),
    post("/admin/v1/holds/lift", "lift", HOLD, |call| Box::pin(holds::lift(call))),
    get("/admin/v1/log-level", VIEWER, &[], |call| Box::pin(log_level::show(call))),
    post("/admin/v1/log-level", "log level", &["reason", "filter", "for"], |call| {
        Box::pin(log_level::set(call))
    }),
    get("/admin/v1/callers", VIEWER, &["limit"], |call| Box::pin(pages::callers(call))),
    get("/admin/v1/hot-keys", VIEWER, &["limit"], |call| Box::pin(pages::hot_keys(call))),
];

/// Result of a lookup by path.
pub(crate) enum EndpointMatch {
    /// Endpoint, and the segment at the name in its path.
    Endpoint(&'static Endpoint, String),
    /// Methods of the endpoints at this path, none of which is the request's.
    OtherMethods(Vec<&'static str>),
    Nothing,
}

/// Finds the endpoint of a method and a path.
pub(crate) fn find(method: &Method, path: &str) -> EndpointMatch {
    let asked = if *method == Method::HEAD { &Method::GET } else { method };
    let mut methods = Vec::new();
    for endpoint in &ENDPOINTS {
        let Some(id) = endpoint.matches(path) else { continue };
        if endpoint.method == *asked {
            return EndpointMatch::Endpoint(endpoint, id);
        }
        methods.push(endpoint.method.as_str());
        if endpoint.method == Method::GET {
            methods.push("HEAD");
        }
    }
    if methods.is_empty() { EndpointMatch::Nothing } else { EndpointMatch::OtherMethods(methods) }
}

impl Endpoint {
    /// Returns true if it hands out many records at once, which is logged.
    pub(crate) fn is_export(&self) -> bool {
        self.path.ends_with("/export")
    }

    /// Returns the segment at the name in its path, empty if it has none; `None` if the path does not match.
    fn matches(&self, path: &str) -> Option<String> {
        let (mut wanted, mut given) = (self.path.split('/'), path.split('/'));
        let mut id = String::new();
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return Some(id),
                (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => {
                    id = percent_decode_str(given).decode_utf8().ok()?.into_owned();
                }
                (Some(wanted), Some(given)) if wanted == given => {}
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_one_endpoint() {
        let found = |method: Method, path: &str| match find(&method, path) {
            EndpointMatch::Endpoint(endpoint, id) => (endpoint.path.to_owned(), id),
            EndpointMatch::OtherMethods(methods) => (methods.join(", "), String::new()),
            EndpointMatch::Nothing => (String::new(), String::new()),
        };
        let is = |path: &str, id: &str| (path.to_owned(), id.to_owned());
        assert_eq!(found(Method::GET, "/admin/v1/records/a"), is("/admin/v1/records/{operationId}", "a"));
        assert_eq!(found(Method::HEAD, "/healthz"), is("/healthz", ""));
        let event = "/admin/v1/outbox/a%3Ab%2Fc";
        assert_eq!(found(Method::GET, event), is("/admin/v1/outbox/{eventId}", "a:b/c"));
        assert_eq!(found(Method::POST, "/admin/v1/records/a"), is("GET, HEAD", ""));
        assert_eq!(found(Method::GET, "/admin/v1/records/a/purge"), is("POST", ""));
        for path in
            ["/", "", "/admin/v1/records/", "/admin/v1/records/a/", "/admin/v1/outbox/%ff", "/Healthz"]
        {
            assert_eq!(found(Method::GET, path), is("", ""), "{path}");
        }
    }

    #[test]
    fn every_change_requires_the_operator_role() {
        for endpoint in &ENDPOINTS {
            let changes = endpoint.action.is_some();
            assert!(!changes || endpoint.method == Method::POST, "{}", endpoint.path);
            assert_eq!(endpoint.access == OPERATOR, changes, "{}", endpoint.path);
            assert_eq!(endpoint.members.contains(&"reason"), changes, "{}", endpoint.path);
        }
    }
}
