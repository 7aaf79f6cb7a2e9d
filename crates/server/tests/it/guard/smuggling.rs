//! Attempts to smuggle: each is refused, the connection closes, and the service sees only the valid requests.

use semel_gateway::guard::ClientLimits;

use super::lab::Lab;

const GOOD: &str = "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
/// Request that must never be seen.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// Heads, each followed by bytes that might take the hidden request as their own.
const HEADS: &[&str] = &[
    // CL.TE, TE.CL, TE.TE and CL.CL
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nX: 1\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nX: 1\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nX: 1\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length\0: 5\r\n\r\nhello",
    // lines
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /\r\n\r\n",
    "GET /x y HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    // routing
    "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
];

/// Chunked bodies.
const CHUNKS: &[&str] = &[
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5;x\nhello\r\n0\r\n\r\n",
    "5\rX\nhello\r\n0\r\n\r\n",
    "5\r\nhelloX\r\n0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
    "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "5\r\nhello\r\n0\r\nHost: b\r\n\r\n",
    "5\r\nhello\r\n0\r\nX: 1\n\r\n",
    "5\r\nhello\r\n0\r\nX : 1\r\n\r\n",
];

/// Checks a conversation after two valid requests: two answers, one refusal, and the end.
fn assert_refused(conversation: &str, attempt: &str) {
    assert_eq!(conversation.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{attempt:?}: {conversation}");
    assert_eq!(
        conversation.matches("HTTP/1.1 400 Bad Request\r\n").count(),
        1,
        "{attempt:?}: {conversation}"
    );
    let answers = conversation.lines().filter(|line| line.starts_with("HTTP/1.1 ")).count();
    assert_eq!(answers, 3, "{attempt:?}: {conversation}");
    assert!(
        conversation.contains(r#""code":"MALFORMED_REQUEST""#) && conversation.ends_with('}'),
        "{attempt:?}: {conversation}"
    );
    assert!(!conversation.contains("/hidden"), "{attempt:?}: {conversation}");
}

#[tokio::test]
async fn bad_heads_are_refused_on_a_pipelined_connection() {
    let lab = Lab::start(ClientLimits::default()).await;
    for attempt in HEADS {
        assert_refused(&lab.converse(format!("{GOOD}{GOOD}{attempt}{HIDDEN}")).await, attempt);
    }
    assert_eq!((lab.seen(), lab.broken()), (2 * HEADS.len(), 0));
}

#[tokio::test]
async fn bad_heads_are_refused_on_a_connection_kept_alive() {
    let lab = Lab::start(ClientLimits::default()).await;
    for attempt in HEADS {
        let mut client = lab.connect().await;
        let mut conversation = String::new();
        for _ in 0..2 {
            client.send(GOOD).await;
            conversation += &client.until("hello\n").await;
        }
        client.send(format!("{attempt}{HIDDEN}")).await;
        conversation += &client.rest().await;
        assert_refused(&conversation, attempt);
    }
    assert_eq!((lab.seen(), lab.broken()), (2 * HEADS.len(), 0));
}

#[tokio::test]
async fn bad_chunks_break_their_request_off_and_nothing_follows() {
    let lab = Lab::start(ClientLimits::default()).await;
    for chunks in CHUNKS {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_refused(&lab.converse(format!("{GOOD}{GOOD}{head}{chunks}{HIDDEN}")).await, chunks);
        lab.one_ended().await;
    }
    assert_eq!((lab.seen(), lab.broken()), (2 * CHUNKS.len(), CHUNKS.len()));
}

#[tokio::test]
async fn a_bad_chunk_after_an_early_answer_adds_no_second_answer() {
    let lab = Lab::start(ClientLimits::default()).await;
    let mut client = lab.connect().await;
    client.send("POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    let mut conversation = client.until("early").await;
    // The server may have closed already, which is fine, too.
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, format!("x\r\n{HIDDEN}").as_bytes()).await;
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut client.0, &mut rest).await;
    conversation += &String::from_utf8_lossy(&rest);
    assert_eq!(conversation.matches("HTTP/1.1 ").count(), 1, "{conversation}");
    assert_eq!(lab.seen(), 1);
}

#[tokio::test]
async fn a_refusal_waits_for_the_response_before_it() {
    let lab = Lab::start(ClientLimits::default()).await;
    let mut client = lab.connect().await;
    client.send(format!("GET /gated HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n{HIDDEN}")).await;
    // The next request on another connection is answered, so this one has been read, too.
    let mut other = lab.connect().await;
    other.send(GOOD).await;
    other.until("hello\n").await;
    lab.open_gate();
    let conversation = client.rest().await;
    let (first, second) = conversation.split_once("/gated 0 \n").expect("a whole first response");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{conversation}");
    assert!(second.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{conversation}");
}

#[tokio::test]
async fn a_response_body_that_looks_like_a_101_does_not_lift_the_guard() {
    let lab = Lab::start(ClientLimits::default()).await;
    let body = "\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n";
    let echo =
        format!("POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let conversation =
        lab.converse(format!("{echo}POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n")).await;
    assert!(conversation.contains("HTTP/1.1 400 Bad Request\r\n"), "{conversation}");
    assert_eq!(lab.seen(), 1);
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_goes_on_sending() {
    let lab = Lab::start(ClientLimits::default()).await;
    let attempt = format!("GET / HTTP/1.1\r\n\r\n{}", "x".repeat(200 * 1024));
    assert!(lab.converse(attempt).await.starts_with("HTTP/1.1 400 "));
}
