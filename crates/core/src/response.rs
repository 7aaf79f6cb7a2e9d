//! A response as stored for replays, and its encoding.
//!
//! Stores see only [`StoredResponse`]: a format number, the id of an encryption key, and bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::credential::is_credential;
use crate::fields::{self, Section, Treatment};

/// Format of the output of [`Response::encode`].
pub const RESPONSE_FORMAT: u8 = 1;

/// A response that can be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status line.
    pub status: StatusCode,
    /// Field lines, in order for each name, repeats intact.
    pub headers: HeaderMap,
    /// The body; `None` if it was not stored: it was too large, a stream, or not wanted.
    pub body: Option<Bytes>,
    /// The trailer fields.
    pub trailers: HeaderMap,
}

/// Fields that describe the body, beside all that begin with `Content-`: caching, version, digest, trailers,
/// signature.
const ABOUT_THE_BODY: [&str; 12] = [
    "accept-ranges",
    "age",
    "cache-control",
    "digest",
    "etag",
    "expires",
    "last-modified",
    "pragma",
    "repr-digest",
    "signature",
    "signature-input",
    "trailer",
];

/// Fields with the address of the created resource.
const ADDRESSES: [HeaderName; 2] = [header::LOCATION, header::CONTENT_LOCATION];

impl Response {
    /// Returns the stored form of a response with this head and body.
    pub fn retain(status: StatusCode, headers: &HeaderMap, body: Bytes, trailers: &HeaderMap) -> Response {
        let mut headers = kept(headers);
        // The sending server computes the length; a wrong one would split the response in two.
        headers.remove(header::CONTENT_LENGTH);
        Response { status, headers, body: Some(body), trailers: kept(trailers) }
    }

    /// Returns the stored form of a response without its body: the status and every field that makes sense
    /// without the body.
    pub fn head(status: StatusCode, headers: &HeaderMap) -> Response {
        let about_the_body = |name: &HeaderName| {
            ABOUT_THE_BODY.contains(&name.as_str())
                || (name.as_str().starts_with("content-") && !ADDRESSES.contains(name))
        };
        let mut kept = kept(headers);
        for name in headers.keys().filter(|name| about_the_body(name)) {
            kept.remove(name);
        }
        Response { status, headers: kept, body: None, trailers: HeaderMap::new() }
    }

    /// Returns the stored form of a response without its body: the status and the address of its result.
    pub fn without_body(status: StatusCode, headers: &HeaderMap) -> Response {
        let mut safe = HeaderMap::new();
        for name in ADDRESSES {
            for value in headers.get_all(&name) {
                safe.append(name.clone(), value.clone());
            }
        }
        Response { status, headers: safe, body: None, trailers: HeaderMap::new() }
    }

    /// Returns the address of the created resource, if there is one. Without its body, that is also the
    /// source of the body.
    pub fn resource(&self) -> Option<&str> {
        let address = match self.body {
            Some(_) => self.headers.get(header::LOCATION),
            None => reference(&self.headers),
        };
        address?.to_str().ok()
    }

    /// Returns the response as plaintext bytes.
    pub fn encode(&self) -> StoredResponse {
        let body_len = self.body.as_ref().map_or(0, Bytes::len);
        let mut out = BytesMut::with_capacity(64 + 64 * self.headers.len() + body_len);
        out.put_u16(self.status.as_u16());
        put_fields(&mut out, &self.headers);
        put_fields(&mut out, &self.trailers);
        out.put_u8(u8::from(self.body.is_some()));
        out.put_slice(self.body.as_deref().unwrap_or_default());
        StoredResponse { format: RESPONSE_FORMAT, encryption_key_id: None, bytes: out.freeze() }
    }

    fn decode(mut bytes: Bytes) -> Option<Response> {
        let status = StatusCode::from_u16(bytes.try_get_u16().ok()?).ok()?;
        let headers = take_fields(&mut bytes)?;
        let trailers = take_fields(&mut bytes)?;
        let body = match bytes.try_get_u8().ok()? {
            0 => bytes.is_empty().then_some(None)?,
            1 => Some(bytes),
            _ => return None,
        };
        Some(Response { status, headers, body, trailers })
    }
}

/// Returns the address of the created resource in a response: `Location`, or else `Content-Location`.
pub fn reference(headers: &HeaderMap) -> Option<&HeaderValue> {
    ADDRESSES.iter().find_map(|name| headers.get(name))
}

fn kept(headers: &HeaderMap) -> HeaderMap {
    let named_by_connection: Vec<HeaderName> = fields::elements(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect();
    // Credentials, and fields of one connection or one moment, are left out.
    let is_kept = |name: &HeaderName| {
        fields::treatment(name, Section::ResponseHead) != Treatment::Hop
            && name != header::DATE
            && !is_credential(name)
            && !named_by_connection.contains(name)
    };
    let mut kept = headers.clone();
    for name in headers.keys().filter(|name| !is_kept(name)) {
        kept.remove(name);
    }
    kept
}

fn put_fields(out: &mut BytesMut, fields: &HeaderMap) {
    out.put_u32(fields.len() as u32);
    for (name, value) in fields {
        out.put_u32(name.as_str().len() as u32);
        out.put_slice(name.as_str().as_bytes());
        out.put_u32(value.len() as u32);
        out.put_slice(value.as_bytes());
    }
}

fn take_fields(bytes: &mut Bytes) -> Option<HeaderMap> {
    let count = bytes.try_get_u32().ok()?;
    let mut fields = HeaderMap::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(&take_slice(bytes)?).ok()?;
        let value = HeaderValue::from_maybe_shared(take_slice(bytes)?).ok()?;
        fields.try_append(name, value).ok()?;
    }
    Some(fields)
}

fn take_slice(bytes: &mut Bytes) -> Option<Bytes> {
    let len = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (len <= bytes.len()).then(|| bytes.split_to(len))
}

/// A response as a store keeps it, opaque to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Format of `bytes`.
    pub format: u8,
    /// Key that encrypts `bytes`; `None` for plaintext.
    pub encryption_key_id: Option<String>,
    /// The encoded response.
    pub bytes: Bytes,
}

/// Reason why a stored response cannot be read. The command is never run again because of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableResponse {
    /// The response was written by a newer version.
    #[error("the stored response has format {0}, which this version does not know")]
    UnknownFormat(u8),
    /// The response is encrypted under a key that is missing, or that does not open it.
    #[error("the stored response is encrypted under key {0:?}, which is not at hand or does not open it")]
    UnknownKey(String),
    /// The bytes are damaged.
    #[error("the stored response is damaged")]
    Damaged,
}

impl StoredResponse {
    /// Returns the decoded response.
    pub fn decode(&self) -> Result<Response, UnreadableResponse> {
        if let Some(key) = &self.encryption_key_id {
            return Err(UnreadableResponse::UnknownKey(key.clone()));
        }
        if self.format != RESPONSE_FORMAT {
            return Err(UnreadableResponse::UnknownFormat(self.format));
        }
        Response::decode(self.bytes.clone()).ok_or(UnreadableResponse::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_str(value).expect("test values are valid"));
        }
        map
    }

    fn sample() -> Response {
        let headers =
            fields(&[("link", "</a>, </b>"), ("x-two", "1"), ("link", "</c>"), ("location", "/p/1")]);
        let body = Bytes::from_static(b"\x00\xff\r\n not text");
        Response::retain(StatusCode::CREATED, &headers, body, &fields(&[("grpc-status", "0")]))
    }

    #[test]
    fn a_response_reads_back_as_it_was() {
        let response = sample();
        assert_eq!(response.encode().decode(), Ok(response.clone()));
        let links: Vec<_> = response.headers.get_all("link").iter().collect();
        assert_eq!(links, ["</a>, </b>", "</c>"]);
        assert_eq!(response.resource(), Some("/p/1"));
    }

    #[test]
    fn headers_of_one_connection_or_client_are_not_kept() {
        let headers = fields(&[
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("set-cookie", "session=1"),
            ("www-authenticate", "Basic"),
            ("x-api-key", "secret"),
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("transfer-encoding", "chunked"),
            ("etag", "\"v1\""),
        ]);
        let kept = Response::retain(StatusCode::OK, &headers, Bytes::new(), &HeaderMap::new()).headers;
        assert_eq!(kept, fields(&[("etag", "\"v1\"")]));
    }

    #[test]
    fn a_response_without_its_body_keeps_only_the_location_field() {
        let headers = fields(&[("location", "/p/1"), ("content-length", "9"), ("etag", "\"v1\"")]);
        let response = Response::without_body(StatusCode::CREATED, &headers);
        assert_eq!(response.headers, fields(&[("location", "/p/1")]));
        assert_eq!(response.encode().decode(), Ok(response));
    }

    #[test]
    fn a_response_with_30000_field_lines_round_trips() {
        let mut headers = HeaderMap::new();
        for _ in 0..30_000 {
            headers.append("x-line", HeaderValue::from_static("1"));
        }
        let response = Response::retain(StatusCode::OK, &headers, Bytes::new(), &HeaderMap::new());
        assert_eq!(response.encode().decode(), Ok(response));
    }

    #[test]
    fn a_stored_response_cut_anywhere_before_its_body_is_damaged() {
        let stored = sample().encode();
        let body_starts = stored.bytes.len() - sample().body.map_or(0, |body| body.len());
        for end in 0..body_starts {
            let cut = StoredResponse { bytes: stored.bytes.slice(..end), ..stored.clone() };
            assert_eq!(cut.decode(), Err(UnreadableResponse::Damaged), "cut at {end}");
        }
    }

    #[test]
    fn unreadable_response_names_its_cause() {
        let newer = StoredResponse { format: 9, ..sample().encode() };
        assert_eq!(newer.decode(), Err(UnreadableResponse::UnknownFormat(9)));
        let locked = StoredResponse { encryption_key_id: Some("k7".into()), ..sample().encode() };
        assert_eq!(locked.decode(), Err(UnreadableResponse::UnknownKey("k7".into())));
    }
}
