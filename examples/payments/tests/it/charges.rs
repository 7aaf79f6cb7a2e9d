//! Charges without faults: once for each key, and findable.

use serde_json::json;

use crate::http::{get, post};
use crate::process::{Provider, charge, folder, order, run};

#[test]
fn a_charge_is_answered_and_can_be_looked_up() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let answer = provider.send(&charge("order-1", "k-1"));
    assert_eq!(answer.status, 201);
    let charged = answer.json();
    let id = charged["id"].as_str().expect("it has an id");
    assert!(id.starts_with("ch_"), "{id}");
    assert_eq!(answer.header("location"), Some(format!("/charges/{id}").as_str()));
    assert_eq!(answer.header("idempotent-replayed"), None);
    for (field, value) in
        [("reference", json!("order-1")), ("amount", json!(1200)), ("currency", json!("EUR"))]
    {
        assert_eq!(charged[field], value);
    }
    assert_eq!(charged["status"], "captured");
    assert_eq!(provider.send(&get(&format!("/charges/{id}"))).json(), charged);
    assert_eq!(provider.find("order-1"), std::slice::from_ref(&charged));
    assert_eq!(provider.ledger(), [charged]);
    assert_eq!(provider.find("order-2"), [json!(null); 0]);
    assert_eq!(provider.send(&get("/charges/ch_none")).status, 404);
    assert_eq!(provider.send(&get("/charges")).status, 400);
}

#[test]
fn a_quoted_key_and_a_bare_key_get_the_same_answer() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let first = provider.send(&charge("order-1", "\"k-1\""));
    let second = provider.send(&charge("order-1", "k-1"));
    assert_eq!((second.status, &second.body), (201, &first.body));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    assert_eq!(second.header("location"), first.header("location"));
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn concurrent_requests_with_one_key_charge_once() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let mut bodies: Vec<String> = std::thread::scope(|scope| {
        let sending = (0..8).map(|_| scope.spawn(|| provider.send(&charge("order-1", "k-1")).body));
        let sending: Vec<_> = sending.collect();
        sending.into_iter().map(|sent| sent.join().expect("it is answered")).collect()
    });
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn a_key_with_another_body_is_refused_and_the_order_of_fields_is_no_difference() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    provider.send(&charge("order-1", "k-1"));
    for (field, other) in [
        ("reference", json!("order-2")),
        ("amount", json!(1201)),
        ("currency", json!("USD")),
        ("card", json!("4111111111111111")),
    ] {
        let mut body = order("order-1");
        body[field] = other;
        let answer = provider.send(&post("/charges", &body).header("Idempotency-Key", "k-1"));
        assert_eq!(answer.status, 422, "{field}: {answer:?}");
    }
    let same = r#"{ "card": "4242424242424242", "currency": "EUR", "amount": 1200, "reference": "order-1" }"#;
    let answer = provider.send(&post("/charges", &same).header("Idempotency-Key", "k-1"));
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn without_a_key_every_request_charges() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let request = post("/charges", &order("order-1"));
    let (first, second) = (provider.send(&request), provider.send(&request));
    assert_ne!(first.json()["id"], second.json()["id"]);
    assert_eq!(provider.find("order-1").len(), 2);
}

#[test]
fn a_card_can_decline_and_a_retry_hears_the_same() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let mut body = order("order-1");
    body["card"] = json!("4000000000000002");
    let request = post("/charges", &body).header("Idempotency-Key", "k-1");
    let (first, second) = (provider.send(&request), provider.send(&request));
    assert_eq!((first.status, second.status), (402, 402));
    assert_eq!(first.body, second.body);
    assert_eq!(first.json()["status"], "declined");
    assert_eq!((first.header("location"), second.header("idempotent-replayed")), (None, Some("true")));
    assert_eq!(provider.ledger(), [first.json()], "it is in the ledger, as declined");
}

#[test]
fn an_invalid_order_is_refused_and_leaves_nothing() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    for (field, wrong) in [
        ("reference", json!("")),
        ("reference", json!("x".repeat(201))),
        ("reference", json!(null)),
        ("amount", json!(0)),
        ("amount", json!(-1)),
        ("amount", json!(1.5)),
        ("amount", json!("1200")),
        ("amount", json!(100_000_000)),
        ("currency", json!("eur")),
        ("currency", json!("EURO")),
        ("card", json!("")),
        ("tip", json!(1)),
    ] {
        let mut body = order("order-1");
        body[field] = wrong;
        let answer = provider.send(&post("/charges", &body));
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        let why = answer.json();
        assert!(
            why["error"].as_str().is_some_and(|why| why.contains(field) || why.contains("line 1")),
            "{why}"
        );
    }
    assert_eq!(provider.send(&post("/charges", "{")).status, 400);
    assert_eq!(provider.send(&charge("order-1", "\"open")).status, 400);
    assert_eq!(provider.send(&charge("order-1", "a").header("Idempotency-Key", "b")).status, 400);
    assert_eq!(provider.send(&post("/charges", &" ".repeat(70_000))).status, 413);
    assert_eq!(provider.ledger().len(), 0);
}

#[test]
fn the_whole_ledger_can_be_had_as_lines_and_as_csv() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let awkward = "a \"quoted\", <b>ö</b>\nreference";
    provider.send(&post("/charges", &order(awkward)));
    for number in 0..600 {
        provider.send(&post("/charges", &order(&format!("order-{number}"))));
    }
    let ledger = provider.ledger();
    assert_eq!(ledger.len(), 601, "more than a page");
    assert_eq!(ledger[0]["reference"], awkward);
    let references: Vec<_> = ledger[1..].iter().map(|charge| charge["reference"].clone()).collect();
    assert_eq!(references, (0..600).map(|number| json!(format!("order-{number}"))).collect::<Vec<_>>());
    let csv = provider.send(&get("/ledger.csv"));
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let (id, at) = (ledger[0]["id"].as_str().expect("text"), ledger[0]["createdAt"].as_str().expect("text"));
    let start = format!(
        "reference,id,amount,currency,status,createdAt\n\
         \"a \"\"quoted\"\", <b>ö</b>\nreference\",{id},1200,EUR,captured,{at}\norder-0,"
    );
    assert!(csv.body.starts_with(&start), "{}", &csv.body[..300]);
    assert_eq!(csv.body.lines().count(), 603);
}

#[test]
fn invalid_arguments_are_explained() {
    let folder = folder();
    let ledger = folder.path().join("ledger.db");
    let wrong: [(&[&str], &str); 4] = [
        (&["--switches", "{\"decline\": \"yes\"}"], "--switches: \"decline\" is true, false, or the number"),
        (&["--webhook-url", "https://example.com", "--webhook-secret", "s"], "does not begin with http://"),
        (&["--webhook-url", "http://example.com"], "--webhook-secret"),
        (&["--listen", "nowhere"], "nowhere"),
    ];
    for (arguments, expected) in wrong {
        let (is_well, complaint) = run(&ledger, arguments);
        assert!(!is_well && complaint.contains(expected), "{complaint}");
    }
    let (is_well, complaint) = run(&folder.path().join("none/ledger.db"), &[]);
    assert!(!is_well && complaint.contains("its folder must exist"), "{complaint}");
    std::fs::write(&ledger, "this is not a database, however long it is").expect("it can be written");
    let (is_well, complaint) = run(&ledger, &[]);
    assert!(!is_well && complaint.contains("not a database"), "{complaint}");
}
