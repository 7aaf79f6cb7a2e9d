//! Client of the provider: over HTTP, one connection for each call, everything bounded.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use semel::protocol::OperationId;
use serde_json::json;
use tokio::net::TcpStream;

use super::payment::{Charge, ChargeMessage};

/// Maximum size of an answer's head, and of its body, in bytes.
const MAX_HEAD: usize = 16 * 1024;
const MAX_BODY: usize = 64 * 1024;

/// Address of the provider.
#[derive(Clone, Debug)]
pub struct Address(Authority);

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("{text:?} is not an address such as http://127.0.0.1:4000");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        match (uri.scheme() == Some(&Scheme::HTTP), uri.path(), uri.query(), uri.authority()) {
            (true, "" | "/", None, Some(authority)) if !authority.as_str().contains('@') => {
                Ok(Address(authority.clone()))
            }
            _ => Err(wrong()),
        }
    }
}

/// Reason why a charge has no outcome, or never will have one.
pub(super) enum Trouble {
    /// A retry may succeed; the card may have been charged.
    Again { why: String, retry_after: Option<Duration> },
    /// The provider refuses permanently.
    Never { why: String },
}

/// A complete answer.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Address {
    /// Returns the URL of this path.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0)
    }

    /// Charges under this key: any number of calls with one key charge the card once. The provider guarantees that, and
    /// stores the command's id as its reference.
    pub(super) async fn charge(
        &self,
        key: &str,
        command: OperationId,
        order: &ChargeMessage,
    ) -> Result<Charge, Trouble> {
        let ChargeMessage { amount, currency, card } = order;
        let reference = command.to_string();
        let body = json!({ "reference": reference, "amount": amount, "currency": currency, "card": card });
        let request = Request::post("/charges")
            .header("idempotency-key", format!("\"{key}\""))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()));
        let request = request.map_err(|error| Trouble::Never { why: error.to_string() })?;
        let again = |why| Trouble::Again { why, retry_after: None };
        let answer = self.ask(request).await.map_err(again)?;
        let said = || format!("the provider answered {}: {}", answer.status, excerpt(&answer.body));
        match answer.status {
            StatusCode::CREATED | StatusCode::PAYMENT_REQUIRED => serde_json::from_slice(&answer.body)
                .ok()
                .filter(|charge: &Charge| charge.reference == reference)
                .ok_or_else(|| again(said())),
            status if status.as_u16() >= 500 => {
                let seconds =
                    answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                Err(Trouble::Again { why: said(), retry_after: seconds.map(Duration::from_secs) })
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                Err(again(said()))
            }
            _ => Err(Trouble::Never { why: said() }),
        }
    }

    async fn ask(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let host = self.0.as_str().parse().map_err(|_| "the address cannot be a Host".to_owned())?;
        request.headers_mut().insert(HOST, host);
        for (name, value) in [(CONNECTION, "close"), (USER_AGENT, "payments")] {
            request.headers_mut().insert(name, axum::http::HeaderValue::from_static(value));
        }
        let to = format!("{}:{}", self.0.host(), self.0.port_u16().unwrap_or(80));
        let stream =
            TcpStream::connect(&to).await.map_err(|error| format!("cannot connect to {to}: {error}"))?;
        let _ = stream.set_nodelay(true);
        let handshake = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| error.to_string())?;
        let answering = async {
            let no_answer = |error: hyper::Error| format!("no answer: {error}");
            let response = sender.send_request(request).await.map_err(no_answer)?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_BODY).collect().await;
            let body = body.map_err(|error| format!("the answer breaks off: {error}"))?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        // In one task, so that both end together: a dropped call closes its connection.
        tokio::pin!(answering);
        tokio::select! {
            biased;
            answer = &mut answering => answer,
            // The answer may have arrived before the connection ended.
            _ = connection => answering.await,
        }
    }
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(200).collect()
}
