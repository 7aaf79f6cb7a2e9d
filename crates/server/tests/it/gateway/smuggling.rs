//! The guard in front of the whole gateway: the upstream sees only legitimate requests.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lab::{lab, pay};

/// Returns byte sequences that are one request to one reader, and two to another.
pub(super) fn corpus() -> Vec<String> {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: lab\r\n\r\n";
    let post = "POST /payments HTTP/1.1\r\nHost: lab\r\nIdempotency-Key: 0123456789abcdef\r\n";
    vec![
        format!("{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}Content-Length: 0\r\nContent-Length: 45\r\n\r\n{hidden}"),
        format!("{post}Content-Length: 0, 0\r\n\r\n{hidden}"),
        format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}X: 1\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}X: 1\nContent-Length: 45\r\n\r\n{hidden}"),
        format!("POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("GET http://elsewhere/ HTTP/1.1\r\nHost: lab\r\n\r\n{hidden}"),
        format!("GET http://user:pw@lab/ HTTP/1.1\r\nHost: lab\r\n\r\n{hidden}"),
        format!("GET / HTTP/1.1\r\nHost: lab\r\nX: {}\r\n\r\n{hidden}", "x".repeat(70_000)),
    ]
}

/// Checks that a valid request is passed on.
pub(crate) async fn is_answered(client: &mut (impl AsyncRead + AsyncWrite + Unpin), good: &[u8]) {
    client.write_all(good).await.expect("it is sent");
    let mut answer = vec![0; 16 * 1024];
    let length = client.read(&mut answer).await.expect("it is answered");
    assert!(answer[..length].starts_with(b"HTTP/1.1 201 "));
}

/// Checks that an ambiguous request is refused once and ends the connection.
pub(crate) async fn is_refused(client: &mut (impl AsyncRead + AsyncWrite + Unpin), attempt: &str) {
    client.write_all(attempt.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("it is answered, and closed in good order");
    let refused = answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 431 ");
    assert!(refused && answer.matches("HTTP/1.1 ").count() == 1, "{attempt:?}: {answer}");
}

#[tokio::test]
async fn requests_seen_upstream_are_requests_legitimately_sent() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let good = pay("").method("GET").without("idempotency-key").into_bytes();
    let corpus = corpus();
    for (number, attempt) in corpus.iter().enumerate() {
        let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
        for _ in 0..2 {
            is_answered(&mut client, &good).await;
        }
        is_refused(&mut client, attempt).await;
        assert_eq!(upstream.seen(), 2 * (number + 1), "{attempt:?}");
    }
}
