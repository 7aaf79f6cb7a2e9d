//! The collector of spans: one batch is one request, tried again a few times if the collector may take it later.
//!
//! | answer | |
//! |---|---|
//! | 2xx | taken, except the spans that `partialSuccess` rejects |
//! | 429, 502, 503, 504, no answer, timeout | tried again, not before `Retry-After` if that is reasonable |
//! | anything else, redirects included | refused: a retry would get the same answer |

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use semel_core::{Clock, Ids, Span, SystemClock, Timestamp};
use semel_outgoing::{Client, ServiceAnswer};
use serde_json::Value;
use tokio::time::sleep;

use crate::counts::{self, SpanLoss};
use crate::otlp::encode;

/// Largest number of tries of one batch.
const MAX_TRIES: u32 = 5;
/// Longest wait before a further try, whatever the collector asks for.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Largest number of bytes that are read of an answer.
const MAX_ANSWER: usize = 64 * 1024;

/// Collector that takes spans.
pub(crate) struct Collector {
    client: Client,
    service_name: String,
    authorization: Option<HeaderValue>,
    backoff: Duration,
    ids: Arc<dyn Ids>,
    /// True if the last batch was dropped: only the first loss of several is a warning.
    is_failing: bool,
}

/// Result of one try.
enum BatchVerdict {
    /// The collector took the batch, and rejected this number of its spans.
    Taken(usize),
    /// The collector will never take it.
    Refused(String),
    /// The collector may take it later.
    Failed { why: String, retry_after: Option<Duration> },
}

impl Collector {
    pub(crate) fn new(
        client: Client,
        service_name: String,
        authorization: Option<HeaderValue>,
        backoff: Duration,
        ids: Arc<dyn Ids>,
    ) -> Collector {
        let authorization = authorization.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Collector { client, service_name, authorization, backoff, ids, is_failing: false }
    }

    /// Sends a batch, and counts each of its spans once as exported or as dropped.
    pub(crate) async fn deliver(&mut self, spans: &[Span]) {
        let body = encode(&self.service_name, spans);
        let mut attempt = 1;
        loop {
            match self.attempt(body.clone()).await {
                BatchVerdict::Taken(rejected) => return self.taken(spans.len(), rejected),
                BatchVerdict::Refused(why) => return self.lost(SpanLoss::Refused, spans.len(), &why),
                BatchVerdict::Failed { why, .. } if attempt == MAX_TRIES => {
                    return self.lost(SpanLoss::Unreachable, spans.len(), &why);
                }
                BatchVerdict::Failed { why, retry_after } => {
                    tracing::debug!(error = why, attempt, "a batch of spans will be sent again");
                    let [random, ..] = *self.ids.attempt_token().as_bytes();
                    sleep(wait(self.backoff, attempt, retry_after, random)).await;
                }
            }
            attempt += 1;
        }
    }

    async fn attempt(&self, body: Bytes) -> BatchVerdict {
        let request = match self.request(body) {
            Ok(request) => request,
            Err(error) => return BatchVerdict::Refused(format!("it cannot be sent: {error}")),
        };
        match self.client.send(request).await {
            Ok(answer) => judge(answer).await,
            Err(error) => BatchVerdict::Failed { why: error.to_string(), retry_after: None },
        }
    }

    fn request(&self, body: Bytes) -> http::Result<Request<Full<Bytes>>> {
        let target = self.client.address().target();
        let mut request = self.client.request(Method::POST, target).header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(body))
    }

    fn taken(&mut self, spans: usize, rejected: usize) {
        let rejected = rejected.min(spans);
        counts::exported(spans - rejected);
        if rejected > 0 {
            return self.lost(SpanLoss::Refused, rejected, "the collector rejected some spans of a batch");
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("the collector takes spans again");
        }
    }

    fn lost(&mut self, reason: SpanLoss, spans: usize, why: &str) {
        counts::dropped(reason, spans);
        let place = self.client.address().authority();
        if std::mem::replace(&mut self.is_failing, true) {
            tracing::debug!(collector = place, error = why, spans, "spans were dropped");
        } else {
            tracing::warn!(
                collector = place,
                error = why,
                spans,
                "spans were dropped; more may follow, see `traces_dropped_total`"
            );
        }
    }
}

/// Returns the wait before the next try: doubled with each try and shortened at random, so that several gateways do not come
/// back at once, but not before `retry_after`.
fn wait(backoff: Duration, attempt: u32, retry_after: Option<Duration>, random: u8) -> Duration {
    let doubled = backoff.saturating_mul(1 << attempt.saturating_sub(1).min(16));
    // Between half of it and all of it.
    let spread = doubled / 2 + doubled.min(MAX_WAIT) / 2 * u32::from(random) / u32::from(u8::MAX);
    spread.max(retry_after.unwrap_or_default()).min(MAX_WAIT)
}

/// Judges an answer. A success status is final, even if the rest of the answer is broken.
async fn judge(answer: ServiceAnswer) -> BatchVerdict {
    let status = answer.head.status;
    let why = || format!("status {}", status.as_u16());
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            BatchVerdict::Failed { why: why(), retry_after: retry_after(&answer.head.headers) }
        }
        status if status.is_success() => {
            let body = answer.bytes(MAX_ANSWER).await.map(http::Response::into_body).unwrap_or_default();
            BatchVerdict::Taken(rejected(&body))
        }
        status if status.is_redirection() => {
            BatchVerdict::Refused(format!("{} (redirects are not followed)", why()))
        }
        _ => BatchVerdict::Refused(why()),
    }
}

/// Returns the value of `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(Timestamp::from_http_date(text)?.since(SystemClock.now())),
    }
}

/// Returns the number of spans that an `ExportTraceServiceResponse` rejects.
fn rejected(body: &[u8]) -> usize {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let rejected = match answer.pointer("/partialSuccess/rejectedSpans") {
        Some(Value::String(digits)) => digits.parse().ok(),
        Some(number) => number.as_u64(),
        None => None,
    };
    rejected.and_then(|rejected| usize::try_from(rejected).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_wait_doubles_and_is_spread_and_bounded() {
        for (attempt, least, most) in [(1, 500, 1000), (2, 1000, 2000), (4, 4000, 8000), (9, 30_000, 30_000)]
        {
            assert_eq!(wait(SECOND, attempt, None, 0), Duration::from_millis(least), "{attempt}");
            assert_eq!(wait(SECOND, attempt, None, u8::MAX), Duration::from_millis(most), "{attempt}");
        }
        for backoff in [Duration::ZERO, Duration::MAX] {
            assert!(wait(backoff, u32::MAX, Some(Duration::MAX), 7) <= MAX_WAIT);
        }
    }

    #[test]
    fn the_wait_lasts_as_long_as_the_collector_asks_within_the_bound() {
        let asked = |seconds| wait(SECOND, 1, Some(Duration::from_secs(seconds)), 0);
        assert_eq!(asked(0), SECOND / 2);
        assert_eq!(asked(7), Duration::from_secs(7));
        assert_eq!(asked(86_400), MAX_WAIT);
    }

    #[test]
    fn a_retry_after_is_a_number_or_a_date() {
        let of = |value| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]));
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO), "it is over");
        assert_eq!((of("soon"), retry_after(&HeaderMap::new())), (None, None));
    }

    #[test]
    fn rejected_spans_are_read_as_text_and_as_a_number() {
        for (answer, number) in [
            (r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedSpans":3}}"#, 3),
            (r#"{"partialSuccess":{"errorMessage":"a warning"}}"#, 0),
            (r#"{"partialSuccess":{"rejectedSpans":"-1"}}"#, 0),
            ("{}", 0),
            ("", 0),
            ("ok", 0),
        ] {
            assert_eq!(rejected(answer.as_bytes()), number, "{answer}");
        }
    }
}
