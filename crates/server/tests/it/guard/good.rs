//! Valid requests work like without the guard.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use semel_gateway::guard::ClientLimits;
use tokio::io::AsyncWriteExt;

use super::lab::Lab;

async fn lab() -> Lab {
    Lab::start(ClientLimits::default()).await
}

#[tokio::test]
async fn chunks_with_extensions_and_trailers() {
    let lab = lab().await;
    let mut client = lab.connect().await;
    let request = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
                   5;a=\"b c\"\r\nhello\r\n6 ;d\r\n world\r\n0;e\r\nX-Sum: 1\r\n\r\n";
    for _ in 0..3 {
        client.send(request).await;
        assert!(client.until("hello world\n").await.contains("/c 1 hello"));
        for byte in request.bytes() {
            client.send([byte]).await;
        }
        client.until("/c 1 hello world\n").await;
    }
    assert_eq!(lab.seen(), 6);
}

#[tokio::test]
async fn http_1_0_with_and_without_keep_alive() {
    let lab = lab().await;
    let mut client = lab.connect().await;
    for _ in 0..2 {
        client.send("POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi").await;
        client.until("/ 0 hi\n").await;
    }
    client.send("GET /last HTTP/1.0\r\n\r\n").await;
    assert!(client.rest().await.ends_with("/last 0 \n"));
    assert_eq!(lab.seen(), 3);
}

#[tokio::test]
async fn ten_requests_in_one_pipeline_are_answered_in_order() {
    let lab = lab().await;
    let mut client = lab.connect().await;
    let requests: String = (0..10)
        .map(|n| match n % 3 {
            0 => format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"),
            1 => format!("POST /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n{n}"),
            _ => format!(
                "POST /{n} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{n}\r\n0\r\n\r\n"
            ),
        })
        .collect();
    client.send(requests).await;
    for n in 0..10 {
        let answer = client.until("\n\r\n").await + &client.until("\n").await;
        assert!(answer.contains(&format!("/{n} 0 ")), "{answer}");
    }
    assert_eq!(lab.seen(), 10);
}

#[tokio::test]
async fn head_requests_do_not_unsettle_the_connection() {
    let lab = lab().await;
    let mut client = lab.connect().await;
    client
        .send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\nGET /g HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    let conversation = client.rest().await;
    assert_eq!(conversation.matches("HTTP/1.1 200 OK").count(), 2, "{conversation}");
    assert!(!conversation.contains("/h 0"), "{conversation}");
    assert!(conversation.ends_with("/g 0 \n"), "{conversation}");
}

#[tokio::test]
async fn expect_100_continue() {
    let lab = lab().await;
    let mut client = lab.connect().await;
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n").await;
        assert_eq!(client.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello").await;
        client.until("/ 0 hello\n").await;
    }
}

#[tokio::test]
async fn an_upgrade_is_opaque_from_its_101_on() {
    let lab = lab().await;
    let mut client = lab.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.until("/ 0 \n").await;
    // A client sends the first bytes of the new protocol early.
    client
        .send("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n\0\neager")
        .await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    client.until("\0\neager").await;
    client.send("GET\0\r\n bare \n").await;
    client.until("GET\0\r\n bare \n").await;
    client.0.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_declined_upgrade_is_followed_by_the_next_request() {
    let lab = lab().await;
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    let next = "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(lab.converse(format!("{upgrade}{next}")).await.ends_with("/next 0 \n"));
    assert!(lab.converse(format!("{upgrade}\0\n{next}")).await.contains("HTTP/1.1 400 "));
}

#[tokio::test]
async fn http_2_with_prior_knowledge() {
    let lab = lab().await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<Bytes>>();
    let body = vec![b'x'; 1024 * 1024];
    for _ in 0..3 {
        let request =
            Request::post(format!("http://{}/h2", lab.address)).body(Full::from(body.clone())).unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(answer.len(), "/h2 0 \n".len() + body.len());
    }
    assert_eq!(lab.seen(), 3);
}

#[tokio::test]
async fn large_bodies_of_both_kinds_arrive_whole() {
    let lab = lab().await;
    let body: String = (0..30_000).map(|n| format!("{n:08}")).collect();
    let sized = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for (n, chunk) in body.as_bytes().chunks(20_001).enumerate() {
        chunked += &format!("{:x};n={n}\r\n{}\r\n", chunk.len(), str::from_utf8(chunk).unwrap());
    }
    chunked += "0\r\n\r\n";
    let mut client = lab.connect().await;
    for request in [sized, chunked] {
        client.send(&request).await;
        client.until(&format!("/ 0 {body}\n")).await;
    }
    assert_eq!(lab.seen(), 2);
}
