//! Body on a method without one: refused over HTTP/1 and HTTP/2, unless a `[[pass]]` allows it.

use bytes::Bytes;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;

use super::lab::{Site, Upstream, pay};
use super::recorder::{exchange, recorder};

const HIDDEN: &str =
    "POST /payments HTTP/1.1\r\nHost: lab\r\nSemel-Tenant: forged\r\nContent-Length: 0\r\n\r\n";

fn with_length(method: &str, target: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn in_chunks(method: &str, chunks: &str) -> String {
    format!(
        "{method} /a HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    )
}

#[tokio::test]
async fn a_body_where_none_belongs_never_reaches_the_upstream() {
    let (address, record) = recorder().await;
    let gateway = Site::new().start(address, &[]);
    let length = HIDDEN.len();
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        let refused = [
            with_length(method, "/a", HIDDEN),
            in_chunks(method, &format!("{length:x}\r\n{HIDDEN}\r\n0\r\n\r\n")),
            in_chunks(method, "0\r\nX-Late: 1\r\n\r\n"),
            in_chunks(method, "1\r\nx\r\n0\r\n\r\n"),
            in_chunks(method, &format!("zz\r\n{HIDDEN}")),
            in_chunks(method, &format!("5\r\n12345{HIDDEN}")),
            in_chunks(method, &format!("0\r\n{HIDDEN}")),
        ];
        for request in refused {
            let answer = exchange(gateway.address, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{request:?}: {answer}");
            assert!(method == "HEAD" || answer.contains("\"MALFORMED_REQUEST\""), "{request:?}: {answer}");
        }
    }
    assert_eq!(record.text(), "", "nothing of any of them was passed on");
}

#[tokio::test]
async fn an_empty_body_of_a_get_is_forwarded_without_framing_fields() {
    let (address, record) = recorder().await;
    let gateway = Site::new().start(address, &[]);
    let mut seen = 0;
    for method in ["GET", "HEAD", "OPTIONS"] {
        for request in [with_length(method, "/a", ""), in_chunks(method, "0\r\n\r\n")] {
            let answer = exchange(gateway.address, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{request:?}: {answer}");
            seen += 1;
        }
    }
    let text = record.text().to_ascii_lowercase();
    assert_eq!(text.matches(" http/1.1\r\n").count(), seen);
    assert!(!text.contains("content-length") && !text.contains("transfer-encoding"), "{text}");
}

/// Sends a request with these frames over HTTP/2, and returns its status.
async fn over_http2(
    gateway: std::net::SocketAddr,
    request: Request<()>,
    data: &[&'static str],
    trailers: Option<HeaderMap>,
) -> u16 {
    let stream = TcpStream::connect(gateway).await.expect("it listens");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let (answer, mut sending) = client.send_request(request, false).expect("it is sent");
    for (number, bytes) in data.iter().enumerate() {
        let is_last = trailers.is_none() && number + 1 == data.len();
        sending.send_data(Bytes::from_static(bytes.as_bytes()), is_last).expect("it is sent");
    }
    if let Some(trailers) = trailers {
        sending.send_trailers(trailers).expect("they are sent");
    }
    answer.await.expect("it is answered").status().as_u16()
}

#[tokio::test]
async fn an_http2_get_head_or_options_with_a_body_is_refused() {
    let (address, record) = recorder().await;
    let gateway = Site::new().start(address, &[]);
    let request = |method: &str| Request::builder().method(method).uri("http://lab/a");
    for method in ["GET", "HEAD", "OPTIONS"] {
        let plain = || request(method).body(()).expect("it is valid");
        let announced = request(method).header("content-length", "3").body(()).expect("it is valid");
        assert_eq!(over_http2(gateway.address, announced, &["abc"], None).await, 400, "{method}");
        assert_eq!(over_http2(gateway.address, plain(), &[HIDDEN], None).await, 400, "{method}");
        assert_eq!(over_http2(gateway.address, plain(), &["", "x"], None).await, 400, "{method}");
        let trailers = HeaderMap::from_iter([(http::header::ETAG, "x".parse().expect("it is valid"))]);
        assert_eq!(over_http2(gateway.address, plain(), &[], Some(trailers)).await, 400, "{method}");
        assert_eq!(record.text(), "", "nothing of any of them was passed on");
    }
    let plain = request("GET").body(()).expect("it is valid");
    assert_eq!(over_http2(gateway.address, plain, &["", ""], None).await, 200);
    let text = record.text().to_ascii_lowercase();
    assert!(!text.contains("content-length") && !text.contains("transfer-encoding"), "{text}");
}

#[tokio::test]
async fn a_body_that_a_pass_allows_is_alone_on_its_connection() {
    let (address, record) = recorder().await;
    let allowed = "[[pass]]\nmatch = \"GET /search\"\nallow = [\"body\"]\n";
    let gateway = Site::new().start_with(address, allowed, &[]);
    let plain = with_length("GET", "/a", "");
    let searching = with_length("GET", "/search", "{\"q\":1}");
    for request in [&plain, &plain, &searching, &searching, &plain] {
        let answer = exchange(gateway.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let others = exchange(gateway.address, with_length("GET", "/a", "x").as_bytes()).await;
    assert!(others.starts_with("HTTP/1.1 400 "), "{others}");
    let searches: Vec<String> =
        record.connections().into_iter().filter(|text| text.contains("GET /search ")).collect();
    assert_eq!(searches.len(), 2);
    for text in searches {
        assert_eq!(text.matches(" HTTP/1.1\r\n").count(), 1, "{text}");
        assert!(text.ends_with("{\"q\":1}") && text.contains("connection: close\r\n"), "{text}");
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_that_a_pass_allows_is_passed_on() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let allowed = "[[pass]]\nmatch = \"GET /a\"\nallow = [\"body\"]\n";
    let gateway = site.start_with(upstream.address, allowed, &[]);
    let chunked = in_chunks("GET", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let answer = exchange(gateway.address, chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.ends_with("abcde"), "{answer}");
}

#[tokio::test]
async fn other_methods_keep_their_bodies() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start(upstream.address, &[]);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let key = format!("a-key-for-a-{method}-0001");
        let reply = gateway.send(pay("{\"a\":1}").method(method).set("idempotency-key", key)).await;
        assert_eq!(reply.status, 201);
        assert!(reply.body.ends_with(b"{\"a\":1}"), "{method}: {reply:?}");
    }
}
