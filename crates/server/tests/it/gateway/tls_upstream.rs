//! TLS with the upstream: a server with an unproven name gets nothing, and an unsent command may be retried.

use tokio::net::TcpListener;

use super::authority::{Authority, Shown, shown};
use super::lab::{Gateway, Site, Upstream, pay, problem};

/// Makes an authority with a certificate for `localhost`.
fn authority() -> Authority {
    let authority = Authority::new();
    authority.issue("upstream", "/CN=upstream", &Shown::server("DNS:localhost"));
    authority
}

/// Starts a gateway before an upstream that speaks TLS at this port.
fn start(site: &Site, port: u16, ca: &Authority, more: &str) -> Gateway {
    let file = format!("[upstream_tls]\nca = {}\n{more}\n", shown(&ca.certificate()));
    site.start_at(&format!("https://localhost:{port}"), &file, &[], &[])
}

/// Sends a command that must not arrive.
async fn unreachable(gateway: &Gateway, why: &str) {
    let reply = gateway.send(pay("{}")).await;
    assert_eq!(reply.problem(), problem(502, "UPSTREAM_UNREACHABLE"), "{why}");
    gateway.logs(why).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_reach_an_upstream_that_proves_its_name() {
    let (authority, upstream) = (authority(), Upstream::start().await);
    let port = authority.encrypt("upstream", upstream.address).await;
    for (number, protocol) in ["http1", "h2"].into_iter().enumerate() {
        let site = Site::new();
        let file = format!(
            "upstream_protocol = \"{protocol}\"\n[upstream_tls]\nca = {}\n",
            shown(&authority.certificate())
        );
        let gateway = site.start_at(&format!("https://localhost:{port}"), &file, &[], &[]);
        let first = gateway.send(pay("{}")).await;
        assert_eq!(first.status, 201, "{protocol}: {first:?} {}", gateway.log());
        assert!(gateway.send(pay("{}")).await.replayed());
        let next = pay("{}").set("idempotency-key", "another-one-on-the-same-connection");
        assert_eq!(gateway.send(next).await.status, 201);
        let page = pay("").method("GET").without("idempotency-key");
        assert_eq!(gateway.send(page).await.status, 201);
        assert_eq!(upstream.seen(), 3 * (number + 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_ca_file_the_system_roots_verify_the_upstream() {
    let (site, authority, upstream) = (Site::new(), authority(), Upstream::start().await);
    let port = authority.encrypt("upstream", upstream.address).await;
    let roots = authority.certificate().display().to_string();
    let address = format!("https://localhost:{port}");
    let gateway = site.start_at(&address, "", &[], &[("SSL_CERT_FILE", &roots)]);
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_of_another_authority_gets_nothing_until_its_own_is_named() {
    let (site, authority, upstream) = (Site::new(), authority(), Upstream::start().await);
    let (port, stranger) = (authority.encrypt("upstream", upstream.address).await, Authority::new());
    let roots = site.folder.path().join("roots.crt");
    std::fs::copy(stranger.certificate(), &roots).expect("there is room");
    let file = format!("[upstream_tls]\nca = {}\n", shown(&roots));
    let gateway = site.start_at(&format!("https://localhost:{port}"), &file, &[], &[]);
    unreachable(&gateway, "invalid peer certificate").await;
    assert_eq!(upstream.seen(), 0);
    let doctor = site.semel().args(["doctor", "--upstream", &format!("https://localhost:{port}")]).output();
    let said = String::from_utf8_lossy(&doctor.expect("the program runs").stdout).into_owned();
    assert!(said.contains("does not answer HEAD /: not sent: invalid peer certificate"), "{said}");
    // Atomically: the gateway may read it at any moment.
    std::fs::copy(authority.certificate(), roots.with_extension("new")).expect("there is room");
    std::fs::rename(roots.with_extension("new"), &roots).expect("it takes its place");
    gateway.logs("the files for TLS have changed").await;
    let repaired = gateway.send(pay("{}")).await;
    assert_eq!((repaired.status.as_u16(), repaired.header("seen-semel-attempt")), (201, Some("2")));
    assert!(gateway.send(pay("{}")).await.replayed());
    assert_eq!(upstream.seen(), 1, "it was carried out once");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_of_another_name_gets_nothing() {
    let (site, authority, upstream) = (Site::new(), authority(), Upstream::start().await);
    let port = authority.encrypt("upstream", upstream.address).await;
    let file = format!("[upstream_tls]\nca = {}\n", shown(&authority.certificate()));
    let gateway = site.start_at(&format!("https://127.0.0.1:{port}"), &file, &[], &[]);
    unreachable(&gateway, "not valid for name").await;
    drop(gateway);
    assert_eq!(upstream.seen(), 0);
    let gateway = start(&site, port, &authority, "");
    assert_eq!(gateway.send(pay("{}")).await.status, 201, "the key was free");
    assert!(gateway.send(pay("{}")).await.replayed());
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_without_tls_or_a_handshake_answer_gets_no_request() {
    let (site, authority, upstream) = (Site::new(), authority(), Upstream::start().await);
    let gateway = start(&site, upstream.address.port(), &authority, "");
    unreachable(&gateway, "the upstream was not reached").await;
    assert_eq!(upstream.seen(), 0);
    drop(gateway);
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    // Connecting is given up after half of a call's timeout.
    let file = format!("[upstream_tls]\nca = {}\n", shown(&authority.certificate()));
    let address = format!("https://{}", silent.local_addr().expect("it is bound"));
    let gateway = site.start_at(&address, &file, &["--timeout", "1s"], &[]);
    unreachable(&gateway, "no connection could be made in time").await;
    drop((gateway, silent));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_asks_for_a_certificate_gets_ours_or_nothing() {
    let (site, authority, ours) = (Site::new(), authority(), Authority::new());
    ours.issue("gateway", "/CN=gateway", &Shown::client());
    let upstream = Upstream::start().await;
    let port = authority.encrypt_for("upstream", upstream.address, Some(&ours)).await;
    let gateway = start(&site, port, &authority, "");
    unreachable(&gateway, "CertificateRequired").await;
    drop(gateway);
    let stranger = Authority::new();
    stranger.issue("gateway", "/CN=gateway", &Shown::client());
    let own = |authority: &Authority| {
        let path = |name: &str| shown(&authority.path(name));
        format!("certificate = {}\nkey = {}\n", path("gateway.crt"), path("gateway.key"))
    };
    let gateway = start(&site, port, &authority, &own(&stranger));
    unreachable(&gateway, "the upstream was not reached").await;
    drop(gateway);
    assert_eq!(upstream.seen(), 0);
    let gateway = start(&site, port, &authority, &own(&ours));
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    assert!(gateway.send(pay("{}")).await.replayed());
    assert_eq!(upstream.seen(), 1);
}
