//! Whole responses of a server, with their bodies in memory.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Whole response of the server. `Debug` shows neither its header fields nor its body.
#[derive(Clone)]
pub struct CommandResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl CommandResponse {
    /// Makes a response of its parts.
    pub fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> CommandResponse {
        CommandResponse { status, headers, body }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the header fields.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the bytes of the body, as they were sent.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the body as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// Returns the body as parsed JSON.
    ///
    /// # Errors
    /// If the body is not JSON of this type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Returns the lines of a header field, joined by commas; `None` if there is none.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let mut lines = self.headers.get_all(name).iter().map(text_of);
        let first = lines.next()?;
        Some(lines.fold(first, |joined, line| joined + ", " + &line))
    }

    /// Returns a header field as a word in lower case; empty if there is none.
    pub(crate) fn word(&self, name: &str) -> String {
        self.field(name).unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Returns the JSON object of the body; `None` if the media type or the body is another.
    pub(crate) fn document(&self) -> Option<Map<String, Value>> {
        let media_type = self.word("content-type");
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if media_type != "application/json" && !media_type.ends_with("+json") {
            return None;
        }
        self.json().ok()
    }
}

fn text_of(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

impl fmt::Debug for CommandResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, length) = (self.status.as_u16(), self.body.len());
        f.debug_struct("CommandResponse").field("status", &status).field("body_length", &length).finish()
    }
}

impl From<CommandResponse> for http::Response<Bytes> {
    fn from(response: CommandResponse) -> http::Response<Bytes> {
        let mut converted = http::Response::new(response.body);
        *converted.status_mut() = response.status;
        *converted.headers_mut() = response.headers;
        converted
    }
}
