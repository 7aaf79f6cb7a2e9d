//! A minimal HTTP client: one connection for each request, every wait bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Timeout: longer than anything should take.
const PATIENCE: Duration = Duration::from_secs(50);

/// A request.
#[derive(Clone)]
pub(crate) struct Request {
    line: String,
    headers: String,
    body: String,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

/// Reason why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The connection was refused.
    Refused,
    /// The connection was closed.
    Closed,
    /// The wait timed out.
    Silence,
}

pub(crate) fn get(path: &str) -> Request {
    Request { line: format!("GET {path}"), headers: String::new(), body: String::new() }
}

pub(crate) fn put(path: &str, body: &(impl ToString + ?Sized)) -> Request {
    Request { line: format!("PUT {path}"), ..get(path) }.body(body.to_string())
}

pub(crate) fn post(path: &str, body: &(impl ToString + ?Sized)) -> Request {
    Request { line: format!("POST {path}"), ..get(path) }.body(body.to_string())
}

impl Request {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    fn body(self, body: String) -> Request {
        Request { body, ..self }.header("Content-Type", "application/json")
    }

    /// Sends the request, and does not wait for the answer.
    pub(crate) fn begin(&self, address: &str) -> Result<TcpStream, NoAnswer> {
        let mut stream = TcpStream::connect(address).map_err(|_| NoAnswer::Refused)?;
        stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        let Request { line, headers, body } = self;
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).map_err(|_| NoAnswer::Closed)?;
        Ok(stream)
    }

    pub(crate) fn send(&self, address: &str) -> Result<Response, NoAnswer> {
        let mut stream = self.begin(address)?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => Response::read(&answer),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(NoAnswer::Silence)
            }
            Err(_) => Err(NoAnswer::Closed),
        }
    }
}

impl Response {
    /// Parses an answer; an incomplete one is none.
    fn read(answer: &[u8]) -> Result<Response, NoAnswer> {
        let text = String::from_utf8(answer.to_vec()).expect("answers are text");
        let (head, body) = text.split_once("\r\n\r\n").ok_or(NoAnswer::Closed)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("it has a status");
        let mut response = Response { status, head: head.to_ascii_lowercase(), body: body.to_owned() };
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = joined(body).ok_or(NoAnswer::Closed)?;
        } else if status != 204 {
            let length = response.header("content-length").and_then(|length| length.parse().ok());
            length.filter(|length: &usize| *length == body.len()).ok_or(NoAnswer::Closed)?;
        }
        Ok(response)
    }

    /// Returns the value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns each line as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
    }
}

/// Joins the chunks of a body, if it is complete.
fn joined(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..length)?);
        chunks = rest.get(length..)?.strip_prefix("\r\n")?;
    }
}
