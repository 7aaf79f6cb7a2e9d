//! Behaviour of the gateway as a proxy.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lab::{Send as Request, Site, Upstream, lab, pay, problem};

#[tokio::test]
async fn the_upstream_gets_the_operation_id_the_tenant_and_the_caller() {
    let (_site, _upstream, gateway) = lab(&[]).await;
    let forged = pay("{}")
        .with("semel-tenant", "forged")
        .with("semel-anything", "forged")
        .with("connection", "private-hop")
        .with("private-hop", "1")
        .with("forwarded", "for=198.51.100.7");
    let reply = gateway.send(forged).await;
    let id = reply.operation_id().expect("it is named").to_owned();
    assert_eq!(reply.header("seen-semel-operation-id"), Some(id.as_str()));
    assert_eq!(reply.header("seen-semel-attempt"), Some("1"));
    assert_eq!(reply.header("seen-semel-tenant"), Some("local"));
    assert_eq!(reply.header("seen-semel-caller"), Some("local"));
    assert_eq!(reply.header("seen-idempotency-key"), Some(super::lab::KEY), "unchanged");
    for gone in ["seen-semel-anything", "seen-private-hop", "seen-connection"] {
        assert_eq!(reply.header(gone), None, "{gone}");
    }
    assert_eq!(reply.header("seen-via"), Some("1.1 semel"));
    assert_eq!(reply.header("via"), Some("1.1 semel"));
    let forwarded: Vec<_> = reply.headers.get_all("seen-forwarded").iter().collect();
    assert_eq!(forwarded, ["for=127.0.0.1;host=\"lab\";proto=http"]);
}

#[tokio::test]
async fn the_upstream_is_always_told_which_host_is_asked() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let heard = seen.clone();
    let upstream = by_hand(move |_, request| {
        *heard.lock().expect("nobody panics") = String::from_utf8_lossy(&request).into_owned();
        Some(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
    })
    .await;
    let gateway = Site::new().start(upstream, &[]);
    // HTTP/1.0 may omit it; the forwarded request is HTTP/1.1, which may not.
    let (own, forged) = (upstream.to_string(), "X-Forwarded-Host: forged\r\n");
    for (field, forwarded) in [("", None), ("Host: lab\r\n", Some("lab")), (forged, None)] {
        let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
        let request = format!("GET / HTTP/1.0\r\n{field}\r\n");
        client.write_all(request.as_bytes()).await.expect("it is sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("it is answered");
        let seen = seen.lock().expect("nobody panics").to_ascii_lowercase();
        assert!(seen.starts_with("get / http/1.1\r\n"), "{seen}");
        assert_eq!(seen.matches("\r\nhost: ").count(), 1, "{seen}");
        assert!(seen.contains(&format!("\r\nhost: {own}\r\n")), "{seen}");
        assert_eq!(
            seen.matches("\r\nx-forwarded-host: ").count(),
            usize::from(forwarded.is_some()),
            "{seen}"
        );
        assert!(
            forwarded.is_none_or(|host| seen.contains(&format!("\r\nx-forwarded-host: {host}\r\n"))),
            "{seen}"
        );
    }
}

#[tokio::test]
async fn a_host_that_is_not_listed_is_refused_and_a_listed_one_is_passed_on() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, "hosts = [\"lab\", \"api.example:8443\"]\n", &[]);
    let first = gateway.send(pay("{}").with("x-forwarded-host", "forged")).await;
    assert_eq!((first.status.as_u16(), first.header("seen-host")), (201, Some("lab")));
    assert_eq!(first.header("seen-x-forwarded-host"), Some("lab"));
    let other_name = gateway.send(pay("{}").with("host", "API.example:8443")).await;
    assert!(other_name.replayed(), "both are names of one service, and this is one command: {other_name:?}");
    for host in ["evil.example", "api.example", "api.example:443", "lab.evil.example"] {
        for method in ["POST", "GET"] {
            let refused = gateway.send(pay("{}").method(method).with("host", host)).await;
            assert_eq!(refused.problem(), problem(421, "MISDIRECTED_REQUEST"), "{method} {host}");
        }
    }
    assert_eq!(pay("{}").over_http2(gateway.address).await.status, 201, "`lab` is its authority");
    assert_eq!(upstream.seen(), 1, "nothing else was sent");

    let site = Site::new();
    let gateway = site.start_with(upstream.address, "hosts = [\"api.example\"]\n", &[]);
    let refused = pay("{}").over_http2(gateway.address).await;
    assert_eq!(refused.problem(), problem(421, "MISDIRECTED_REQUEST"), "in HTTP/2 as well");
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn the_upstream_gets_the_client_address_not_forged_forwarding_fields() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let forged = |request: Request| {
        let request = request.with("x-forwarded-for", "198.51.100.7").with("x-forwarded-proto", "https");
        request.with("x-real-ip", "198.51.100.7").with("forwarded", "for=198.51.100.7;proto=https")
    };
    let gateway = site.start(upstream.address, &[]);
    for request in [pay("{}"), pay("").method("GET")] {
        let reply = gateway.send(forged(request)).await;
        assert_eq!(reply.header("seen-x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(reply.header("seen-x-forwarded-proto"), Some("http"));
        assert_eq!(reply.header("seen-forwarded"), Some("for=127.0.0.1;host=\"lab\";proto=http"));
        assert_eq!(reply.header("seen-x-real-ip"), None);
    }
    let trusted = Site::new();
    let gateway = trusted.start_with(upstream.address, "forwarded_from = [\"127.0.0.0/8\"]\n", &[]);
    let reply = gateway.send(forged(pay("{}"))).await;
    assert_eq!(reply.header("seen-x-forwarded-for"), Some("198.51.100.7, 127.0.0.1"));
    assert_eq!(reply.header("seen-x-forwarded-proto"), Some("https"));
    let chain = "for=198.51.100.7, for=127.0.0.1;host=\"lab\";proto=http";
    assert_eq!(reply.header("seen-forwarded"), Some(chain), "it says what the other fields do");
}

#[tokio::test]
async fn clients_may_speak_http2() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let first = pay("{}").over_http2(gateway.address).await;
    let again = pay("{}").over_http2(gateway.address).await;
    assert_eq!(first.status, 201);
    assert!(again.replayed());
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn the_upstream_may_speak_http2() {
    let (_site, upstream, gateway) = lab(&["--upstream-protocol", "h2c"]).await;
    for number in 0..5 {
        let reply = gateway.send(pay("{}").set("idempotency-key", format!("over-http2-{number:08}"))).await;
        assert_eq!(reply.status, 201);
    }
    assert_eq!(gateway.send(pay("").method("GET")).await.status, 201);
    assert_eq!(upstream.seen(), 6);
}

/// Starts an upstream that answers each connection with the results of `script` for its requests.
pub(super) async fn by_hand(
    script: impl Fn(usize, Vec<u8>) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let script = std::sync::Arc::new(script);
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            connections += 1;
            let (number, script) = (connections, script.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = stream.read(&mut request).await {
                    match script(number, request[..length].to_vec()) {
                        Some(answer) if stream.write_all(&answer).await.is_ok() => {}
                        _ => return,
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn an_upstream_that_breaks_off_leaves_an_unknown() {
    let truncated = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
    let garbage = b"garbage\r\n\r\n".to_vec();
    for answer in [Vec::new(), truncated, garbage] {
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = calls.clone();
        let answer = std::sync::Mutex::new(Some(answer));
        let upstream = by_hand(move |_, _| {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            // The answer is written, and the connection breaks off with the next read.
            answer.lock().expect("nobody panics with it").take().filter(|answer| !answer.is_empty())
        })
        .await;
        let (site, timeout) = (Site::new(), ["--timeout", "1s"]);
        let gateway = site.start(upstream, &timeout);
        let reply = gateway.send(pay("{}")).await;
        assert!([502, 504].contains(&reply.status.as_u16()), "{reply:?}");
        assert_eq!(reply.problem().1, "IDEMPOTENCY_OUTCOME_UNKNOWN");
        assert_eq!(gateway.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        assert_eq!(
            calls.load(std::sync::atomic::Ordering::SeqCst),
            1,
            "the pool never tries again on its own"
        );
    }
}

#[tokio::test]
async fn calls_succeed_although_the_upstream_closes_pooled_connections() {
    // Each connection serves one request, announces keep-alive, and is closed a moment later.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 64 * 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok").await;
            });
        }
    });
    let site = Site::new();
    let gateway = site.start(address, &[]);
    for number in 0..30 {
        let reply = gateway.send(pay("{}").set("idempotency-key", format!("stale-pool-{number:08}"))).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_retry_can_read_the_response_whatever_coding_the_first_caller_accepted() {
    let upstream = by_hand(|_, request| {
        let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let (coding, body) = match request.contains("\r\naccept-encoding: gzip") {
            true => ("content-encoding: gzip\r\n", "??????"),
            false => ("", "plain!"),
        };
        Some(format!("HTTP/1.1 201 Created\r\n{coding}content-length: 6\r\n\r\n{body}").into_bytes())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    for (accepts, replayed) in [("gzip", false), ("identity", true)] {
        let reply = gateway.send(pay("{}").with("accept-encoding", accepts)).await;
        assert_eq!((&reply.body[..], reply.replayed()), (&b"plain!"[..], replayed));
        assert_eq!(reply.header("content-encoding"), None);
    }
    let passed_on = gateway.send(pay("").method("GET").with("accept-encoding", "gzip")).await;
    assert_eq!(
        passed_on.header("content-encoding"),
        Some("gzip"),
        "what is not stored is negotiated as ever"
    );
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let upstream = by_hand(|_, _| {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n";
        let answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";
        Some(format!("{hints}{answer}").into_bytes())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    for replayed in [false, true] {
        let reply = gateway.send(pay("{}")).await;
        assert_eq!((reply.status.as_u16(), reply.replayed()), (201, replayed));
        assert_eq!(reply.header("link"), None, "what an interim answer said is never stored");
    }
}

#[tokio::test]
async fn expect_100_continue_gets_100_before_the_body_is_sent() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
    let request =
        String::from_utf8(pay("{}").with("expect", "100-continue").into_bytes()).expect("it is text");
    let (head, body) = request.split_once("\r\n\r\n").expect("it has a head");
    client.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("it is sent");
    let mut interim = [0; 25];
    client.read_exact(&mut interim).await.expect("it is told");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(body.as_bytes()).await.expect("it is sent");
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.expect("it is answered");
    assert_eq!((&answer, upstream.seen()), (b"HTTP/1.1 201", 1));
}

#[tokio::test]
async fn trailers_pass_through_and_are_replayed() {
    let upstream = by_hand(|_, _| {
        let answer = "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                      2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
        Some(answer.into())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    for replayed in [false, true] {
        let reply = gateway.send(pay("{}").with("te", "trailers")).await;
        assert_eq!((&reply.body[..], reply.replayed()), (&b"ok"[..], replayed));
        let trailers = reply.trailers.expect("there are trailers");
        assert_eq!(trailers.get("x-sum").map(|value| value.as_bytes()), Some(&b"7"[..]));
    }
}

#[tokio::test]
async fn other_requests_stream_both_ways() {
    let (_site, upstream, gateway) = lab(&["--max-request", "1KiB"]).await;
    let large = pay("").method("PUT").body(vec![b'y'; 4 << 20]);
    let reply = gateway.send(large).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (201, (4 << 20) + 2), "no limit of ours applies");
    assert_eq!(upstream.seen(), 1);
    let gone = Upstream::start().await.address;
    let site = Site::new();
    let nobody = site.start(std::net::SocketAddr::new(gone.ip(), 1), &[]);
    assert_eq!(nobody.send(pay("").method("GET")).await.status, 502);
}

/// Returns the head of the first request that a scripted upstream gets, unchanged.
async fn raw_head(send: impl AsyncFnOnce(std::net::SocketAddr)) -> String {
    let heads = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = heads.clone();
    let upstream = by_hand(move |_, request| {
        seen.lock().expect("nobody panics with it").push(String::from_utf8_lossy(&request).into_owned());
        Some(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok".to_vec())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    send(gateway.address).await;
    let heads = heads.lock().expect("nobody panics with it");
    heads.first().cloned().unwrap_or_default()
}

#[tokio::test]
async fn the_upstream_sees_one_form_of_request_whatever_the_client_speaks() {
    let over_http1 = raw_head(async |address| drop(pay("{}").to(address).await)).await;
    let over_http2 = raw_head(async |address| drop(pay("{}").over_http2(address).await)).await;
    for head in [over_http1, over_http2] {
        assert!(head.starts_with("POST /payments HTTP/1.1\r\n"), "{head}");
        assert_eq!(head.matches("\r\nx-forwarded-host: lab\r\n").count(), 1, "{head}");
        assert_eq!(head.matches("\r\nhost: 127.0.0.1:").count(), 1, "{head}");
    }
}

#[tokio::test]
async fn ambiguous_paths_and_connection_fields_are_refused() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let refused = [
        pay("{}").target("/public/../payments"),
        pay("{}").target("/public/%2e%2e/payments"),
        pay("{}").target("/a/./b"),
    ];
    for request in refused {
        let reply = request.over_http2(gateway.address).await;
        assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"));
    }
    let dots = pay("{}").target("/public/..;/payments");
    assert_eq!(gateway.send(dots).await.problem(), problem(400, "MALFORMED_REQUEST"));
    let claimed = pay("{}").with("connection", "idempotency-key");
    assert_eq!(gateway.send(claimed).await.problem(), problem(400, "MALFORMED_REQUEST"));
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn a_response_with_two_lengths_is_one_response() {
    let upstream = by_hand(|_, _| {
        let split = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
                     14\r\nabcHTTP/1.1 200 OK\r\n\r\n0\r\n\r\n";
        Some(split.into())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    for replayed in [false, true] {
        let reply = gateway.send(pay("{}")).await;
        assert_eq!((reply.replayed(), reply.body.len()), (replayed, 20));
        assert_eq!(reply.header("content-length"), Some("20"));
    }
    let passed = gateway.send(pay("").method("GET")).await;
    assert_eq!((passed.body.len(), passed.header("content-length")), (20, None));
}

#[tokio::test]
async fn an_upstream_that_switches_protocols_unasked_leaves_an_unknown() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let upstream = by_hand(move |_, _| Some(switch.into())).await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    assert_eq!(gateway.send(pay("{}")).await.problem(), problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(gateway.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
}

#[tokio::test]
async fn a_slow_upload_does_not_hold_up_others_on_its_connection() {
    // Answers a PUT right after its head, and keeps the connection open.
    let upstream = by_hand(|_, request| {
        let early = request.starts_with(b"PUT") || request.starts_with(b"POST");
        early.then(|| b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok".to_vec())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &["--timeout", "2s"]);
    let mut slow = Vec::new();
    for _ in 0..10 {
        let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
        client
            .write_all(b"PUT /x HTTP/1.1\r\nHost: lab\r\nContent-Length: 100000\r\n\r\nxxx")
            .await
            .expect("sent");
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.expect("it is answered early");
        slow.push(client);
    }
    for number in 0..10 {
        let reply = gateway.send(pay("{}").set("idempotency-key", format!("not-held-up-{number:06}"))).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
}

#[tokio::test]
async fn expect_100_continue_without_a_key_gets_400_before_the_body() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
    let head =
        "POST /payments HTTP/1.1\r\nHost: lab\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n";
    client.write_all(head.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("it is answered, and closed");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("MISSING_IDEMPOTENCY_KEY"), "{answer}");
    assert_eq!(upstream.seen(), 0);
}
