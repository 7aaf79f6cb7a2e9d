//! A client for services under test: requests that are easy to change, responses that are read to their end.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

/// A valid key.
pub const KEY: &str = "0190d1f0-7c5e-7000-8000-000000000001";

/// A request to be sent.
#[derive(Clone)]
pub struct Send {
    method: &'static str,
    target: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// Returns a payment with the usual key, by alice.
pub fn pay(body: &str) -> Send {
    Send {
        method: "POST",
        target: "/payments".into(),
        headers: vec![
            ("idempotency-key".into(), KEY.into()),
            ("x-user".into(), "alice".into()),
            ("content-type".into(), "application/json".into()),
        ],
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

impl Send {
    /// Sets the method.
    pub fn method(self, method: &'static str) -> Send {
        Send { method, ..self }
    }

    /// Sets the target.
    pub fn target(self, target: impl Into<String>) -> Send {
        Send { target: target.into(), ..self }
    }

    /// Adds a header line.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Send {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Removes a header.
    pub fn without(mut self, name: &str) -> Send {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    /// Sets the value of a header.
    pub fn set(self, name: &str, value: impl Into<String>) -> Send {
        self.without(name).with(name, value)
    }

    /// Sets the instruction for the handler.
    pub fn doing(self, what: &str) -> Send {
        self.set("x-do", what)
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Bytes>) -> Send {
        Send { body: body.into(), ..self }
    }

    /// Returns the request, for a connection of the test's own.
    pub fn into_request(self) -> http::Request<Full<Bytes>> {
        let mut request = http::Request::builder().method(self.method).uri(self.target);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            request = request.header("host", "lab");
        }
        for (name, value) in self.headers {
            let value = http::HeaderValue::from_bytes(value.as_bytes()).expect("tests send valid values");
            request = request.header(name, value);
        }
        request.body(Full::new(self.body)).expect("tests send valid requests")
    }

    /// Returns the request as bytes, for a socket of the test's own.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: lab\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        [text.as_bytes(), &self.body].concat()
    }

    /// Sends the request over HTTP/1.1 on a connection of its own.
    pub async fn to(self, address: SocketAddr) -> Reply {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP/1.1");
        tokio::spawn(connection);
        Reply::read(sender.send_request(self.into_request()).await.expect("there is an answer")).await
    }

    /// Sends the request over HTTP/2 on a connection of its own.
    pub async fn over_http2(self, address: SocketAddr) -> Reply {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream))
            .await
            .expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let mut request = self.into_request();
        *request.uri_mut() = format!("http://lab{}", request.uri()).parse().expect("it is a URI");
        request.headers_mut().remove("host");
        Reply::read(sender.send_request(request).await.expect("there is an answer")).await
    }
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// The trailer fields, if there are any.
    pub trailers: Option<HeaderMap>,
}

/// Parts of a problem document that name an operation, in either profile.
#[derive(Deserialize)]
struct NamingDocument<'a> {
    #[serde(borrow, rename = "operationId")]
    operation_id: Option<&'a str>,
    #[serde(borrow)]
    error: Option<NamingError<'a>>,
}

#[derive(Deserialize)]
struct NamingError<'a> {
    #[serde(borrow, rename = "operationId")]
    operation_id: Option<&'a str>,
}

impl Reply {
    /// Reads a response to its end.
    pub async fn read(response: http::Response<hyper::body::Incoming>) -> Reply {
        let (parts, body) = response.into_parts();
        let collected = body.collect().await.expect("the answer comes to its end");
        let trailers = collected.trailers().cloned();
        Reply { status: parts.status, headers: parts.headers, body: collected.to_bytes(), trailers }
    }

    /// Returns a header's only value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("tests read text"))
    }

    /// Returns the id of the operation: that of the header field, which marks answers of a command, or that of a problem document.
    pub fn operation_id(&self) -> Option<&str> {
        self.header("idempotency-operation-id").or_else(|| {
            let document: NamingDocument<'_> = serde_json::from_slice(&self.body).ok()?;
            document.operation_id.or_else(|| document.error?.operation_id)
        })
    }

    /// Returns true if the response is marked as a replay.
    pub fn replayed(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("it is JSON: {:?}", self.body))
    }

    /// Returns status and code of a problem document, after checking that it is one.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        let code = document["code"].as_str().expect("it has a code").to_owned();
        let slug = code.to_ascii_lowercase().replace('_', "-");
        assert_eq!(document["type"], format!("urn:semel:problem:{slug}"));
        assert!(document["title"].is_string() && document["detail"].is_string());
        let link = self.header("link").expect("it is described somewhere");
        assert_eq!(link, format!("</.well-known/semel/problems/{slug}>; rel=\"describedby\""));
        let advice = self.header("idempotency-retry");
        assert!(matches!(advice, Some("same-key" | "poll" | "never")), "{self:?}");
        (self.status.as_u16(), code)
    }

    /// Returns the status, type and code of an error in Stripe's envelope, and the value of `Stripe-Should-Retry`.
    pub fn stripe_error(&self) -> (u16, String, String, Option<&str>) {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        assert!(self.header("idempotency-retry").is_some(), "{self:?}");
        let document = self.json();
        let error = &document["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        let member = |name: &str| error[name].as_str().expect("it is text").to_owned();
        (self.status.as_u16(), member("type"), member("code"), self.header("stripe-should-retry"))
    }
}

/// Returns status and code in the form of `Reply::problem`.
pub fn problem(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// Returns an error in the form of [`Reply::stripe_error`].
pub fn stripe_error<'a>(
    status: u16,
    kind: &str,
    code: &str,
    should_retry: Option<&'a str>,
) -> (u16, String, String, Option<&'a str>) {
    (status, kind.to_owned(), code.to_owned(), should_retry)
}
