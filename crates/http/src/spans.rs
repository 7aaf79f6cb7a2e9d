//! Spans of the layer: one for each command, and one for its handler. Without a tracer, nothing here runs.
//!
//! Invariant: a span holds no key, body or credential.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use semel_core::{Clock, Span, SpanRole, SpanValue, Timestamp, TraceContext, Tracer, is_server_error};
use tokio::time::Instant;

use crate::answer::AnswerFacts;

/// The position of a request in its trace.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Header with the data that other systems keep with the position.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A span that is open, to which children can be added.
#[derive(Clone)]
pub(crate) struct OpenSpan {
    tracer: Arc<dyn Tracer>,
    context: TraceContext,
    parent: Option<TraceContext>,
    begun_at: Timestamp,
    begun: Instant,
    offset: Duration,
    /// False in a trace that began here: what a client sent about another trace does not belong to it.
    keeps_state: bool,
}

impl OpenSpan {
    /// Begins the span of a request with this header. A client without a trace gets a new one.
    pub(crate) fn of_request(tracer: &Arc<dyn Tracer>, clock: &dyn Clock, headers: &HeaderMap) -> OpenSpan {
        OpenSpan::begin(tracer, clock, sent_with(headers))
    }

    /// Begins a span without a parent, in a trace of its own.
    pub(crate) fn alone(tracer: &Arc<dyn Tracer>, clock: &dyn Clock) -> OpenSpan {
        OpenSpan::begin(tracer, clock, None)
    }

    fn begin(tracer: &Arc<dyn Tracer>, clock: &dyn Clock, parent: Option<TraceContext>) -> OpenSpan {
        OpenSpan {
            tracer: tracer.clone(),
            context: tracer.begin(parent),
            parent,
            begun_at: clock.now(),
            begun: Instant::now(),
            offset: Duration::ZERO,
            keeps_state: parent.is_some(),
        }
    }

    /// Begins a child.
    pub(crate) fn child(&self) -> OpenSpan {
        let now = Instant::now();
        OpenSpan {
            tracer: self.tracer.clone(),
            context: self.tracer.begin(Some(self.context)),
            parent: Some(self.context),
            begun_at: self.begun_at,
            begun: now,
            offset: self.offset + now.saturating_duration_since(self.begun),
            keeps_state: self.keeps_state,
        }
    }

    /// Returns the position of the span.
    pub(crate) fn context(&self) -> TraceContext {
        self.context
    }

    /// Puts the position of the span into the header of a request, in place of the client's.
    pub(crate) fn name(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&self.context.to_string()) {
            headers.insert(TRACEPARENT, value);
        }
        if !self.keeps_state {
            headers.remove(&TRACESTATE);
        }
    }

    fn end(
        &self,
        name: Cow<'static, str>,
        role: SpanRole,
        attributes: Vec<(&'static str, SpanValue)>,
        links: Vec<TraceContext>,
        error: Option<&'static str>,
    ) {
        self.tracer.end(Span {
            context: self.context,
            parent: self.parent,
            name,
            role,
            begun_at: self.begun_at,
            offset: self.offset,
            length: self.begun.elapsed(),
            attributes,
            links,
            error,
        });
    }
}

/// Returns the position that a request was sent with; `None` without one, or with several.
fn sent_with(headers: &HeaderMap) -> Option<TraceContext> {
    let mut lines = headers.get_all(&TRACEPARENT).iter();
    match (lines.next(), lines.next()) {
        (Some(only), None) => TraceContext::parse(only.to_str().ok()?.trim()),
        _ => None,
    }
}

/// The span of a request with a command. It ends when this is dropped, so also when the client leaves.
pub(crate) struct CommandSpan {
    span: OpenSpan,
    operation: Arc<str>,
    method: Method,
    answered: Option<(AnswerFacts, StatusCode)>,
}

impl CommandSpan {
    pub(crate) fn new(span: OpenSpan, operation: Arc<str>, method: Method) -> CommandSpan {
        CommandSpan { span, operation, method, answered: None }
    }

    /// Ends the span with this answer.
    pub(crate) fn answered(mut self, facts: AnswerFacts, status: StatusCode) {
        self.answered = Some((facts, status));
    }
}

impl Drop for CommandSpan {
    fn drop(&mut self) {
        let mut attributes = vec![
            ("http.request.method", text(self.method.as_str().to_owned())),
            ("semel.operation", text(self.operation.to_string())),
        ];
        let (mut links, mut error) = (Vec::new(), None);
        match &self.answered {
            None => attributes.push(("semel.decision", text("client_left"))),
            Some((facts, status)) => {
                attributes.push(("http.response.status_code", SpanValue::Int(status.as_u16().into())));
                attributes.extend(told(facts));
                links.extend(facts.first_trace.filter(|first| *first != self.span.context));
                error = is_server_error(*status).then(|| facts.code.unwrap_or("server_error"));
            }
        }
        self.span.end(self.operation.to_string().into(), SpanRole::Server, attributes, links, error);
    }
}

/// Ends the span of a handler that answered with this status, or ended for this reason.
pub(crate) fn handled(
    span: &OpenSpan,
    operation: &str,
    epoch: Option<u32>,
    end: Result<StatusCode, &'static str>,
) {
    let mut attributes = vec![("semel.operation", text(operation.to_owned()))];
    attributes.extend(epoch.map(|epoch| ("semel.epoch", SpanValue::Int(epoch.into()))));
    let error = match end {
        Ok(status) => {
            attributes.push(("http.response.status_code", SpanValue::Int(status.as_u16().into())));
            is_server_error(status).then_some("server_error")
        }
        Err(reason) => Some(reason),
    };
    span.end(format!("{operation} handler").into(), SpanRole::Client, attributes, Vec::new(), error);
}

/// Ends the span of work on a command without a request: its execution by a worker, or its late answer.
pub(crate) fn worked(
    span: &OpenSpan,
    what: &str,
    operation: &str,
    facts: &AnswerFacts,
    outcome: Option<&'static str>,
) {
    let mut attributes = vec![("semel.operation", text(operation.to_owned()))];
    attributes.extend(told(facts));
    attributes.extend(outcome.map(|outcome| ("semel.outcome", text(outcome))));
    let links = facts.first_trace.into_iter().collect();
    span.end(format!("{operation} {what}").into(), SpanRole::Internal, attributes, links, None);
}

/// Returns the attributes that facts about an answer give a span.
fn told(facts: &AnswerFacts) -> impl Iterator<Item = (&'static str, SpanValue)> {
    let decision = facts.decision.map(|decision| ("semel.decision", text(decision.as_str())));
    let state = facts.known_state().map(|state| ("semel.state", text(state.as_str())));
    let id = facts.operation_id.map(|id| ("semel.operation_id", text(id.to_string())));
    let epoch = facts.epoch.map(|epoch| ("semel.epoch", SpanValue::Int(epoch.into())));
    [decision, state, id, epoch].into_iter().flatten()
}

fn text(text: impl Into<Cow<'static, str>>) -> SpanValue {
    SpanValue::Text(text.into())
}
