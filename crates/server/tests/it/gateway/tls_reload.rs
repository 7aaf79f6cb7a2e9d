//! Certificates that are replaced under a running gateway: no request is lost, and a broken file changes
//! nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::authority::{Authority, Client, Connection, Shown};
use super::lab::{Gateway, Site, Upstream, pay, problem};

/// Gateway, and its files, which a test may replace.
struct Lab {
    site: Site,
    authority: Authority,
    upstream: Arc<Upstream>,
    gateway: Gateway,
}

/// Replaces a file atomically, as a renewal should.
fn exchange(from: &Path, to: &Path) {
    let fresh = to.with_extension("new");
    std::fs::copy(from, &fresh).expect("there is room");
    std::fs::rename(&fresh, to).expect("it takes its place");
}

impl Lab {
    async fn start(identity: &str, more: &str) -> Lab {
        let (site, authority, upstream) = (Site::new(), Authority::new(), Upstream::start().await);
        for name in ["first", "second"] {
            authority.issue(name, "/CN=gateway", &Shown::server("DNS:localhost"));
        }
        let file = format!("{identity}\n[tls]\ncertificate = \"now.crt\"\nkey = \"now.key\"\n{more}\n");
        for name in ["now.crt", "now.key"] {
            exchange(&authority.path(&name.replace("now", "first")), &site.folder.path().join(name));
        }
        exchange(&authority.certificate(), &site.folder.path().join("ca.crt"));
        exchange(&authority.list(), &site.folder.path().join("ca.crl"));
        let gateway = site.start_with(upstream.address, &file, &[]);
        Lab { site, authority, upstream, gateway }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.site.folder.path().join(name)
    }

    /// Returns true if a new connection gets this certificate.
    async fn shows(&self, name: &str) -> bool {
        let stream = self.authority.client().connect(self.gateway.address).await.expect("hands are shaken");
        let shown = stream.get_ref().1.peer_certificates().expect("it shows one")[0].clone();
        let file = self.authority.path(&format!("{name}.crt"));
        shown == CertificateDer::from_pem_file(file).expect("it is one")
    }

    async fn connect(&self, client: &Client) -> Connection {
        let stream = client.connect(self.gateway.address).await.expect("hands are shaken");
        Connection::over_http1(stream).await.expect("it is HTTP/1.1")
    }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections_and_open_ones_live_on() {
    let lab = Lab::start("", "").await;
    let mut idle = lab.connect(&lab.authority.client()).await;
    assert_eq!(idle.send(pay("{}")).await.status, 201);
    let mut busy = lab.connect(&lab.authority.client()).await;
    let gated = pay("[]").set("idempotency-key", "while-files-are-exchanged").doing("gate");
    let running = tokio::spawn(async move { busy.send(gated).await });
    lab.upstream.begun().await;
    lab.upstream.begun().await;

    assert!(lab.shows("first").await);
    exchange(&lab.authority.path("second.key"), &lab.file("now.key"));
    exchange(&lab.authority.path("second.crt"), &lab.file("now.crt"));
    until(async || lab.shows("second").await).await;
    assert!(idle.send(pay("{}")).await.replayed(), "a connection from before");
    lab.upstream.open_gate();
    assert_eq!(running.await.expect("it goes on").status, 201, "a request from before");
    assert_eq!(lab.upstream.seen(), 2);
}

#[tokio::test]
async fn a_signal_has_the_files_read_at_once() {
    let lab = Lab::start("", "").await;
    exchange(&lab.authority.path("second.key"), &lab.file("now.key"));
    exchange(&lab.authority.path("second.crt"), &lab.file("now.crt"));
    lab.gateway.signal("-HUP");
    lab.gateway.logs("read the files of TLS again\",\"signal\":\"SIGHUP\",\"table\":\"tls\"").await;
    until(async || lab.shows("second").await).await;
    assert_eq!(lab.authority.client().send(lab.gateway.address, pay("{}")).await.status, 201);
}

#[tokio::test]
async fn a_broken_file_changes_nothing_but_the_log() {
    let lab = Lab::start("", "").await;
    let failed = "tls_reloads_total{table=\"tls\",outcome=\"failed\"}";
    assert_eq!(lab.gateway.counted(failed).await, Some(0));
    exchange(&lab.authority.path("second.crt"), &lab.file("now.crt"));
    lab.gateway.logs("it is not the key of the first certificate").await;
    assert!(lab.shows("first").await, "a certificate without its key is not used");
    std::fs::write(lab.file("now.crt"), "nonsense").expect("there is room");
    lab.gateway.logs("it holds no certificate").await;
    std::fs::remove_file(lab.file("now.crt")).expect("it is there");
    lab.gateway.logs("cannot open the file").await;
    assert_eq!(lab.gateway.counted(failed).await, Some(3), "each was said once");
    assert!(lab.shows("first").await);
    assert_eq!(lab.authority.client().send(lab.gateway.address, pay("{}")).await.status, 201);

    exchange(&lab.authority.path("second.key"), &lab.file("now.key"));
    exchange(&lab.authority.path("second.crt"), &lab.file("now.crt"));
    until(async || lab.shows("second").await).await;
    assert!(lab.authority.client().send(lab.gateway.address, pay("{}")).await.replayed());
}

#[tokio::test]
async fn revoked_certificate_is_refused_on_open_connections() {
    let identity = "[identity]\nsource = \"client-certificate\"\n";
    let lab = Lab::start(identity, "client_ca = \"ca.crt\"\nclient_crl = \"ca.crl\"").await;
    for name in ["alice", "bob"] {
        lab.authority.issue(name, &format!("/O=acme/CN={name}"), &Shown::client());
    }
    let client = |name: &str| lab.authority.client_with(&lab.authority, name);
    let (mut alice, mut bob) = (lab.connect(&client("alice")).await, lab.connect(&client("bob")).await);
    assert_eq!(alice.send(pay("{}")).await.status, 201);
    assert_eq!(bob.send(pay("{}")).await.status, 201);

    lab.authority.revoke("alice");
    exchange(&lab.authority.list(), &lab.file("ca.crl"));
    until(async || alice.send(pay("{}")).await.status == 401).await;
    assert_eq!(alice.send(pay("{}")).await.problem(), problem(401, "UNAUTHENTICATED"));
    lab.gateway.logs("\"check\":\"withdrawn\"").await;
    assert!(client("alice").try_send(lab.gateway.address, pay("{}")).await.is_err(), "nor on a new one");
    assert!(bob.send(pay("{}")).await.replayed());
    assert_eq!(lab.upstream.seen(), 2);
}

#[tokio::test]
async fn clients_of_another_authority_get_in_once_it_is_named() {
    let identity = "[identity]\nsource = \"client-certificate\"\n";
    let lab = Lab::start(identity, "client_ca = \"ca.crt\"").await;
    let other = Authority::new();
    other.issue("alice", "/O=acme/CN=alice", &Shown::client());
    let alice = lab.authority.client_with(&other, "alice");
    assert!(alice.try_send(lab.gateway.address, pay("{}")).await.is_err());
    let both = [lab.authority.certificate(), other.certificate()];
    let both = both.map(|path| std::fs::read_to_string(path).expect("it is there")).concat();
    std::fs::write(lab.file("both.crt"), both).expect("there is room");
    exchange(&lab.file("both.crt"), &lab.file("ca.crt"));
    until(async || alice.try_send(lab.gateway.address, pay("{}")).await.is_ok()).await;
    assert!(alice.send(lab.gateway.address, pay("{}")).await.replayed());
    assert_eq!(lab.upstream.seen(), 1);
}
