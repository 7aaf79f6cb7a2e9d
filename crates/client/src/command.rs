//! Commands: requests of the caller, and their form with a body that is serialised once. Called by the client.

use std::error::Error;
use std::fmt;
use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde::Serialize;
use sha2::{Digest, Sha256};
use url::Url;

use crate::cancellation::Cancellation;
use crate::error::CallError;
use crate::key::CommandKey;
use crate::origin::origin_of;

/// Name of the key's header field.
pub(crate) const KEY_FIELD: &str = "idempotency-key";
/// Name of the header field with the rest of the deadline in milliseconds.
pub(crate) const DEADLINE_FIELD: &str = "semel-deadline";

/// Body of a command before it is sent.
enum CommandBody {
    Whole(Bytes),
    Stream(UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>),
}

/// Request of a command. A mistake in it is reported when it is sent.
///
/// `Debug` shows the method only.
#[must_use = "a command does nothing until a client sends it"]
pub struct ClientCommand {
    method: Method,
    url: String,
    headers: HeaderMap,
    body: CommandBody,
    may_buffer: bool,
    mistake: Option<String>,
    pub(crate) key: Option<CommandKey>,
    pub(crate) intent: Option<String>,
    pub(crate) cancellation: Cancellation,
}

impl ClientCommand {
    /// Makes a command of this method for an absolute address.
    pub fn new(method: Method, url: impl Into<String>) -> ClientCommand {
        ClientCommand {
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: CommandBody::Whole(Bytes::new()),
            may_buffer: false,
            mistake: None,
            key: None,
            intent: None,
            cancellation: Cancellation::new(),
        }
    }

    /// Makes a POST to an absolute address.
    pub fn post(url: impl Into<String>) -> ClientCommand {
        ClientCommand::new(Method::POST, url)
    }

    /// Makes a command of a request, whose extensions are not used.
    pub fn from_request(request: http::Request<impl Into<Bytes>>) -> ClientCommand {
        let (head, body) = request.into_parts();
        let mut command = ClientCommand::new(head.method, head.uri.to_string()).body(body);
        command.headers = head.headers;
        command
    }

    /// Sets the body to a value as JSON, with its `Content-Type`.
    pub fn json(mut self, value: &(impl Serialize + ?Sized)) -> ClientCommand {
        match serde_json::to_vec(value) {
            Ok(bytes) => {
                self.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                self.body(bytes)
            }
            Err(error) => self.mistaken(format!("the body cannot be written as JSON: {error}")),
        }
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> ClientCommand {
        self.body = CommandBody::Whole(body.into());
        self
    }

    /// Sets the body to a stream. It is refused unless [`buffered`](ClientCommand::buffered) allows to read it into
    /// memory: every attempt sends the same bytes.
    pub fn stream<B>(mut self, body: B) -> ClientCommand
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.body = CommandBody::Stream(body.map_err(Into::into).boxed_unsync());
        self
    }

    /// Allows to read a stream into memory, up to `request_bound`.
    pub fn buffered(mut self) -> ClientCommand {
        self.may_buffer = true;
        self
    }

    /// Adds a header field.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> ClientCommand {
        let name = HeaderName::from_bytes(name.as_ref().as_bytes());
        match (name, HeaderValue::from_str(value.as_ref())) {
            (Ok(name), Ok(value)) => {
                // A body as JSON may be there before the caller's media type.
                if name == CONTENT_TYPE {
                    self.headers.insert(name, value);
                } else {
                    self.headers.append(name, value);
                }
                self
            }
            _ => self.mistaken("a header field cannot be sent".into()),
        }
    }

    /// Sets the idempotency key. Without it, the client draws one.
    pub fn key(mut self, key: impl Into<CommandKey>) -> ClientCommand {
        self.key = Some(key.into());
        self
    }

    /// Names the purpose of the command, such as `invoice 4711`: the journal keeps the key under this name.
    pub fn intent(mut self, intent: impl Into<String>) -> ClientCommand {
        self.intent = Some(intent.into());
        self
    }

    /// Sets the signal that ends the call early, with an outcome.
    pub fn cancellation(mut self, cancellation: Cancellation) -> ClientCommand {
        self.cancellation = cancellation;
        self
    }

    fn mistaken(mut self, mistake: String) -> ClientCommand {
        self.mistake.get_or_insert(mistake);
        self
    }

    /// Reads the body, and checks the address.
    pub(crate) async fn prepared(self, request_bound: usize) -> Result<PreparedCommand, CallError> {
        let ClientCommand { method, url, mut headers, body, may_buffer, mistake, .. } = self;
        if let Some(mistake) = mistake {
            return Err(CallError::InvalidCommand(mistake));
        }
        let address = "the address must be an absolute http or https address without credentials";
        let mut url = Url::parse(&url).map_err(|_| CallError::InvalidCommand(address.into()))?;
        let origin = origin_of(&url).ok_or_else(|| CallError::InvalidCommand(address.into()))?;
        url.set_fragment(None);
        let method = Method::from_bytes(method.as_str().to_ascii_uppercase().as_bytes())
            .map_err(|_| CallError::InvalidCommand("the method cannot be sent".into()))?;
        let body = match body {
            CommandBody::Whole(bytes) => bytes,
            CommandBody::Stream(stream) if may_buffer => read(stream, request_bound).await?,
            CommandBody::Stream(_) => {
                return Err(CallError::BodyNotReplayable("the body is a stream, which may not be buffered"));
            }
        };
        // The transport adds these itself.
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        Ok(PreparedCommand { method, url, origin, headers, body })
    }
}

async fn read(
    mut stream: UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>,
    bound: usize,
) -> Result<Bytes, CallError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|_| CallError::BodyNotReplayable("the body broke off"))?;
        let Ok(chunk) = frame.into_data() else { continue };
        if whole.len() + chunk.len() > bound {
            return Err(CallError::BodyNotReplayable("the body is larger than what may be buffered"));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

impl fmt::Debug for ClientCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCommand").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Request with its whole body in memory: every attempt sends the same bytes.
pub(crate) struct PreparedCommand {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) origin: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl PreparedCommand {
    /// Returns true if the method is never a command's (RFC 9110, section 9.2.1).
    pub(crate) fn is_safe(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
    }

    /// Returns the header fields for questions about the operation: all but those of the body and the deadline.
    pub(crate) fn poll_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            if !name.as_str().starts_with("content-") && name != DEADLINE_FIELD {
                headers.append(name, value.clone());
            }
        }
        headers
    }

    /// Returns the digest of method, address, content type and body, for the journal.
    pub(crate) fn digest(&self) -> String {
        let lines: Vec<_> = self.headers.get_all(CONTENT_TYPE).iter().map(HeaderValue::as_bytes).collect();
        let content_type = lines.join(&b", "[..]);
        let mut hash = Sha256::new();
        for field in
            [self.method.as_str().as_bytes(), self.url.as_str().as_bytes(), &content_type, &self.body]
        {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to a text cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Returns an error if the header fields have a key of their own.
    pub(crate) fn check_fields(&self) -> Result<(), CallError> {
        if self.headers.contains_key(KEY_FIELD) {
            return Err(CallError::BadKey("give the key with `key`, not as a header field"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    async fn prepared(command: ClientCommand) -> Result<PreparedCommand, CallError> {
        command.prepared(4).await
    }

    #[tokio::test]
    async fn the_digest_is_the_one_of_the_other_languages() {
        let command =
            ClientCommand::post("https://pay.example/payments#top").json(&5).header("X-Tenant", "t1");
        let command = prepared(command).await.expect("it can be sent");
        assert_eq!(command.digest(), "c8ffd00d2cafc3c5d6f603bbb2718cb4cc6c2bee96e299e392269b5f064a0062");
    }

    #[tokio::test]
    async fn a_stream_is_refused_unless_it_may_be_buffered_and_fits() {
        let stream =
            |text: &'static str| ClientCommand::post("https://pay.example/").stream(Full::from(text));
        let refused = prepared(stream("1234")).await.err().expect("it may not be buffered");
        assert_eq!(refused.kind(), "body_not_replayable");
        let refused = prepared(stream("12345").buffered()).await.err().expect("it is too large");
        assert_eq!(refused.kind(), "body_not_replayable");
        assert_eq!(prepared(stream("1234").buffered()).await.expect("it fits").body, "1234");
    }

    #[tokio::test]
    async fn an_address_that_is_not_http_or_has_credentials_is_refused() {
        for url in ["/payments", "ftp://pay.example/", "https://user:secret@pay.example/"] {
            let error = prepared(ClientCommand::post(url)).await.err().expect("it is refused");
            assert_eq!(error.kind(), "invalid_command", "{url}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[tokio::test]
    async fn a_mistake_is_reported_when_the_command_is_sent() {
        let command = ClientCommand::post("https://pay.example/").header("X-Tenant", "a\nb");
        assert_eq!(prepared(command).await.err().map(|error| error.kind()), Some("invalid_command"));
    }
}
