//! People whom a proxy in front of the admin listener has signed in.

use std::time::Duration;

use serde_json::{Value, json};

use super::admin::refusal;
use super::lab::{Gateway, Reply, Send, Site, Upstream, pay, problem};

const TOKEN: (&str, &str) = ("VERA_TOKEN", "canary-viewer-0123456789abcdef0123456789");
const TOKENS: &str = "[[admin.token]]\nname = \"vera\"\nrole = \"viewer\"\nenv = \"VERA_TOKEN\"\n";

fn sso(proxy: &str) -> String {
    format!(
        "[admin.sso]\ntrusted_proxies = [\"{proxy}\"]\nuser_header = \"X-User\"\ngroups_header = \"X-Groups\"\n\
         operators = [\"olga\", \"group:oncall\"]\nviewers = [\"*\"]\n"
    )
}

/// Returns a request of the console, sent by a proxy for this user.
fn of(gateway: &Gateway, method: &'static str, path: &str, user: &str) -> Send {
    gateway.ask(method, path).with("semel-console", "1").with("x-user", user)
}

async fn send(gateway: &Gateway, request: Send) -> Reply {
    request.to(gateway.admin).await
}

/// Returns two members of each of the log's events of this kind, once there are this many.
async fn logged(gateway: &Gateway, event: &str, members: [&str; 2], count: usize) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for _ in 0..400 {
        let log = gateway.log();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_kind = events.filter(|found| found["event"] == event);
        let found: Vec<_> =
            of_kind.map(|found| (text(&found[members[0]]), text(&found[members[1]]))).collect();
        if found.len() >= count {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("there are not {count} events in the log: {}", gateway.log());
}

#[tokio::test]
async fn a_person_signed_in_by_the_proxy_acts_under_their_name_and_role() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, &sso("127.0.0.1"), &[]);
    let paid = gateway.send(pay("{}")).await;
    let id = paid.operation_id().expect("it is a command").to_owned();
    for user in ["olga", "emil"] {
        let reply = send(&gateway, of(&gateway, "GET", "/admin/v1/status", user)).await;
        assert_eq!(reply.status, 200, "{user}: {reply:?}");
    }
    let purge = |user: &str| {
        let request = of(&gateway, "POST", &format!("/admin/v1/records/{id}/purge"), user);
        request.body(json!({ "reason": "ticket 7" }).to_string())
    };
    assert_eq!(refusal(&send(&gateway, purge("emil")).await), problem(403, "FORBIDDEN"), "a viewer");
    let done = send(&gateway, purge("emil").with("x-groups", "support, oncall")).await;
    assert_eq!(done.status, 200, "the group is an operator: {done:?}");
    let noted = site.column("SELECT who || '|' || action || '|' || why FROM semel_audit");
    assert_eq!(noted, ["sso:emil|purge|ticket 7"]);
    let actions = logged(&gateway, "admin_action", ["who", "result"], 2).await;
    let (who, results): (Vec<_>, Vec<_>) = actions.into_iter().unzip();
    assert_eq!(
        (who, results),
        (vec!["sso:emil".to_owned(); 2], vec!["FORBIDDEN".to_owned(), "done".to_owned()])
    );
}

#[tokio::test]
async fn a_header_of_single_sign_on_counts_only_from_a_trusted_proxy() {
    let (mut site, upstream) = (Site::new(), Upstream::start().await);
    site.variables = vec![TOKEN];
    let elsewhere = site.start_with(upstream.address, &sso("192.0.2.1"), &[]);
    let reply = send(&elsewhere, of(&elsewhere, "GET", "/admin/v1/status", "olga")).await;
    assert_eq!(refusal(&reply), problem(401, "UNAUTHENTICATED"));
    let reply = elsewhere.admin("/admin/v1/status").await;
    assert_eq!(refusal(&reply), problem(401, "UNAUTHENTICATED"), "nobody is local any more");
    assert_eq!(elsewhere.admin("/healthz").await.status, 200);
    let denied = logged(&elsewhere, "admin_denied", ["why", "result"], 2).await;
    let missing = ("missing".to_owned(), "UNAUTHENTICATED".to_owned());
    assert_eq!(denied, [missing.clone(), missing]);

    let both = format!("{TOKENS}{}", sso("127.0.0.1"));
    let gateway = site.start_with(upstream.address, &both, &[]);
    let purge = |request: Send| request.body(json!({ "reason": "r" }).to_string());
    let path = "/admin/v1/records/01a1df32-caa3-786d-a196-45c465f24292/purge";
    let with_token = of(&gateway, "POST", path, "olga").with("authorization", format!("Bearer {}", TOKEN.1));
    let reply = send(&gateway, purge(with_token)).await;
    assert_eq!(refusal(&reply), problem(403, "FORBIDDEN"), "the token's role decides, not the header's");
    let wrong = of(&gateway, "GET", "/admin/v1/status", "olga").with("authorization", "Bearer nonsense");
    assert_eq!(refusal(&send(&gateway, wrong).await), problem(401, "UNAUTHENTICATED"));
    let reply = send(&gateway, purge(of(&gateway, "POST", path, "olga"))).await;
    assert_eq!(refusal(&reply), problem(404, "OPERATION_NOT_FOUND"), "without a token she is an operator");
}

#[tokio::test]
async fn a_browser_that_is_signed_in_reads_and_acts_for_the_console_only() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, &sso("127.0.0.1"), &[]);
    let bare = || gateway.ask("GET", "/admin/v1/status").with("x-user", "olga");
    let ours = || bare().with("semel-console", "1");
    let origin = format!("http://{}", gateway.admin);
    let own = ours().with("sec-fetch-site", "same-origin").with("origin", &origin);
    assert_eq!(send(&gateway, own).await.status, 200);
    for (what, request) in [
        ("a navigation, or the page of another origin", bare()),
        ("another value", bare().with("semel-console", "yes")),
        ("another site", ours().with("sec-fetch-site", "cross-site")),
        ("another origin", ours().with("origin", "http://evil.example")),
    ] {
        let reply = send(&gateway, request).await;
        assert_eq!(refusal(&reply), problem(403, "FORBIDDEN"), "{what}");
    }
    let denied = logged(&gateway, "admin_denied", ["why", "result"], 4).await;
    assert_eq!(denied, vec![("page".to_owned(), "FORBIDDEN".to_owned()); 4]);
    for (what, request) in [
        ("two lines", ours().with("x-user", "emil")),
        (
            "a name that is blank",
            gateway.ask("GET", "/admin/v1/status").with("semel-console", "1").with("x-user", ""),
        ),
    ] {
        assert_eq!(refusal(&send(&gateway, request).await), problem(401, "UNAUTHENTICATED"), "{what}");
    }
}
