//! Requests to switch protocols: a complete WebSocket handshake (RFC 6455, section 4) and its answer.
//!
//! Invariant: bytes pass unread only after a 101 that answers an admitted handshake. A tunnel to anything
//! that speaks HTTP would carry commands without authentication and claim.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, Request, Version};
use semel_core::Problem;
use semel_core::fields::elements;
use semel_core::problem::ProblemKind;
use semel_settings::UpgradeProtocol;
use sha1::{Digest, Sha1};

const WEBSOCKET: &str = "websocket";

/// Text that a server appends to the key before it digests it (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Admitted handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// Value of `Sec-WebSocket-Accept` that answers it.
    accept: HeaderValue,
}

impl Handshake {
    /// Returns the handshake of a request; `None` if it asks for no allowed protocol, and then it is
    /// forwarded without.
    pub fn read<B>(request: &Request<B>, allowed: &[UpgradeProtocol]) -> Result<Option<Handshake>, Problem> {
        let headers = request.headers();
        let asked: Vec<&[u8]> = elements(headers, &UPGRADE).collect();
        // The next reader may repair a value that this one cannot read.
        if !asked.iter().all(|protocol| HeaderName::from_bytes(protocol).is_ok()) {
            return refuse("Upgrade names something that is not a plain protocol name.");
        }
        let [protocol] = asked[..] else { return Ok(None) };
        let is_asked = names_upgrade(headers) && request.version() == Version::HTTP_11;
        let is_allowed = allowed.contains(&UpgradeProtocol::WebSocket);
        if !is_asked || !is_allowed || !protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()) {
            return Ok(None);
        }
        if request.method() != Method::GET {
            return refuse("A WebSocket handshake is a GET.");
        }
        if only(headers, &SEC_WEBSOCKET_VERSION) != Some(b"13") {
            return refuse("Sec-WebSocket-Version is not 13.");
        }
        match only(headers, &SEC_WEBSOCKET_KEY) {
            Some(key) if STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16) => {
                Ok(Some(Handshake { accept: accept(key)? }))
            }
            _ => refuse("Sec-WebSocket-Key is not 16 bytes in base64."),
        }
    }

    /// Returns the protocol, as `Upgrade` names it.
    pub fn protocol(&self) -> HeaderValue {
        HeaderValue::from_static(WEBSOCKET)
    }

    /// Returns true if the head of a 101 answers this handshake and no other.
    pub fn is_answered_by(&self, headers: &HeaderMap) -> bool {
        let protocols: Vec<&[u8]> = elements(headers, &UPGRADE).collect();
        matches!(protocols[..], [only] if only.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
            && names_upgrade(headers)
            && only(headers, &SEC_WEBSOCKET_ACCEPT) == Some(self.accept.as_bytes())
    }

    /// Returns a handshake for tests.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Handshake {
        Handshake { accept: HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") }
    }
}

fn names_upgrade(headers: &HeaderMap) -> bool {
    elements(headers, &CONNECTION).any(|element| element.eq_ignore_ascii_case(b"upgrade"))
}

/// Returns the value of a field that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).map(HeaderValue::as_bytes)
}

fn accept(key: &[u8]) -> Result<HeaderValue, Problem> {
    let digest = STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize());
    HeaderValue::from_str(&digest)
        .map_err(|_| Problem::new(ProblemKind::MalformedRequest, "Sec-WebSocket-Key cannot be answered."))
}

fn refuse<T>(detail: &str) -> Result<T, Problem> {
    Err(Problem::new(ProblemKind::MalformedRequest, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the handshake of RFC 6455, section 1.3, with these changes.
    fn handshake(method: Method, changes: &[(HeaderName, &[u8])]) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        let lines = [
            (CONNECTION, &b"keep-alive, Upgrade"[..]),
            (UPGRADE, b"WebSocket"),
            (SEC_WEBSOCKET_VERSION, b"13"),
            (SEC_WEBSOCKET_KEY, b"dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for (name, value) in lines.iter().chain(changes) {
            let value = HeaderValue::from_bytes(value).expect("it is a value");
            request.headers_mut().insert(name, value);
        }
        request
    }

    fn read(request: &Request<()>) -> Result<Option<Handshake>, Problem> {
        Handshake::read(request, &[UpgradeProtocol::WebSocket])
    }

    #[test]
    fn only_a_complete_handshake_of_an_allowed_protocol_is_forwarded() {
        let request = handshake(Method::GET, &[]);
        let found = read(&request).expect("it is one").expect("it is allowed");
        assert_eq!(found.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "as the specification says");
        assert!(Handshake::read(&request, &[]).expect("it is ignored").is_none(), "nothing is allowed");
        let refused: [(Method, HeaderName, &[u8]); 11] = [
            (Method::GET, UPGRADE, b"h2c\xff"),
            (Method::GET, UPGRADE, b"h2c, \xff"),
            (Method::GET, UPGRADE, b"h2c;q=1"),
            (Method::GET, UPGRADE, b"websocket\xff"),
            (Method::GET, UPGRADE, b"HTTP/2.0"),
            (Method::GET, UPGRADE, b""),
            (Method::GET, UPGRADE, b"websocket,"),
            (Method::POST, UPGRADE, b"websocket"),
            (Method::GET, SEC_WEBSOCKET_VERSION, b"12"),
            (Method::GET, SEC_WEBSOCKET_KEY, b"short"),
            (Method::GET, SEC_WEBSOCKET_KEY, b"dGhlIHNhbXBsZSBub25jZQ==\xff"),
        ];
        for (method, name, value) in refused {
            let request = handshake(method, &[(name, value)]);
            assert!(read(&request).is_err(), "{request:?}");
        }
        let ignored: [(HeaderName, &[u8]); 4] = [
            (UPGRADE, b"h2c"),
            (UPGRADE, b"websocket, h2c"),
            (UPGRADE, b"echo"),
            (CONNECTION, b"keep-alive"),
        ];
        for (name, value) in ignored {
            let request = handshake(Method::GET, &[(name, value)]);
            assert!(read(&request).expect("it goes on without").is_none(), "{request:?}");
        }
    }

    #[test]
    fn a_101_answers_a_handshake_only_if_its_fields_match() {
        let asked = Handshake::for_tests();
        let answer = |changes: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::from_iter([
                (CONNECTION, HeaderValue::from_static("Upgrade")),
                (UPGRADE, HeaderValue::from_static("websocket")),
                (SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")),
            ]);
            for (name, value) in changes {
                headers.insert(name, HeaderValue::from_static(value));
            }
            headers
        };
        assert!(asked.is_answered_by(&answer(&[])));
        for (name, value) in [
            (UPGRADE, "h2c"),
            (UPGRADE, "websocket, h2c"),
            (CONNECTION, "close"),
            (SEC_WEBSOCKET_ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOp="),
        ] {
            assert!(!asked.is_answered_by(&answer(&[(name.clone(), value)])), "{name}: {value}");
        }
        assert!(!asked.is_answered_by(&HeaderMap::new()));
    }
}
