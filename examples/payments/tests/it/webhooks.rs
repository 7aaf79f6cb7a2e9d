//! Events about charges: signed, and with faults lost, doubled, or in the wrong order.

use serde_json::{Value, json};

use crate::http::{get, post, put};
use crate::process::{Provider, charge, folder, order};
use crate::receiver::{SECRET, Webhooks};

/// Waits until the provider has nothing more to send. Returns every event's state.
fn settled(provider: &Provider) -> Vec<Value> {
    loop {
        let events = provider.send(&get("/events")).lines();
        if events.iter().all(|event| event["state"] != "unsent") {
            return events.iter().map(|event| event["state"].clone()).collect();
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_charge_and_a_declined_card_are_told_and_signed() {
    let folder = folder();
    let webhooks = Webhooks::listen(&[]);
    let provider = Provider::start(&folder, &["--webhook-url", &webhooks.url, "--webhook-secret", SECRET]);
    let charged = provider.send(&charge("order-1", "k-1")).json();
    let event = webhooks.next().verified();
    assert!(event["id"].as_str().is_some_and(|id| id.starts_with("evt_")), "{event}");
    assert_eq!((&event["type"], &event["data"]), (&json!("charge.captured"), &charged));
    assert!(event["createdAt"].is_string(), "{event}");
    provider.switch(&json!({ "decline": 1 }));
    let declined = provider.send(&charge("order-2", "k-2")).json();
    let event = webhooks.next().verified();
    assert_eq!((&event["type"], &event["data"]), (&json!("charge.declined"), &declined));
    provider.send(&charge("order-1", "k-1"));
    assert_eq!(settled(&provider), ["sent", "sent"], "a retry is no news");
}

#[test]
fn a_charge_is_told_although_its_answer_was_lost() {
    let folder = folder();
    let provider = Provider::start(&folder, &["--switches", "{\"drop_response\": 1}"]);
    let webhooks = Webhooks::listen(&[]);
    webhooks.subscribe(&provider);
    provider.try_send(&charge("order-1", "k-1")).expect_err("its answer is lost");
    assert_eq!(webhooks.next().reference(), "order-1");
}

#[test]
fn a_receiver_that_fails_is_told_again_with_the_same_event() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let webhooks = Webhooks::listen(&[500, 404, 302]);
    webhooks.subscribe(&provider);
    provider.send(&charge("order-1", "k-1"));
    let told: Vec<_> = (0..4).map(|_| webhooks.next()).collect();
    assert!(told.iter().all(|webhook| webhook.body == told[0].body), "{told:?}");
    assert!(told.iter().all(|webhook| webhook.reference() == "order-1"), "each is signed");
    assert_eq!(settled(&provider), ["sent"]);
    let event = &provider.send(&get("/events")).lines()[0];
    assert_eq!(event["tries"], 3);
    assert!(event["lastError"].as_str().is_some_and(|why| why.contains("302")), "{event}");
    assert_eq!(webhooks.arrived().len(), 0);
}

#[test]
fn a_lost_webhook_never_comes() {
    let folder = folder();
    let provider = Provider::start(&folder, &["--switches", "{\"lose_webhooks\": 1}"]);
    let webhooks = Webhooks::listen(&[]);
    webhooks.subscribe(&provider);
    for number in 1..4 {
        provider.send(&charge(&format!("order-{number}"), &format!("k-{number}")));
    }
    assert_eq!([webhooks.next().reference(), webhooks.next().reference()], ["order-2", "order-3"]);
    assert_eq!(settled(&provider), ["lost", "sent", "sent"]);
    assert_eq!(webhooks.arrived().len(), 0);
}

#[test]
fn a_doubled_webhook_comes_twice_with_one_event_id() {
    let folder = folder();
    let provider = Provider::start(&folder, &["--switches", "{\"double_webhooks\": 1}"]);
    let webhooks = Webhooks::listen(&[]);
    webhooks.subscribe(&provider);
    provider.send(&charge("order-1", "k-1"));
    let (first, second) = (webhooks.next(), webhooks.next());
    assert_eq!((first.verified(), &first.event_id), (second.verified(), &second.event_id));
    provider.send(&charge("order-2", "k-2"));
    assert_eq!(webhooks.next().reference(), "order-2");
    assert_eq!(settled(&provider), ["sent", "sent"]);
    assert_eq!(webhooks.arrived().len(), 0);
}

#[test]
fn shuffled_webhooks_come_in_the_wrong_order_and_all_come() {
    let folder = folder();
    let provider = Provider::start(&folder, &["--switches", "{\"shuffle_webhooks\": true}"]);
    let webhooks = Webhooks::listen(&[]);
    webhooks.subscribe(&provider);
    provider.send(&charge("order-1", "k-1"));
    provider.send(&charge("order-2", "k-2"));
    assert_eq!([webhooks.next().reference(), webhooks.next().reference()], ["order-2", "order-1"]);
    provider.send(&charge("order-3", "k-3"));
    assert_eq!(webhooks.next().reference(), "order-3", "one that nobody overtakes comes as well");
}

#[test]
fn a_charge_without_a_receiver_has_no_event() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    provider.send(&post("/charges", &order("order-1")));
    assert_eq!(provider.send(&get("/events")).lines(), [json!(null); 0]);
    for wrong in [json!({ "url": "ftp://x", "secret": "s" }), json!({ "url": "http://x" }), json!([])] {
        assert_eq!(provider.send(&put("/webhook", &wrong)).status, 400, "{wrong}");
    }
}
