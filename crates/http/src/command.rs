//! A command with the HTTP request that carries it, from reading to execution.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRAILER};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Uri};
use semel_core::fields::{self, Section, Treatment};
use semel_core::fingerprint::FingerprintVersion;
use semel_core::{Command, Fingerprint, FingerprintInput, Formats, StoredRequest};

use crate::body::Body;
use crate::busy::KeyHashPrefix;
use crate::client_deadline::ClientDeadline;
use crate::observe::ObservationLabels;
use crate::operations::CommandRule;
use crate::shared::Shared;
use crate::shares::Share;
use crate::spans::OpenSpan;

/// The request header field that carries the key.
pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A command and the HTTP request that carries it.
pub(crate) struct CommandRequest {
    pub(crate) command: Command,
    pub(crate) rule: CommandRule,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    /// The memory that the body takes, until the command has been executed.
    pub(crate) room: Arc<Share>,
    /// The beginning of the digest of its key.
    pub(crate) key: KeyHashPrefix,
    /// The moment until which the client waits.
    pub(crate) deadline: ClientDeadline,
    /// The span of the request, if it is traced.
    pub(crate) span: Option<OpenSpan>,
}

impl CommandRequest {
    /// Returns the labels of observations of the command.
    pub(crate) fn about(&self) -> ObservationLabels {
        ObservationLabels {
            principal: Some(self.command.scope.principal().clone()),
            key: Some(self.key),
            trace: self.command.trace,
            ..ObservationLabels::of(&self.rule)
        }
    }

    /// Returns the request in the form that is stored for a worker: without its trailers, without the fields of its connection,
    /// without the fields that the operation or `before_keeping` removes, and with only the fields that the operation keeps.
    pub(crate) fn to_keep(&self, before_keeping: impl Fn(&mut HeaderMap)) -> StoredRequest {
        let mut headers = self.parts.headers.clone();
        remove_connection_fields(&mut headers);
        let except = self.rule.policy.store_headers_except.iter();
        for name in except.filter(|name| !fields::reads_command(name)) {
            headers.remove(name);
        }
        before_keeping(&mut headers);
        let uri = &self.parts.uri;
        // In HTTP/2, the host is in the target, and only the path of the target is stored.
        if let (None, Some(authority)) = (headers.get(HOST), uri.authority())
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(HOST, host);
        }
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let request = semel_core::Request {
            method: self.parts.method.clone(),
            target: Uri::from(path),
            headers,
            body: self.body.clone(),
        };
        request.encode(|name| self.rule.policy.keeps_request_field(name))
    }

    /// Returns the request for the handler.
    pub(crate) fn into_request(self) -> Request<Body> {
        Request::from_parts(self.parts, Body::with_trailers(self.body, self.trailers))
    }
}

/// Removes the fields of the connection that a request came on, and those that announce a body in pieces.
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = fields::elements(headers, &CONNECTION)
        .filter_map(|element| HeaderName::from_bytes(element).ok())
        .filter(|name| !fields::reads_command(name))
        .collect();
    for name in named.iter().chain([&TRAILER]) {
        headers.remove(name);
    }
    fields::remove(headers, Section::RequestHead, Treatment::Hop);
}

/// Computes the fingerprint as this program does: the next version, which only tests have, knows one version more, and writes it
/// once the store's formats are its own.
pub(crate) fn default_fingerprint(input: &FingerprintInput<'_>, formats: Formats) -> Fingerprint {
    let own = input.fingerprint_for(formats);
    let next = FingerprintVersion::from_number(own.version().number() + 1);
    let Some(next) = next.filter(|_| semel_faults::is_next_version()) else { return own };
    let next = Fingerprint::from_parts(next, own.digest().map(|byte| !byte));
    if formats > Formats::CURRENT { next.with_other(own) } else { own.with_other(next) }
}

/// Returns the fingerprint of a stored request.
pub(crate) fn fingerprint_of(shared: &Shared, rule: &CommandRule, kept: &semel_core::Request) -> Fingerprint {
    let semel_core::Request { method, target, headers, body } = kept;
    fingerprint(shared, rule, (method, target, headers), body)
}

/// Returns the fingerprint of a request.
pub(crate) fn fingerprint(
    shared: &Shared,
    rule: &CommandRule,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    body: &[u8],
) -> Fingerprint {
    let content_type = combined(headers, CONTENT_TYPE);
    let content_encoding = combined(headers, CONTENT_ENCODING);
    let input = FingerprintInput {
        method: method.as_str(),
        path: uri.path(),
        query: uri.query(),
        content_type: content_type.as_deref(),
        content_encoding: content_encoding.as_deref(),
        body,
        exclude: &rule.exclude,
    };
    (shared.fingerprint)(&input, shared.store.formats())
}

/// Joins the lines of a field into one value (RFC 9110, section 5.2).
fn combined(headers: &HeaderMap, name: HeaderName) -> Option<Cow<'_, [u8]>> {
    let mut lines = headers.get_all(name).iter().map(|value| value.as_bytes());
    let first = Cow::Borrowed(lines.next()?);
    Some(lines.fold(first, |line, next| Cow::Owned([&*line, b", ", next].concat())))
}
