//! TLS with clients: both versions of HTTP, the same guard and limits; and certificates that identify
//! callers.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};
use semel_core::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::authority::{Authority, Connection, Shown, listener, shown};
use super::lab::{Gateway, Site, Upstream, pay, problem};
use super::smuggling::{corpus, is_answered, is_refused};

/// Makes an authority with a certificate for `localhost`.
fn authority() -> Authority {
    let authority = Authority::new();
    authority.issue("server", "/CN=gateway", &Shown::server("DNS:localhost"));
    authority
}

/// Starts a gateway with TLS and further settings; returns the authority of its certificate and its upstream,
/// too.
async fn encrypted(more: &str) -> (Site, Authority, Arc<Upstream>, Gateway) {
    let (site, authority, upstream) = (Site::new(), authority(), Upstream::start().await);
    let file = format!("{more}\n{}", listener("tls", &authority, "server"));
    let gateway = site.start_with(upstream.address, &file, &[]);
    (site, authority, upstream, gateway)
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn commands_over_tls_run_once_whichever_versions_are_spoken() {
    let (_site, authority, upstream, gateway) = encrypted("").await;
    for (number, tls) in [&TLS12, &TLS13].into_iter().enumerate() {
        let command = || pay("{}").set("idempotency-key", format!("over-tls-number-{number}"));
        let client = authority.client_of(&[tls]);

        let stream = client.clone().offering(&[b"http/1.1"]).connect(gateway.address).await;
        let stream = stream.expect("hands are shaken");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let mut http1 = Connection::over_http1(stream).await.expect("it is HTTP/1.1");
        let first = http1.send(command()).await;
        assert_eq!((first.status.as_u16(), first.replayed()), (201, false), "{first:?}");
        let forwarded = first.header("seen-forwarded").expect("it is forwarded");
        assert!(forwarded.ends_with(";proto=https"), "{forwarded}");
        assert!(http1.send(command()).await.replayed(), "on the same connection");

        let stream = client.offering(&[b"h2", b"http/1.1"]).connect(gateway.address).await;
        let stream = stream.expect("hands are shaken");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut http2 = Connection::over_http2(stream).await.expect("it is HTTP/2");
        let again = http2.send(command()).await;
        assert!(again.replayed(), "over the other version of HTTP");
        assert_eq!(again.body, first.body);
        assert_eq!(http2.send(command().body("[]")).await.problem().0, 422);
        assert_eq!(upstream.seen(), number + 1);
    }
    let none = authority.client().offering(&[b"spdy/1"]).connect(gateway.address).await;
    assert!(none.is_err(), "a protocol that nobody speaks here is refused in the handshake");
    let other = pay("[]").set("idempotency-key", "without-a-protocol");
    assert_eq!(authority.client().send(gateway.address, other).await.status, 201, "none need be offered");
    let ends = gateway.counted("tls_certificate_end_timestamp_seconds{table=\"tls\"}").await;
    assert!(ends.is_some_and(|ends| ends > SystemClock.now().as_millis().unsigned_abs() / 1000));
}

#[tokio::test]
async fn a_session_is_resumed_only_where_no_certificate_counts() {
    let (site, server, clients, upstream) =
        (Site::new(), authority(), Authority::new(), Upstream::start().await);
    clients.issue("alice", "/O=acme/CN=alice", &Shown::client());
    for (file, client, kind) in [
        (listener("tls", &server, "server"), server.client(), HandshakeKind::Resumed),
        (by_certificate(&server, &clients, ""), server.client_with(&clients, "alice"), HandshakeKind::Full),
    ] {
        let gateway = site.start_with(upstream.address, &file, &[]);
        assert_eq!(client.send(gateway.address, pay("{}")).await.status, 201);
        let again = client.connect(gateway.address).await.expect("hands are shaken");
        assert_eq!(again.get_ref().1.handshake_kind(), Some(kind));
    }
}

#[tokio::test]
async fn requests_over_tls_are_guarded_as_all_others() {
    let (_site, authority, upstream, gateway) = encrypted("").await;
    let good = pay("").method("GET").without("idempotency-key").into_bytes();
    for (number, attempt) in corpus().iter().enumerate() {
        let mut client = authority.client().connect(gateway.address).await.expect("hands are shaken");
        is_answered(&mut client, &good).await;
        is_refused(&mut client, attempt).await;
        assert_eq!(upstream.seen(), number + 1, "{attempt:?}");
    }
}

#[tokio::test]
async fn unfinished_handshakes_are_closed_and_delay_no_client() {
    let (_site, authority, upstream, gateway) = encrypted("server.head_timeout = \"5s\"").await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(gateway.address).await.expect("it listens"));
    }
    // The first bytes of a handshake, and no more.
    silent[0].write_all(&[22, 3, 1]).await.expect("it is sent");
    let mut plain = TcpStream::connect(gateway.address).await.expect("it listens");
    plain.write_all(&pay("{}").into_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "what is not TLS gets no answer of HTTP");

    assert_eq!(authority.client().send(gateway.address, pay("{}")).await.status, 201);
    assert_eq!(upstream.seen(), 1);
    let outcome =
        |outcome: &str| format!("tls_handshakes_total{{listener=\"clients\",outcome=\"{outcome}\"}}");
    until(async || gateway.counted(&outcome("failed")).await == Some(1)).await;
    for mut stream in silent {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    until(async || gateway.counted(&outcome("timed_out")).await == Some(50)).await;
    assert!(authority.client().send(gateway.address, pay("{}")).await.replayed());
}

#[tokio::test]
async fn a_handshake_that_is_not_done_does_not_hold_up_the_end() {
    let (_site, authority, _upstream, mut gateway) = encrypted("server.head_timeout = \"1h\"").await;
    let _silent = TcpStream::connect(gateway.address).await.expect("it listens");
    assert_eq!(authority.client().send(gateway.address, pay("{}")).await.status, 201);
    gateway.terminate();
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn the_admin_listener_speaks_tls_and_can_ask_for_a_certificate() {
    let (site, authority, operators) = (Site::new(), authority(), Authority::new());
    operators.issue("operator", "/CN=operator", &Shown::client());
    let upstream = Upstream::start().await;
    let ready = || pay("").method("GET").target("/readyz").without("idempotency-key");

    let open = listener("admin_tls", &authority, "server");
    let gateway = site.start_with(upstream.address, &open, &[]);
    assert_eq!(authority.client().send(gateway.admin, ready()).await.status, 200);
    assert_eq!(gateway.send(pay("{}")).await.status, 201, "clients are met as ever");
    let silent = TcpStream::connect(gateway.admin).await.expect("it listens");
    assert_eq!(authority.client().send(gateway.admin, ready()).await.status, 200);
    drop((silent, gateway));

    let closed = format!("{open}client_ca = {}\n", shown(&operators.certificate()));
    let gateway = site.start_with(upstream.address, &closed, &[]);
    let operator = authority.client_with(&operators, "operator");
    assert_eq!(operator.send(gateway.admin, ready()).await.status, 200);
    assert!(authority.client().try_send(gateway.admin, ready()).await.is_err(), "nobody gets in without");
    let stranger = Authority::new();
    stranger.issue("operator", "/CN=operator", &Shown::client());
    assert!(authority.client_with(&stranger, "operator").try_send(gateway.admin, ready()).await.is_err());
}

#[tokio::test]
async fn a_certificate_can_be_required_of_everybody() {
    let (site, authority, upstream) = (Site::new(), authority(), Upstream::start().await);
    authority.issue("proxy", "/CN=proxy", &Shown::client());
    let tls = listener("tls", &authority, "server");
    let file = format!("{tls}client_ca = {}\n", shown(&authority.certificate()));
    let gateway = site.start_with(upstream.address, &file, &[]);
    let page = || pay("").method("GET").without("idempotency-key");
    assert!(authority.client().try_send(gateway.address, page()).await.is_err());
    assert_eq!(authority.client_with(&authority, "proxy").send(gateway.address, page()).await.status, 201);
    assert_eq!(upstream.seen(), 1);
}

/// Returns settings that identify clients by certificates of this authority.
fn by_certificate(server: &Authority, clients: &Authority, identity: &str) -> String {
    let tls = listener("tls", server, "server");
    let ca = shown(&clients.certificate());
    format!("[identity]\nsource = \"client-certificate\"\n{identity}\n{tls}client_ca = {ca}\n")
}

#[tokio::test]
async fn callers_are_known_by_names_in_their_certificates() {
    let (site, server, clients, upstream) =
        (Site::new(), authority(), Authority::new(), Upstream::start().await);
    for (file, subject) in [
        ("alice", "/O=acme/CN=alice"),
        ("renewed", "/CN=alice/O=acme"),
        ("bob", "/O=acme/CN=bob"),
        ("stranger", "/O=globex/CN=alice"),
    ] {
        clients.issue(file, subject, &Shown::client());
    }
    let gateway = site.start_with(upstream.address, &by_certificate(&server, &clients, ""), &[]);
    let client = |file: &str| server.client_with(&clients, file);

    let first = client("alice").send(gateway.address, pay("{}")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let seen = (first.header("seen-semel-tenant"), first.header("seen-semel-caller"));
    assert_eq!(seen, (Some("acme"), Some("alice")));
    let renewed = client("renewed").send(gateway.address, pay("{}")).await;
    assert!(renewed.replayed(), "another certificate, key and serial number, and the same caller");
    assert_eq!(renewed.body, first.body);

    let id = first.operation_id().expect("it is named");
    let page = || pay("").method("GET").target(format!("/.well-known/semel/operations/{id}"));
    assert_eq!(client("alice").send(gateway.address, page()).await.status, 200);
    for other in ["bob", "stranger"] {
        let reply = client(other).send(gateway.address, pay("{}")).await;
        assert_eq!((reply.status.as_u16(), reply.replayed()), (201, false), "{other}");
        assert_ne!(reply.body, first.body);
        let reply = client(other).send(gateway.address, page()).await;
        assert_eq!(reply.problem(), problem(404, "OPERATION_NOT_FOUND"), "{other}");
    }
    assert_eq!(upstream.seen(), 3);
}

#[tokio::test]
async fn a_client_certificate_with_an_ambiguous_or_missing_name_is_refused() {
    let (site, server, clients, upstream) =
        (Site::new(), authority(), Authority::new(), Upstream::start().await);
    let cases = [
        ("two-callers", "/O=acme/CN=alice/CN=bob", "several"),
        ("the-same-twice", "/O=acme/CN=alice/CN=alice", "several"),
        ("two-in-one", "/O=acme/CN=alice+CN=bob", "several"),
        ("two-tenants", "/O=acme/O=globex/CN=alice", "several"),
        ("no-caller", "/O=acme/OU=alice", "missing"),
        ("no-tenant", "/CN=alice", "missing"),
    ];
    let gateway = site.start_with(upstream.address, &by_certificate(&server, &clients, ""), &[]);
    for (file, subject, check) in cases {
        clients.issue(file, subject, &Shown::client());
        let counter = format!("identity_certificates_refused_total{{check=\"{check}\"}}");
        let before = gateway.counted(&counter).await.unwrap_or(0);
        let reply = server.client_with(&clients, file).send(gateway.address, pay("{}")).await;
        assert_eq!(reply.problem(), problem(401, "UNAUTHENTICATED"), "{file}");
        assert_eq!(gateway.counted(&counter).await, Some(before + 1), "{file}");
        gateway.logs(&format!("\"check\":\"{check}\"")).await;
    }
    let nobody = server.client();
    assert_eq!(nobody.send(gateway.address, pay("{}")).await.problem(), problem(401, "UNAUTHENTICATED"));
    assert_eq!(upstream.seen(), 0);
    let page = pay("").method("GET").without("idempotency-key");
    assert_eq!(nobody.send(gateway.address, page).await.status, 201, "what is no command passes, as ever");
}

#[tokio::test]
async fn caller_names_can_come_from_certificate_sans_with_a_fixed_tenant() {
    let (site, server, clients, upstream) =
        (Site::new(), authority(), Authority::new(), Upstream::start().await);
    clients.issue("shop", "/O=acme/CN=1", &Shown::client().named("URI:spiffe://acme/shop,DNS:Shop.Example"));
    clients.issue("again", "/O=acme/CN=2", &Shown::client().named("DNS:shop.example,URI:spiffe://acme/shop"));
    clients.issue("both", "/O=acme/CN=3", &Shown::client().named("URI:spiffe://a,URI:spiffe://b"));
    for (field, caller) in [("san.uri", "spiffe://acme/shop"), ("san.dns", "shop.example")] {
        let identity = format!("fixed_tenant = \"everybody\"\ncaller_field = \"{field}\"");
        let file = by_certificate(&server, &clients, &identity);
        let gateway = site.start_with(upstream.address, &file, &[]);
        let send =
            async |file: &str| server.client_with(&clients, file).send(gateway.address, pay("{}")).await;
        let first = send("shop").await;
        let seen = (first.header("seen-semel-tenant"), first.header("seen-semel-caller"));
        assert_eq!(seen, (Some("everybody"), Some(caller)));
        assert!(send("again").await.replayed());
        assert_eq!(send("both").await.problem().0, 401);
    }
}

#[tokio::test]
async fn a_certificate_that_does_not_count_is_refused() {
    let (site, server, clients, upstream) =
        (Site::new(), authority(), Authority::new(), Upstream::start().await);
    let alice = "/O=acme/CN=alice";
    clients.issue("good", alice, &Shown::client());
    clients.issue("revoked", alice, &Shown::client());
    clients.issue("ended", alice, &Shown::client().ended());
    clients.issue("of-a-server", alice, &Shown::server("DNS:localhost"));
    let stranger = Authority::new();
    stranger.issue("good", alice, &Shown::client());
    clients.revoke("revoked");
    let list = shown(&clients.list());
    let file = format!("{}client_crl = {list}\n", by_certificate(&server, &clients, ""));
    let gateway = site.start_with(upstream.address, &file, &[]);
    for (authority, file) in
        [(&clients, "revoked"), (&clients, "ended"), (&clients, "of-a-server"), (&stranger, "good")]
    {
        let client = server.client_with(authority, file);
        assert!(client.try_send(gateway.address, pay("{}")).await.is_err(), "{file}");
    }
    assert_eq!(upstream.seen(), 0);
    let good = server.client_with(&clients, "good");
    assert_eq!(good.send(gateway.address, pay("{}")).await.status, 201);
}

#[tokio::test]
async fn a_client_certificate_that_expires_is_refused_on_an_open_connection() {
    let (site, server, clients, upstream) =
        (Site::new(), authority(), Authority::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, &by_certificate(&server, &clients, ""), &[]);
    let soon = SystemClock.now().plus(Duration::from_secs(10));
    clients.issue("alice", "/O=acme/CN=alice", &Shown::client().until(soon));
    let stream = server.client_with(&clients, "alice").connect(gateway.address).await;
    let mut alice = Connection::over_http1(stream.expect("hands are shaken")).await.expect("it is HTTP/1.1");
    assert_eq!(alice.send(pay("{}")).await.status, 201);
    until(async || alice.send(pay("{}")).await.status == 401).await;
    gateway.logs("\"check\":\"ended\"").await;
    assert_eq!(upstream.seen(), 1);
}

/// Runs a command that reads the configuration; returns its exit code and all its output.
fn run(site: &Site, file: &str, words: &[&str]) -> (Option<i32>, String) {
    std::fs::write(site.folder.path().join("semel.toml"), file).expect("there is room");
    let output = site.semel().args(words).output().expect("the program runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn unusable_tls_files_are_refused_with_the_setting_and_the_reason() {
    let (site, authority) = (Site::new(), authority());
    authority.issue("other", "/CN=other", &Shown::server("DNS:localhost"));
    let write = |name: &str, text: &str| std::fs::write(authority.path(name), text).expect("there is room");
    let read = |name: &str| std::fs::read_to_string(authority.path(name)).expect("it is there");
    write("empty.crt", "");
    write("broken.crt", "-----BEGIN CERTIFICATE-----\nno base64 at all!\n-----END CERTIFICATE-----\n");
    write("nonsense.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write("cut.crt", &read("server.crt")[..200]);
    let cases = [
        ("missing.crt", "server.key", "", "`tls.certificate`", "cannot open the file: No such file"),
        (".", "server.key", "", "`tls.certificate`", "it is no file"),
        ("empty.crt", "server.key", "", "`tls.certificate`", "it holds no certificate: expected PEM"),
        ("broken.crt", "server.key", "", "`tls.certificate`", "it is not PEM"),
        ("cut.crt", "server.key", "", "`tls.certificate`", "a section in it has no end"),
        ("nonsense.crt", "server.key", "", "`tls.certificate`", "the first certificate in it cannot be used"),
        ("server.key", "server.key", "", "`tls.certificate`", "it holds no certificate"),
        ("server.crt", "server.crt", "", "`tls.key`", "it holds no private key"),
        ("server.crt", "missing.key", "", "`tls.key`", "cannot open the file"),
        (
            "server.crt",
            "other.key",
            "",
            "`tls.key`",
            "it is not the key of the first certificate in `tls.certificate`",
        ),
        (
            "server.crt",
            "server.key",
            "client_ca = \"empty.crt\"",
            "`tls.client_ca`",
            "it holds no certificate",
        ),
        ("server.crt", "server.key", "client_ca = \"nonsense.crt\"", "`tls.client_ca`", "cannot be used"),
        (
            "server.crt",
            "server.key",
            "client_ca = \"ca.crt\"\nclient_crl = \"ca.crt\"",
            "`tls.client_crl`",
            "it holds no list of revoked certificates",
        ),
    ];
    let folder = authority.path("");
    for (certificate, key, more, setting, wrong) in cases {
        let more = more.replace("= \"", &format!("= \"{}", folder.display()));
        let file = format!(
            "[tls]\ncertificate = {}\nkey = {}\n{more}\n",
            shown(&authority.path(certificate)),
            shown(&authority.path(key))
        );
        let serve = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        for (words, code) in [(&["config", "check"][..], 1), (&serve[..], 2)] {
            let (ended, said) = run(&site, &file, words);
            assert_eq!(ended, Some(code), "{certificate}, {key}: {said}");
            assert!(said.contains(setting) && said.contains(wrong), "{certificate}, {key}: {said}");
        }
        let (_, said) = run(&site, &file, &["doctor"]);
        assert!(said.contains("fail  tls") && said.contains(wrong), "{said}");
        let secret = read("server.key").lines().nth(1).expect("it has a second line").to_owned();
        assert!(!said.contains(&secret));
    }
}

#[test]
fn keys_that_others_can_read_and_certificates_that_are_over_are_named() {
    let (site, authority) = (Site::new(), authority());
    let allow = |name: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(authority.path(name), permissions).expect("it is ours");
    };
    allow("server.key", 0o600);
    let good = listener("tls", &authority, "server");
    let (code, said) = run(&site, &good, &["config", "check"]);
    assert_eq!((code, said.trim()), (Some(0), "the configuration can be used"));
    let (_, said) = run(&site, &good, &["doctor"]);
    assert!(said.contains("warn  tls") && said.contains("`tls.certificate` expires in 1 day"), "{said}");

    allow("server.key", 0o644);
    let (code, said) = run(&site, &good, &["config", "check"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("warning: `tls.key`: other users of this machine can read the private key"),
        "{said}"
    );

    authority.issue("over", "/CN=gateway", &Shown::server("DNS:localhost").ended());
    allow("over.key", 0o600);
    let over = listener("tls", &authority, "over");
    let (code, said) = run(&site, &over, &["config", "check"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("`tls.certificate`: the certificate expired at 2021-01-01T00:00:00.000Z"),
        "{said}"
    );
    let (_, said) = run(&site, &over, &["doctor"]);
    assert!(said.contains("fail  tls") && said.contains("expired at 2021"), "{said}");
}
