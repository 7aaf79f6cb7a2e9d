//! Lines in the log about a command's request to the upstream, at the level `debug`.
//!
//! Invariant: a command's request writes three of them at most, none has a header field or a body, and below that level
//! each costs the check of the level alone.

use std::time::Duration;

use http::Response;
use http::uri::Authority;
use tokio::time::Instant;

use super::{Purpose, SendError};

/// Returns the present moment if these lines are written about a request.
pub(super) fn begin(purpose: Purpose<'_>) -> Option<Instant> {
    let is_told = matches!(purpose, Purpose::Command(_)) && tracing::enabled!(tracing::Level::DEBUG);
    is_told.then(Instant::now)
}

/// Logs that a command's request goes to the upstream.
pub(super) fn begun(purpose: Purpose<'_>, upstream: &Authority) {
    let Purpose::Command(execution) = purpose else { return };
    tracing::debug!(
        event = "upstream_call_begun",
        operation = execution.label(),
        operationId = %execution.operation_id(),
        epoch = execution.attempt(),
        %upstream,
    );
}

/// Logs that a new connection was made for a command's request. Kept ones have no line.
pub(super) fn connected(purpose: Purpose<'_>, since: Option<Instant>) {
    let Purpose::Command(execution) = purpose else { return };
    tracing::debug!(
        event = "upstream_connected",
        operation = execution.label(),
        operationId = %execution.operation_id(),
        epoch = execution.attempt(),
        durationMs = since.map(|since| millis(since.elapsed())),
    );
}

/// Logs the status of the upstream's answer to a command's request, or the kind of its failure.
pub(super) fn ended<B>(purpose: Purpose<'_>, sent: &Result<Response<B>, SendError>, begun: Option<Instant>) {
    let Purpose::Command(execution) = purpose else { return };
    tracing::debug!(
        event = "upstream_call_ended",
        operation = execution.label(),
        operationId = %execution.operation_id(),
        epoch = execution.attempt(),
        status = sent.as_ref().ok().map(|response| response.status().as_u16()),
        failure = sent.as_ref().err().map(SendError::kind),
        durationMs = begun.map(|begun| millis(begun.elapsed())),
    );
}

/// Returns a time in milliseconds, with microseconds behind the point.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use http::Request;
    use semel_core::Principal;
    use semel_http::{Body, BoxError, Execution, IdempotencyLayer};
    use semel_settings::{UpstreamProtocol, UpstreamReuse};
    use semel_stores::MemoryStore;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tower::{Layer, Service, service_fn};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::super::Upstream;
    use super::*;

    /// Fields of one line.
    type Line = BTreeMap<&'static str, String>;

    /// Collects the lines of this crate up to a level.
    struct Lines(Arc<Mutex<Vec<Line>>>, Level);

    #[derive(Default)]
    struct Fields(Line);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= self.1 && metadata.target().starts_with("semel_gateway")
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.lock().expect("nobody panics").push(fields.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// Answers one request on each connection with 201.
    async fn answer(listener: TcpListener) {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.read(&mut [0; 4096]).await;
            let _ = client
                .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await;
        }
    }

    /// Sends a command through the layer to an upstream at this address. Returns the lines about it.
    async fn lines_about_a_command(upstream: std::net::SocketAddr, level: Level) -> Vec<Line> {
        let authority = upstream.to_string().parse().expect("it is an authority");
        let (protocol, reuse) = (UpstreamProtocol::Http1, UpstreamReuse::Caller);
        let upstream = Upstream::new(authority, None, protocol, reuse, Duration::from_secs(20));
        let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
            .identify(|_| Ok(Principal::new("acme", "alice").expect("these are names")))
            .build()
            .expect("it is valid");
        let mut service = layer.layer(service_fn(move |mut request: Request<Body>| {
            let (upstream, execution) = (upstream.clone(), request.extensions_mut().remove::<Execution>());
            async move {
                let execution = execution.expect("it is a command");
                let sent = upstream.send(request, Purpose::Command(&execution)).await;
                sent.map_err(|error| BoxError::from(error.to_string()))
            }
        }));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let _logged = tracing::subscriber::set_default(Lines(lines.clone(), level));
        let request = Request::post("/payments").header("idempotency-key", "\"a-key-of-a-test-0001\"");
        let request = request
            .header("authorization", "Bearer canary")
            .body(Body::full("1234567"))
            .expect("it is valid");
        let _ = service.call(request).await.expect("it is answered");
        drop(service);
        std::mem::take(&mut *lines.lock().expect("nobody panics"))
    }

    fn events(lines: &[Line]) -> Vec<&str> {
        lines.iter().filter_map(|line| line.get("event")).map(String::as_str).collect()
    }

    #[tokio::test]
    async fn a_command_tells_its_way_to_the_upstream_at_debug_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(answer(listener));
        let lines = lines_about_a_command(address, Level::DEBUG).await;
        assert_eq!(events(&lines), ["upstream_call_begun", "upstream_connected", "upstream_call_ended"]);
        let id = &lines[0]["operationId"];
        assert!(id.len() == 36 && lines.iter().all(|line| line["operationId"] == *id), "{lines:?}");
        assert_eq!((&*lines[0]["upstream"], &*lines[2]["status"]), (&*address.to_string(), "201"));
        assert!(lines[2]["durationMs"].parse::<f64>().is_ok(), "{lines:?}");
        let text = format!("{lines:?}");
        assert!(
            !text.contains("a-key-of") && !text.contains("1234567") && !text.contains("canary"),
            "{text}"
        );
        assert_eq!(events(&lines_about_a_command(address, Level::INFO).await), [""; 0]);
    }

    #[tokio::test]
    async fn a_command_that_reaches_no_upstream_tells_the_kind_of_its_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let lines = lines_about_a_command(address, Level::DEBUG).await;
        assert_eq!(events(&lines), ["upstream_call_begun", "upstream_call_ended"]);
        assert_eq!(
            (lines[1].get("failure").map(String::as_str), lines[1].get("status")),
            (Some("never_sent"), None)
        );
    }
}
