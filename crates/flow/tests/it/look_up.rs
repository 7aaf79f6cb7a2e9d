//! The HTTP look-up against real sockets, hostile ones included.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use semel_core::transition::Proof;
use semel_core::{Decision, JsonPointer, LookUpAnswer, Record, Store};
use semel_flow::reconcile::http::{LookUpReading, NotFound};
use semel_flow::reconcile::{Finding, HttpLookUp, LookUp};
use semel_flow::{CertificateFiles, TlsSettings, Trust};
use semel_stores::MemoryStore;
use semel_testkit::authority::{Authority, Shown};
use semel_testkit::sample;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn record() -> Record {
    let store = MemoryStore::new();
    let answer = store.claim(&sample::claim("k")).await.expect("it has room");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("it was just made")
}

fn reading() -> LookUpReading {
    let pointer = |text| Some(JsonPointer::parse(text).expect("it is one"));
    LookUpReading {
        result: pointer("/0"),
        status: pointer("/status"),
        executed: vec!["captured".into()],
        not_found: NotFound::NotExecuted,
        response_status: StatusCode::CREATED,
        ..LookUpReading::default()
    }
}

/// Behaviour of a provider after its answer.
enum Then {
    Close,
    Hang,
    Flood,
}

/// Returns the finding for an answer, and the request that the provider got.
async fn asked(answer: &'static str, then: Then) -> (Finding, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = format!(
        "http://{}/charges?reference={{operation_id}}&tenant={{tenant}}&caller={{caller}}",
        listener.local_addr().expect("it has one")
    );
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).await.expect("it can be read");
            assert!(read > 0, "the request is whole");
            request.extend_from_slice(&piece[..read]);
        }
        let _ = stream.write_all(answer.as_bytes()).await;
        match then {
            Then::Close => {}
            Then::Hang => drop(stream.read_to_end(&mut Vec::new()).await),
            Then::Flood => while stream.write_all(&[b' '; 4096]).await.is_ok() {},
        }
        String::from_utf8(request).expect("it is text")
    });
    let look_up = HttpLookUp::new(&address, reading())
        .expect("it is an address")
        .authorization(HeaderValue::from_static("Bearer secret"))
        .timeout(Duration::from_millis(800));
    let finding = look_up.look_up(&record().await).await;
    (finding, serving.await.expect("it does not panic"))
}

fn why(finding: &Finding) -> &str {
    match &finding.found {
        LookUpAnswer::NoAnswer { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_provider_is_asked_about_one_command() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 23\r\n\r\n[{\"status\":\"captured\"}]";
    let (finding, request) = asked(answer, Then::Close).await;
    assert!(matches!(finding.found, LookUpAnswer::Executed(result) if result.status == 201));
    assert!(finding.seen.contains("answered 200: its /status is \"captured\""), "{}", finding.seen);
    assert!(!finding.seen.contains("secret"), "{}", finding.seen);
    let request = request.to_ascii_lowercase();
    assert!(request.starts_with("get /charges?reference=0"), "{request}");
    assert!(request.contains("&tenant=acme&caller=alice http/1.1\r\n"), "{request}");
    for line in ["authorization: bearer secret\r\n", "connection: close\r\n", "semel-operation-id: 0"] {
        assert!(request.contains(line), "{request}");
    }
}

#[tokio::test]
async fn a_look_up_answer_that_proves_nothing_is_no_answer_and_tells_why() {
    let unknown = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(asked(unknown, Then::Close).await.0.found, LookUpAnswer::NotExecuted(Proof::Quarantine));
    for (answer, told) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "no JSON"),
        ("HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\n{}", "no JSON"),
        ("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n", "no JSON"),
        ("HTTP/1.1 410 Gone\r\ncontent-length: 2\r\n\r\n{}", "the path may be gone"),
        ("HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n[]", "does not say what became of it"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull", "another shape"),
        ("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "it wants other credentials"),
        ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "does not understand"),
        (
            "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
            "redirects are not followed",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "does not say what became of it"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", "no JSON"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"error\":1}", "another shape"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n[]", "broke off"),
        ("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "answered 500"),
    ] {
        let (finding, _) = asked(answer, Then::Close).await;
        assert!(why(&finding).contains(told), "{answer}: {}", why(&finding));
    }
    let busy = "HTTP/1.1 503 Busy\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n";
    let expected = Some(Duration::from_secs(30));
    let (finding, _) = asked(busy, Then::Close).await;
    assert!(matches!(finding.found, LookUpAnswer::NoAnswer { retry_after, .. } if retry_after == expected));
}

#[tokio::test]
async fn a_hostile_provider_costs_a_bounded_time_and_a_bounded_memory() {
    let (silent, _) = asked("", Then::Hang).await;
    assert!(why(&silent).contains("in time"), "{silent:?}");
    let (half, _) = asked("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n[{", Then::Hang).await;
    assert!(why(&half).contains("in time"), "{half:?}");
    let (flood, _) = asked("HTTP/1.1 200 OK\r\n\r\n[", Then::Flood).await;
    assert!(why(&flood).contains("too large"), "{flood:?}");
    let (nonsense, _) = asked("\0\0\0\0\r\n\r\n", Then::Close).await;
    assert!(why(&nonsense).contains("no answer"), "{nonsense:?}");
}

#[tokio::test]
async fn a_provider_that_is_away_gives_no_answer() {
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = port.local_addr().expect("it has one");
    drop(port);
    let look_up = HttpLookUp::new(&format!("http://{address}/{{operation_id}}"), reading());
    let finding = look_up.expect("it is an address").look_up(&record().await).await;
    assert!(why(&finding).contains("cannot connect"), "{finding:?}");
}

#[tokio::test]
async fn a_provider_is_asked_over_tls_once_it_proves_its_name() {
    let (authority, clients) = (Authority::new(), Authority::new());
    authority.issue("provider", "/CN=provider", &Shown::server("DNS:localhost"));
    clients.issue("semel", "/CN=semel", &Shown::client());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let behind = listener.local_addr().expect("it has one");
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        let _ = stream.read(&mut [0; 4096]).await.expect("it can be read");
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 23\r\n\r\n[{\"status\":\"captured\"}]";
        stream.write_all(answer.as_bytes()).await.expect("it can be written");
    });
    let port = authority.encrypt_for("provider", behind, Some(&clients)).await;
    let address = format!("https://localhost:{port}/charges/{{operation_id}}");
    let look_up = || HttpLookUp::new(&address, reading()).expect("it is an address");
    let untrusted = look_up().look_up(&record().await).await;
    assert!(why(&untrusted).contains("invalid peer certificate"), "{untrusted:?}");
    let missing = TlsSettings { trust: Trust::Authorities(clients.path("none.crt")), own: None };
    assert!(look_up().tls(missing).is_err(), "there is no such file");
    let own = CertificateFiles { certificate: clients.path("semel.crt"), key: clients.path("semel.key") };
    let tls = TlsSettings { trust: Trust::Authorities(authority.certificate()), own: Some(own) };
    let finding = look_up().tls(tls).expect("the files can be used").look_up(&record().await).await;
    assert!(matches!(finding.found, LookUpAnswer::Executed(result) if result.status == 201));
    serving.await.expect("it does not panic");
}
