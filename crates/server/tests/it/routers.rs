//! The gateway's normal form of a path against the routers of real frameworks: every request that reaches a
//! route behind the gateway was matched by that route's rule, and a refused request is never seen.
//!
//! Every route is protected and no request has a key: a request that reaches a route has evaded its rule.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, put};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::gateway::lab::Site;
use crate::third_party::{Program, node, python};

/// Protected routes: name and path.
const ROUTES: [(&str, &str); 4] = [
    ("payments", "/payments/{id}"),
    ("capture", "/orders/{id}/capture"),
    ("me", "/Account/me"),
    ("tags", "/v1.0/tags/{tag}"),
];

/// Spellings of a slash, most of them the plain one.
const SLASHES: [&str; 14] =
    ["/", "/", "/", "//", "/./", "/x/../", "%2F", "%2f", "\\", "%5C", "/;/", "%252F", "/..%2F", "%c0%af"];

/// Texts that are inserted after a letter.
const INSERTED: [&str; 20] = [
    ";x",
    "%3Bx",
    "%00",
    "%20",
    "+",
    "%0d%0a",
    ".",
    "%2e",
    "%",
    "%zz",
    "%3f",
    "%23",
    ":",
    "%3A",
    "\"",
    "{",
    "%7B",
    "%C3%A9",
    "%EF%BC%8F",
    "%e2%84%aa",
];

/// Texts that are appended.
const ENDS: [&str; 14] = ["", "", "", "", "/", "//", "/.", "%2F", ";", "?a", ".json", "%20", "%00", "/%2e"];

fn cases() -> usize {
    let cases = std::env::var("SEMEL_TEST_ROUTER_CASES").ok();
    cases.map_or(500, |cases| cases.parse().expect("SEMEL_TEST_ROUTER_CASES is a number"))
}

fn routes() -> String {
    serde_json::to_string(&ROUTES).expect("it is JSON")
}

/// Deterministic random choices (SplitMix64).
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("it is below a size")
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Returns a path in a random spelling of a route, with many disguises of letters and slashes.
fn spelled(choices: &mut Choices) -> (String, String) {
    let (_, route) = choices.of(&ROUTES);
    let plain = route.replace("{id}", choices.of(&["7", "aB", "x-1"])).replace("{tag}", "t");
    let mut letters: Vec<String> = plain.chars().map(String::from).collect();
    for _ in 0..=choices.below(3) {
        let at = choices.below(letters.len());
        let letter = letters[at].clone();
        let escaped =
            |prefix: &str| letter.bytes().map(|byte| format!("{prefix}{byte:02x}")).collect::<String>();
        letters[at] = match (letter.as_str(), choices.below(6)) {
            ("/", _) => choices.of(&SLASHES).to_owned(),
            (_, 0) => escaped("%"),
            (_, 1) => escaped("%").to_ascii_uppercase(),
            (_, 2) => escaped("%25"),
            (plain, 3) => format!("{plain}{}", choices.of(&INSERTED)),
            (plain, 4) => plain.to_ascii_uppercase(),
            (plain, _) => plain.to_ascii_lowercase(),
        };
    }
    let spelled = letters.concat() + choices.of(&ENDS);
    (plain, spelled)
}

/// Returns the status of the answer, and the reached route.
async fn ask(address: SocketAddr, target: &str, case: &str) -> (u16, Option<String>) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let head = format!(
        "PUT {target} HTTP/1.1\r\nhost: lab\r\nconnection: close\r\ncontent-length: 0\r\nx-case: {case}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    // A server that refuses a head may close at once.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let route = answer.lines().find_map(|line| line.strip_prefix("x-route: ").map(str::to_owned));
    (status, route)
}

async fn seen(address: SocketAddr) -> HashSet<String> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream
        .write_all(b"GET /seen HTTP/1.1\r\nhost: lab\r\nconnection: close\r\n\r\n")
        .await
        .expect("it is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("it is answered");
    let answer = String::from_utf8(answer).expect("it is text");
    let list =
        &answer[answer.find('[').expect("there is a list")..=answer.rfind(']').expect("there is a list")];
    serde_json::from_str(list).expect("it is a list of cases")
}

/// Settings under which Express gets a disguised route: the test must notice.
#[tokio::test]
async fn wrong_path_settings_for_express_are_detected() {
    let express = Program::start(node("express_service.mjs").arg("express").arg(routes()));
    let other = "trailing_slash = \"other\"\nletter_case = \"other\"\n";
    let trying = tokio::spawn(async move { try_behind("express", express.address, other).await });
    let error = trying.await.expect_err("Express ignores case and a slash at the end");
    let message = error.into_panic().downcast::<String>().expect("it says why");
    assert!(message.contains("has walked around the rule"), "{message}");
}

/// Tries every spelling directly and through a gateway with these settings for each route.
async fn try_behind(framework: &str, address: SocketAddr, settings: &str) {
    let rule = |(name, path): (&str, &str)| {
        format!("[[operation]]\nname = \"{name}\"\nmatch = \"PUT {path}\"\n{settings}")
    };
    let site = Site::new();
    let gateway = site.start_with(address, &ROUTES.map(rule).concat(), &[]);
    let choices = &mut Choices(21);
    let (mut refused, mut disguised, mut passed) = (Vec::new(), 0, 0);
    for number in 0..cases() {
        let (plain, target) = spelled(choices);
        let (_, direct) = ask(address, &target, "directly").await;
        disguised += usize::from(direct.is_some() && plain != target);
        let case = format!("case-{number}");
        let (status, route) = ask(gateway.address, &target, &case).await;
        assert_eq!(route, None, "{framework}: PUT {target} has walked around the rule");
        match status {
            400 => refused.push(case),
            _ => passed += 1,
        }
    }
    let seen = seen(address).await;
    let leaked: Vec<&String> = refused.iter().filter(|case| seen.contains(*case)).collect();
    assert_eq!(leaked, [""; 0], "{framework}: refused, and seen all the same");
    assert!(
        disguised > 0,
        "{framework}: no disguise reaches a route without a gateway, so nothing was tried"
    );
    assert!(passed > 0 && !refused.is_empty(), "{framework}: {passed} passed, {} refused", refused.len());
}

const SAME: &str = "trailing_slash = \"same\"\nletter_case = \"same\"\n";

#[tokio::test]
async fn no_spelling_reaches_a_route_of_express_around_its_rule() {
    for package in ["express", "express4"] {
        let express = Program::start(node("express_service.mjs").arg(package).arg(routes()));
        try_behind(package, express.address, "").await;
        try_behind(package, express.address, SAME).await;
    }
}

#[tokio::test]
async fn no_spelling_reaches_a_route_of_fastapi_around_its_rule() {
    let fastapi = Program::start(python("fastapi_service.py").arg(routes()));
    try_behind("fastapi", fastapi.address, "").await;
    try_behind("fastapi", fastapi.address, SAME).await;
}

type SeenCases = Arc<Mutex<Vec<String>>>;

async fn note(State(seen): State<SeenCases>, request: Request, next: Next) -> Response {
    if let Some(case) = request.headers().get("x-case").and_then(|case| case.to_str().ok()) {
        seen.lock().expect("nobody panics with it").push(case.to_owned());
    }
    next.run(request).await
}

async fn list(State(seen): State<SeenCases>) -> String {
    serde_json::to_string(&*seen.lock().expect("nobody panics with it")).expect("it is JSON")
}

#[tokio::test]
async fn no_spelling_reaches_a_route_of_axum_around_its_rule() {
    let seen = SeenCases::default();
    let mut app = Router::new().route("/seen", get(list));
    for (name, path) in ROUTES {
        app = app.route(path, put(move || async move { [("x-route", name)] }));
    }
    let app = app.layer(middleware::from_fn_with_state(seen.clone(), note)).with_state(seen);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    try_behind("axum", address, "").await;
    try_behind("axum", address, SAME).await;
}
