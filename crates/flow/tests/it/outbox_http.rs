//! The HTTP sink against real sockets, hostile ones included.

use std::sync::Arc;
use std::time::Duration;

use semel_core::outbox::{Message, MessageFilter, MessageState, Tried};
use semel_core::{OperationId, Timestamp};
use semel_flow::outbox::http::signature;
use semel_flow::outbox::{HttpSink, HttpSinkError, OutboxWorker, OutboxWorkerOptions, Sink};
use semel_flow::{CertificateFiles, TlsSettings, Trust};
use semel_testkit::authority::{Authority, Shown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::lab::{Lab, Sqlite, command, pays};

const KEY: &[u8] = b"a key of the receiver";
const BODY: &[u8] = br#"{"amount":5}"#;

fn message() -> Message {
    let command = OperationId::from_bytes([7; 16]);
    let now = Timestamp::from_millis(1);
    Message {
        event_id: format!("{command}:payment.created"),
        operation_id: command,
        position: 0,
        kind: "payment.created".to_owned(),
        payload: BODY.into(),
        payload_bytes: BODY.len() as u64,
        state: MessageState::Pending,
        created_at: now,
        due_at: now,
        attempts: 1,
        epoch: 1,
        token: None,
        provider_reference: None,
        last_error: None,
        done_at: None,
    }
}

/// Behaviour of a receiver once it has the request.
enum Then {
    /// Sends the answer, and closes.
    Close,
    /// Sends the answer, and then nothing.
    Hang,
    /// Sends the answer, and then bytes without end.
    Flood,
}

/// Starts a receiver of one request. Returns its address, and the request as it arrived.
async fn receiver(answer: &'static str, then: Then) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = format!("http://{}/events?from=semel", listener.local_addr().expect("it has one"));
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        let mut request = Vec::new();
        while !request.ends_with(BODY) && !request.ends_with(b"{}") {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).await.expect("it can be read");
            assert!(read > 0, "the request is whole");
            request.extend_from_slice(&piece[..read]);
        }
        let _ = stream.write_all(answer.as_bytes()).await;
        match then {
            Then::Close => {}
            Then::Hang => {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
            Then::Flood => while stream.write_all(&[b'x'; 4096]).await.is_ok() {},
        }
        String::from_utf8(request).expect("it is text")
    });
    (address, serving)
}

/// Returns the sink's result for an answer.
async fn tried(answer: &'static str, then: Then) -> Tried {
    let (address, serving) = receiver(answer, then).await;
    let sink = HttpSink::new(&address, KEY).expect("it is an address");
    let tried = sink.timeouts(Duration::from_secs(5), Duration::from_secs(5)).deliver(&message()).await;
    serving.await.expect("it was served");
    tried
}

fn accepted(reference: Option<&str>) -> Tried {
    Tried::Accepted { reference: reference.map(str::to_owned) }
}

#[tokio::test]
async fn a_message_is_sent_with_its_id_and_signed() {
    let answer = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
    let (address, serving) = receiver(answer, Then::Close).await;
    let sink = HttpSink::new(&address, KEY).expect("it is an address");
    assert_eq!(sink.deliver(&message()).await, accepted(None));
    let request = serving.await.expect("it was served");
    let id = message().event_id;
    let header = |name: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name} is in {request}")).to_owned()
    };
    assert!(request.starts_with("POST /events?from=semel HTTP/1.1\r\n"), "{request}");
    assert_eq!(header("semel-event-id"), id);
    assert_eq!(header("idempotency-key"), format!("\"{id}\""));
    assert_eq!(header("semel-event-kind"), "payment.created");
    assert_eq!(header("content-type"), "application/json");
    assert!(address.contains(&header("host")));
    let signed = header("semel-signature");
    let seconds = signed.split(['=', ',']).nth(1).and_then(|seconds| seconds.parse().ok());
    assert_eq!(signed, signature(KEY, seconds.expect("it has a time"), &id, BODY));
    assert_ne!(signed, signature(b"another key, as long", seconds.expect("it has a time"), &id, BODY));
}

#[test]
fn the_signature_can_be_computed_by_others() {
    // printf '1700000000.id:kind.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
    let expected = "t=1700000000,v1=4f499d91063c689c90420b6be38b8a9ab5ec1ba17a870faef99f46f2fddd82a2";
    let signed = signature(b"0123456789abcdef", 1_700_000_000, "id:kind", b"{}");
    assert_eq!(signed, expected);
}

#[tokio::test]
async fn a_success_is_kept_with_the_reference_of_the_receiver() {
    for (answer, reference) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", None),
        ("HTTP/1.1 201 Created\r\nlocation: /events/9\r\ncontent-length: 0\r\n\r\n", Some("/events/9")),
        (
            "HTTP/1.1 200 OK\r\nlocation: /x\r\nsemel-reference: ref-9\r\ncontent-length: 0\r\n\r\n",
            Some("ref-9"),
        ),
        // It has accepted, however the response continues.
        ("HTTP/1.1 200 OK\r\nsemel-reference: ref-9\r\ncontent-length: 100\r\n\r\nonly", Some("ref-9")),
    ] {
        assert_eq!(tried(answer, Then::Close).await, accepted(reference), "{answer:?}");
    }
    let flood = "HTTP/1.1 200 OK\r\nsemel-reference: ref-9\r\n\r\n";
    assert_eq!(tried(flood, Then::Flood).await, accepted(Some("ref-9")));
}

#[tokio::test]
async fn temporary_failures_are_retried() {
    for (answer, wait) in [
        ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 600 Beyond\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 999 Beyond\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n", Some(30)),
        ("HTTP/1.1 503 Busy\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n", Some(30)),
        ("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", Some(7)),
        (
            "HTTP/1.1 429 Slow\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 0\r\n\r\n",
            Some(0),
        ),
        ("HTTP/1.1 429 Slow\r\nretry-after: soon\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 408 Late\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 425 Early\r\ncontent-length: 0\r\n\r\n", None),
        ("", None),
        ("HTTP/1.1 200", None),
        ("this is not HTTP\r\n\r\n", None),
    ] {
        let tried = tried(answer, Then::Close).await;
        let Tried::Failed { retry_after, .. } = tried else { panic!("{answer:?}: {tried:?}") };
        assert_eq!(retry_after, wait.map(Duration::from_secs), "{answer:?}");
    }
}

#[tokio::test]
async fn permanent_errors_are_refused_and_redirects_are_not_followed() {
    for answer in [
        "HTTP/1.1 400 No\r\ncontent-length: 3\r\n\r\nbad",
        "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    ] {
        let tried = tried(answer, Then::Close).await;
        assert!(matches!(&tried, Tried::Refused { .. }), "{answer:?}: {tried:?}");
    }
}

#[tokio::test]
async fn an_endless_response_of_a_receiver_is_not_read_to_its_end() {
    let failed = |tried: Tried| matches!(tried, Tried::Failed { .. });
    assert!(failed(tried("HTTP/1.1 500 Oops\r\n\r\n", Then::Flood).await), "a body");
    assert!(failed(tried("HTTP/1.1 500 Oops\r\nx: ", Then::Flood).await), "a head");
    let Tried::Refused { why } = tried("HTTP/1.1 400 No\r\n\r\n", Then::Flood).await else {
        panic!("it was refused")
    };
    assert!(why.len() < 300, "{why}");
}

#[tokio::test]
async fn a_hanging_receiver_times_out() {
    for answer in ["", "HTTP/1.1 500 Oops\r\n", "HTTP/1.1 500 Oops\r\ncontent-length: 9\r\n\r\nslow"] {
        let (address, serving) = receiver(answer, Then::Hang).await;
        let sink = HttpSink::new(&address, KEY).expect("it is an address");
        let sink = sink.timeouts(Duration::from_secs(5), Duration::from_millis(100));
        let tried = sink.deliver(&message()).await;
        assert!(matches!(&tried, Tried::Failed { .. }), "{answer:?}: {tried:?}");
        serving.await.expect("its connection was closed");
    }
}

#[tokio::test]
async fn a_refused_connection_is_retried() {
    let sink = HttpSink::new("http://127.0.0.1:1/", KEY).expect("it is an address");
    let tried = sink.deliver(&message()).await;
    assert!(matches!(&tried, Tried::Failed { why, .. } if why.contains("127.0.0.1:1")), "{tried:?}");
}

#[test]
fn an_address_that_cannot_be_used_is_refused_with_its_reason() {
    let new = |address| HttpSink::new(address, KEY).err();
    assert!(new("https://receiver.internal/").is_none());
    for address in ["", "/events", "receiver.internal", "ftp://receiver.internal/", "http://user:pass@host/"]
    {
        assert!(matches!(new(address), Some(HttpSinkError::Address(..))), "{address}");
    }
    let short = HttpSink::new("http://receiver.internal/", b"short").err().map(|error| error.to_string());
    assert!(short.is_some_and(|short| short.contains("at least 16 bytes")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_delivers_over_http_and_keeps_the_reference() {
    let lab = Sqlite::new();
    assert!(lab.see(&command("key"), pays()).await.executed());
    let answer = "HTTP/1.1 200 OK\r\nsemel-reference: ref-9\r\ncontent-length: 0\r\n\r\n";
    let (address, serving) = receiver(answer, Then::Close).await;
    let sink = HttpSink::new(&address, KEY).expect("it is an address");
    let outbox = lab.kept().await.outbox();
    let worker = OutboxWorker::new(outbox.clone(), Arc::new(sink), OutboxWorkerOptions::default());
    let stop = worker.stopper();
    let running = tokio::spawn(worker.run());
    let request = serving.await.expect("it was served");
    stop.stop();
    assert_eq!(running.await.expect("it ends").left, 0);
    let all = outbox.messages(&MessageFilter::default()).await.expect("it can be read");
    assert_eq!(all[0].state, MessageState::Delivered);
    assert_eq!(all[0].provider_reference.as_deref(), Some("ref-9"));
    assert!(request.contains(&all[0].event_id), "{request}");
}

#[tokio::test]
async fn a_receiver_gets_messages_over_tls_once_it_proves_its_name() {
    let (authority, clients) = (Authority::new(), Authority::new());
    authority.issue("receiver", "/CN=receiver", &Shown::server("DNS:localhost"));
    clients.issue("semel", "/CN=semel", &Shown::client());
    let (address, serving) =
        receiver("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", Then::Close).await;
    let behind = address["http://".len()..].split('/').next().and_then(|host| host.parse().ok());
    let port = authority.encrypt_for("receiver", behind.expect("it is one"), Some(&clients)).await;
    let sink = || HttpSink::new(&format!("https://localhost:{port}/events"), KEY).expect("it is an address");
    let untrusted = sink().deliver(&message()).await;
    assert!(
        matches!(&untrusted, Tried::Failed { why, .. } if why.contains("invalid peer certificate")),
        "{untrusted:?}"
    );
    let own = CertificateFiles { certificate: clients.path("semel.crt"), key: clients.path("semel.key") };
    let tls = TlsSettings { trust: Trust::Authorities(authority.certificate()), own: Some(own) };
    let sink = sink().tls(tls).expect("the files can be used");
    assert_eq!(sink.deliver(&message()).await, accepted(None));
    assert!(serving.await.expect("it was served").starts_with("POST /events HTTP/1.1\r\n"));
}
