//! Every endpoint of the admin listener: one table, which the router follows, and the OpenAPI document and the tests with it.

use std::pin::Pin;

use http::Method;
use percent_encoding::percent_decode_str;
use semel_core::Problem;
use semel_settings::Role;

use super::call::{Answer, Call};
use super::{outbox, pages, records};

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    Open,
    /// Whoever has at least this role.
    Needs(Role),
}

const VIEWER: Access = Access::Needs(Role::Viewer);
const OPERATOR: Access = Access::Needs(Role::Operator);

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Problem>> + Send>>;

/// An endpoint.
pub struct Endpoint {
    /// Its method. One that is asked with GET can be asked with HEAD, too.
    pub method: Method,
    /// Its path; at most one segment is a name in braces.
    pub path: &'static str,
    /// Who may ask.
    pub access: Access,
    /// The parameters that it knows.
    pub query: &'static [&'static str],
    /// The members that its body may have.
    pub members: &'static [&'static str],
    /// What the log calls it, if it does something.
    pub action: Option<&'static str>,
    pub(crate) answer: fn(Call) -> Answering,
}

const fn get(
    path: &'static str,
    access: Access,
    query: &'static [&'static str],
    answer: fn(Call) -> Answering,
) -> Endpoint {
    Endpoint { method: Method::GET, path, access, query, members: &[], action: None, answer }
}

const fn post(
    path: &'static str,
    action: &'static str,
    members: &'static [&'static str],
    answer: fn(Call) -> Answering,
) -> Endpoint {
    let (method, access, action) = (Method::POST, OPERATOR, Some(action));
    Endpoint { method, path, access, query: &[], members, action, answer }
}

const REASON: &[&str] = &["reason"];

/// Every endpoint.
pub static ENDPOINTS: [Endpoint; 18] = [
    get("/healthz", Access::Open, &[], |call| Box::pin(pages::healthz(call))),
    get("/readyz", Access::Open, &[], |call| Box::pin(pages::readyz(call))),
    get("/metrics", VIEWER, &[], |call| Box::pin(pages::metrics(call))),
    get("/admin/v1/openapi.json", VIEWER, &[], |call| Box::pin(pages::openapi(call))),
    get("/admin/v1/status", VIEWER, &[], |call| Box::pin(pages::status(call))),
    get("/admin/v1/audit", VIEWER, &["before", "limit"], |call| Box::pin(pages::audit(call))),
    get(
        "/admin/v1/records",
        VIEWER,
        &["state", "operation", "tenant", "olderThan", "after", "limit"],
        |call| Box::pin(records::list(call)),
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
];

/// What there is at a path.
pub(crate) enum Found {
    /// An endpoint, and what stands for the name in its path.
    Endpoint(&'static Endpoint, String),
    /// Only endpoints with other methods.
    OtherMethods(Vec<&'static str>),
    Nothing,
}

/// Looks for what there is.
pub(crate) fn find(method: &Method, path: &str) -> Found {
    let asked = if *method == Method::HEAD { &Method::GET } else { method };
    let mut methods = Vec::new();
    for endpoint in &ENDPOINTS {
        let Some(id) = endpoint.matches(path) else { continue };
        if endpoint.method == *asked {
            return Found::Endpoint(endpoint, id);
        }
        methods.push(endpoint.method.as_str());
        if endpoint.method == Method::GET {
            methods.push("HEAD");
        }
    }
    if methods.is_empty() { Found::Nothing } else { Found::OtherMethods(methods) }
}

impl Endpoint {
    /// What stands for the name in its path; nothing if it has none.
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
            Found::Endpoint(endpoint, id) => (endpoint.path.to_owned(), id),
            Found::OtherMethods(methods) => (methods.join(", "), String::new()),
            Found::Nothing => (String::new(), String::new()),
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
    fn whatever_changes_something_is_an_operators() {
        for endpoint in &ENDPOINTS {
            let changes = endpoint.method != Method::GET;
            assert_eq!(endpoint.action.is_some(), changes, "{}", endpoint.path);
            assert_eq!(endpoint.access == OPERATOR, changes, "{}", endpoint.path);
            assert_eq!(endpoint.members.contains(&"reason"), changes, "{}", endpoint.path);
        }
    }
}
