//! Opaque tokens and sessions: a service names their callers, and every other credential is refused.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::authority::{Authority, Shown, shown};
use super::lab::{Gateway, KEY, Send, Site, Upstream, pay, problem};

/// Service that knows tokens and sessions.
struct Directory {
    address: SocketAddr,
    known: Mutex<HashMap<String, Value>>,
    /// Questions that it got: method, form or credential, and `Authorization` of the gateway.
    asked: Mutex<Vec<String>>,
    status: Mutex<u16>,
    arrived: Semaphore,
    gate: Semaphore,
}

const OPEN: usize = 100_000;

impl Directory {
    async fn start() -> Arc<Directory> {
        Directory::start_on(TcpListener::bind("127.0.0.1:0").await.expect("a port is free"))
    }

    fn start_on(listener: TcpListener) -> Arc<Directory> {
        let directory = Arc::new(Directory {
            address: listener.local_addr().expect("it is bound"),
            known: Mutex::default(),
            asked: Mutex::default(),
            status: Mutex::new(200),
            arrived: Semaphore::new(0),
            gate: Semaphore::new(OPEN),
        });
        directory.knows("token-of-alice", json!({ "active": true, "tenant": "acme", "sub": "alice" }));
        directory.knows("new-token-of-alice", json!({ "active": true, "tenant": "acme", "sub": "alice" }));
        directory.knows("token-of-bob", json!({ "active": true, "tenant": "acme", "sub": "bob" }));
        let app = Router::new().fallback(answer).with_state(directory.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        directory
    }

    fn knows(&self, token: &str, answer: Value) {
        self.known.lock().expect("nobody panics with it").insert(token.to_owned(), answer);
    }

    fn forgets(&self, token: &str) {
        self.known.lock().expect("nobody panics with it").remove(token);
    }

    fn say(&self, status: u16) {
        *self.status.lock().expect("nobody panics with it") = status;
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("nobody panics with it"))
    }

    fn settings(&self, more: &str) -> String {
        settings(&format!("http://{}/introspect", self.address), more)
    }
}

fn settings(url: &str, more: &str) -> String {
    format!("[identity]\nsource = \"introspection\"\nintrospection_url = \"{url}\"\n{more}\n")
}

/// Answers like RFC 7662, or to `GET` like a page about the current user.
async fn answer(State(directory): State<Arc<Directory>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("it arrives").to_bytes();
    let text = |name: &str| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let body = String::from_utf8_lossy(&body).into_owned();
    let (form, own) = (parts.method == "POST", text("authorization"));
    let token = match form {
        true => body.strip_prefix("token=").and_then(|rest| rest.split('&').next()).unwrap_or_default(),
        false => own.strip_prefix("Bearer ").unwrap_or_default(),
    };
    let token = token.replace("%2D", "-");
    let token = if token.is_empty() { text("cookie").replace("sid=", "") } else { token };
    let question = format!("{} {body} {own} {}", parts.method, text("cookie"));
    directory.asked.lock().expect("nobody panics with it").push(question.trim().to_owned());
    directory.arrived.add_permits(1);
    directory.gate.acquire().await.expect("it is never closed").forget();
    let status = *directory.status.lock().expect("nobody panics with it");
    let known = directory.known.lock().expect("nobody panics with it").get(&token).cloned();
    match (known, form) {
        _ if status != 200 => StatusCode::from_u16(status).expect("it is a status").into_response(),
        (Some(answer), _) => axum::Json(answer).into_response(),
        (None, true) => axum::Json(json!({ "active": false })).into_response(),
        (None, false) => StatusCode::UNAUTHORIZED.into_response(),
    }
}

fn by(token: &str) -> Send {
    pay("{}").with("authorization", format!("Bearer {token}"))
}

fn page(gateway_answer: &super::lab::Reply, token: &str) -> Send {
    let id = gateway_answer.operation_id().expect("it is named");
    by(token)
        .method("GET")
        .body("")
        .target(format!("/.well-known/semel/operations/{id}"))
        .without("idempotency-key")
}

async fn counted(gateway: &Gateway, outcome: &str) -> u64 {
    gateway.counted(&format!("introspections_total{{outcome=\"{outcome}\"}}")).await.unwrap_or(0)
}

#[tokio::test]
async fn a_token_names_its_caller_and_another_token_of_the_caller_is_the_same_caller() {
    let (site, upstream, directory) = (Site::new(), Upstream::start().await, Directory::start().await);
    let file = directory.settings("introspection_authorization_env = \"OWN\"");
    let gateway = site.start_in(upstream.address, &file, &[], &[("OWN", "Basic Z2F0ZXdheQ==")]);
    let first = gateway.send(by("token-of-alice")).await;
    assert_eq!(first.status, 201, "{}", gateway.log());
    assert_eq!(
        (first.header("seen-semel-tenant"), first.header("seen-semel-caller")),
        (Some("acme"), Some("alice"))
    );
    assert!(gateway.send(by("token-of-alice")).await.replayed());
    assert!(gateway.send(by("new-token-of-alice")).await.replayed(), "a new token, the same command");
    assert_eq!(gateway.send(page(&first, "token-of-alice")).await.status, 200);
    assert_eq!(gateway.send(page(&first, "token-of-bob")).await.status, 404, "another caller's");
    assert!(!gateway.send(by("token-of-bob")).await.replayed());
    assert_eq!(upstream.seen(), 2);
    let form = |token: &str| {
        let token = token.replace('-', "%2D");
        format!("POST token={token}&token_type_hint=access_token Basic Z2F0ZXdheQ==")
    };
    let expected = ["token-of-alice", "new-token-of-alice", "token-of-bob"].map(form);
    assert_eq!(directory.asked(), expected, "each is shown once, and then remembered");
    assert_eq!((counted(&gateway, "known").await, counted(&gateway, "remembered").await), (3, 3));
    let log = gateway.log();
    assert!(!log.contains("token-of-") && !log.contains("Z2F0ZXdheQ"), "no credential is logged: {log}");
}

#[tokio::test]
async fn a_no_is_401_and_a_service_without_an_answer_is_503() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let more = "introspection_timeout = \"300ms\"\nintrospection_cache = \"0s\"\nmax_token = \"256B\"";
    let file = settings(&format!("http://{address}/introspect"), more);
    let gateway = site.start_with(upstream.address, &file, &[]);
    let unavailable = problem(503, "AUTHORIZATION_UNAVAILABLE");
    let down = gateway.send(by("token-of-alice")).await;
    assert_eq!((down.problem(), down.header("retry-after")), (unavailable.clone(), Some("1")));

    let directory = Directory::start_on(TcpListener::bind(address).await.expect("the port is free again"));
    for status in [500, 503, 404, 302, 401, 403, 204] {
        directory.say(status);
        assert_eq!(gateway.send(by("token-of-alice")).await.problem(), unavailable, "{status}");
    }
    directory.say(200);
    directory.gate.forget_permits(OPEN);
    assert_eq!(gateway.send(by("token-of-alice")).await.problem(), unavailable, "it is silent");
    gateway.logs("no answer within 300ms").await;
    directory.gate.add_permits(OPEN);
    directory.asked();

    let refused = problem(401, "UNAUTHENTICATED");
    let none = gateway.send(pay("{}")).await;
    assert_eq!((none.problem(), none.header("www-authenticate")), (refused.clone(), Some("Bearer")));
    for malformed in ["two tokens", "", &"x".repeat(257)] {
        assert_eq!(gateway.send(by(malformed)).await.problem(), refused, "{malformed}");
    }
    let twice = by("token-of-alice").with("authorization", "Bearer token-of-bob");
    assert_eq!(gateway.send(twice).await.problem(), refused);
    assert!(directory.asked().is_empty(), "nothing of that was shown");
    let unknown = gateway.send(by("no-such-token")).await;
    assert_eq!(unknown.problem(), refused);
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    directory.knows("nameless", json!({ "active": true, "tenant": "acme" }));
    directory.knows("over", json!({ "active": true, "tenant": "acme", "sub": "alice", "exp": 1 }));
    for token in ["nameless", "over"] {
        assert_eq!(gateway.send(by(token)).await.problem(), refused, "{token}");
    }
    assert_eq!(upstream.seen(), 0, "nothing ran");
    assert_eq!(gateway.send(by("token-of-alice")).await.status, 201);
    directory.forgets("token-of-alice");
    assert_eq!(gateway.send(by("token-of-alice")).await.problem(), refused, "without a memory, at once");
}

#[tokio::test]
async fn answers_are_remembered_for_a_bounded_time() {
    let (site, upstream, directory) = (Site::new(), Upstream::start().await, Directory::start().await);
    let more = "introspection_cache = \"400ms\"\nintrospection_refusal_cache = \"300ms\"";
    let gateway = site.start_with(upstream.address, &directory.settings(more), &[]);
    assert_eq!(gateway.send(by("token-of-carol")).await.status, 401);
    assert_eq!(gateway.send(by("token-of-alice")).await.status, 201);
    directory.knows("token-of-carol", json!({ "active": true, "tenant": "acme", "sub": "carol" }));
    directory.forgets("token-of-alice");
    becomes(&gateway, "token-of-carol", 201).await;
    becomes(&gateway, "token-of-alice", 401).await;

    let gateway = site.start_with(upstream.address, &directory.settings("introspection_cache = \"1h\""), &[]);
    let ends = super::issuer::now() + 2;
    directory.knows("short", json!({ "active": true, "tenant": "acme", "sub": "dora", "exp": ends }));
    assert_eq!(gateway.send(by("short")).await.status, 201);
    directory.forgets("short");
    becomes(&gateway, "short", 401).await;
}

/// Sends until the cached answer for a token has expired. Fails after a bounded time.
async fn becomes(gateway: &Gateway, token: &str, status: u16) {
    let mut last = 0;
    for _ in 0..500 {
        last = gateway.send(by(token)).await.status.as_u16();
        if last == status {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{token} stays {last}: {}", gateway.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_many_requests_show_is_shown_once() {
    let (site, upstream, directory) = (Site::new(), Upstream::start().await, Directory::start().await);
    let more = "introspection_timeout = \"30s\"";
    let gateway = Arc::new(site.start_with(upstream.address, &directory.settings(more), &[]));
    directory.gate.forget_permits(OPEN);
    let sending: Vec<_> = (0..20)
        .map(|number| {
            let gateway = gateway.clone();
            let request = by("token-of-alice").set("idempotency-key", format!("{KEY}-{number}"));
            tokio::spawn(async move { gateway.send(request).await.status })
        })
        .collect();
    directory.arrived.acquire().await.expect("it is never closed").forget();
    // Another caller does not wait for this one's answer.
    let other = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.send(by("token-of-bob")).await.status }
    });
    directory.arrived.acquire().await.expect("it is never closed").forget();
    directory.gate.add_permits(OPEN);
    for sent in sending {
        assert_eq!(sent.await.expect("it ends"), 201);
    }
    assert_eq!(other.await.expect("it ends"), 201);
    assert_eq!(directory.asked().len(), 2, "one question for each token");
}

#[tokio::test]
async fn introspection_forwards_only_the_session_cookie() {
    let (site, upstream, directory) = (Site::new(), Upstream::start().await, Directory::start().await);
    directory.knows("abc", json!({ "user": { "id": 42 } }));
    let more = "introspection_request = \"forward\"\nintrospection_cookie = \"sid\"\nfixed_tenant = \"shop\"\n\
                caller_claim = \"/user/id\"\nintrospection_refusal_cache = \"0s\"";
    let gateway = site.start_with(upstream.address, &directory.settings(more), &[]);
    let session = |value: &str| pay("{}").with("cookie", format!("theme=dark; sid={value}; x=y"));
    let first = gateway.send(session("abc")).await;
    assert_eq!(first.status, 201, "{}", gateway.log());
    assert_eq!(
        (first.header("seen-semel-tenant"), first.header("seen-semel-caller")),
        (Some("shop"), Some("42"))
    );
    assert_eq!(directory.asked(), ["GET   sid=abc"], "no other cookie");
    assert_eq!(gateway.send(session("other")).await.problem(), problem(401, "UNAUTHENTICATED"));
    assert_eq!(gateway.send(session("abc; sid=abc")).await.problem(), problem(401, "UNAUTHENTICATED"));
    let both = session("abc").with("authorization", "Bearer token-of-bob");
    assert_eq!(gateway.send(both).await.problem(), problem(401, "UNAUTHENTICATED"));
    directory.say(403);
    assert_eq!(gateway.send(session("third")).await.problem(), problem(403, "FORBIDDEN"));
    assert_eq!(directory.asked().len(), 2);
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_shown_over_tls_to_a_service_that_proves_its_name() {
    let (site, upstream, directory) = (Site::new(), Upstream::start().await, Directory::start().await);
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.issue("directory", "/CN=directory", &Shown::server("DNS:localhost"));
    let port = authority.encrypt("directory", directory.address).await;
    let at = |ca: &Authority| {
        settings(
            &format!("https://localhost:{port}/introspect"),
            &format!("ca = {}", shown(&ca.certificate())),
        )
    };
    let gateway = site.start_with(upstream.address, &at(&stranger), &[]);
    assert_eq!(gateway.send(by("token-of-alice")).await.problem(), problem(503, "AUTHORIZATION_UNAVAILABLE"));
    gateway.logs("invalid peer certificate").await;
    assert!(directory.asked().is_empty(), "a stranger saw no token");
    let doctor = site.semel().arg("doctor").output().expect("the program runs");
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        said.contains("introspection by localhost") && said.contains("invalid peer certificate"),
        "{said}"
    );
    drop(gateway);
    let gateway = site.start_with(upstream.address, &at(&authority), &[]);
    assert_eq!(gateway.send(by("token-of-alice")).await.status, 201);
}
