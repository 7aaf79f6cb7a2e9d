//! Client of the demo: one request per connection, which it can abort.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use semel_outgoing::{Client, TlsSettings};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::service::STORY_DAY;

/// Timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// Path of operations at the gateway.
const OPERATIONS: &str = "/.well-known/semel/operations/";

/// Payment request.
#[derive(Clone)]
pub(super) struct Payment {
    pub(super) key: &'static str,
    pub(super) body: &'static str,
    pub(super) bad_day: Option<&'static str>,
}

/// Answer to a payment request.
pub(super) struct DemoAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl DemoAnswer {
    /// Returns true if the answer is a replay.
    pub(super) fn replayed(&self) -> bool {
        self.headers.contains_key("idempotency-replayed")
    }

    /// Returns a member of a JSON body.
    pub(super) fn member(&self, name: &str) -> Option<String> {
        let document: serde_json::Value = serde_json::from_str(&self.body).ok()?;
        document[name].as_str().map(str::to_owned)
    }
}

impl Payment {
    fn head(&self) -> Vec<(&'static str, &'static str)> {
        let mut head =
            vec![("host", "localhost"), ("content-type", "application/json"), ("idempotency-key", self.key)];
        head.extend(self.bad_day.map(|day| (STORY_DAY, day)));
        head
    }

    /// Sends the request, and waits for the answer.
    pub(super) async fn send(self, gateway: SocketAddr) -> anyhow::Result<DemoAnswer> {
        exchange(gateway, Method::POST, "/payments", &self.head(), self.body).await
    }

    /// Sends the request, and returns the connection with the answer unread; dropping it disconnects.
    pub(super) async fn send_only(self, gateway: SocketAddr) -> anyhow::Result<TcpStream> {
        let mut text = String::from("POST /payments HTTP/1.1\r\n");
        for (name, value) in self.head() {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{}", self.body.len(), self.body));
        let mut stream = TcpStream::connect(gateway).await?;
        stream.write_all(text.as_bytes()).await?;
        Ok(stream)
    }
}

/// Returns the state of an operation, as the gateway tells its client.
pub(super) async fn state_of(gateway: SocketAddr, operation_id: &str) -> anyhow::Result<String> {
    let path = format!("{OPERATIONS}{operation_id}");
    let answer = exchange(gateway, Method::GET, &path, &[("host", "localhost")], "").await?;
    answer.member("state").context("the answer has no state")
}

async fn exchange(
    gateway: SocketAddr,
    method: Method,
    path: &str,
    head: &[(&'static str, &'static str)],
    body: &'static str,
) -> anyhow::Result<DemoAnswer> {
    let address = format!("http://{gateway}{path}").parse()?;
    let client = Client::new(address, TlsSettings::default())?.timeout(TIMEOUT);
    let mut request = Request::builder().method(method).uri(client.address().target());
    for (name, value) in head {
        request = request.header(*name, *value);
    }
    let answer = client.send(request.body(Full::new(Bytes::from(body)))?).await?;
    let (parts, body) = answer.bytes(MAX_ANSWER).await?.into_parts();
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(DemoAnswer { status: parts.status, headers: parts.headers, body })
}
