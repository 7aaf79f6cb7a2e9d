//! Endpoint of the admin listener: its method, its path, its access, and what it reads.

use std::pin::Pin;

use http::Method;
use percent_encoding::percent_decode_str;
use semel_core::Problem;
use semel_settings::Role;

use super::call::{AdminAnswer, AdminCall};

/// Access to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAccess {
    /// Open to every caller.
    Open,
    /// Requires at least this role.
    Needs(Role),
}

pub(super) const VIEWER: EndpointAccess = EndpointAccess::Needs(Role::Viewer);
pub(super) const OPERATOR: EndpointAccess = EndpointAccess::Needs(Role::Operator);

pub(super) type PendingAdminAnswer = Pin<Box<dyn Future<Output = Result<AdminAnswer, Problem>> + Send>>;

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

pub(super) const fn get(
    path: &'static str,
    access: EndpointAccess,
    query: &'static [&'static str],
    answer: fn(AdminCall) -> PendingAdminAnswer,
) -> Endpoint {
    Endpoint { method: Method::GET, path, access, query, members: &[], action: None, answer }
}

pub(super) const fn post(
    path: &'static str,
    action: &'static str,
    members: &'static [&'static str],
    answer: fn(AdminCall) -> PendingAdminAnswer,
) -> Endpoint {
    let (method, access, action) = (Method::POST, OPERATOR, Some(action));
    Endpoint { method, path, access, query: &[], members, action, answer }
}

/// Returns an endpoint that reads only, and takes its terms in a body: they must not be in a URL.
pub(super) const fn ask(
    path: &'static str,
    members: &'static [&'static str],
    answer: fn(AdminCall) -> PendingAdminAnswer,
) -> Endpoint {
    Endpoint { method: Method::POST, path, access: VIEWER, query: &[], members, action: None, answer }
}

impl Endpoint {
    /// Returns true if it hands out many records at once, which is logged.
    pub(crate) fn is_export(&self) -> bool {
        self.path.ends_with("/export")
    }

    /// Returns the segment at the name in its path, empty if it has none; `None` if the path does not match.
    pub(super) fn matches(&self, path: &str) -> Option<String> {
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
