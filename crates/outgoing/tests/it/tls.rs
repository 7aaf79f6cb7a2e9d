//! TLS: a server without a trusted proof of its name gets nothing.

use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use http_body_util::Full;
use semel_outgoing::{CertificateFiles, Client, Error, Pool, TlsError, TlsSettings, Trust};
use semel_testkit::authority::{Authority, Shown};

use super::server::{Server, Then};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn authority() -> Authority {
    let authority = Authority::new();
    authority.issue("server", "/CN=server", &Shown::server("DNS:localhost"));
    authority
}

fn trusting(ca: PathBuf) -> TlsSettings {
    TlsSettings { trust: Trust::Authorities(ca), own: None }
}

/// Returns the body of a GET to this port of this host.
async fn asked(host: &str, port: u16, tls: TlsSettings) -> Result<String, Error> {
    let client = Client::new(format!("https://{host}:{port}/").parse().expect("it is one"), tls)?;
    ask(&client).await
}

async fn ask(client: &Client) -> Result<String, Error> {
    let request = client.request(Method::GET, "/").body(Full::default()).expect("it is a request");
    let answer = client.send(request).await?.bytes(100).await?;
    Ok(String::from_utf8_lossy(answer.body()).into_owned())
}

fn refused(answer: Result<String, Error>, why: &str) {
    let error = answer.expect_err("nothing is sent");
    assert!(error.is_never_sent() && error.to_string().contains(why), "{why}: {error}");
}

#[tokio::test]
async fn a_request_is_sent_only_to_a_server_with_a_valid_certificate() {
    let (authority, stranger) = (authority(), Authority::new());
    let server = Server::start(ANSWER, Then::Close).await;
    let port = authority.encrypt("server", server.address).await;
    refused(asked("localhost", port, TlsSettings::default()).await, "invalid peer certificate");
    refused(asked("localhost", port, trusting(stranger.certificate())).await, "invalid peer certificate");
    refused(asked("127.0.0.1", port, trusting(authority.certificate())).await, "not valid for name");
    assert_eq!(server.requests(), 0, "nobody else was told anything");
    let answer = asked("localhost", port, trusting(authority.certificate())).await;
    assert_eq!(answer.expect("it proves its name"), "ok");
    let insecure = TlsSettings { trust: Trust::Insecure, own: None };
    assert_eq!(asked("127.0.0.1", port, insecure).await.expect("anyone will do"), "ok");
}

#[tokio::test]
async fn a_required_client_certificate_is_presented() {
    let (authority, clients) = (authority(), Authority::new());
    clients.issue("semel", "/CN=semel", &Shown::client());
    let server = Server::start(ANSWER, Then::Close).await;
    let port = authority.encrypt_for("server", server.address, Some(&clients)).await;
    assert!(asked("localhost", port, trusting(authority.certificate())).await.is_err(), "it shows none");
    let own = CertificateFiles { certificate: clients.path("semel.crt"), key: clients.path("semel.key") };
    let tls = TlsSettings { own: Some(own), ..trusting(authority.certificate()) };
    assert_eq!(asked("localhost", port, tls).await.expect("it shows one"), "ok");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let authority = authority();
    let check = |tls: TlsSettings| {
        let client = Client::new("https://localhost/".parse().expect("it is one"), tls).expect("a name");
        client.check().err().map(|error| error.to_string())
    };
    assert_eq!(check(trusting(authority.certificate())), None);
    let key = |key: &str| {
        let own = CertificateFiles { certificate: authority.path("server.crt"), key: authority.path(key) };
        check(TlsSettings { own: Some(own), ..trusting(authority.certificate()) })
    };
    assert_eq!(key("server.key"), None);
    for (told, expected) in [
        (check(trusting(authority.path("none.crt"))), "none.crt: cannot open the file"),
        (check(trusting(authority.path("server.key"))), "it holds no certificate"),
        (key("ca.key"), "it is not the key of the first certificate"),
        (key("ca.crt"), "it holds no private key"),
    ] {
        let told = told.expect("it cannot be used");
        assert!(told.contains(expected), "{told}");
        assert!(!told.contains("PRIVATE KEY-----M"), "{told}");
    }
    let no_name = Client::new("https://a..b/".parse().expect("it is one"), TlsSettings::default());
    assert!(matches!(no_name.err(), Some(TlsError::Name(_))));
}

#[tokio::test]
async fn a_replaced_authority_applies_without_a_restart() {
    let (authority, stranger) = (authority(), Authority::new());
    let server = Server::start(ANSWER, Then::Close).await;
    let port = authority.encrypt("server", server.address).await;
    let (file, next) = (stranger.path("roots.crt"), stranger.path("roots.new"));
    std::fs::copy(stranger.certificate(), &file).expect("there is room");
    let address = format!("https://localhost:{port}/").parse().expect("it is one");
    let client = Client::new(address, trusting(file.clone())).expect("it is a name");
    refused(ask(&client).await, "invalid peer certificate");
    std::fs::copy(authority.certificate(), &next).expect("there is room");
    std::fs::rename(&next, &file).expect("it takes its place");
    let mut answered = false;
    for _ in 0..400 {
        answered = ask(&client).await.is_ok();
        if answered {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert!(answered, "the new authority counts");
    std::fs::write(&file, "nonsense").expect("there is room");
    for _ in 0..3 {
        assert_eq!(ask(&client).await.expect("the old one stays"), "ok");
    }
}

#[tokio::test]
async fn a_pool_speaks_tls() {
    let authority = authority();
    let server = Server::start(ANSWER, Then::Stay).await;
    let port = authority.encrypt("server", server.address).await;
    let address = format!("https://localhost:{port}/").parse().expect("it is one");
    let pool = Pool::new(address, trusting(authority.certificate())).expect("it is a name");
    for _ in 0..3 {
        let question = pool.question(Method::GET).body(Full::default()).expect("it is a request");
        let answer = pool.ask(question, 10, Duration::from_secs(20)).await.expect("it answers");
        assert_eq!(answer.body(), "ok");
    }
    assert_eq!((server.connections(), server.requests()), (1, 3));
}
