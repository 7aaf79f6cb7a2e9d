//! The demo after its story: its page, its bad days, and the payment that it leaves to be settled.

mod lab;

use lab::{Demo, eventually};
use semel_testkit::client::{Reply, Send, pay, problem};
use serde_json::{Value, json};

/// Names of the bad days.
const DAYS: [&str; 4] = ["timeout_after_charging", "die_after_charging", "error_after", "double_webhooks"];

fn unknown(reply: &Reply) -> (u16, String) {
    problem(reply.status.as_u16(), "IDEMPOTENCY_OUTCOME_UNKNOWN")
}

#[tokio::test]
async fn the_page_comes_through_the_gateway_and_allows_only_its_own_files() {
    let demo = Demo::start().await;
    let mut files = vec!["/".to_owned()];
    let page = String::from_utf8(demo.get("/").await.body.to_vec()).expect("it is text");
    files.extend(page.split('"').filter(|text| text.starts_with("/demo/")).map(str::to_owned));
    let kinds = ["text/html", "image/svg+xml", "text/css"].into_iter().chain(["text/javascript"; 4]);
    assert_eq!(files.len(), 7, "icon, style and scripts: {files:?}");
    for (file, kind) in files.iter().zip(kinds) {
        let served = demo.get(file).await;
        assert_eq!(served.status, 200, "{file}");
        assert!(served.header("content-type").is_some_and(|found| found.starts_with(kind)), "{served:?}");
        assert_eq!(served.header("x-content-type-options"), Some("nosniff"), "{file}");
        let policy = served.header("content-security-policy").expect("it has one");
        let mut rules: Vec<&str> = policy.split("; ").collect();
        rules.sort_unstable();
        assert_eq!(
            rules,
            [
                "base-uri 'none'",
                "connect-src 'self'",
                "default-src 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "img-src 'self'",
                "require-trusted-types-for 'script'",
                "script-src 'self'",
                "style-src 'self'",
                "trusted-types 'none'",
            ]
        );
    }
    for inline in ["<style", "style=", "<script>", "javascript:", " on"] {
        let found = page.split('<').skip(1).map(|tag| format!("<{}", tag.split('>').next().unwrap_or("")));
        let found: Vec<String> = found.filter(|tag| format!("{tag}>").contains(inline)).collect();
        assert!(found.is_empty(), "{inline}: {found:?}");
    }
    let state = demo.state().await;
    for day in DAYS {
        assert!(page.contains(&format!("name=\"{day}\"")), "{day} is on the page");
        assert_eq!(state["switches"][day], false, "{day}");
    }
}

#[tokio::test]
async fn other_web_pages_cannot_use_the_demo() {
    let demo = Demo::start().await;
    let before = demo.state().await;
    for address in [demo.gateway, demo.service] {
        for path in ["/", "/demo/state", "/ledger"] {
            let rebound = demo.request("GET", path).set("host", "evil.example:8080").to(address).await;
            assert_eq!(rebound.status, 421, "{path}");
        }
        let change = demo
            .request("PUT", "/demo/switches")
            .with("content-type", "application/json")
            .body(r#"{"error_after": true}"#);
        for (name, value) in [("sec-fetch-site", "same-site"), ("origin", "http://localhost:3000")] {
            assert_eq!(change.clone().with(name, value).to(address).await.status, 403, "{name}");
        }
        let simple = change.clone().set("content-type", "text/plain").to(address).await;
        assert_eq!(simple.status, 415, "what a form can send");
        let preflight = demo.request("OPTIONS", "/payments").with("origin", "http://evil.example");
        let preflight = preflight.with("access-control-request-method", "POST").to(address).await;
        assert_eq!(preflight.header("access-control-allow-origin"), None);
    }
    let foreign = demo.payment("foreign-payment-00001", 5).with("origin", "http://evil.example");
    assert_eq!(foreign.to(demo.gateway).await.status, 403);
    assert_eq!(demo.state().await, before, "nothing was armed, and nothing was charged");
}

#[tokio::test]
async fn a_payment_from_the_page_is_charged_once_and_its_amount_and_size_are_bounded() {
    let demo = Demo::start().await;
    let before = demo.count().await;
    let first = demo.pay("page-payment-0000001", 12).await;
    assert_eq!((first.status.as_u16(), first.replayed()), (201, false));
    let second = demo.pay("page-payment-0000001", 12).await;
    assert_eq!((second.status.as_u16(), second.replayed()), (201, true));
    assert_eq!(first.body, second.body);
    let other = demo.pay("page-payment-0000001", 13).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    let latest = demo.state().await["charges"][0].clone();
    assert_eq!((&latest["amount"], latest["operation"].as_str()), (&json!(12), operation(&first).as_deref()));

    let wrong = demo.payment("page-payment-0000002", 1).body(r#"{"amount": "a lot"}"#);
    assert_eq!(wrong.to(demo.gateway).await.status, 400);
    let large = demo.payment("page-payment-0000003", 1);
    let large = large.body(format!(r#"{{"amount": 1, "note": "{}"}}"#, "x".repeat(20_000)));
    assert_eq!(large.to(demo.gateway).await.status, 413);
    assert_eq!(demo.count().await, before + 1);
    for wrong in [r#"{"error_after": 1}"#, r#"{"decline": true}"#, "[]"] {
        assert_eq!(demo.switch(wrong).await.status, 400, "{wrong}");
    }
}

/// Returns the operation that an answer names.
fn operation(reply: &Reply) -> Option<String> {
    let named = reply.operation_id().map(str::to_owned);
    named.or_else(|| reply.json()["operationId"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn an_error_after_the_charge_is_unknown_until_the_event_of_the_service_settles_it() {
    let demo = Demo::start().await;
    let before = demo.count().await;
    assert_eq!(demo.switch(r#"{"error_after": true}"#).await.status, 200);
    assert_eq!(demo.state().await["switches"]["error_after"], true, "it is shown as armed");
    let failed = demo.pay("error-payment-000001", 21).await;
    assert_eq!((failed.status.as_u16(), failed.header("idempotency-retry")), (500, Some("poll")));
    assert_eq!(demo.state().await["switches"]["error_after"], false, "it was for one payment");
    assert_eq!(demo.pay("error-payment-000002", 22).await.status, 201, "the next one has a good day");
    let refused = demo.pay("error-payment-000001", 21).await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, unknown(&refused)));
    assert_eq!(demo.settled("error-payment-000001", 21).await["amount"], 21);
    assert_eq!(demo.count().await, before + 2, "each was charged once");
}

#[tokio::test]
async fn a_service_that_says_nothing_is_given_up_and_the_event_settles_the_payment() {
    let demo = Demo::start().await;
    let before = demo.count().await;
    demo.switch(r#"{"timeout_after_charging": true}"#).await;
    let given_up = demo.pay("silent-payment-00001", 31).await;
    assert_eq!((given_up.status.as_u16(), given_up.problem()), (504, unknown(&given_up)));
    assert_eq!(demo.settled("silent-payment-00001", 31).await["amount"], 31);
    assert_eq!(demo.count().await, before + 1);
}

#[tokio::test]
async fn an_event_that_is_sent_twice_changes_nothing() {
    let demo = Demo::start().await;
    let before = demo.count().await;
    demo.switch(r#"{"double_webhooks": true}"#).await;
    let paid = demo.pay("double-payment-00001", 41).await;
    assert_eq!(paid.status, 201);
    let event = eventually("both events", async || {
        let event = demo.state().await["charges"][0]["event"].clone();
        (event["answers"].as_array().map(Vec::len) == Some(2)).then_some(event)
    });
    assert_eq!(event.await, json!({ "copies": 2, "answers": ["taken", "seen"] }));
    let id = operation(&paid).expect("it is named");
    let record = demo.admin("GET", &format!("/admin/v1/records/{id}"), None).await.json();
    assert_eq!((&record["state"], &record["epoch"]), (&json!("succeeded"), &json!(1)), "{record}");
    let again = demo.pay("double-payment-00001", 41).await;
    assert!(again.replayed() && again.body == paid.body, "{again:?}");
    assert_eq!(demo.count().await, before + 1);
}

#[tokio::test]
async fn a_service_that_dies_is_started_again_and_its_payment_waits_for_a_person() {
    let demo = Demo::start_elsewhere().await;
    let before = demo.state().await;
    demo.switch(r#"{"die_after_charging": true}"#).await;
    let died = demo.pay("deadly-payment-00001", 51).await;
    assert_eq!((died.status.as_u16(), died.problem()), (502, unknown(&died)));
    let after = eventually("the service is back, and knows where it is", async || {
        let state = demo.get("/demo/state").await;
        (state.status == 200).then(|| state.json()).filter(|state| !state["introduction"].is_null())
    });
    let after = after.await;
    assert_ne!(after["process"], before["process"], "it is another process");
    assert_eq!(after["switches"]["die_after_charging"], false, "it was for one payment");
    assert_eq!(after["introduction"], before["introduction"], "it knows where it is");
    assert_eq!(after["charges"][0]["amount"], 51, "the charge was on the disk");
    let lost = json!({ "copies": 1, "answers": ["lost"] });
    assert_eq!(after["charges"][0]["event"], lost, "nobody is told, and the page can say why");
    let refused = demo.pay("deadly-payment-00001", 51).await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, unknown(&refused)));
    let id = operation(&died).expect("it is named");
    demo.resolve(&id, &after["charges"][0]).await;
    let paid = demo.pay("deadly-payment-00001", 51).await;
    assert!(paid.status == 201 && paid.replayed(), "{paid:?}");
    assert_eq!(demo.count().await, before["count"].as_u64().expect("a number") + 1);
}

#[tokio::test]
async fn the_demo_leaves_one_unknown_payment_that_the_admin_api_settles() {
    let mut demo = Demo::start().await;
    let records = demo.admin("GET", "/admin/v1/records?state=unknown", None).await.json();
    let records = records["records"].as_array().expect("it is a list").clone();
    let ids: Vec<&str> = records.iter().filter_map(|record| record["operationId"].as_str()).collect();
    assert_eq!(ids, [demo.left.as_str()], "there is one, and the demo has named it");
    let state = demo.state().await;
    let left = &state["introduction"]["left"];
    assert_eq!(left["operationId"], demo.left.as_str());
    let charge = &state["charges"][0];
    assert_eq!(
        (&charge["charge"], &charge["amount"], &charge["operation"]),
        (&left["charge"], &left["amount"], &left["operationId"]),
        "the ledger proves it"
    );
    assert_eq!(charge["event"]["answers"], json!(["lost"]), "no event will settle it");
    assert_eq!((&left["body"], left["body"].as_str()), (&charge["body"], Some(demo.left_body.as_str())));
    let (key, amount) = (left["key"].as_str().expect("text"), left["amount"].as_u64().expect("a number"));
    let refused = demo.pay(key, amount).await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, unknown(&refused)));
    demo.resolve(&demo.left, charge).await;
    let paid = demo.pay(key, amount).await;
    assert!(paid.status == 201 && paid.replayed(), "{paid:?}");
    assert_eq!(paid.body, demo.left_body.as_bytes(), "the client gets the body that the terminal has shown");
    demo.read_until("The payment of 60 that was left to you is settled now, as succeeded.\n");
}

#[tokio::test]
async fn a_demo_that_is_stopped_removes_its_folder_and_says_so() {
    let demo = Demo::start().await;
    let (said, left_behind, code) = demo.stop();
    assert_eq!((said.as_str(), code), ("\nStopped; the folder is removed.\n", Some(0)));
    assert_eq!(left_behind, 0, "files that stay");
}

#[tokio::test]
async fn the_page_of_the_service_itself_says_nothing_of_what_semel_does() {
    let demo = Demo::start().await;
    let page = String::from_utf8(demo.get("/").await.body.to_vec()).expect("it is text");
    // A tag's own text; `data-bare` replaces it on the service's page.
    let (_, body) = page.split_once("<body>").expect("it has a body");
    let speaks: Vec<&str> = body
        .split('<')
        .filter_map(|part| part.split_once('>'))
        .filter(|(tag, text)| text.contains("Semel") && !tag.contains("data-bare="))
        .map(|(_, text)| text)
        .collect();
    assert!(speaks.is_empty(), "{speaks:?}");
    assert!(body.contains("gives up after 4 s"), "with Semel the page does: {body}");
    for bare in body.split("data-bare=\"").skip(1) {
        let sentence = bare.split('"').next().expect("there is a first part");
        assert!(!sentence.replace("without Semel", "").contains("Semel"), "{sentence}");
    }
}

#[tokio::test]
async fn during_the_story_the_page_is_shut_and_there_are_no_bad_days() {
    let folder = tempfile::TempDir::new().expect("there is room");
    let service = lab::bare_service(&folder.path().join("ledger.jsonl"));
    let send = async |request: Send| request.set("host", "localhost").to(service.address).await;
    let switch = pay(r#"{"die_after_charging": true}"#).method("PUT").target("/demo/switches");
    assert_eq!(send(switch).await.status, 409);
    let paid = pay(r#"{"amount": 5}"#).with("semel-operation-id", "01a1f475-e9b3-7406-90ed-06c0dbb3f5f4");
    assert_eq!(send(paid).await.status, 201);
    let state = send(pay("").method("GET").target("/demo/state")).await.json();
    assert_eq!((&state["introduction"], &state["charges"][0]["event"]), (&Value::Null, &Value::Null));
    assert_eq!(state["charges"][0]["amount"], 5);
}
