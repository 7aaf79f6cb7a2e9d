//! Fuzz target of stored responses and requests: written bytes read back, and unreadable ones are errors.
//!
//! The input is the bytes themselves, as a damaged store would return them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel_core::Policy;
use semel_core::request::{REQUEST_FORMAT, StoredRequest};
use semel_core::response::{RESPONSE_FORMAT, Response, StoredResponse};

/// Checks that readable bytes are written as bytes that read back the same.
pub fn check(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    check_response(&bytes);
    check_request(&bytes);
    // Bytes that are marked as sealed, or of an unknown format, are never read as plain.
    let (format, key) = (input.first().copied().unwrap_or_default(), Some(String::new()));
    let sealed =
        StoredResponse { format: RESPONSE_FORMAT, encryption_key_id: key.clone(), bytes: bytes.clone() };
    assert!(sealed.decode().is_err());
    let newer = StoredResponse { format, encryption_key_id: None, bytes: bytes.clone() };
    assert!(format == RESPONSE_FORMAT || newer.decode().is_err());
    let sealed = StoredRequest { format: REQUEST_FORMAT, encryption_key_id: key, bytes: bytes.clone() };
    assert!(sealed.decode().is_err());
    let newer = StoredRequest { format, encryption_key_id: None, bytes };
    assert!(format == REQUEST_FORMAT || newer.decode().is_err());
}

fn check_response(bytes: &Bytes) {
    let stored = StoredResponse { format: RESPONSE_FORMAT, encryption_key_id: None, bytes: bytes.clone() };
    let Ok(response) = stored.decode() else { return };
    let body = response.body.as_ref().map_or(0, Bytes::len);
    let parts = body + weight(&response.headers) + weight(&response.trailers);
    assert!(parts <= bytes.len(), "more was read than there was");
    assert_eq!(response.encode().decode().as_ref(), Ok(&response), "what is written reads back");
    check_retained(&response);
    check_damage(bytes, body, |cut| StoredResponse { bytes: cut, ..stored.clone() }.decode().is_err());
}

/// Checks that the retained part of such a response reads back, and has no fields of its client's own.
fn check_retained(response: &Response) {
    let Response { status, headers, body, trailers } = response;
    let kept = [
        Response::retain(*status, headers, body.clone().unwrap_or_default(), trailers),
        Response::head(*status, headers),
        Response::without_body(*status, headers),
    ];
    for kept in kept {
        assert_eq!(kept.encode().decode().as_ref(), Ok(&kept));
        for name in
            ["set-cookie", "authorization", "connection", "transfer-encoding", "content-length", "date"]
        {
            assert!(
                !kept.headers.contains_key(name)
                    && (name == "content-length" || !kept.trailers.contains_key(name)),
                "{name} is kept"
            );
        }
        for name in kept.headers.keys() {
            let lines = |headers: &HeaderMap| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
            assert_eq!(lines(&kept.headers), lines(headers), "all lines of {name}, in order");
        }
    }
}

fn check_request(bytes: &Bytes) {
    let stored = StoredRequest { format: REQUEST_FORMAT, encryption_key_id: None, bytes: bytes.clone() };
    let Ok(request) = stored.decode() else { return };
    assert!(request.body.len() + weight(&request.headers) <= bytes.len(), "more was read than there was");
    assert_eq!(request.encode(|_| true).decode().as_ref(), Ok(&request), "what is written reads back");
    let policy = Policy::default();
    let bare = request.encode(|name| policy.keeps_request_field(name)).decode().expect("it was just written");
    for name in ["authorization", "cookie", "proxy-authorization", "x-api-key"] {
        assert!(!bare.headers.contains_key(name), "{name} is kept");
    }
    assert!(bare.headers.keys().all(|name| request.headers.contains_key(name)));
    assert_eq!((bare.method, bare.target, bare.body), (request.method, request.target, request.body));
    check_damage(bytes, 0, |cut| StoredRequest { bytes: cut, ..stored.clone() }.decode().is_err());
}

/// Checks that bytes cut before the body are refused. A body has no length of its own: the store must notice a cut
/// there.
fn check_damage(bytes: &Bytes, body: usize, is_refused: impl Fn(Bytes) -> bool) {
    let whole = bytes.len() - body;
    for end in (0..whole).step_by(1 + whole / 32) {
        assert!(is_refused(bytes.slice(..end)), "cut at {end}");
    }
}

fn weight(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len()).sum()
}
