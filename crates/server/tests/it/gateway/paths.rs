//! Normal form of a path: no other spelling evades a rule, and the upstream sees no other.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::net::TcpListener;

use super::lab::{Gateway, Reply, Send, Site, pay, problem};

/// Service that records its requests.
pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    seen: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Recorder {
    pub(super) async fn start() -> Arc<Recorder> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let recorder = Arc::new(Recorder { address, seen: Mutex::default() });
        let app = Router::new().fallback(record).with_state(recorder.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        recorder
    }

    /// Returns the methods and targets of the requests since the last call.
    pub(super) fn seen(&self) -> Vec<String> {
        self.take().into_iter().map(|(line, _)| line).collect()
    }

    fn take(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut *self.seen.lock().expect("nobody panics with it"))
    }
}

async fn record(State(recorder): State<Arc<Recorder>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("it arrives").to_bytes().to_vec();
    let line = format!("{} {}", parts.method, parts.uri);
    recorder.seen.lock().expect("nobody panics with it").push((line, body));
    Response::new(axum::body::Body::from("done"))
}

fn send(method: &'static str, target: &str) -> Send {
    let body = if method == "GET" { "" } else { "{}" };
    pay(body).method(method).target(target)
}

/// Returns a request without a key, like one that tries to evade a rule.
fn keyless(method: &'static str, target: &str) -> Send {
    send(method, target).without("idempotency-key")
}

async fn site(file: &str) -> (Site, Arc<Recorder>, Gateway) {
    let (site, upstream) = (Site::new(), Recorder::start().await);
    let gateway = site.start_with(upstream.address, file, &[]);
    (site, upstream, gateway)
}

const PUT_PAYMENTS: &str = "[[operation]]\nname = \"payments.replace\"\nmatch = \"PUT /payments/{id}\"\n";

/// Spellings of `/payments/7` that some servers accept, and that have no normal form.
const DISGUISES: [&str; 22] = [
    "//payments/7",
    "/payments//7",
    "/payments/7/",
    "/payments/7//",
    "/Payments/7",
    "/PAYMENTS/7",
    "/payments%2F7",
    "/payments%5C7",
    "/payments;x/7",
    "/payments%3Bx/7",
    "/%2570ayments/7",
    "/%25%37%30ayments/7",
    "/x/../payments/7",
    "/x/%2e%2e/payments/7",
    "/x/..%2Fpayments/7",
    "/x/..%00/payments/7",
    "/x/..;/payments/7",
    "/./payments/7",
    "/payments%00/7",
    "/payments/7%00",
    "/%C0%AFpayments/7",
    "/payments%2/7",
];

#[tokio::test]
async fn no_spelling_of_a_path_evades_the_rule_of_its_operation() {
    let (_site, upstream, gateway) = site(PUT_PAYMENTS).await;
    for spelling in ["/payments/7", "/p%61yments/7", "/%70%61yments/%37"] {
        let reply = gateway.send(keyless("PUT", spelling)).await;
        assert_eq!(reply.problem(), problem(400, "MISSING_IDEMPOTENCY_KEY"), "{spelling}");
    }
    for spelling in DISGUISES {
        let reply = gateway.send(keyless("PUT", spelling)).await;
        assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "{spelling}");
        let reply = gateway.send(send("PUT", spelling)).await;
        assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "{spelling}");
    }
    assert_eq!(upstream.seen(), [""; 0], "nothing was passed on");

    assert_eq!(gateway.send(send("PUT", "/p%61yments/7?a=%61")).await.status, 200);
    assert_eq!(
        upstream.seen(),
        ["PUT /payments/7?a=%61"],
        "the upstream gets the form, and the query as sent"
    );
    let again = gateway.send(send("PUT", "/payments/%37?a=%61")).await;
    assert!(again.replayed(), "one command in two spellings: {again:?}");
    let other = gateway.send(send("PUT", "/payments/7?a=a")).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
}

#[tokio::test]
async fn one_key_on_two_spellings_of_an_unnamed_path_runs_once() {
    let (_site, upstream, gateway) = site("").await;
    assert_eq!(gateway.send(send("POST", "/p%61youts/%37")).await.status, 200);
    for spelling in ["/payouts/7", "/%70ayouts/7", "/payout%73/7"] {
        assert!(gateway.send(send("POST", spelling)).await.replayed(), "{spelling}");
    }
    assert_eq!(upstream.seen(), ["POST /payouts/7"]);
}

#[tokio::test]
async fn authorizer_gets_the_canonical_path() {
    let judge = Recorder::start().await;
    let rule = format!(
        "[[operation]]\nname = \"payouts.create\"\nmatch = \"POST /payouts\"\nauthorize_url = \"http://{}/check\"\n",
        judge.address
    );
    let (_site, upstream, gateway) = site(&rule).await;
    assert_eq!(gateway.send(send("POST", "/p%61youts")).await.status, 200);
    let asked: Vec<Value> =
        judge.take().iter().map(|(_, body)| serde_json::from_slice(body).expect("it is JSON")).collect();
    let asked: Vec<_> =
        asked.iter().map(|asked| (asked["operation"].as_str(), asked["path"].as_str())).collect();
    assert_eq!(asked, [(Some("payouts.create"), Some("/payouts"))]);
    assert_eq!(upstream.seen(), ["POST /payouts"]);
    for spelling in ["/payouts/", "/Payouts", "//payouts", "/payouts%2f"] {
        let key = format!("another-key-{}-0123456789", spelling.len());
        let reply = gateway.send(send("POST", spelling).set("idempotency-key", key)).await;
        assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "{spelling}");
    }
    assert_eq!((judge.seen(), upstream.seen()), (vec![], vec![]));
}

#[tokio::test]
async fn a_business_reference_counts_in_every_spelling_of_its_path() {
    let rule = "[[operation]]\nname = \"orders.create\"\nmatch = \"POST /orders\"\nbusiness_reference = \"/order\"\n";
    let (_site, upstream, gateway) = site(rule).await;
    let order = |target: &str, key: &str| {
        pay(r#"{"order":"7"}"#).target(target.to_owned()).set("idempotency-key", format!("{key}-0123456789"))
    };
    assert_eq!(gateway.send(order("/orders", "first")).await.status, 200);
    let second = gateway.send(order("/ord%65rs", "second")).await;
    assert_eq!(second.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    for spelling in ["/orders/", "/ORDERS", "/orders;v=1"] {
        let third = gateway.send(order(spelling, "third")).await;
        assert_eq!(third.problem(), problem(400, "MALFORMED_REQUEST"), "{spelling}");
    }
    assert_eq!(upstream.seen(), ["POST /orders"]);
}

#[tokio::test]
async fn trailing_slash_and_letter_case_settings_decide_if_a_route_matches() {
    let same = format!("{PUT_PAYMENTS}trailing_slash = \"same\"\nletter_case = \"same\"\n");
    let (_site, upstream, gateway) = site(&same).await;
    assert_eq!(
        gateway.send(keyless("PUT", "/PAYMENTS/aB/")).await.problem(),
        problem(400, "MISSING_IDEMPOTENCY_KEY")
    );
    assert_eq!(gateway.send(send("PUT", "/PAYMENTS/aB/")).await.status, 200);
    assert!(gateway.send(send("PUT", "/payments/aB")).await.replayed());
    assert_eq!(upstream.seen(), ["PUT /payments/aB"], "the upstream gets it as the route spells it");

    let other = format!("{PUT_PAYMENTS}trailing_slash = \"other\"\nletter_case = \"other\"\n");
    let (_site, upstream, gateway) = site(&other).await;
    assert_eq!(gateway.send(keyless("PUT", "/PAYMENTS/7/")).await.status, 200, "it is no path of a rule");
    assert_eq!(upstream.seen(), ["PUT /PAYMENTS/7/"]);
    assert_eq!(
        gateway.send(keyless("PUT", "/payments/7")).await.problem(),
        problem(400, "MISSING_IDEMPOTENCY_KEY")
    );
}

#[tokio::test]
async fn an_operation_admits_only_the_path_exceptions_it_allows() {
    let rule =
        "[[operation]]\nname = \"files.put\"\nmatch = \"PUT /files/{*name}\"\nallow = [\"encoded-slash\"]\n";
    let (_site, upstream, gateway) = site(&format!("{PUT_PAYMENTS}{rule}")).await;
    assert_eq!(gateway.send(send("PUT", "/files/a%2fb")).await.status, 200);
    assert_eq!(upstream.seen(), ["PUT /files/a%2Fb"]);
    for refused in ["/files/..%2Fpayments%2F7", "/files/a%5Cb", "/payments%2F7", "/files%2F..%2Fpayments/7"] {
        let reply = gateway.send(send("PUT", refused)).await;
        assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "{refused}");
    }
    let wide = "[[operation]]\nname = \"all.put\"\nmatch = \"PUT /{*all}\"\nallow = [\"encoded-slash\"]\n";
    let (_site, wide_upstream, gateway) = site(&format!("{PUT_PAYMENTS}{wide}")).await;
    let reply = gateway.send(send("PUT", "/payments%2F7")).await;
    assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "some take it for a payment");
    assert_eq!((upstream.seen(), wide_upstream.seen()), (vec![], vec![]));
}

#[tokio::test]
async fn our_own_paths_never_reach_the_upstream() {
    let (_site, upstream, gateway) = site("").await;
    let own = gateway.send(keyless("GET", "/.well-known/semel/problems/missing-key")).await;
    assert_ne!(own.status, 400);
    for (method, path) in [("GET", "/.well-known/semel/"), ("GET", "/.well-known/semel/nothing")] {
        assert_eq!(gateway.send(keyless(method, path)).await.status, 404, "{path}");
    }
    assert_eq!(gateway.send(send("POST", "/.well-known/semel/nothing")).await.status, 405);
    for path in [
        "/.well-known/semel",
        "/.Well-Known/Semel/operations/1",
        "/.well-known/semel%2Foperations/1",
        "/%2Ewell-known/semel/operations/1",
        "/.well-known//semel/operations/1",
        "/.well-known/semel;/operations/1",
    ] {
        for method in ["GET", "POST", "PUT"] {
            let reply = gateway.send(send(method, path)).await;
            assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "{method} {path}");
        }
    }
    assert_eq!(upstream.seen(), [""; 0]);
    let spelled: Reply = gateway.send(keyless("GET", "/.well-known/%73emel/nothing")).await;
    assert_eq!(spelled.status, 404);
}

#[tokio::test]
async fn paths_without_a_rule_pass_in_their_normal_form() {
    let (_site, upstream, gateway) = site(PUT_PAYMENTS).await;
    for (sent, seen) in [
        ("/p%61yments/7?x=%2F..;", "GET /payments/7?x=%2F..;"),
        ("/caf%c3%a9", "GET /caf%C3%A9"),
        ("/Payments/7/", "GET /Payments/7/"),
        ("/a%3ab", "GET /a%3Ab"),
    ] {
        assert_eq!(gateway.send(keyless("GET", sent)).await.status, 200, "{sent}");
        assert_eq!(upstream.seen(), [seen]);
    }
    for sent in ["/a//b", "/a%2Fb", "/a;b", "/a/%2e%2e/b", "/%00"] {
        let reply = gateway.send(keyless("GET", sent)).await;
        assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "{sent}");
    }
    assert_eq!(upstream.seen(), [""; 0]);
}

#[tokio::test]
async fn a_pass_admits_only_its_path_exceptions_and_evades_no_rule() {
    let pass = "[[pass]]\nmatch = \"GET /files/{*name}\"\nallow = [\"encoded-slash\", \"empty-segment\"]\n\
                [[pass]]\nmatch = \"PUT /{*all}\"\nallow = [\"encoded-slash\"]\n";
    let (_site, upstream, gateway) = site(&format!("{PUT_PAYMENTS}{pass}")).await;
    let get = |target: &str| gateway.send(keyless("GET", target));
    assert_eq!(get("/files/a%2fb//c").await.status, 200);
    assert_eq!(gateway.send(keyless("PUT", "/other/a%2Fb")).await.status, 200);
    assert_eq!(upstream.seen(), ["GET /files/a%2Fb//c", "PUT /other/a%2Fb"]);
    for refused in ["/files/a;b", "/files/..%2F..", "/a%2Fb", "//files/a", "/files%2Fa"] {
        assert_eq!(get(refused).await.problem(), problem(400, "MALFORMED_REQUEST"), "{refused}");
    }
    for around in ["/payments%2F7", "/Payments%2F7", "/payments%2F7/"] {
        let reply = gateway.send(keyless("PUT", around)).await;
        assert_eq!(
            reply.problem(),
            problem(400, "MALFORMED_REQUEST"),
            "{around}: some take it for a payment"
        );
    }
    assert_eq!(upstream.seen(), [""; 0]);
}
