//! Upstream that writes unrequested bytes at every moment: no client gets another's answer, and none of the
//! bytes is stored. Each answer names its connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::authority::{Authority, Shown, shown};
use super::lab::{Gateway, Reply, Send, Site, pay};

const FORGED: &str = "HTTP/1.1 201 Created\r\ncontent-length: 6\r\n\r\nforged";

/// Upstream that does what `x-do` says, and answers with the number of the connection.
pub(super) struct Forger {
    pub(super) address: SocketAddr,
    connections: AtomicUsize,
    /// Releases the late bytes, and signals that they were sent.
    late: Semaphore,
    is_out: Semaphore,
}

impl Forger {
    pub(super) async fn start() -> Arc<Forger> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (late, is_out) = (Semaphore::new(0), Semaphore::new(0));
        let forger = Arc::new(Forger { address, connections: AtomicUsize::new(0), late, is_out });
        let upstream = forger.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = upstream.connections.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(upstream.clone().serve(stream, number));
            }
        });
        forger
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream, number: usize) -> Option<()> {
        let body = format!("on {number}");
        let answer = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut forges_next = false;
        loop {
            let head = read_head(&mut stream).await?;
            let what = field(&head, "x-do").unwrap_or_default().to_owned();
            if what == "early" {
                stream.write_all(answer.as_bytes()).await.ok()?;
            }
            let length = field(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            stream.read_exact(&mut vec![0; length]).await.ok()?;
            if forges_next {
                stream.write_all(FORGED.as_bytes()).await.ok()?;
            }
            forges_next |= what == "forge-next";
            if what == "slow" {
                self.late.acquire().await.ok()?.forget();
                self.is_out.add_permits(1);
            }
            let answer = match what.as_str() {
                "early" => String::new(),
                "with" => format!("{answer}{FORGED}"),
                "interim" => format!("HTTP/1.1 100 Continue\r\n\r\n{answer}"),
                "hints" => format!("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n{answer}"),
                "old" => answer
                    .replace("HTTP/1.1", "HTTP/1.0")
                    .replace("\r\n\r\n", "\r\nconnection: keep-alive\r\n\r\n"),
                "two-lengths" => format!(
                    "HTTP/1.1 201 Created\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\n\r\n\
                     {:x}\r\n{body}\r\n0\r\n\r\n",
                    body.len()
                ),
                "nothing-with-length" => "HTTP/1.1 204 No Content\r\ncontent-length: 6\r\n\r\n".to_owned(),
                _ => answer.clone(),
            };
            stream.write_all(answer.as_bytes()).await.ok()?;
            if what == "late" {
                self.late.acquire().await.ok()?.forget();
                stream.write_all(FORGED.as_bytes()).await.ok()?;
                self.is_out.add_permits(1);
            }
        }
    }

    /// Sends the late bytes, and returns when they have arrived.
    pub(super) async fn forge(&self) {
        self.late.add_permits(1);
        self.is_out.acquire().await.expect("it is never closed").forget();
    }
}

pub(super) async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)))
        .map(|(_, value)| value)
}

pub(super) const CALLERS: &str = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                       tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n";

pub(super) fn command(tenant: &str, caller: &str, key: &str) -> Send {
    let request = pay("{}").set("idempotency-key", format!("late-answers-{key}"));
    request.with("x-tenant", tenant).with("x-caller", caller)
}

fn page() -> Send {
    pay("").method("GET").without("idempotency-key")
}

pub(super) fn said(reply: &Reply) -> String {
    assert_eq!(reply.status, 201, "{reply:?}");
    String::from_utf8_lossy(&reply.body).into_owned()
}

/// Client that keeps its connection.
struct Client(hyper::client::conn::http1::SendRequest<http_body_util::Full<bytes::Bytes>>);

impl Client {
    async fn connect(gateway: &Gateway) -> Client {
        let stream = TcpStream::connect(gateway.address).await.expect("it listens");
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP/1.1");
        tokio::spawn(connection);
        Client(sender)
    }

    async fn send(&mut self, request: Send) -> Reply {
        self.0.ready().await.expect("it is kept");
        Reply::read(self.0.send_request(request.into_request()).await.expect("there is an answer")).await
    }
}

#[tokio::test]
async fn a_connection_carries_the_commands_of_one_caller_or_the_requests_of_one_client() {
    let (site, upstream) = (Site::new(), Forger::start().await);
    let gateway = site.start_with(upstream.address, CALLERS, &[]);
    let (mut first, mut second) = (Client::connect(&gateway).await, Client::connect(&gateway).await);
    let mut seen = Vec::new();
    for round in 0..3 {
        let key = |who: &str| format!("{who}-{round}-00000000");
        for (owner, request) in [
            ("acme/alice", command("acme", "alice", &key("aa"))),
            ("acme/bob", command("acme", "bob", &key("ab"))),
            ("globex/alice", command("globex", "alice", &key("ga"))),
        ] {
            seen.push((owner, said(&gateway.send(request).await)));
        }
        seen.push(("first", said(&first.send(page()).await)));
        seen.push(("second", said(&second.send(page().with("x-tenant", "acme")).await)));
        // A command on a client's connection belongs to its caller, not to the connection.
        seen.push(("acme/alice", said(&first.send(command("acme", "alice", &key("ac"))).await)));
        let stranger = said(&gateway.send(page()).await);
        assert!(seen.iter().all(|(_, connection)| *connection != stranger), "a client's first request");
    }
    for (owner, connection) in &seen {
        for (other, elsewhere) in &seen {
            assert_eq!(owner == other, connection == elsewhere, "{owner} and {other}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn with_upstream_reuse_never_each_request_gets_a_new_connection() {
    let (site, upstream) = (Site::new(), Forger::start().await);
    let gateway = site.start_with(upstream.address, &format!("upstream_reuse = \"never\"\n{CALLERS}"), &[]);
    let mut client = Client::connect(&gateway).await;
    for round in 0..3 {
        gateway.send(command("acme", "alice", &format!("{round}-00000000"))).await;
        client.send(page()).await;
    }
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn bytes_after_a_response_answer_no_request() {
    // With the response, between two requests, and with the answer to the next request on the connection.
    for moment in ["with", "late", "forge-next"] {
        let (site, upstream) = (Site::new(), Forger::start().await);
        let gateway = site.start_with(upstream.address, CALLERS, &[]);
        let mut guest = Client::connect(&gateway).await;
        assert_eq!(said(&guest.send(page().doing(moment)).await), "on 1");
        let forging = command("acme", "mallory", "forging-00000000").doing(moment);
        assert_eq!(said(&gateway.send(forging).await), "on 2");
        if moment == "late" {
            upstream.forge().await;
            upstream.forge().await;
        }
        let victims = [
            gateway.send(command("acme", "alice", "victim-00000000")).await,
            gateway.send(command("acme", "alice", "victim-00000000")).await,
            gateway.send(command("globex", "mallory", "victim-00000000")).await,
            gateway.send(page()).await,
        ];
        let said: Vec<_> = victims.iter().map(said).collect();
        assert_eq!(said, ["on 3", "on 3", "on 4", "on 5"], "{moment}");
        assert!(victims[1].replayed());
        if moment != "forge-next" {
            // The caller for whom it was forged does not get it either: it came before the request.
            let next = gateway.send(command("acme", "mallory", "next-00000000")).await;
            assert_eq!(self::said(&next), "on 6", "{moment}");
            assert_eq!(self::said(&guest.send(page()).await), "on 7", "{moment}");
        }
    }
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_anything_doubtful() {
    for what in ["interim", "hints", "old", "two-lengths", "nothing-with-length"] {
        let (site, upstream) = (Site::new(), Forger::start().await);
        let gateway = site.start_with(upstream.address, CALLERS, &[]);
        let reply = gateway.send(command("acme", "alice", "first-00000000").doing(what)).await;
        assert!(reply.status.is_success(), "{what}: {reply:?}");
        let next = gateway.send(command("acme", "alice", "second-00000000")).await;
        assert_eq!(said(&next), "on 2", "{what}");
        let third = gateway.send(command("acme", "alice", "third-00000000")).await;
        assert_eq!(said(&third), "on 2", "and what is in order is used again");
    }
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_an_answer_to_a_part_of_a_request() {
    let (site, upstream) = (Site::new(), Forger::start().await);
    let gateway = site.start_with(upstream.address, CALLERS, &[]);
    let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
    let head = "PUT /a HTTP/1.1\r\nhost: lab\r\nx-do: early\r\ncontent-length: 4\r\n\r\nab";
    client.write_all(head.as_bytes()).await.expect("it is sent");
    let mut read = async |text: &[u8]| {
        let head = read_head(&mut client).await.expect("it is answered");
        let mut body = vec![0; 4];
        client.read_exact(&mut body).await.expect("it is answered");
        client.write_all(text).await.expect("it is kept");
        assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
        String::from_utf8(body).expect("it is text")
    };
    // Rest of the body, and the next request on the client's connection.
    let next = b"cdGET /b HTTP/1.1\r\nhost: lab\r\n\r\n";
    assert_eq!(read(next).await, "on 1");
    assert_eq!(read(b"").await, "on 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_speak_tls_have_one_owner_and_are_used_again() {
    let authority = Authority::new();
    authority.issue("upstream", "/CN=upstream", &Shown::server("DNS:localhost"));
    let (site, upstream) = (Site::new(), Forger::start().await);
    let port = authority.encrypt("upstream", upstream.address).await;
    let file = format!("{CALLERS}[upstream_tls]\nca = {}\n", shown(&authority.certificate()));
    let gateway = site.start_at(&format!("https://localhost:{port}"), &file, &[], &[]);
    for round in 0..5 {
        let reply = gateway.send(command("acme", "alice", &format!("a-{round}-00000000"))).await;
        assert_eq!(said(&reply), "on 1");
        let reply = gateway.send(command("acme", "bob", &format!("b-{round}-00000000"))).await;
        assert_eq!(said(&reply), "on 2");
    }
}
