//! Answers of the service and the provider: the entry of a ledger and its response.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;

/// Entry of the ledger, with the body of its answer.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the effect.
    pub effect: String,
    /// Body of the response.
    pub body: String,
}

/// Returns a response with a JSON body, and the address of its effect.
pub fn answer(status: u16, body: &str, effect: Option<&str>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response = saying(response, "content-type", "application/json");
    response = saying(response, "x-service", "chaos");
    match effect {
        Some(effect) => saying(response, "location", &format!("/effects/{effect}")),
        None => response,
    }
}

/// Returns the response with one more header field.
pub fn saying(mut response: Response<Full<Bytes>>, name: &'static str, value: &str) -> Response<Full<Bytes>> {
    if let Ok(value) = http::HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}
