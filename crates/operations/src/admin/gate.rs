//! Admission to the admin listener: who the caller is, and the limits that all callers share.

use std::net::IpAddr;
use std::sync::Arc;

use axum::response::Response;
use http::header::{self, HeaderMap, HeaderValue};
use semel_core::Problem;
use semel_core::problem::ProblemKind;
use semel_settings::Config;

use super::access::{AdminAccess, GivenToken};
use super::browser::{self, Hosts};
use super::caller::{Caller, UnknownCaller};
use super::counted::SharedCount;
use super::endpoint::Endpoint;
use super::endpoints::EndpointMatch;
use super::places::{CallerPlace, CallerPlaces};
use super::{MAX_AT_ONCE, problem};
use crate::operate::turns::ReadTurns;

/// Largest size of a body, without the response that it may hold.
const MAX_BODY: usize = 1 << 20;

/// Largest size of the terms of a search, which every viewer may send.
const MAX_TERMS: usize = 16 << 10;

/// Largest number of concurrent requests of one caller, if there are several.
const MAX_OF_CALLER: usize = 16;

/// Largest number of concurrent actions. They have places of their own, so that no reader can keep an operator out.
const MAX_ACTIONS: usize = 16;

/// Admission: credentials, host names and the limit on concurrent requests.
pub struct AdminGate {
    access: AdminAccess,
    hosts: Hosts,
    max_body: usize,
    reads: CallerPlaces,
    actions: CallerPlaces,
    /// Last count of the store's records, which all callers share.
    pub(super) counted: SharedCount,
    /// Turns of reads of many records. Readiness and holds wait for none.
    pub(super) turns: Arc<ReadTurns>,
}

impl AdminGate {
    /// Makes the gate of a listener at this address. Fetches the tokens.
    ///
    /// # Errors
    /// Fails if the tokens cannot be used.
    pub async fn new(config: &Config) -> anyhow::Result<AdminGate> {
        Ok(AdminGate::of(config, AdminAccess::fetch(config).await?))
    }

    /// Makes the gate of a router that is mounted in a service, with these tokens and no others.
    ///
    /// # Errors
    /// Fails if there are none, or one cannot be used.
    pub fn with_tokens(config: &Config, tokens: &[GivenToken]) -> anyhow::Result<AdminGate> {
        Ok(AdminGate::of(config, AdminAccess::given(tokens)?))
    }

    fn of(config: &Config, access: AdminAccess) -> AdminGate {
        let policies = config.operations.iter().map(|operation| &operation.policy).chain([&config.defaults]);
        let largest = policies.map(|policy| policy.max_stored_response).max().unwrap_or(0);
        let most = if access.asks() { MAX_OF_CALLER } else { MAX_AT_ONCE };
        AdminGate {
            reads: CallerPlaces::new(MAX_AT_ONCE, most),
            actions: CallerPlaces::new(MAX_ACTIONS, MAX_ACTIONS),
            counted: SharedCount::default(),
            access,
            hosts: Hosts::new(config.admin_listen.ip(), config.admin_hosts.clone()),
            max_body: largest.saturating_add(MAX_BODY),
            turns: Arc::default(),
        }
    }

    /// Returns the largest size of a body for this endpoint.
    pub(super) fn max_body(&self, endpoint: &Endpoint) -> usize {
        if endpoint.action.is_some() { self.max_body } else { MAX_TERMS }
    }

    /// Takes a place for a request of this caller. `None`: all of them are taken, or the caller's share is.
    pub(super) fn enter(&self, endpoint: &Endpoint, who: &str) -> Option<CallerPlace> {
        if endpoint.action.is_some() { self.actions.enter(who) } else { self.reads.enter(who) }
    }
}

/// Reason for denying a caller.
pub(super) enum AdminDenied {
    Unknown(UnknownCaller),
    /// A browser may have sent the request for a foreign page; with the reason for the log.
    Foreign(Problem, &'static str),
}

impl AdminDenied {
    /// Returns the answer for the caller.
    pub(super) fn answer(self) -> Response {
        let detail = match self {
            AdminDenied::Foreign(refused, _) => return problem(&refused),
            AdminDenied::Unknown(UnknownCaller::NoRole) => {
                let detail = "You are signed in, and `[admin.sso]` gives you no role.";
                return problem(&Problem::new(ProblemKind::Forbidden, detail));
            }
            AdminDenied::Unknown(UnknownCaller::Unnamed) => {
                "The headers of `[admin.sso]` must name one user: one line each, with printable names."
            }
            AdminDenied::Unknown(UnknownCaller::Missing | UnknownCaller::Wrong) => {
                "The admin listener needs `Authorization: Bearer` and a token that it knows."
            }
        };
        let mut answer = problem(&Problem::new(ProblemKind::Unauthenticated, detail));
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        answer
    }
}

/// Identifies the caller. Without credentials, and with one that a browser sends by itself, a request must address this listener by
/// one of its names, and must not come from a page of another origin.
pub(super) fn identify(
    gate: &AdminGate,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Caller, AdminDenied> {
    let host = || gate.hosts.check(headers).map_err(|refused| AdminDenied::Foreign(refused, "host"));
    let page = |refused: Problem| AdminDenied::Foreign(refused, "page");
    if !gate.access.asks() {
        host()?;
        browser::check_origin(headers).map_err(page)?;
    }
    let identified = gate.access.identify(headers, peer).map_err(AdminDenied::Unknown)?;
    if identified.is_ambient {
        host()?;
        browser::check_ambient(headers).map_err(page)?;
    }
    Ok(identified.caller)
}

/// Logs denied callers: a few by line, the rest by number.
pub(super) fn log_denied(gate: &AdminGate, found: &EndpointMatch, denied: &AdminDenied, peer: Option<&str>) {
    let Some(unlogged) = gate.access.attempt() else { return };
    let what = match found {
        EndpointMatch::Endpoint(endpoint, _) => format!("{} {}", endpoint.method, endpoint.path),
        EndpointMatch::OtherMethods(_) | EndpointMatch::Nothing => "an unknown endpoint".to_owned(),
    };
    let (result, why) = match denied {
        AdminDenied::Unknown(UnknownCaller::NoRole) => {
            (ProblemKind::Forbidden.code(), UnknownCaller::NoRole.as_str())
        }
        AdminDenied::Unknown(denied) => (ProblemKind::Unauthenticated.code(), denied.as_str()),
        AdminDenied::Foreign(refused, why) => (refused.kind.code(), *why),
    };
    tracing::warn!(event = "admin_denied", what, result, why, peer, unlogged);
}
