//! Bad input: every limit and every malformation has a clear answer and no effect.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{Lab, pay, problem};

/// Sends raw bytes and reads the answer.
async fn raw(lab: &Lab, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(lab.address).await.expect("the server listens");
    client.write_all(bytes).await.expect("it is sent");
    client.shutdown().await.expect("it is closed");
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_the_client_can_read_that() {
    let lab = Lab::policy(|policy| policy.max_request = 1000).await;
    for size in [1001, 100_000, 4 << 20] {
        let reply = lab.send(pay("").body(vec![b'x'; size])).await;
        assert_eq!(reply.problem(), problem(413, "REQUEST_TOO_LARGE"), "{size}");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    assert_eq!((lab.count(), lab.records().await), (0, 0));
    assert_eq!(lab.send(pay("").body(vec![b'x'; 1000])).await.status, 201);
}

#[tokio::test]
async fn a_chunked_body_over_the_limit_is_refused() {
    let lab = Lab::policy(|policy| policy.max_request = 10).await;
    let head = String::from_utf8(pay("").into_bytes()).expect("it is text");
    let head = head.replace("content-length: 0\r\n", "transfer-encoding: chunked\r\nconnection: close\r\n");
    let answer = raw(&lab, format!("{head}8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!((lab.count(), lab.records().await), (0, 0));
}

#[tokio::test]
async fn a_truncated_chunked_body_claims_nothing() {
    let lab = Lab::new().await;
    let head = String::from_utf8(pay("").into_bytes()).expect("it is text");
    let head = head.replace("content-length: 0\r\n", "transfer-encoding: chunked\r\n");
    for tail in ["8\r\n1234", "8\r\n12345678\r\n", "zz\r\n"] {
        let answer = raw(&lab, format!("{head}{tail}").as_bytes()).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    assert_eq!((lab.count(), lab.records().await), (0, 0));
}

#[tokio::test]
async fn a_request_with_control_bytes_in_a_header_field_is_refused() {
    let lab = Lab::new().await;
    let request = String::from_utf8(pay("{}").with("x-note", "MARK").into_bytes()).expect("it is text");
    for bad in ["\u{0}", "\u{1}", "\u{7f}", "a\rb", "a\n\u{0}b"] {
        let answer = raw(&lab, request.replace("MARK", bad).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") || answer.is_empty(), "{bad:?}: {answer}");
    }
    let key = String::from_utf8(pay("{}").set("idempotency-key", "MARK").into_bytes()).expect("it is text");
    let answer = raw(&lab, key.replace("MARK", "0123456789\u{1}0123456789").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") || answer.is_empty(), "{answer}");
    assert_eq!((lab.count(), lab.records().await), (0, 0));
}

#[tokio::test]
async fn a_malformed_json_body_is_executed_and_compared_as_raw_bytes() {
    let lab = Lab::new().await;
    let deep = "[".repeat(100_000);
    let bodies: [Bytes; 6] = [
        Bytes::from_static(b"{\"amount\":"),
        Bytes::from_static(b"\xff\xfe\x00"),
        Bytes::from_static(br#"{"a":1,"a":2}"#),
        Bytes::from_static(br#""\ud800""#),
        Bytes::from_static(b""),
        deep.into(),
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let key = format!("not-really-json-{number}");
        let request = || pay("").body(body.clone()).set("idempotency-key", &key);
        let first = lab.send(request()).await;
        assert_eq!(first.status, 201);
        assert_eq!(
            first.body.len(),
            body.len() + first.body.iter().position(|b| *b == b':').unwrap_or(0) + 1
        );
        assert!(lab.send(request()).await.replayed());
        let spaced = [&body[..], b" "].concat();
        assert_eq!(lab.send(request().body(spaced)).await.problem().0, 422, "raw bytes are compared as such");
    }
}

#[tokio::test]
async fn unknown_content_types_pass_as_raw_bytes() {
    let lab = Lab::new().await;
    for (number, kind) in
        ["application/x-unheard-of", "nonsense", "text/plain; charset=ebcdic"].into_iter().enumerate()
    {
        let key = format!("content-type-number-{number}");
        let request = || pay("{ }").set("content-type", kind).set("idempotency-key", &key);
        assert_eq!(lab.send(request()).await.status, 201, "{kind}");
        assert!(lab.send(request()).await.replayed());
        assert_eq!(lab.send(request().body("{}")).await.problem().0, 422, "{kind}");
    }
    let none = pay("x").without("content-type").set("idempotency-key", "no-content-type-at-all");
    assert_eq!(lab.send(none).await.status, 201);
}

#[tokio::test]
async fn paths_of_any_shape_are_protected() {
    let lab = Lab::new().await;
    let long = format!("/{}", "a".repeat(5000));
    for target in ["/", "/a/", "/%25", "/a:b%3A", "/%C3%BC", &long, "/x?a=1&a=2", "/payments/42"] {
        let request = || pay("{}").target(target);
        assert_eq!(lab.send(request()).await.status, 201, "{target}");
        assert!(lab.send(request()).await.replayed(), "{target}");
    }
    assert_eq!(lab.records().await, 8);
    assert_eq!(
        lab.send(pay("{}").target("/?")).await.problem().0,
        422,
        "the operation of `/`, asked otherwise"
    );
}

#[tokio::test]
async fn a_body_that_never_arrives_is_given_up() {
    let lab = Lab::with(|builder| builder.body_timeout(std::time::Duration::from_millis(100))).await;
    let mut client = TcpStream::connect(lab.address).await.expect("the server listens");
    let request = pay("{}").into_bytes();
    client.write_all(&request[..request.len() - 1]).await.expect("it is sent");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("it is answered and closed");
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!((lab.count(), lab.records().await), (0, 0));
}

#[tokio::test]
async fn a_body_in_very_many_pieces_is_one_body() {
    let lab = Lab::new().await;
    let head = String::from_utf8(pay("").into_bytes()).expect("it is text");
    let head = head.replace("content-length: 0\r\n", "transfer-encoding: chunked\r\nconnection: close\r\n");
    let pieces = "1\r\nx\r\n".repeat(5000);
    let mut client = TcpStream::connect(lab.address).await.expect("the server listens");
    client.write_all(format!("{head}{pieces}0\r\n\r\n").as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("it is answered and closed");
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains(&"x".repeat(5000)), "{answer}");
    assert!(lab.send(pay("").body("x".repeat(5000))).await.replayed());
}

#[tokio::test]
async fn more_bodies_than_there_is_room_for_are_refused() {
    let lab = Lab::with(|builder| builder.body_bytes(100 << 10)).await;
    let large = |number: usize| {
        pay("").body(vec![b'x'; 60 << 10]).set("idempotency-key", format!("there-is-room-{number:04}"))
    };
    let first = tokio::spawn(large(1).doing("gate").to(lab.address));
    lab.begun().await;
    let refused = lab.send(large(2)).await;
    assert_eq!(refused.problem(), problem(503, "OVERLOADED"));
    assert!(refused.header("retry-after").is_some());
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
    assert_eq!(lab.send(large(2)).await.status, 201, "there is room again");
}

#[tokio::test]
async fn a_command_with_a_key_switches_to_no_other_protocol() {
    let lab = Lab::new().await;
    let asking = |connection: &str, upgrade: &str| {
        lab.send(pay("{}").with("connection", connection).with("upgrade", upgrade))
    };
    for upgrade in ["websocket", "h2c, websocket"] {
        let refused = asking("keep-alive, Upgrade", upgrade).await;
        assert_eq!(refused.problem(), problem(400, "MALFORMED_REQUEST"), "{upgrade}");
    }
    assert_eq!((lab.count(), lab.records().await), (0, 0));
    for (connection, upgrade) in [("upgrade", "H2C"), ("close", "websocket")] {
        assert_eq!(asking(connection, upgrade).await.status, 201, "{connection}, {upgrade}");
    }
    assert_eq!(lab.count(), 1, "the second is a replay");
}

#[tokio::test]
async fn a_grpc_call_passes_only_where_its_route_says_so_and_without_a_key() {
    let lab = Lab::with(|builder| builder.pass_grpc("POST /shop.Catalogue/{call}")).await;
    let call = |target: &str| pay("").target(target).set("content-type", "application/grpc");
    let passed = lab.send(call("/shop.Catalogue/List").without("idempotency-key")).await;
    assert_eq!((passed.status.as_u16(), lab.records().await), (201, 0));
    let other = lab.send(call("/shop.Orders/Create").without("idempotency-key")).await;
    assert_ne!(other.status, 201, "no route says so");
    let plain = call("/shop.Catalogue/List").set("content-type", "application/json");
    let plain = lab.send(plain.without("idempotency-key")).await;
    assert_eq!(plain.problem(), problem(400, "MISSING_IDEMPOTENCY_KEY"));
    assert_eq!((lab.count(), lab.records().await), (1, 0));
    lab.send(call("/shop.Catalogue/List")).await;
    assert_eq!(lab.records().await, 1, "a call with a key is a command");
}
