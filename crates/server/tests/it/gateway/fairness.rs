//! One client uses up each bound, and another does not notice. The first connects from 127.0.0.2, the other
//! from 127.0.0.1, unless a test says otherwise. docs/src/how-to/tune.md lists the bounds.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::lab::{Send, Site, Upstream, lab, pay};

const CALLERS: &str = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
                       tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n";

fn of(tenant: &str, key: usize) -> Send {
    let request = pay("{}").set("idempotency-key", format!("fairness-{tenant}-{key:08}"));
    request.with("x-tenant", tenant).with("x-caller", "shop")
}

fn page() -> Send {
    pay("").method("GET").without("idempotency-key")
}

/// Opens a connection from 127.0.0.2.
async fn from_elsewhere(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.2:0".parse().expect("it is an address"))?;
    socket.connect(address).await
}

type Http2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(stream: TcpStream) -> Http2 {
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

fn over_http2(request: Send) -> http::Request<Full<Bytes>> {
    let mut request = request.into_request();
    *request.uri_mut() = format!("http://lab{}", request.uri()).parse().expect("it is a URI");
    request.headers_mut().remove("host");
    request
}

/// Raises the limit on open files of this process.
fn many_files() {
    rlimit::increase_nofile_limit(u64::MAX).expect("the limit can be raised to what is allowed");
}

#[tokio::test]
async fn announced_but_unsent_bodies_do_not_block_other_callers() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, CALLERS, &["--max-request", "64MiB"]);
    let mut silent = Vec::new();
    for number in 0..40 {
        let mut client = from_elsewhere(gateway.address).await.expect("it listens");
        let head = format!(
            "POST /payments HTTP/1.1\r\nHost: lab\r\nX-Tenant: acme\r\nX-Caller: shop\r\n\
             Idempotency-Key: announced-{number:08}\r\nContent-Length: 60000000\r\n{}\r\nx",
            if number % 2 == 0 { "Expect: 100-continue\r\n" } else { "" }
        );
        client.write_all(head.as_bytes()).await.expect("it is sent");
        if number % 2 == 0 {
            // The gateway reads it.
            let mut interim = [0; 25];
            client.read_exact(&mut interim).await.expect("it is told to go on");
        }
        silent.push(client);
    }
    for tenant in ["globex", "acme"] {
        assert_eq!(gateway.send(of(tenant, 1)).await.status, 201, "{tenant}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_for_the_upstream_leave_places_to_others() {
    many_files();
    let (_site, upstream, gateway) = lab(&["--timeout", "60s"]).await;
    let mut waiting = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..24 {
        let sender = http2(from_elsewhere(gateway.address).await.expect("it listens")).await;
        for _ in 0..64 {
            let mut sender = sender.clone();
            waiting.push(tokio::spawn(async move {
                sender.ready().await.expect("it is open");
                let answer = sender.send_request(over_http2(page().doing("gate"))).await;
                answer.map(|answer| answer.status().as_u16())
            }));
        }
        connections.push(sender);
    }
    // Each request is at the upstream, or was refused.
    let mut refused = 0;
    while upstream.seen() + refused < 24 * 64 {
        refused = waiting.iter().filter(|waiting| waiting.is_finished()).count();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(refused > 0, "they got all places");
    let index = waiting.iter().position(tokio::task::JoinHandle::is_finished).expect("there is one");
    let status = waiting.swap_remove(index).await.expect("it does not panic").expect("it is answered");
    assert_eq!(status, 503, "whoever has too much is told so");
    assert_eq!(gateway.send(page()).await.status, 201, "another address");
    assert_eq!(gateway.send(pay("{}")).await.status, 201, "commands have places of their own");
    let mut neighbour = from_elsewhere(gateway.address).await.expect("it listens");
    neighbour.write_all(&page().into_bytes()).await.expect("it is sent");
    let mut answer = [0; 12];
    neighbour.read_exact(&mut answer).await.expect("it is answered");
    assert_eq!(&answer, b"HTTP/1.1 201", "another connection from the same address");
}

#[tokio::test]
async fn connections_of_one_address_leave_places_to_others() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, "[server]\nmax_connections = 200\n", &[]);
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(from_elsewhere(gateway.address).await.expect("the system takes it"));
    }
    while gateway.counted("connections_refused_total ").await.is_none_or(|refused| refused == 0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for number in 0..5 {
        let request = pay("{}").set("idempotency-key", format!("another-address-{number:04}"));
        assert_eq!(gateway.send(request).await.status, 201);
    }
}

#[tokio::test]
async fn idle_connections_do_not_keep_a_probe_from_the_admin_listener() {
    let (_site, _upstream, gateway) = lab(&[]).await;
    for sent in ["", "GET /healthz HT"] {
        let mut idle = Vec::new();
        for _ in 0..600 {
            let mut client = TcpStream::connect(gateway.admin).await.expect("the system takes it");
            client.write_all(sent.as_bytes()).await.expect("it is sent");
            idle.push(client);
        }
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(gateway.admin(path).await.status, 200, "{path} after {sent:?}");
        }
    }
}

#[tokio::test]
async fn unread_replays_are_bounded_and_do_not_block_other_clients() {
    let large = "x".repeat(900 << 10);
    let (_site, _upstream, gateway) = lab(&["--max-request", "2MiB", "--max-stored-response", "2MiB"]).await;
    assert_eq!(gateway.send(pay(&large)).await.status, 201);
    let before = gateway.memory();
    // Each stream gets a window of 64 KiB by default, and then the client stops reading.
    let mut unread = Vec::new();
    for _ in 0..12 {
        let sender = http2(from_elsewhere(gateway.address).await.expect("it listens")).await;
        let answers = (0..60).map(|_| {
            let (mut sender, request) = (sender.clone(), over_http2(pay(&large)));
            tokio::spawn(async move { sender.send_request(request).await })
        });
        let answers: Vec<_> = answers.collect();
        for answer in answers {
            unread.push(answer.await.expect("it does not panic").expect("there is a head"));
        }
    }
    let refused = unread.iter().filter(|answer| answer.status() == 503).count();
    let during = gateway.memory();
    println!("720 replays of 900 KiB unread: {refused} refused, {before} MiB before, {during} MiB during");
    assert!(refused > 0, "630 MiB were let through");
    let whole = gateway.send(pay(&large)).await;
    assert!(whole.replayed() && whole.body.len() > large.len(), "another client gets all of it");
}

#[tokio::test]
async fn limits_of_a_tenant_are_its_own() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = |limit: &str| format!("{CALLERS}[limits]\n{limit}\n");
    for limit in [
        "tenant_new_keys = \"3/1h\"",
        "tenant_lookups = \"3/1h\"",
        "tenant_active_keys = 3",
        "tenant_stored_bytes = \"1KiB\"",
        "caller_new_keys = \"3/1h\"",
        "caller_lookups = \"3/1h\"",
        "caller_active_keys = 3",
        "caller_stored_bytes = \"1KiB\"",
    ] {
        let site_of_its_own = Site::new();
        let gateway = site_of_its_own.start_with(upstream.address, &file(limit), &[]);
        let mut last = None;
        for number in 0..12 {
            last = Some(gateway.send(of("acme", number)).await.status.as_u16());
            if last == Some(429) {
                break;
            }
        }
        assert_eq!(last, Some(429), "{limit} is used up");
        assert_eq!(gateway.send(of("globex", 0)).await.status, 201, "{limit}");
    }
    drop(site);
}

#[tokio::test]
async fn a_client_that_half_closes_its_connection_gets_its_response() {
    let (_site, upstream, gateway) = lab(&[]).await;
    for request in [page().doing("gate"), pay("{}").doing("gate")] {
        let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
        client.write_all(&request.into_bytes()).await.expect("it is sent");
        client.shutdown().await.expect("it can");
        upstream.begun().await;
        upstream.open_gate();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("it is answered, and closed");
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer:?}");
    }
}

#[tokio::test]
async fn a_request_cut_off_by_its_client_is_refused_and_does_not_reach_the_upstream() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
    let request = pay("{\"amount\": 5}").into_bytes();
    client.write_all(&request[..request.len() - 3]).await.expect("it is sent");
    client.shutdown().await.expect("it can");
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer).await;
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert_eq!(upstream.seen(), 0);
    let whole = gateway.send(pay("{\"amount\": 5}")).await;
    assert_eq!((whole.status.as_u16(), whole.replayed()), (201, false));
}

#[tokio::test]
async fn commands_of_one_caller_leave_places_to_others() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, CALLERS, &["--timeout", "60s"]);
    let waiting: Vec<_> =
        (0..300).map(|number| tokio::spawn(of("acme", number).doing("gate").to(gateway.address))).collect();
    while upstream.seen() < 300 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(gateway.send(of("globex", 0)).await.status, 201);
    upstream.gate.add_permits(300);
    for waiting in waiting {
        assert_eq!(waiting.await.expect("it does not panic").status, 201);
    }
}
