//! The position of a request in a trace, as its peer names it (W3C Trace Context). [`EntryRules`](super::EntryRules) apply
//! this if requests are traced; otherwise both fields pass as they came.
//!
//! Invariant: behind the entry, `traceparent` is absent or well-formed, and its sampled flag is that of a trusted peer or of
//! the gateway's own sampler.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use semel_core::TraceContext;
use semel_traces::Sampler;

/// Field with the position.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Field with what tracing systems add to it. It means nothing without the position.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Puts the fields of a request into their normal form. An unreadable position is removed, so that the request begins a new
/// trace.
pub(crate) fn normalize(headers: &mut HeaderMap, is_trusted: bool, sampler: Sampler) {
    let Some(position) = position(headers) else {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
        return;
    };
    if is_trusted {
        return;
    }
    // A peer that decides could have everything recorded.
    let sampled = sampler.samples(position.trace_id());
    let decided = TraceContext::new(position.trace_id(), position.span_id(), sampled);
    if let Some(value) = decided.and_then(|decided| HeaderValue::from_str(&decided.to_string()).ok()) {
        headers.insert(TRACEPARENT, value);
    }
}

/// Returns the position, if there is exactly one.
fn position(headers: &HeaderMap) -> Option<TraceContext> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    TraceContext::parse(line.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    /// Returns the fields after the entry, in order.
    fn normal(is_trusted: bool, millionths: u32, lines: &[(&'static str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("it is a value"));
        }
        normalize(&mut headers, is_trusted, Sampler::new(millionths));
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().expect("it is text"))
        };
        headers.iter().map(line).collect()
    }

    #[test]
    fn an_untrusted_peer_keeps_its_trace_and_gets_the_decision_of_our_sampler() {
        for sent in [SAMPLED, UNSAMPLED] {
            for (millionths, decided) in [(1_000_000, SAMPLED), (0, UNSAMPLED)] {
                let fields = normal(false, millionths, &[("traceparent", sent), ("tracestate", "a=b")]);
                assert_eq!(fields, [&format!("traceparent: {decided}"), "tracestate: a=b"], "{sent}");
            }
        }
        let by_id = |millionths| normal(false, millionths, &[("traceparent", UNSAMPLED)]);
        let half = Sampler::new(500_000);
        let id = TraceContext::parse(SAMPLED).expect("it is one").trace_id();
        let decided = if half.samples(id) { SAMPLED } else { UNSAMPLED };
        assert_eq!(by_id(500_000), [format!("traceparent: {decided}")]);
    }

    #[test]
    fn the_decision_of_a_trusted_peer_stands() {
        for (sent, millionths) in [(SAMPLED, 0), (UNSAMPLED, 1_000_000)] {
            let fields = normal(true, millionths, &[("traceparent", sent), ("tracestate", "a=b")]);
            assert_eq!(fields, [&format!("traceparent: {sent}"), "tracestate: a=b"]);
        }
    }

    #[test]
    fn a_malformed_or_repeated_position_is_removed_with_its_state() {
        for is_trusted in [true, false] {
            for sent in ["", "x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "é"] {
                let lines =
                    [("x-other", "1"), ("traceparent", sent), ("tracestate", "a=b"), ("tracestate", "c=d")];
                assert_eq!(normal(is_trusted, 1_000_000, &lines), ["x-other: 1"], "{sent:?}");
            }
            let twice = [("traceparent", SAMPLED), ("traceparent", SAMPLED), ("tracestate", "a=b")];
            assert_eq!(normal(is_trusted, 1_000_000, &twice), [""; 0]);
            assert_eq!(
                normal(is_trusted, 1_000_000, &[("tracestate", "a=b")]),
                [""; 0],
                "it is about no position"
            );
        }
    }

    #[test]
    fn a_later_version_of_an_untrusted_peer_becomes_ours() {
        let later = format!("{}-more", SAMPLED.replacen("00", "cc", 1));
        assert_eq!(normal(false, 1_000_000, &[("traceparent", &later)]), [format!("traceparent: {SAMPLED}")]);
    }
}
