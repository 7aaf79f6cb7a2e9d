//! A request as stored for a worker that runs its command later, and its encoding.
//!
//! Stores see only [`StoredRequest`]: a format number, the id of an encryption key, and bytes. The format
//! tells the meaning of the bytes: a whole HTTP request ([`Request`]), or the input of a command with phases.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};

/// Format of the output of [`Request::encode`].
pub const REQUEST_FORMAT: u8 = 1;

/// Format of an input that only its own service understands.
pub const INPUT_FORMAT: u8 = 2;

/// A request as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRequest {
    /// Format of the bytes.
    pub format: u8,
    /// Key that encrypts the bytes; `None` for plaintext.
    pub encryption_key_id: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

/// A request that can be sent later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method of the request.
    pub method: Method,
    /// Target of the request.
    pub target: Uri,
    /// Field lines, in order for each name, repeats intact.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A stored request that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored request cannot be read: {0}")]
pub struct UnreadableRequest(&'static str);

impl Request {
    /// Returns the encoded request, with the fields for which `keeps` returns true.
    pub fn encode(&self, keeps: impl Fn(&HeaderName) -> bool) -> StoredRequest {
        let kept = |(name, _): &(&HeaderName, &HeaderValue)| keeps(name);
        let mut bytes = BytesMut::with_capacity(256 + self.body.len());
        put(&mut bytes, self.method.as_str().as_bytes());
        put(&mut bytes, self.target.to_string().as_bytes());
        let fields: Vec<_> = self.headers.iter().filter(kept).collect();
        bytes.put_u32(u32::try_from(fields.len()).unwrap_or(u32::MAX));
        for (name, value) in fields {
            put(&mut bytes, name.as_str().as_bytes());
            put(&mut bytes, value.as_bytes());
        }
        put(&mut bytes, &self.body);
        StoredRequest { format: REQUEST_FORMAT, encryption_key_id: None, bytes: bytes.freeze() }
    }
}

impl StoredRequest {
    /// Returns an input that only its own service understands.
    pub fn input(bytes: Bytes) -> StoredRequest {
        StoredRequest { format: INPUT_FORMAT, encryption_key_id: None, bytes }
    }

    /// Returns the decoded request.
    pub fn decode(&self) -> Result<Request, UnreadableRequest> {
        if self.encryption_key_id.is_some() {
            return Err(UnreadableRequest("it is encrypted"));
        }
        if self.format != REQUEST_FORMAT {
            return Err(UnreadableRequest("its format is not known here"));
        }
        let mut bytes = self.bytes.clone();
        let method = Method::from_bytes(&take(&mut bytes)?).map_err(|_| UnreadableRequest("its method"))?;
        let target =
            Uri::from_maybe_shared(take(&mut bytes)?).map_err(|_| UnreadableRequest("its target"))?;
        let mut headers = HeaderMap::new();
        for _ in 0..number(&mut bytes)? {
            let name = HeaderName::from_bytes(&take(&mut bytes)?);
            let value = HeaderValue::from_maybe_shared(take(&mut bytes)?);
            let (Ok(name), Ok(value)) = (name, value) else { return Err(UnreadableRequest("its header")) };
            headers.try_append(name, value).map_err(|_| UnreadableRequest("its header is too large"))?;
        }
        let body = take(&mut bytes)?;
        match bytes.is_empty() {
            true => Ok(Request { method, target, headers, body }),
            false => Err(UnreadableRequest("something follows it")),
        }
    }
}

fn put(bytes: &mut BytesMut, part: &[u8]) {
    bytes.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
    bytes.put_slice(part);
}

fn number(bytes: &mut Bytes) -> Result<u32, UnreadableRequest> {
    bytes.try_get_u32().map_err(|_| UnreadableRequest("it breaks off"))
}

fn take(bytes: &mut Bytes) -> Result<Bytes, UnreadableRequest> {
    let length = number(bytes)? as usize;
    match bytes.remaining() >= length {
        true => Ok(bytes.split_to(length)),
        false => Err(UnreadableRequest("it breaks off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let mut headers = HeaderMap::new();
        headers.append("x-trace", HeaderValue::from_static("one"));
        headers.append("x-trace", HeaderValue::from_static("two"));
        headers.append("content-type", HeaderValue::from_static("application/json"));
        headers.append("authorization", HeaderValue::from_static("Bearer canary"));
        headers.append("cookie", HeaderValue::from_static("session=canary"));
        headers.append("x-api-key", HeaderValue::from_static("canary"));
        Request {
            method: Method::POST,
            target: Uri::from_static("/payments?dry=1"),
            headers,
            body: Bytes::from_static(b"{\"amount\": 5}"),
        }
    }

    #[test]
    fn stored_request_decodes_to_the_original() {
        let request = request();
        assert_eq!(request.encode(|_| true).decode(), Ok(request));
    }

    #[test]
    fn an_encoded_request_holds_only_the_selected_header_fields() {
        let stored = request().encode(|name| name == "content-type" || name == "x-trace");
        assert!(!stored.bytes.windows(6).any(|window| window == b"canary"));
        let read = stored.decode().expect("it was just written");
        assert_eq!(read.headers.get_all("x-trace").iter().count(), 2);
        assert_eq!(read.headers.len(), 3);
    }

    #[test]
    fn truncated_and_overlong_requests_are_refused() {
        let stored = request().encode(|_| true);
        for length in 0..stored.bytes.len() {
            let short = StoredRequest { bytes: stored.bytes.slice(..length), ..stored.clone() };
            assert!(short.decode().is_err(), "{length}");
        }
        let mut long = stored.bytes.to_vec();
        long.push(0);
        assert!(StoredRequest { bytes: long.into(), ..stored.clone() }.decode().is_err());
        assert!(StoredRequest { format: 9, ..stored.clone() }.decode().is_err());
        assert!(StoredRequest { encryption_key_id: Some("k".to_owned()), ..stored }.decode().is_err());
    }
}
