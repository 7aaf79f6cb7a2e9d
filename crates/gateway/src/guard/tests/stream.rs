//! Behaviour of the stream in situations that hyper's timing causes too rarely for a test through hyper.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::guard::{ClientLimits, Guarded};

const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Returns a client and a server with a request under way whose body is still to come.
async fn under_way() -> (DuplexStream, Guarded<DuplexStream>) {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let mut server = Guarded::new(server, ClientLimits::default());
    client.write_all(HEAD.as_bytes()).await.unwrap();
    let mut head = vec![0; HEAD.len()];
    server.read_exact(&mut head).await.unwrap();
    assert_eq!(head, HEAD.as_bytes());
    (client, server)
}

/// Sends a bad chunk, lets the server write `late`, and returns everything that the client reads.
async fn conversation(mut client: DuplexStream, mut server: Guarded<DuplexStream>, late: &str) -> String {
    client.write_all(b"x\r\n").await.unwrap();
    let serving = async {
        let error = server.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        // The bytes that the client reads show if the server could still write.
        let _ = server.write_all(late.as_bytes()).await;
        drop(server);
    };
    let reading = async {
        let mut read = String::new();
        client.read_to_string(&mut read).await.unwrap();
        drop(client);
        read
    };
    tokio::join!(serving, reading).1
}

#[tokio::test]
async fn a_refused_body_is_answered_once_and_by_the_guard_if_no_response_has_begun() {
    let (client, mut server) = under_way().await;
    server.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
    let read = conversation(client, server, "HTTP/1.1 500 late\r\n\r\n").await;
    assert!(read.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad Request\r\n"), "{read}");
    assert!(!read.contains("late"), "{read}");
}

#[tokio::test]
async fn a_response_that_has_begun_is_not_interrupted_by_a_refusal() {
    let (client, mut server) = under_way().await;
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await.unwrap();
    let read = conversation(client, server, "lo").await;
    assert_eq!(read, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
}

#[tokio::test]
async fn a_response_that_is_over_is_not_followed_by_a_refusal_of_the_same_request() {
    let (client, mut server) = under_way().await;
    server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(conversation(client, server, "").await, "HTTP/1.1 204 No Content\r\n\r\n");
}

#[tokio::test]
async fn a_response_without_a_request_is_an_invalid_data_error() {
    let (_client, server) = tokio::io::duplex(1024);
    let mut server = Guarded::new(server, ClientLimits::default());
    let error = server.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

#[tokio::test]
async fn the_next_head_waits_for_the_response_and_is_then_read_without_further_bytes() {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let mut server = Guarded::new(server, ClientLimits::default());
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(&request.repeat(2)).await.unwrap();
    let mut read = vec![0; request.len()];
    server.read_exact(&mut read).await.unwrap();

    let (mut reader, mut writer) = tokio::io::split(server);
    let next = tokio::spawn(async move { reader.read_exact(&mut read).await.map(|_| read) });
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(next.await.unwrap().unwrap(), request);
}

#[tokio::test]
async fn a_limit_beyond_the_clocks_range_never_fires() {
    let (_client, server) = tokio::io::duplex(1024);
    let mut server =
        Guarded::new(server, ClientLimits { idle_timeout: Duration::MAX, ..ClientLimits::default() });
    let mut byte = [0];
    tokio::select! {
        biased;
        read = server.read(&mut byte) => panic!("nothing was sent, but {read:?}"),
        () = tokio::task::yield_now() => {}
    }
}

/// Returns the bytes that a client reads after it has sent this request.
async fn refused(request: &str) -> String {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let mut server = Guarded::new(server, ClientLimits::default());
    client.write_all(request.as_bytes()).await.unwrap();
    let serving = async {
        // Only the head of a request with a refused body may pass.
        let mut passed = Vec::new();
        let _ = server.read_to_end(&mut passed).await;
        drop(server);
    };
    let reading = async {
        let mut read = String::new();
        client.read_to_string(&mut read).await.unwrap();
        drop(client);
        read
    };
    tokio::join!(serving, reading).1
}

#[tokio::test]
async fn a_refused_head_request_is_answered_without_a_body() {
    for (get, head) in [
        ("GET / HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.1\r\n\r\n"),
        ("\r\nGET / HTTP/1.2\r\n\r\n", "\r\nHEAD / HTTP/1.2\r\n\r\n"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ),
    ] {
        let (get, head) = (refused(get).await, refused(head).await);
        let (fields, body) = get.split_once("\r\n\r\n").expect("it has a head");
        assert!(fields.starts_with("HTTP/1.1 400 ") && body.starts_with('{'), "{get}");
        assert_eq!(head, format!("{fields}\r\n\r\n"), "the same, without its body");
    }
    let other = refused("HEADER / HTTP/1.1\r\n\r\n").await;
    assert!(other.ends_with('}'), "{other}");
}
