//! Table of the admin listener's endpoints. The router follows it; tests compare it with the OpenAPI
//! document.

use http::Method;

use super::console;
use super::endpoint::{Endpoint, EndpointAccess, VIEWER, ask, get, post};
use super::{bulk, export, holds, log_level, outbox, pages, reconcile, records, search};

const REASON: &[&str] = &["reason"];
const HOLD: &[&str] = &["kind", "name", "reason"];

/// Every endpoint.
pub static ENDPOINTS: [Endpoint; 31] = [
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
        |call| Box::pin(export::export(call)),
    ),
    post("/admin/v1/records/settle", "settle", &["reason", "dryRun", "verdicts"], |call| {
        Box::pin(bulk::settle(call))
    }),
    ask("/admin/v1/records/find", search::TERMS, |call| Box::pin(search::find(call))),
    post("/admin/v1/records/reconcile", "reconcile", &["reason", "operationIds"], |call| {
        Box::pin(reconcile::many(call))
    }),
    get("/admin/v1/records/{operationId}", VIEWER, &[], |call| Box::pin(records::show(call))),
    get("/admin/v1/records/{operationId}/history", VIEWER, &[], |call| Box::pin(records::history(call))),
    post("/admin/v1/records/{operationId}/request", "request", REASON, |call| {
        Box::pin(records::request(call))
    }),
    post("/admin/v1/records/{operationId}/response", "response", REASON, |call| {
        Box::pin(records::response(call))
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
        Box::pin(reconcile::one(call))
    }),
    get("/admin/v1/outbox", VIEWER, &["state", "kind", "olderThan", "after", "limit"], |call| {
        Box::pin(outbox::list(call))
    }),
    get("/admin/v1/outbox/{eventId}", VIEWER, &[], |call| Box::pin(outbox::show(call))),
    post("/admin/v1/outbox/{eventId}/payload", "outbox payload", REASON, |call| {
        Box::pin(outbox::payload(call))
    }),
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
    for endpoint in ENDPOINTS.iter().chain(&console::PAGES) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::endpoint::OPERATOR;

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
        assert_eq!(found(Method::GET, "/console/"), is("/console/", ""));
        let event = "/admin/v1/outbox/a%3Ab%2Fc";
        assert_eq!(found(Method::GET, event), is("/admin/v1/outbox/{eventId}", "a:b/c"));
        assert_eq!(found(Method::POST, "/admin/v1/records/a"), is("GET, HEAD", ""));
        assert_eq!(found(Method::GET, "/admin/v1/records/a/purge"), is("POST", ""));
        for path in [
            "",
            "/consoles",
            "/admin/v1/records/",
            "/admin/v1/records/a/",
            "/admin/v1/outbox/%ff",
            "/Healthz",
        ] {
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

    #[test]
    fn a_page_of_the_console_changes_nothing_and_shows_data_to_known_callers_only() {
        for page in &console::PAGES {
            assert_eq!(page.action, None, "{}", page.path);
            let shows_data = page.path.starts_with("/console/fragments/");
            assert_eq!(page.access == VIEWER, shows_data, "{}", page.path);
        }
    }
}
