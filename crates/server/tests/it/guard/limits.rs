//! Limits in time and size. No test asserts a duration, only the outcome.

use std::time::Duration;

use semel_gateway::guard::ClientLimits;

use super::lab::Lab;

const SOON: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_slow_head_is_answered_with_408() {
    let lab = Lab::start(ClientLimits { head_timeout: SOON, ..ClientLimits::default() }).await;
    let conversation = lab.converse("GET / HTTP/1.1\r\nHost:").await;
    assert!(conversation.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{conversation}");
    assert_eq!(lab.seen(), 0);
}

#[tokio::test]
async fn a_slow_second_head_is_refused() {
    let lab = Lab::start(ClientLimits { head_timeout: SOON, ..ClientLimits::default() }).await;
    let conversation = lab.converse("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT").await;
    assert!(conversation.contains("/ 0 \nHTTP/1.1 408 Request Timeout\r\n"), "{conversation}");
    assert_eq!(lab.seen(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() {
    let lab = Lab::start(ClientLimits { idle_timeout: SOON, ..ClientLimits::default() }).await;
    assert_eq!(lab.converse("").await, "");
    assert!(lab.converse("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.ends_with("/ 0 \n"));
}

#[tokio::test]
async fn a_long_response_does_not_count_as_idle() {
    let limits = ClientLimits {
        idle_timeout: SOON,
        head_timeout: SOON,
        body_timeout: SOON,
        ..ClientLimits::default()
    };
    let lab = Lab::start(limits).await;
    let mut client = lab.connect().await;
    client.send("GET /gated HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // Another connection idles to its end meanwhile, so every timeout has passed at least once.
    assert_eq!(lab.converse("").await, "");
    lab.open_gate();
    assert!(client.rest().await.ends_with("/gated 0 \n"));
}

#[tokio::test]
async fn a_body_that_stalls_breaks_off() {
    let lab = Lab::start(ClientLimits { body_timeout: SOON, ..ClientLimits::default() }).await;
    let sized = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n";
    for request in [sized, chunked] {
        let conversation = lab.converse(request).await;
        assert!(conversation.ends_with("the body broke off"), "{conversation}");
    }
    assert_eq!((lab.seen(), lab.broken()), (0, 2));
}

#[tokio::test]
async fn a_large_head_is_answered_with_431() {
    let lab = Lab::start(ClientLimits { max_head: 1024, ..ClientLimits::default() }).await;
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(1024));
    let endless = "x".repeat(100_000);
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X:\r\n".repeat(128));
    for head in [large, endless, many] {
        let conversation = lab.converse(head).await;
        assert!(conversation.starts_with("HTTP/1.1 431 "), "{conversation}");
    }
    assert_eq!(lab.seen(), 0);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_let_go() {
    let lab = Lab::start(ClientLimits { write_timeout: SOON, ..ClientLimits::default() }).await;
    let mut client = lab.connect().await;
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    lab.one_ended().await;
    assert_eq!(lab.seen(), 1);
}

#[tokio::test]
async fn a_client_that_goes_away_in_a_head_or_a_body_leaves_no_request() {
    use tokio::io::AsyncWriteExt;
    let lab = Lab::start(ClientLimits::default()).await;
    for request in ["GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"] {
        let mut client = lab.connect().await;
        client.send(request).await;
        client.0.shutdown().await.unwrap();
        client.rest().await;
    }
    assert_eq!(lab.seen(), 0);
}
