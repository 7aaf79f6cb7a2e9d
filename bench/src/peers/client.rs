//! Client of a peer: one connection per request, each with a timeout. A request to a killed peer has no response, which
//! is a finding and not a panic.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Error;

/// Timeout of a response.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
const MAX_ANSWER: usize = 1 << 20;
pub(super) const BODY: &str = r#"{"amount": 100, "currency": "EUR"}"#;
pub(super) const ALICE: &str = "Bearer alice-0123456789abcdef";
pub(super) const BOB: &str = "Bearer bob-0123456789abcdef";

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// Returns the payment that a successful response names.
    pub(super) fn payment(&self) -> Option<String> {
        if !self.status.is_success() {
            return None;
        }
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        body["id"].as_str().map(str::to_owned)
    }

    /// Returns true if the response says that the outcome is unknown.
    pub(super) fn says_unknown(&self) -> bool {
        String::from_utf8_lossy(&self.body).contains("OUTCOME_UNKNOWN")
    }

    /// Returns a short description of the response.
    pub(super) fn words(&self) -> String {
        let code = serde_json::from_slice::<serde_json::Value>(&self.body).ok();
        let code = code.and_then(|body| body["code"].as_str().map(str::to_owned));
        match code {
            Some(code) => format!("{} {code}", self.status.as_u16()),
            None => self.status.as_u16().to_string(),
        }
    }
}

/// Client of one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    address: SocketAddr,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Client {
        Client { address }
    }

    /// Sends a payment under a key.
    pub(super) async fn pay(&self, key: &str, caller: &str, body: &str) -> Result<Answer, Error> {
        let request = Request::post("/payments")
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("authorization", caller)
            .header("idempotency-key", key)
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
        self.send(request, PATIENCE).await
    }

    /// Returns the number served at a path.
    pub(super) async fn number(&self, target: &str) -> Result<u64, Error> {
        let request =
            Request::get(target).header("host", self.address.to_string()).body(Full::new(Bytes::new()))?;
        let answer = self.send(request, Duration::from_secs(5)).await?;
        Ok(std::str::from_utf8(&answer.body)?.trim().parse()?)
    }

    async fn send(&self, request: Request<Full<Bytes>>, patience: Duration) -> Result<Answer, Error> {
        let sent = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let connection = tokio::spawn(connection);
            let response = sender.send_request(request).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
            connection.abort();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(patience, sent)
            .await
            .map_err(|_| format!("no answer within {} s", patience.as_secs()))?
    }
}
