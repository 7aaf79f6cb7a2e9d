//! An unknown record names the identifiers to look for at the place of its effect.

use serde_json::Value;
use tokio::net::TcpListener;

use super::lab::{Gateway, Site, Upstream, pay};
use super::late_answers::read_head;
use super::reconciling::json_of;

const RULE: &str = "[[operation]]\nname = \"orders.pay\"\nmatch = \"POST /orders/{id}/payments\"\n";

/// Sends a command with an uncertain outcome, and returns its record as the command line shows it.
async fn unknown(site: &Site, gateway: &Gateway, what: &str) -> Value {
    gateway.send(pay("{}").target("/orders/4711/payments").doing(what)).await;
    let (records, _) = json_of(site, &["records", "list", "--state", "unknown"]);
    let id = records[0]["operationId"].as_str().expect("there is one").to_owned();
    let (shown, _) = json_of(site, &["records", "show", &id]);
    let look_for = shown["lookFor"].clone();
    assert_eq!(look_for["semelOperationId"], id.as_str());
    assert_eq!(look_for["semelAttempt"], 1);
    let times =
        ["begunAt", "unknownSince"].map(|name| look_for[name].as_str().expect("it is known").to_owned());
    assert!(times.is_sorted(), "{times:?}");
    let seen = look_for["seen"].as_str().expect("it is a text");
    assert!(!shown.to_string().contains("4711"), "what is a caller's own stays out: {shown}");
    let explain = site.semel().args(["records", "explain", &id]).output().expect("the program runs");
    let told = String::from_utf8_lossy(&explain.stdout).into_owned();
    assert!(told.contains(&format!("Semel-Operation-Id {id}, Semel-Attempt 1")), "{told}");
    assert!(told.contains(seen), "{told}");
    let admin = gateway.admin(&format!("/admin/v1/records/{id}")).await;
    assert_eq!(admin.json()["lookFor"], look_for, "the admin API says the same");
    look_for
}

#[tokio::test]
async fn a_call_without_an_answer_says_how_long_it_was_waited_for() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &["--timeout", "300ms"]);
    let seen = unknown(&site, &gateway, "gate").await;
    assert_eq!(seen["seen"], "POST /orders/{id}/payments: no answer within 300 ms");
}

/// Returns the output of `records explain` about the only unknown record.
fn explained(site: &Site) -> String {
    let (records, _) = json_of(site, &["records", "list", "--state", "unknown"]);
    let id = records[0]["operationId"].as_str().expect("there is one").to_owned();
    let explain = site.semel().args(["records", "explain", &id]).output().expect("the program runs");
    String::from_utf8_lossy(&explain.stdout).into_owned()
}

#[tokio::test]
async fn explain_reports_that_a_late_answer_is_still_awaited() {
    let awaited = "Its answer is still read until ";
    for (late, is_awaited) in [("1h", true), ("off", false)] {
        let (site, upstream) = (Site::new(), Upstream::start().await);
        let rule = format!("{RULE}timeout = \"300ms\"\nlate_answer = \"{late}\"\n");
        let gateway = site.start_with(upstream.address, &rule, &[]);
        unknown(&site, &gateway, "gate").await;
        let told = explained(&site);
        assert_eq!(told.contains(awaited), is_awaited, "{late}: {told}");
    }
    // An answer that has arrived is not waited for.
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    unknown(&site, &gateway, "status-503").await;
    assert!(!explained(&site).contains(awaited), "{}", explained(&site));
}

#[tokio::test]
async fn a_server_error_says_its_status() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    let seen = unknown(&site, &gateway, "status-503").await;
    assert_eq!(seen["seen"], "POST /orders/{id}/payments: answered with 503 Service Unavailable");
}

#[tokio::test]
async fn a_connection_that_broke_off_says_how() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Reads a head, and closes without an answer.
            let _ = read_head(&mut stream).await;
        }
    });
    let site = Site::new();
    let gateway = site.start_with(address, "", &[]);
    let seen = unknown(&site, &gateway, "").await;
    let seen = seen["seen"].as_str().expect("it is a text");
    assert!(seen.starts_with("POST /orders/{id}/payments: broke off: "), "{seen}");
}
