//! Authorization is asked for before a command runs or is replayed.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::issuer::{Signer, by, set, settings};
use super::lab::{Reply, Send, Site, Upstream, pay, problem};

/// Service that authorizes callers.
pub(super) struct Judge {
    pub(super) address: SocketAddr,
    says: Mutex<u16>,
    /// Questions that it got, with their credentials.
    asked: Mutex<Vec<(Value, Option<String>)>>,
    /// Closed while it does not answer.
    gate: Semaphore,
}

const OPEN: usize = 100_000;

impl Judge {
    pub(super) async fn start() -> Arc<Judge> {
        Judge::start_on(TcpListener::bind("127.0.0.1:0").await.expect("a port is free"))
    }

    fn start_on(listener: TcpListener) -> Arc<Judge> {
        let judge = Arc::new(Judge {
            address: listener.local_addr().expect("it is bound"),
            says: Mutex::new(204),
            asked: Mutex::default(),
            gate: Semaphore::new(OPEN),
        });
        let app = Router::new().fallback(judge_request).with_state(judge.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        judge
    }

    pub(super) fn say(&self, status: u16) {
        *self.says.lock().expect("nobody panics with it") = status;
    }

    pub(super) fn asked(&self) -> Vec<(Value, Option<String>)> {
        std::mem::take(&mut *self.asked.lock().expect("nobody panics with it"))
    }

    fn settings(&self, more: &str) -> String {
        format!("authorize_url = \"http://{}/check?from=semel\"\n{more}\n", self.address)
    }
}

async fn judge_request(State(judge): State<Arc<Judge>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    assert_eq!((parts.method.as_str(), parts.uri.to_string().as_str()), ("POST", "/check?from=semel"));
    let body = body.collect().await.expect("it arrives").to_bytes();
    let credentials =
        parts.headers.get("authorization").map(|value| value.to_str().expect("text").to_owned());
    let question = serde_json::from_slice(&body).expect("it is JSON");
    judge.asked.lock().expect("nobody panics with it").push((question, credentials));
    judge.gate.acquire().await.expect("it is never closed").forget();
    let status = *judge.says.lock().expect("nobody panics with it");
    Response::builder()
        .status(status)
        .header("www-authenticate", "Bearer error=\"insufficient_scope\"")
        .header("location", "http://127.0.0.1:1/")
        .body(Body::from("{}"))
        .expect("valid")
}

fn page_of(reply: &Reply, request: &Send, result: &str) -> Send {
    let id = reply.operation_id().expect("it is named");
    let target = format!("/.well-known/semel/operations/{id}{result}");
    request.clone().method("GET").body("").target(target).without("idempotency-key")
}

#[tokio::test]
async fn caller_without_permission_gets_no_replay() {
    let (site, upstream, judge) = (Site::new(), Upstream::start().await, Judge::start().await);
    let signer = Signer::ed();
    std::fs::write(site.folder.path().join("keys.json"), set(&[signer.jwk("a")])).expect("there is room");
    let file = format!(
        "{}[defaults]\n{}[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n",
        settings("keys.json", ""),
        judge.settings("")
    );
    let gateway = site.start_with(upstream.address, &file, &[]);
    let token = signer.good("a", "acme", "alice");
    let first = gateway.send(by(&token)).await;
    assert_eq!(first.status, 201);
    assert!(gateway.send(by(&token)).await.replayed());
    assert_eq!(gateway.send(page_of(&first, &by(&token), "")).await.json()["state"], "succeeded");
    assert_eq!(gateway.send(page_of(&first, &by(&token), "/result")).await.body, first.body);
    let question = |method: &str, path: &str| {
        let asked = json!({
            "tenant": "acme", "caller": "alice", "operation": "payments.create", "method": method, "path": path,
        });
        (asked, Some(format!("Bearer {token}")))
    };
    let page = format!("/.well-known/semel/operations/{}", first.operation_id().expect("it is named"));
    let command = question("POST", "/payments");
    let asked =
        [command.clone(), command, question("GET", &page), question("GET", &format!("{page}/result"))];
    assert_eq!(judge.asked(), asked);

    judge.say(403);
    let revoked = [by(&token), page_of(&first, &by(&token), ""), page_of(&first, &by(&token), "/result")];
    for request in &revoked {
        assert_eq!(gateway.send(request.clone()).await.problem(), problem(403, "FORBIDDEN"));
    }
    judge.say(401);
    for request in &revoked {
        let reply = gateway.send(request.clone()).await;
        assert_eq!(reply.problem(), problem(401, "UNAUTHENTICATED"));
        assert_eq!(reply.header("www-authenticate"), Some("Bearer error=\"insufficient_scope\""));
    }
    assert_eq!(judge.asked().len(), 6);
    judge.say(200);
    assert!(gateway.send(by(&token)).await.replayed(), "once they may again");
    assert_eq!(upstream.seen(), 1);
    let metrics = gateway.admin("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("authorizations_total{outcome=\"denied\"} 6"), "{metrics}");
}

#[tokio::test]
async fn unreachable_authorizer_means_503_and_nothing_runs() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let url = format!("http://{address}/check?from=semel");
    let gateway = site.start(upstream.address, &["--authorize-url", &url, "--authorize-timeout", "200ms"]);
    let unavailable = problem(503, "AUTHORIZATION_UNAVAILABLE");
    let down = gateway.send(pay("{}")).await;
    assert_eq!((down.problem(), down.header("retry-after")), (unavailable.clone(), Some("1")));

    let judge = Judge::start_on(TcpListener::bind(address).await.expect("the port is free again"));
    for status in [500, 503, 404, 302, 429] {
        judge.say(status);
        assert_eq!(gateway.send(pay("{}")).await.problem(), unavailable, "{status} is no answer");
    }
    assert_eq!(judge.asked().len(), 5, "no redirect is followed, and nothing is asked twice");
    judge.say(204);
    judge.gate.forget_permits(OPEN);
    assert_eq!(gateway.send(pay("{}")).await.problem(), unavailable, "one that does not answer is given up");
    assert_eq!(upstream.seen(), 0);

    judge.gate.add_permits(OPEN);
    let first = gateway.send(pay("{}")).await;
    assert_eq!(
        (first.status.as_u16(), first.header("seen-semel-attempt")),
        (201, Some("1")),
        "nothing was claimed"
    );
    judge.say(500);
    for request in [pay("{}"), page_of(&first, &pay(""), ""), page_of(&first, &pay(""), "/result")] {
        assert_eq!(gateway.send(request).await.problem(), unavailable, "no old response either");
    }
    assert_eq!(upstream.seen(), 1);
    gateway.logs("which is `authorize_timeout`").await;
}

#[tokio::test]
async fn only_a_permission_is_cached_and_only_for_its_caller_and_operation() {
    let (site, upstream, judge) = (Site::new(), Upstream::start().await, Judge::start().await);
    let file = format!(
        "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\ntenant_header = \"X-Tenant\"\n\
         caller_header = \"X-Caller\"\n[defaults]\n{}\n\
         [[operation]]\nname = \"free\"\nmatch = \"POST /free\"\nauthorize_url = \"off\"\n\
         [[operation]]\nname = \"renamed\"\nmatch = \"POST /renamed\"\naliases = [\"former\"]\n",
        judge.settings("authorize_cache = \"1h\"")
    );
    let gateway = site.start_with(upstream.address, &file, &[]);
    let as_caller = |caller: &str| pay("{}").with("x-tenant", "acme").with("x-caller", caller);
    judge.say(403);
    assert_eq!(gateway.send(as_caller("alice")).await.status, 403);
    judge.say(204);
    assert_eq!(gateway.send(as_caller("alice")).await.status, 201, "a no is not remembered");
    assert_eq!(judge.asked().len(), 2);
    judge.say(403);
    for _ in 0..5 {
        assert!(gateway.send(as_caller("alice")).await.replayed(), "a yes is");
    }
    assert_eq!(judge.asked(), [], "nobody was asked");
    assert_eq!(gateway.send(as_caller("bob")).await.status, 403);
    assert_eq!(gateway.send(as_caller("alice").target("/renamed")).await.status, 403);
    assert_eq!(gateway.send(as_caller("alice").target("/other")).await.status, 403);
    let asked: Vec<Value> =
        judge.asked().into_iter().map(|(question, _)| question["operation"].clone()).collect();
    assert_eq!(asked, ["POST /payments", "renamed", "POST /other"]);
    assert_eq!(gateway.send(as_caller("bob").target("/free")).await.status, 201);
    assert_eq!(judge.asked(), [], "where it is off, nobody is asked");
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn gateway_api_keys_are_not_sent_to_the_authorizer() {
    let (site, upstream, judge) = (Site::new(), Upstream::start().await, Judge::start().await);
    let create = ["keys", "create", "--tenant", "acme", "--caller", "alice", "--json"];
    let created = site.semel().args(create).output().expect("the program runs");
    let created: Value = serde_json::from_slice(&created.stdout).expect("it is JSON");
    let file = format!("[identity]\nsource = \"api-key\"\n[defaults]\n{}", judge.settings(""));
    let gateway = site.start_with(upstream.address, &file, &[]);
    assert_eq!(gateway.send(by(created["key"].as_str().expect("it is text"))).await.status, 201);
    let asked = judge.asked();
    assert_eq!((asked.len(), &asked[0].1), (1, &None));
    assert_eq!(gateway.send(pay("{}")).await.status, 401);
    assert_eq!(judge.asked(), [], "nobody is asked about strangers");
}
