//! Switches of protocols: only by a WebSocket handshake, and only with its own answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lab::Site;
use super::recorder::exchange;

/// Handshake of RFC 6455, section 1.3, and its answer.
const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: lab\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Starts an upstream that answers every request with these bytes and then echoes; also returns the received
/// bytes.
async fn echo(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recording = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let recording = recording.clone();
            tokio::spawn(async move {
                let (mut bytes, mut is_open) = (vec![0; 64 * 1024], false);
                while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                    recording.lock().expect("nobody panics").extend_from_slice(&bytes[..length]);
                    let reply = if is_open { &bytes[..length] } else { answer.as_bytes() };
                    if stream.write_all(reply).await.is_err() {
                        return;
                    }
                    is_open = true;
                }
            });
        }
    });
    (address, seen)
}

async fn head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("it is answered"));
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[tokio::test]
async fn a_websocket_handshake_becomes_a_tunnel() {
    let (upstream, _) = echo(ANSWER).await;
    let gateway = Site::new().start(upstream, &[]);
    let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
    client.write_all(HANDSHAKE.as_bytes()).await.expect("it is sent");
    let head = head(&mut client).await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: websocket\r\n"), "{head}");
    client.write_all(b"through the tunnel").await.expect("it is sent");
    let mut echo = [0; 18];
    client.read_exact(&mut echo).await.expect("it comes back");
    assert_eq!(&echo, b"through the tunnel");
}

#[tokio::test]
async fn a_disguised_upgrade_request_is_refused() {
    let (upstream, seen) =
        echo("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n").await;
    let gateway = Site::new().start(upstream, &[]);
    let disguises: [&[u8]; 9] = [
        b"h2c\xff",
        b"h2c, \xff",
        b"h2c;q=1",
        b"\xffh2c",
        b"websocket\xff",
        b"websocket, h2c\x80",
        b"HTTP/2.0",
        b"h2c/",
        b"",
    ];
    for value in disguises {
        for method in ["GET", "POST"] {
            let mut request = format!(
                "{method} / HTTP/1.1\r\nHost: lab\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                 HTTP2-Settings: AAMAAABkAAQAoAAA\r\nContent-Length: 0\r\nUpgrade: "
            )
            .into_bytes();
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n\r\n");
            let answer = exchange(gateway.address, &request).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{value:?}: {answer}");
        }
    }
    for (field, value) in [
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Key: AAAA"),
        ("GET ", "PUT "),
        ("Host: lab\r\n", "Host: lab\r\nContent-Length: 3\r\n"),
    ] {
        let answer = exchange(gateway.address, HANDSHAKE.replace(field, value).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{value}: {answer}");
    }
    assert!(seen.lock().expect("nobody panics").is_empty(), "nothing of any of them was passed on");
}

#[tokio::test]
async fn other_protocols_are_not_asked_for_and_never_tunnelled() {
    let (upstream, seen) =
        echo("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n").await;
    let gateway = Site::new().start(upstream, &[]);
    for value in ["h2c", "H2C", "websocket, h2c", "echo", "TLS"] {
        let request = HANDSHAKE.replace("Upgrade: websocket", &format!("Upgrade: {value}"));
        let request = request.replace("Connection: Upgrade", "Connection: Upgrade, close");
        let answer = exchange(gateway.address, request.as_bytes()).await;
        // The upstream switches without a request to do so.
        assert!(
            answer.starts_with("HTTP/1.1 502 ") && answer.contains("UPSTREAM_FAILED"),
            "{value}: {answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{value}: {answer}");
    }
    let seen = String::from_utf8_lossy(&seen.lock().expect("nobody panics")).to_ascii_lowercase();
    assert!(seen.contains("get /chat ") && !seen.contains("\nupgrade:"), "{seen}");
}

#[tokio::test]
async fn a_101_that_answers_another_handshake_is_an_error() {
    let answers = [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
    ];
    for answer in answers {
        let (upstream, _) = echo(answer).await;
        let gateway = Site::new().start(upstream, &[]);
        let request = HANDSHAKE.replace("Connection: Upgrade", "Connection: Upgrade, close");
        let got = exchange(gateway.address, request.as_bytes()).await;
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("UPSTREAM_FAILED"), "{answer}: {got}");
    }
}

#[tokio::test]
async fn a_silent_tunnel_ends_after_its_idle_timeout_or_lifetime() {
    for limits in ["tunnel_idle_timeout = \"1s\"", "tunnel_lifetime = \"1s\""] {
        let (upstream, _) = echo(ANSWER).await;
        let gateway = Site::new().start_with(upstream, &format!("[server]\n{limits}\n"), &[]);
        let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
        client.write_all(HANDSHAKE.as_bytes()).await.expect("it is sent");
        assert!(head(&mut client).await.starts_with("HTTP/1.1 101 "));
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "the gateway ends it");
    }
}

#[tokio::test]
async fn without_the_setting_nothing_is_switched() {
    let (upstream, seen) = echo("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let gateway = Site::new().start_with(upstream, "upgrade = []\n", &[]);
    let request = HANDSHAKE.replace("Connection: Upgrade", "Connection: Upgrade, close");
    assert!(exchange(gateway.address, request.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    let seen = String::from_utf8_lossy(&seen.lock().expect("nobody panics")).to_ascii_lowercase();
    assert!(!seen.contains("\nupgrade:"), "{seen}");
}
