//! Invalid field names: fields that the gateway refuses or strips, over HTTP/1 and HTTP/2, in heads and
//! trailers.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lab::{KEY, Site};
use super::recorder::{exchange, recorder};

const REFUSED: [&str; 9] = [
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-HTTP-Method",
    "X-Original-URL",
    "X_HTTP_Method_Override",
    "Idempotency_Key",
    "Content_Length",
    "Transfer_Encoding",
    "X_Api_Key",
];

const FORBIDDEN_TRAILERS: [&str; 7] = [
    "Semel-Tenant",
    "Semel_Tenant",
    "Idempotency-Key",
    "Content-Length",
    "Authorization",
    "X-HTTP-Method-Override",
    "Cookie",
];

fn http1(method: &str, field: &str) -> String {
    format!(
        "{method} /a HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nIdempotency-Key: {KEY}\r\n{field}\r\nContent-Length: 0\r\n\r\n"
    )
}

#[tokio::test]
async fn override_fields_and_underscore_aliases_of_protocol_fields_are_refused() {
    let (address, record) = recorder().await;
    let gateway = Site::new().start(address, &[]);
    for name in REFUSED {
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let answer =
                exchange(gateway.address, http1(method, &format!("{name}: DELETE")).as_bytes()).await;
            assert!(
                answer.starts_with("HTTP/1.1 400 ") && answer.contains("MALFORMED_REQUEST"),
                "{name}: {answer}"
            );
            let mut request = Request::builder().method(method).uri("http://lab/a");
            request = request.header("idempotency-key", KEY).header(name.to_ascii_lowercase(), "1");
            let request = request.body(()).expect("it is valid");
            assert_eq!(over_http2(gateway.address, request, None).await, Some(400), "{name} {method}");
        }
    }
    assert_eq!(record.text(), "", "nothing of any of them was passed on");
    let ours = exchange(gateway.address, http1("GET", "Semel_Tenant: forged").as_bytes()).await;
    assert!(ours.starts_with("HTTP/1.1 200 "), "{ours}");
    let other = exchange(gateway.address, http1("GET", "X_Mine: 1\r\nX-Tenant: 1").as_bytes()).await;
    assert!(other.starts_with("HTTP/1.1 200 "), "{other}");
    let twins = exchange(gateway.address, http1("GET", "X_Tenant: 1\r\nX-Tenant: 2").as_bytes()).await;
    assert!(twins.starts_with("HTTP/1.1 400 "), "{twins}");
    assert!(!record.text().contains("forged"));
}

async fn over_http2(gateway: SocketAddr, request: Request<()>, trailers: Option<HeaderMap>) -> Option<u16> {
    let stream = TcpStream::connect(gateway).await.expect("it listens");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let (answer, mut sending) = client.send_request(request, trailers.is_none()).expect("it is sent");
    if let Some(trailers) = trailers {
        sending.send_data(Bytes::from_static(b"{}"), false).expect("it is sent");
        sending.send_trailers(trailers).expect("they are sent");
    }
    answer.await.ok().map(|answer| answer.status().as_u16())
}

#[tokio::test]
async fn trailers_carry_nothing_that_belongs_into_a_head() {
    let (address, record) = recorder().await;
    let gateway = Site::new().start(address, &[]);
    for (number, name) in FORBIDDEN_TRAILERS.into_iter().enumerate() {
        for method in ["POST", "PUT"] {
            let key = format!("trailer-{method}-{number:08}");
            let request = format!(
                "{method} /a HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nIdempotency-Key: {key}\r\n\
                 Transfer-Encoding: chunked\r\nTrailer: {name}\r\n\r\n2\r\n{{}}\r\n0\r\n{name}: forged\r\n\r\n"
            );
            let answer = exchange(gateway.address, request.as_bytes()).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{name} {method}: {answer}");
            let request =
                Request::builder().method(method).uri("http://lab/a").header("idempotency-key", &key);
            let request = request.body(()).expect("it is valid");
            let field = HeaderName::from_bytes(name.as_bytes()).expect("it is a name");
            let trailers = HeaderMap::from_iter([(field, HeaderValue::from_static("forged"))]);
            let status = over_http2(gateway.address, request, Some(trailers)).await;
            assert!(status.is_none_or(|status| status >= 400), "{name} {method}: {status:?}");
            if method == "POST" {
                assert_eq!(status, Some(400), "a command is read whole first: {name}");
            }
        }
    }
    let text = record.text();
    assert!(!text.contains("forged") && !text.contains("POST "), "{text}");
    // A request that was being passed on broke off: none is complete there.
    assert!(!text.contains("\r\n0\r\n"), "{text}");
}

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("tests send small frames");
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Returns the first byte of the head that answers a GET with these fields and without `:authority`: an index
/// of HPACK's table.
async fn status_without_authority(gateway: SocketAddr, fields: &[(&str, &str)]) -> u8 {
    let mut head = vec![0x82, 0x86, 0x84];
    for (name, value) in fields {
        let length = |text: &str| u8::try_from(text.len()).expect("tests send short fields");
        head.extend([&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat());
    }
    let mut client = TcpStream::connect(gateway).await.expect("it listens");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let bytes = [preface, frame(4, 0, 0, &[]), frame(1, 5, 1, &head)].concat();
    client.write_all(&bytes).await.expect("it is sent");
    loop {
        let mut start = [0; 9];
        client.read_exact(&mut start).await.expect("it is answered");
        let length = usize::from(start[1]) << 8 | usize::from(start[2]);
        let mut payload = vec![0; length];
        client.read_exact(&mut payload).await.expect("the frame is whole");
        match start[3] {
            1 => return payload[0],
            3 => panic!("the stream was reset"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn http2_requests_with_a_malformed_or_missing_host_get_400() {
    const OK: u8 = 0x88;
    const BAD_REQUEST: u8 = 0x8c;
    let (address, record) = recorder().await;
    let gateway = Site::new().start(address, &[]);
    for host in ["evil.example/../x?", "a@b", "", "a b", "a,b", "a:99999", "a\\b", "a#b"] {
        assert_eq!(status_without_authority(gateway.address, &[("host", host)]).await, BAD_REQUEST, "{host}");
    }
    assert_eq!(status_without_authority(gateway.address, &[]).await, BAD_REQUEST, "no host at all");
    assert_eq!(record.text(), "");
    assert_eq!(status_without_authority(gateway.address, &[("host", "lab:80")]).await, OK);
    let padded = [("host", "lab"), ("content-length", "00")];
    assert_eq!(status_without_authority(gateway.address, &padded).await, BAD_REQUEST);
}

#[tokio::test]
async fn a_length_is_refused_in_any_but_its_shortest_form() {
    let (address, record) = recorder().await;
    let gateway = Site::new().start(address, &[]);
    for length in ["05", "005", "00", "+5", "5_0"] {
        let request = format!(
            "PUT /a HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nContent-Length: {length}\r\n\r\nhello"
        );
        let answer = exchange(gateway.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{length:?}: {answer}");
    }
    assert_eq!(record.text(), "");
}
