//! Spans in the JSON form of OTLP (`ExportTraceServiceRequest`): ids are hexadecimal, 64-bit integers are decimal strings,
//! enumerations are numbers.

use bytes::Bytes;
use semel_core::{Span, SpanRole, SpanValue, Timestamp, TraceContext};
use serde::Serialize;

/// Name of the library that makes the spans.
const SCOPE: &str = "semel";
/// Version of the library.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Code of a span that ended with an error, `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;
/// Bytes of one span, roughly, for the first allocation.
const SPAN_BYTES: usize = 1024;

/// Returns the body of an export request.
pub(crate) fn encode(service_name: &str, spans: &[Span]) -> Bytes {
    let service = [("service.name", service_name), ("service.version", VERSION)];
    let request = OtlpRequest {
        resource_spans: [OtlpResourceSpans {
            resource: OtlpResource {
                attributes: service
                    .map(|(key, value)| OtlpAttribute { key, value: OtlpValue::StringValue(value) }),
            },
            scope_spans: [OtlpScopeSpans {
                scope: OtlpScope { name: SCOPE, version: VERSION },
                spans: spans.iter().map(OtlpSpan::of).collect(),
            }],
        }],
    };
    let mut body = Vec::with_capacity(SPAN_BYTES * (1 + spans.len()));
    serde_json::to_writer(&mut body, &request).expect("texts and numbers are JSON, and memory takes them");
    body.into()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpRequest<'a> {
    resource_spans: [OtlpResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpResourceSpans<'a> {
    resource: OtlpResource<'a>,
    scope_spans: [OtlpScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct OtlpResource<'a> {
    attributes: [OtlpAttribute<'a>; 2],
}

#[derive(Serialize)]
struct OtlpScopeSpans<'a> {
    scope: OtlpScope,
    spans: Vec<OtlpSpan<'a>>,
}

#[derive(Serialize)]
struct OtlpScope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpSpan<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    flags: u8,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<OtlpAttribute<'a>>,
    links: Vec<OtlpLink>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<OtlpStatus>,
}

#[derive(Serialize)]
struct OtlpAttribute<'a> {
    key: &'a str,
    value: OtlpValue<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum OtlpValue<'a> {
    StringValue(&'a str),
    IntValue(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OtlpLink {
    trace_id: String,
    span_id: String,
    flags: u8,
}

#[derive(Serialize)]
struct OtlpStatus {
    code: u8,
    message: &'static str,
}

impl OtlpSpan<'_> {
    fn of(span: &Span) -> OtlpSpan<'_> {
        let begun = nanos(span.begun_at).saturating_add(whole(span.offset.as_nanos()));
        let ended = begun.saturating_add(whole(span.length.as_nanos()));
        OtlpSpan {
            trace_id: span.context.trace_id_text(),
            span_id: span_id(span.context),
            parent_span_id: span.parent.map(span_id),
            flags: flags(span.context),
            name: &span.name,
            kind: kind(span.role),
            start_time_unix_nano: begun.to_string(),
            end_time_unix_nano: ended.to_string(),
            attributes: span.attributes.iter().map(attribute).collect(),
            links: span.links.iter().map(|linked| link(*linked)).collect(),
            status: span.error.map(|code| OtlpStatus { code: STATUS_ERROR, message: code }),
        }
    }
}

fn attribute<'a>((key, value): &'a (&'static str, SpanValue)) -> OtlpAttribute<'a> {
    let value = match value {
        SpanValue::Text(text) => OtlpValue::StringValue(text),
        SpanValue::Int(number) => OtlpValue::IntValue(number.to_string()),
    };
    OtlpAttribute { key, value }
}

fn link(linked: TraceContext) -> OtlpLink {
    OtlpLink { trace_id: linked.trace_id_text(), span_id: span_id(linked), flags: flags(linked) }
}

fn span_id(context: TraceContext) -> String {
    format!("{:016x}", u64::from_be_bytes(context.span_id()))
}

/// Returns the flags of W3C Trace Context.
fn flags(context: TraceContext) -> u8 {
    u8::from(context.is_sampled())
}

fn kind(role: SpanRole) -> u8 {
    match role {
        SpanRole::Internal => 1,
        SpanRole::Server => 2,
        SpanRole::Client => 3,
    }
}

/// Returns the nanoseconds since 1970; an instant beyond the range of OTLP becomes its end.
fn nanos(instant: Timestamp) -> u64 {
    u64::try_from(instant.as_millis()).unwrap_or(0).saturating_mul(1_000_000)
}

fn whole(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn context(last: u8, sampled: bool) -> TraceContext {
        TraceContext::new([0xab; 16], [0, 0, 0, 0, 0, 0, 0, last], sampled).expect("no id is zero")
    }

    fn span() -> Span {
        Span {
            context: context(1, true),
            parent: None,
            name: "payments.create".into(),
            role: SpanRole::Server,
            begun_at: Timestamp::from_millis(1_763_200_000_123),
            offset: Duration::ZERO,
            length: Duration::from_nanos(1_500_000),
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    fn encoded(spans: &[Span]) -> Value {
        serde_json::from_slice(&encode("orders", spans)).expect("it is JSON")
    }

    fn encoded_span(span: Span) -> Value {
        encoded(&[span]).pointer("/resourceSpans/0/scopeSpans/0/spans/0").expect("it is there").clone()
    }

    #[test]
    fn a_span_has_exactly_the_fields_of_the_protocol() {
        let full = Span {
            parent: Some(context(2, true)),
            role: SpanRole::Client,
            offset: Duration::from_nanos(4_567),
            attributes: vec![
                ("semel.operation", SpanValue::Text("payments.create".into())),
                ("http.response.status_code", SpanValue::Int(503)),
                ("semel.epoch", SpanValue::Int(i64::MAX)),
            ],
            links: vec![context(3, true), context(4, false)],
            error: Some("UPSTREAM_UNAVAILABLE"),
            ..span()
        };
        let trace = "ab".repeat(16);
        let expected = json!({
            "resourceSpans": [{
                "resource": {"attributes": [
                    {"key": "service.name", "value": {"stringValue": "orders"}},
                    {"key": "service.version", "value": {"stringValue": VERSION}},
                ]},
                "scopeSpans": [{
                    "scope": {"name": "semel", "version": VERSION},
                    "spans": [{
                        "traceId": trace,
                        "spanId": "0000000000000001",
                        "parentSpanId": "0000000000000002",
                        "flags": 1,
                        "name": "payments.create",
                        "kind": 3,
                        "startTimeUnixNano": "1763200000123004567",
                        "endTimeUnixNano": "1763200000124504567",
                        "attributes": [
                            {"key": "semel.operation", "value": {"stringValue": "payments.create"}},
                            {"key": "http.response.status_code", "value": {"intValue": "503"}},
                            {"key": "semel.epoch", "value": {"intValue": "9223372036854775807"}},
                        ],
                        "links": [
                            {"traceId": trace, "spanId": "0000000000000003", "flags": 1},
                            {"traceId": trace, "spanId": "0000000000000004", "flags": 0},
                        ],
                        "status": {"code": 2, "message": "UPSTREAM_UNAVAILABLE"},
                    }],
                }],
            }],
        });
        assert_eq!(encoded(&[full]), expected);
    }

    #[test]
    fn a_root_without_an_error_has_no_parent_and_no_status() {
        let root = encoded_span(span());
        assert_eq!((root.get("parentSpanId"), root.get("status")), (None, None));
        assert_eq!((&root["attributes"], &root["links"]), (&json!([]), &json!([])));
    }

    #[test]
    fn each_role_has_the_number_of_the_protocol() {
        for (role, kind) in [(SpanRole::Internal, 1), (SpanRole::Server, 2), (SpanRole::Client, 3)] {
            assert_eq!(encoded_span(Span { role, ..span() })["kind"], kind, "{role:?}");
        }
    }

    #[test]
    fn times_beyond_the_range_of_the_protocol_are_its_ends() {
        let early = encoded_span(Span { begun_at: Timestamp::from_millis(-5), ..span() });
        assert_eq!(
            (&early["startTimeUnixNano"], &early["endTimeUnixNano"]),
            (&json!("0"), &json!("1500000"))
        );
        let late = encoded_span(Span { begun_at: Timestamp::MAX, length: Duration::MAX, ..span() });
        assert_eq!(late["endTimeUnixNano"], u64::MAX.to_string());
    }
}
