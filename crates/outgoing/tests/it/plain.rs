//! Plain HTTP: everything is bounded, and an incomplete answer is an error.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use semel_outgoing::{Client, Error, Pool, TlsSettings};

use super::server::{Server, Then};

const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(20);

fn client(url: &str) -> Client {
    Client::new(url.parse().expect("it is an address"), TlsSettings::default()).expect("it is plain")
}

fn question(client: &Client) -> Request<Full<Bytes>> {
    client.request(Method::GET, client.address().target()).body(Full::default()).expect("it is a request")
}

/// Sends a request to a server with this answer.
async fn asked(answer: &'static str, then: Then, timeout: Duration) -> Result<Response<Bytes>, Error> {
    let server = Server::start(answer, then).await;
    let client = client(&server.url()).timeout(timeout);
    client.send(question(&client)).await?.bytes(1000).await
}

#[tokio::test]
async fn a_whole_answer_is_read_and_no_redirect_is_followed() {
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 2\r\n\r\nok";
    let answer = asked(moved, Then::Close, LONG).await.expect("it answers");
    assert_eq!((answer.status().as_u16(), &answer.body()[..]), (302, &b"ok"[..]));
}

#[tokio::test]
async fn a_truncated_response_is_an_error_that_names_the_truncation() {
    for (answer, told) in [
        ("", "no answer: "),
        ("HTTP/1.1 200 OK\r\n", "no answer: "),
        ("\0\0\0\r\n\r\n", "no answer: "),
        ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", "broke off"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "broke off"),
    ] {
        let error = asked(answer, Then::Close, LONG).await.expect_err("it is not whole");
        assert!(error.to_string().contains(told), "{answer:?}: {error}");
        assert!(!error.is_never_sent(), "{answer:?}: it may have arrived");
    }
}

#[tokio::test]
async fn an_answer_tells_whether_its_end_can_be_known() {
    for (answer, known) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\n\r\nok", false),
    ] {
        let server = Server::start(answer, Then::Close).await;
        let client = client(&server.url());
        let answered = client.send(question(&client)).await.expect("it answers");
        assert_eq!(answered.is_delimited(), known, "{answer:?}");
    }
}

#[tokio::test]
async fn a_hostile_server_costs_a_bounded_time_and_a_bounded_memory() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf"] {
        let error = asked(answer, Then::Hang, SHORT).await.expect_err("it does not go on");
        assert!(matches!(error, Error::TimedOut(SHORT)), "{answer:?}: {error}");
    }
    let error = asked("HTTP/1.1 200 OK\r\n\r\n", Then::Flood, LONG).await.expect_err("it has no end");
    assert!(matches!(error, Error::TooLarge(1000)), "{error}");
    let error = asked("HTTP/1.1 200 OK\r\nx: ", Then::Flood, LONG).await.expect_err("its head has no end");
    assert!(matches!(error, Error::NoAnswer(_)), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_means_never_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let client = client(&url);
    let error = client.send(question(&client)).await.err().expect("nobody listens");
    assert!(
        error.is_never_sent() && error.to_string().starts_with("cannot connect to 127.0.0.1:"),
        "{error}"
    );
}

#[tokio::test]
async fn a_pool_uses_a_connection_again_and_asks_again_where_it_was_closed() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for (then, connections) in [(Then::Stay, 1), (Then::Close, 3)] {
        let server = Server::start(answer, then).await;
        let pool = Pool::new(server.url().parse().expect("it is one"), TlsSettings::default());
        let pool = pool.expect("it is plain");
        for _ in 0..3 {
            let question = pool.question(Method::GET).body(Full::default()).expect("it is a request");
            let answer = pool.ask(question, 10, LONG).await.expect("it answers");
            assert_eq!(answer.body(), "ok");
        }
        assert_eq!((server.connections(), server.requests()), (connections, 3));
    }
}
