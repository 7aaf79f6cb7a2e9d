//! Helpers for reading events and answers of providers: words at JSON Pointers, and the response that retries get.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use semel_core::json::{NotCanonical, Pointed};
use semel_core::{JsonPointer, OperationId, Response, StoredResult};

/// Maximum length of a provider's word in messages to people.
const MAX_WORD: usize = 100;

/// Returns the word at a pointer: a string, a number, or `true` or `false`. `None` if there is none.
pub(super) fn word(pointer: &JsonPointer, document: &[u8]) -> Result<Option<String>, NotCanonical> {
    if let Some(word) = pointer.scalar(document)? {
        return Ok(Some(word));
    }
    Ok(match pointer.point(document)? {
        Pointed::Value(text) if text == "true" || text == "false" => Some(text),
        Pointed::Value(_) | Pointed::Missing | Pointed::NoPlace => None,
    })
}

/// Returns a provider's word, quoted for people.
pub(super) fn quoted(word: &str) -> String {
    let shown: String = word.chars().take(MAX_WORD).collect();
    format!("{shown:?}")
}

/// Returns the command that a reference names: an operation id, or one followed by a colon, as in the key
/// `operationId:phase` that providers get.
pub(super) fn command(reference: &str) -> Option<OperationId> {
    reference.split(':').next()?.parse().ok()
}

/// Returns the response for retries: this JSON, or only the status if the body is too long.
pub(super) fn result(status: StatusCode, body: String, max_body: usize) -> StoredResult {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let response = if body.len() > max_body {
        Response::without_body(status, &headers)
    } else {
        Response::retain(status, &headers, Bytes::from(body), &HeaderMap::new())
    };
    StoredResult { response: response.encode(), status: status.as_u16(), resource: None }
}
