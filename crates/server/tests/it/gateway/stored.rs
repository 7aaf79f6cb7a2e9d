//! Stored responses: all of a response, its head, or the address of the new resource; never a credential.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::HeaderMap;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::canary::{dump, rows, shows};
use super::lab::{Gateway, KEY, Reply, Send, Site, pay, problem};

const BODY: &str = "canary-of-the-body-51c7";
const COOKIE: &str = "canary-of-a-cookie-9f02";
const TOKEN: &str = "canary-of-a-token-7ab3";

/// Shop that makes orders, and shows them to their owners.
struct Shop {
    address: SocketAddr,
    made: AtomicUsize,
    shown: AtomicUsize,
    /// Owners of orders, as the gateway named them.
    owners: Mutex<HashMap<String, String>>,
    /// Current version of an order, if it has changed.
    now: Mutex<Now>,
    /// Headers of the last request for an order.
    asked: Mutex<HeaderMap>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Now {
    AsItWasMade,
    Changed,
    Status(u16),
    Large,
    /// Makes nothing at the moment.
    Busy,
}

impl Shop {
    async fn open() -> Arc<Shop> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let shop = Arc::new(Shop {
            address: listener.local_addr().expect("it is bound"),
            made: AtomicUsize::new(0),
            shown: AtomicUsize::new(0),
            owners: Mutex::default(),
            now: Mutex::new(Now::AsItWasMade),
            asked: Mutex::default(),
            serving: Mutex::default(),
        });
        let app = Router::new()
            .route("/payments", post(make))
            .route("/reports", post(make))
            .route("/payments/{id}", get(show))
            .with_state(shop.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        *shop.serving.lock().expect("nobody panics with it") = Some(serving);
        shop
    }

    fn is_now(&self, now: Now) {
        *self.now.lock().expect("nobody panics with it") = now;
    }

    /// Refuses connections from now on. No connection stays open.
    async fn close(&self) {
        let serving = self.serving.lock().expect("nobody panics with it").take().expect("it is open");
        serving.abort();
        let _ = serving.await;
    }

    /// Returns the numbers of orders made and of orders shown.
    fn counts(&self) -> (usize, usize) {
        (self.made.load(Ordering::SeqCst), self.shown.load(Ordering::SeqCst))
    }

    fn asked(&self, name: &str) -> Option<String> {
        let asked = self.asked.lock().expect("nobody panics with it");
        asked.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }
}

fn caller(headers: &HeaderMap) -> String {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("nobody");
    format!("{}/{}", field("semel-tenant"), field("semel-caller"))
}

async fn make(State(shop): State<Arc<Shop>>, headers: HeaderMap) -> Response {
    if *shop.now.lock().expect("nobody panics with it") == Now::Busy {
        return Response::builder().status(429).body(Body::empty()).expect("it is valid");
    }
    let id = (shop.made.fetch_add(1, Ordering::SeqCst) + 1).to_string();
    shop.owners.lock().expect("nobody panics with it").insert(id.clone(), caller(&headers));
    let location = match headers.get("x-location").and_then(|value| value.to_str().ok()) {
        Some("upstream") => format!("http://{}/payments/{id}", shop.address),
        Some(other) => other.to_owned(),
        None => format!("/payments/{id}"),
    };
    let status = headers.get("x-do").and_then(|what| what.to_str().ok()).unwrap_or("201");
    Response::builder()
        .status(status)
        .header("connection", "close")
        .header("location", location)
        .header("content-type", "application/json")
        .header("etag", "\"made\"")
        .header("set-cookie", format!("session={COOKIE}"))
        .header("set-cookie2", format!("session={COOKIE}"))
        .header("www-authenticate", format!("Bearer realm=\"{TOKEN}\""))
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("proxy-authenticate", TOKEN)
        .header("x-api-key", TOKEN)
        .header("x-auth-token", TOKEN)
        .header("x-amz-security-token", TOKEN)
        .header("x-csrf-token", TOKEN)
        .header("x-secret-of-ours", TOKEN)
        .header("x-cost", "7")
        .body(Body::from(format!("{{\"order\":\"{id}\",\"card\":\"{BODY}\"}}")))
        .expect("it is valid")
}

async fn show(State(shop): State<Arc<Shop>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    shop.shown.fetch_add(1, Ordering::SeqCst);
    let owner = shop.owners.lock().expect("nobody panics with it").get(&id).cloned();
    let is_owner = owner == Some(caller(&headers));
    *shop.asked.lock().expect("nobody panics with it") = headers;
    let response =
        Response::builder().header("connection", "close").header("content-type", "application/json");
    let response = response.header("etag", "\"now\"").header("set-cookie", format!("session={COOKIE}"));
    let now = *shop.now.lock().expect("nobody panics with it");
    let (status, body) = match now {
        _ if !is_owner => (403, "{}".to_owned()),
        Now::AsItWasMade => (200, format!("{{\"order\":\"{id}\",\"card\":\"{BODY}\"}}")),
        Now::Changed => (200, format!("{{\"order\":\"{id}\",\"state\":\"sent\"}}")),
        Now::Status(status) => (status, "{}".to_owned()),
        Now::Busy => (429, "{}".to_owned()),
        Now::Large => (200, "x".repeat(2 << 20)),
    };
    response.status(status).body(Body::from(body)).expect("it is valid")
}

/// Identity settings: the proxy in front names the callers.
const IDENTITY: &str = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                        tenant_header = \"x-tenant\"\ncaller_header = \"x-user\"\n";

fn order(body: &str) -> Send {
    pay(body).with("x-tenant", "acme")
}

async fn open(stored: &str) -> (Site, Arc<Shop>, Gateway) {
    let (site, shop) = (Site::new(), Shop::open().await);
    let gateway = start(&site, &shop, stored);
    (site, shop, gateway)
}

fn start(site: &Site, shop: &Shop, stored: &str) -> Gateway {
    let file = format!(
        "{IDENTITY}[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\nstore_response = \"{stored}\"\n\
         store_headers_except = [\"X-Secret-Of-Ours\"]\n\
         [[operation]]\nname = \"reports.create\"\nmatch = \"POST /reports\"\nmode = \"async\"\nstore_response = \"{stored}\"\n\
         store_headers_except = [\"X-Secret-Of-Ours\"]\n"
    );
    site.start_with(shop.address, &file, &[])
}

fn not_retained(status: u16) -> (u16, String) {
    problem(status, "IDEMPOTENCY_RESPONSE_NOT_RETAINED")
}

fn unavailable(status: u16) -> (u16, String) {
    problem(status, "IDEMPOTENCY_RESULT_UNAVAILABLE")
}

#[tokio::test]
async fn retries_get_a_stored_head_without_its_body() {
    let (site, shop, mut gateway) = open("headers").await;
    let first = gateway.send(order("{}")).await;
    assert_eq!((first.status.as_u16(), first.json()["card"].as_str()), (201, Some(BODY)));
    let from_memory = gateway.send(order("{}")).await;
    gateway.kill();
    // A new gateway has an empty cache.
    let gateway = start(&site, &shop, "headers");
    for again in [from_memory, gateway.send(order("{}")).await] {
        assert!(again.replayed());
        assert_eq!(again.problem(), not_retained(201));
        assert_eq!((again.header("location"), again.header("x-cost")), (Some("/payments/1"), Some("7")));
        assert_eq!((again.header("etag"), again.header("x-secret-of-ours")), (None, None));
    }
    assert_eq!(shop.counts(), (1, 0));
}

#[tokio::test]
async fn a_retry_fetches_the_current_state_of_the_created_resource() {
    let (site, shop, mut gateway) = open("reference").await;
    let first = gateway.send(order("{}")).await;
    let again = gateway.send(order("{}")).await;
    assert_eq!((again.status, again.replayed(), &again.body), (first.status, true, &first.body));
    gateway.kill();
    let gateway = start(&site, &shop, "reference");
    shop.is_now(Now::Changed);
    let again = gateway.send(order("{}").with("authorization", "Bearer of-this-retry")).await;
    assert_eq!((again.status.as_u16(), again.replayed()), (201, true));
    assert_eq!(again.json()["state"], "sent");
    for name in ["location", "content-location"] {
        assert_eq!(again.header(name), Some("/payments/1"), "{name}");
    }
    assert_eq!((again.header("etag"), again.header("cache-control")), (Some("\"now\""), Some("no-store")));
    assert_eq!((again.header("set-cookie"), again.header("x-cost")), (None, None));
    assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
    let asked = |name: &str| shop.asked(name);
    assert_eq!(
        (asked("semel-tenant").as_deref(), asked("semel-caller").as_deref()),
        (Some("acme"), Some("alice"))
    );
    assert_eq!(asked("authorization").as_deref(), Some("Bearer of-this-retry"));
    for name in ["idempotency-key", "content-type", "semel-operation-id", "semel-attempt"] {
        assert_eq!(asked(name), None, "{name}");
    }
    assert_eq!(shop.counts(), (1, 2));
}

#[tokio::test]
async fn another_caller_with_an_equal_key_makes_its_own_order() {
    let (_site, shop, gateway) = open("reference").await;
    gateway.send(order("{}")).await;
    let bob = || order("{}").set("x-user", "bob");
    let other = gateway.send(bob()).await;
    assert_eq!((other.replayed(), other.json()["order"].as_str()), (false, Some("2")));
    assert_eq!(gateway.send(bob()).await.header("location"), Some("/payments/2"));
    assert_eq!(shop.asked("semel-caller").as_deref(), Some("bob"));
    assert_eq!(shop.counts(), (2, 1));
}

#[tokio::test]
async fn a_stored_foreign_address_is_returned_and_never_fetched() {
    let elsewhere = Shop::open().await;
    let (_site, shop, gateway) = open("reference").await;
    let foreign = format!("http://{}/payments/1", elsewhere.address);
    for (number, address) in
        [&*foreign, "//evil.example/payments/1", "/x/%2e%2e/payments/1"].iter().enumerate()
    {
        let request = || {
            let key = format!("a-key-of-its-own-{number:04}");
            order("{}").set("idempotency-key", key).with("x-location", *address)
        };
        gateway.send(request()).await;
        let again = gateway.send(request()).await;
        assert_eq!((again.problem(), again.header("location")), (not_retained(201), Some(*address)));
    }
    assert_eq!((shop.counts(), elsewhere.counts()), ((3, 0), (0, 0)));
    for (number, address) in ["upstream", "http://lab/payments/5"].into_iter().enumerate() {
        let request = || {
            let key = format!("a-key-of-mine-{number:04}");
            order("{}").set("idempotency-key", key).with("x-location", address)
        };
        let first = gateway.send(request()).await;
        let again = gateway.send(request()).await;
        assert_eq!((again.replayed(), &again.body), (true, &first.body), "{address}");
        assert_eq!(again.header("content-location"), first.header("location"));
    }
    assert_eq!(shop.counts(), (5, 2));
}

#[tokio::test]
async fn unfetchable_result_is_reported_and_nothing_runs_again() {
    let (_site, shop, gateway) = open("reference").await;
    let first = gateway.send(order("{}")).await;
    for now in [Now::Status(404), Now::Status(410), Now::Status(302), Now::Large] {
        shop.is_now(now);
        let again = gateway.send(order("{}")).await;
        assert_eq!(
            (again.problem(), again.header("location")),
            (not_retained(201), Some("/payments/1")),
            "{now:?}"
        );
    }
    for (status, code) in [(401, "UNAUTHENTICATED"), (403, "FORBIDDEN")] {
        shop.is_now(Now::Status(status));
        let again = gateway.send(order("{}")).await;
        assert_eq!((again.problem(), again.header("location")), (problem(status, code), None));
    }
    for status in [500, 503] {
        shop.is_now(Now::Status(status));
        let again = gateway.send(order("{}")).await;
        assert_eq!((again.problem(), again.header("retry-after")), (unavailable(503), Some("1")));
    }
    let other = gateway.send(order("{\"amount\":6}")).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    assert_eq!(shop.counts(), (1, 8), "and nothing is fetched for another request");
    shop.is_now(Now::AsItWasMade);
    assert_eq!(gateway.send(order("{}")).await.body, first.body);
    shop.close().await;
    let down = gateway.send(order("{}")).await;
    assert_eq!((down.problem(), down.header("location")), (unavailable(503), Some("/payments/1")));
    assert_eq!(shop.counts(), (1, 9));
}

#[tokio::test]
async fn caller_who_lost_access_gets_no_stored_result() {
    let (_site, shop, gateway) = open("reference").await;
    gateway.send(order("{}")).await;
    assert_eq!(gateway.send(order("{}")).await.status, 201);
    shop.owners.lock().expect("nobody panics with it").insert("1".to_owned(), "acme/bob".to_owned());
    let revoked = gateway.send(order("{}")).await;
    assert_eq!((revoked.problem(), revoked.replayed()), (problem(403, "FORBIDDEN"), false));
    assert!(!shows(&revoked.body, BODY));
    assert_eq!(shop.counts(), (1, 2));
}

fn result_of(reply: &Reply) -> Send {
    let id = reply.operation_id().expect("it is named");
    order("")
        .method("GET")
        .target(format!("/.well-known/semel/operations/{id}/result"))
        .without("idempotency-key")
}

/// Waits until an asynchronous command is done.
async fn done(gateway: &Gateway, request: impl Fn() -> Send) -> Reply {
    loop {
        let reply = gateway.send(request()).await;
        if reply.status != 202 {
            return reply;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_result_of_an_asynchronous_command_is_fetched_by_reference() {
    let (_site, shop, gateway) = open("reference").await;
    let accepted = gateway.send(order("{}").target("/reports")).await;
    assert_eq!(accepted.status, 202);
    let again = done(&gateway, || order("{}").target("/reports")).await;
    let result = gateway.send(result_of(&accepted)).await;
    for reply in [again, result] {
        assert_eq!((reply.status.as_u16(), reply.replayed()), (201, true));
        assert_eq!(reply.json()["card"], BODY);
    }
    assert_eq!(shop.counts(), (1, 2));
}

/// Returns a command with credentials in its request and in its response.
fn with_canaries(request: Send) -> Send {
    request
        .with("authorization", format!("Bearer {TOKEN}"))
        .with("cookie", format!("session={COOKIE}"))
        .with("x-auth-token", TOKEN)
        .with("x-csrf-token", TOKEN)
        .with("proxy-authorization", TOKEN)
        .with("x-secret-of-ours", TOKEN)
}

#[tokio::test]
async fn keys_credentials_and_unwanted_bodies_are_in_no_store_log_or_metric() {
    for stored in ["full", "headers", "reference"] {
        let (site, shop, mut gateway) = open(stored).await;
        for _ in 0..2 {
            assert_eq!(gateway.send(with_canaries(order("{}"))).await.status, 201);
        }
        let declined = || with_canaries(order("{}").set("idempotency-key", "another-key-0001").doing("422"));
        for _ in 0..2 {
            assert_eq!(gateway.send(declined()).await.status, 422);
        }
        let metrics = gateway.admin("/metrics").await.body;
        let look = |when: &str, bytes: &[u8]| {
            for hidden in [KEY, "another-key-0001", COOKIE, TOKEN] {
                assert!(!shows(bytes, hidden), "{hidden}, with {stored}, {when}");
            }
        };
        let stored_now = dump(&site);
        look("while it runs", &stored_now);
        assert_eq!(shows(&stored_now, BODY), stored == "full", "{stored}");
        look("in metrics", &metrics);
        gateway.terminate();
        gateway.ended().await;
        let stored_now = dump(&site);
        look("when it has ended", &stored_now);
        assert_eq!(shows(&stored_now, BODY), stored == "full", "{stored}");
        look("in its log", gateway.log().as_bytes());
        assert!(!shows(gateway.log().as_bytes(), BODY) && !shows(&metrics, BODY));
        assert_eq!(shop.counts().0, 2);
    }
}

#[tokio::test]
async fn a_request_that_waits_is_kept_without_credentials_and_its_response_as_wanted() {
    for stored in ["full", "headers", "reference"] {
        let (site, shop, mut gateway) = open(stored).await;
        shop.is_now(Now::Busy);
        let later = || with_canaries(order("{}").target("/reports"));
        assert_eq!(gateway.send(later()).await.status, 202);
        gateway.terminate();
        gateway.ended().await;
        assert_eq!(site.column("SELECT CAST(count(*) AS text) FROM semel_requests"), ["1"]);
        let waiting = dump(&site);
        for hidden in [COOKIE, TOKEN] {
            assert!(!shows(&waiting, hidden), "{hidden}, with {stored}");
        }
        assert!(shows(&waiting, KEY), "the upstream is to get the key: it goes with the request");

        shop.is_now(Now::AsItWasMade);
        let gateway = start(&site, &shop, stored);
        let last = done(&gateway, later).await;
        assert!(last.replayed(), "{last:?}");
        let kept = if site.is_postgres() { dump(&site) } else { rows(&site) };
        for hidden in [COOKIE, TOKEN, KEY] {
            assert!(!shows(&kept, hidden), "{hidden}, with {stored}");
        }
        assert_eq!(shows(&kept, BODY), stored == "full", "{stored}");
        assert_eq!(shop.counts().0, 1);
    }
}

fn run(site: &Site, arguments: &[&str]) -> Output {
    site.semel().args(arguments).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn a_resolved_command_stores_the_response_as_store_response_declares() {
    for stored in ["full", "headers", "reference"] {
        let (site, shop, gateway) = open(stored).await;
        let first = gateway.send(order("{}")).await;
        let id = first.operation_id().expect("it is named");
        let shown = run(&site, &["records", "show", id, "--json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("it is JSON");
        assert_eq!((&shown["status"], &shown["resource"]), (&201.into(), &"/payments/1".into()));
        assert_eq!(shown["bodyStored"], stored == "full");
        let story = text(&run(&site, &["records", "explain", id]));
        assert_eq!(story.contains("without its body, which was not stored"), stored != "full", "{story}");

        let unknown = || order("{}").set("idempotency-key", "another-key-0001").doing("500");
        let id = gateway.send(unknown()).await;
        let id = id.operation_id().expect("it is named");
        std::fs::write(site.folder.path().join("answer.json"), "{\"found\":true}").expect("there is room");
        let resolve = [
            "records",
            "resolve",
            id,
            "--verdict",
            "executed",
            "--status",
            "201",
            "--reason",
            "in the books",
        ];
        let (with_body, bare) = (["--body", "answer.json"], ["--header", "Location: /payments/2"]);
        let more = if stored == "reference" { &bare } else { &with_body };
        let resolved = run(&site, &[&resolve[..], &more[..]].concat());
        assert!(resolved.status.success(), "{resolved:?}");
        assert_eq!(text(&resolved).contains("the body is not stored"), stored == "headers", "{resolved:?}");
        let again = gateway.send(unknown()).await;
        assert!(again.replayed());
        match stored {
            "full" => assert_eq!(again.json()["found"], true),
            "headers" => assert_eq!(again.problem(), not_retained(201)),
            _ => assert_eq!((again.status.as_u16(), again.json()["order"].as_str()), (201, Some("2"))),
        }
        assert_eq!(shop.counts().0, 2);
    }
}

#[tokio::test]
async fn store_response_can_be_set_by_flag_and_by_variable() {
    let (site, shop) = (Site::new(), Shop::open().await);
    let by_flag = site.start(shop.address, &["--store-response", "headers"]);
    by_flag.send(pay("{}")).await;
    assert_eq!(by_flag.send(pay("{}")).await.problem(), not_retained(201));
    let by_variable = site.start_in(shop.address, "", &[], &[("SEMEL_STORE_RESPONSE", "reference")]);
    let again = by_variable.send(pay("{}")).await;
    assert_eq!((again.replayed(), again.json()["card"].as_str()), (true, Some(BODY)));
    assert_eq!(shop.counts().0, 1);
}
