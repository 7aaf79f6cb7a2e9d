//! Check of the collector of traces: it is sent an export without spans.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, StatusCode};
use http_body_util::Full;
use semel_outgoing::Error;
use semel_settings::{Config, TraceSettings};
use semel_stores::doctor::{Check, in_words};

use crate::traces::{TraceCollector, collector};

const NAME: &str = "traces";
/// Timeout for the connection, and for the whole exchange.
const PATIENCE: Duration = Duration::from_secs(5);
/// Export of no span, as OTLP in JSON.
const EMPTY_EXPORT: &[u8] = br#"{"resourceSpans":[]}"#;

/// Checks that the collector takes exports; `None` if there is no `[traces]`.
pub(super) async fn examine(config: &Config) -> Option<Check> {
    let settings = config.traces.as_ref()?;
    Some(match collector(settings).await {
        Ok(collector) => ask(settings, collector).await,
        Err(error) => Check::fail(NAME, format!("{error:#}"), "the gateway does not start without it"),
    })
}

/// Sends an export without spans. A collector that is away stops no command, and so it is no failure.
async fn ask(settings: &TraceSettings, TraceCollector { client, authorization }: TraceCollector) -> Check {
    let client = client.connect_timeout(PATIENCE).timeout(PATIENCE);
    let place = client.address().authority().to_owned();
    let mut request =
        client.request(Method::POST, client.address().target()).header(CONTENT_TYPE, "application/json");
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let sent = match request.body(Full::new(Bytes::from_static(EMPTY_EXPORT))) {
        Ok(request) => client.send(request).await,
        Err(error) => {
            return Check::fail(NAME, format!("{place}: {error}"), "correct `endpoint` in `[traces]`");
        }
    };
    let lost = "spans are dropped until it does; commands go on";
    match sent {
        Ok(answer) => match answer.head.status {
            status if status.is_success() => Check::ok(NAME, format!("{place} takes exports")),
            status => {
                let found = format!("{place} refuses an empty export with {}; {lost}", status.as_u16());
                Check::warn(NAME, found, advice(settings, status))
            }
        },
        Err(Error::TimedOut(_)) => Check::warn(
            NAME,
            format!("{place} does not answer within {}; {lost}", in_words(PATIENCE)),
            "look at the collector, and at the network between this machine and it",
        ),
        Err(error) => Check::warn(
            NAME,
            format!("{place}: {error}; {lost}"),
            "start the collector, or correct `endpoint`, or `ca`, in `[traces]`",
        ),
    }
}

fn advice(settings: &TraceSettings, status: StatusCode) -> &'static str {
    match (status, &settings.authorization_env) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(_)) => {
            "correct the value of the variable that `authorization_env` in `[traces]` names"
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, None) => "set `authorization_env` in `[traces]`",
        _ => {
            "correct `endpoint` in `[traces]`: it needs the collector's path for OTLP over HTTP, often /v1/traces"
        }
    }
}
