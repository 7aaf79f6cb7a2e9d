//! `kill -9` at any point: the ledger agrees with every answer that was given, and a retry finds its charge.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::process::{Provider, charge, folder};
use crate::receiver::Webhooks;

const ROUNDS: usize = 5;
const CLIENTS: usize = 4;
/// Number of answers in a round before the kill.
const BEFORE_THE_KILL: usize = 20;

/// Sends one charge after the other until the provider is killed. Returns the answered ones, and the number of all that
/// were sent.
fn charge_until_killed(address: &str, name: &str, answered: &AtomicUsize) -> (Vec<(String, Value)>, usize) {
    let mut charges = Vec::new();
    for number in 0.. {
        let reference = format!("{name}-{number}");
        match charge(&reference, &format!("key-{reference}")).send(address) {
            Ok(answer) => charges.push((reference, answer.json())),
            Err(_) => return (charges, number + 1),
        }
        answered.fetch_add(1, Ordering::SeqCst);
    }
    unreachable!("it is killed before")
}

#[test]
fn answered_charges_survive_a_kill_and_a_retry_charges_nothing_twice() {
    let folder = folder();
    let mut answered: BTreeMap<String, Value> = BTreeMap::new();
    let mut sent = Vec::new();
    for round in 0..ROUNDS {
        let provider = Provider::start(&folder, &[]);
        let (address, count) = (provider.address.clone(), AtomicUsize::new(0));
        let results: Vec<_> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (name, address, count) = (format!("r{round}-c{client}"), &address, &count);
                    scope.spawn(move || (name.clone(), charge_until_killed(address, &name, count)))
                })
                .collect();
            while count.load(Ordering::SeqCst) < BEFORE_THE_KILL {
                std::thread::yield_now();
            }
            provider.kill();
            clients.into_iter().map(|client| client.join().expect("it ends")).collect()
        });
        for (name, (charges, count)) in results {
            answered.extend(charges);
            sent.extend((0..count).map(|number| format!("{name}-{number}")));
        }
    }
    let provider = Provider::start(&folder, &[]);
    let before = provider.ledger();
    for (reference, charged) in &answered {
        assert_eq!(provider.find(reference), std::slice::from_ref(charged), "an answer is a promise");
    }
    for reference in &sent {
        let known = provider.find(reference);
        let retry = provider.send(&charge(reference, &format!("key-{reference}")));
        assert_eq!(retry.header("idempotent-replayed").is_some(), !known.is_empty(), "{reference}");
        assert_eq!(provider.find(reference), [retry.json()], "{reference}");
    }
    assert_eq!(provider.ledger().len(), sent.len());
    assert!(before.len() >= answered.len() && answered.len() >= ROUNDS * BEFORE_THE_KILL);
}

#[test]
fn a_charge_whose_answer_was_lost_is_found_after_a_kill() {
    let folder = folder();
    let provider = Provider::start(&folder, &["--switches", "{\"drop_response\": true}"]);
    provider.try_send(&charge("order-1", "k-1")).expect_err("its answer is lost");
    provider.kill();
    let provider = Provider::start(&folder, &[]);
    let retry = provider.send(&charge("order-1", "k-1"));
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(provider.ledger(), [retry.json()]);
}

#[test]
fn unsent_events_are_sent_after_a_kill() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let provider = Provider::start(&folder, &[]);
    // Nothing reads from this port, so the first webhook waits for an answer and the others wait for it.
    let url = format!("http://{}/webhooks", listener.local_addr().expect("it has one"));
    let body = serde_json::json!({ "url": url, "secret": crate::receiver::SECRET });
    assert_eq!(provider.send(&crate::http::put("/webhook", &body)).status, 200);
    for number in 1..4 {
        provider.send(&charge(&format!("order-{number}"), &format!("k-{number}")));
    }
    provider.kill();
    let webhooks = Webhooks::on(listener, &[]);
    let _provider = Provider::start(&folder, &[]);
    let mut told: Vec<String> = Vec::new();
    while told.len() < 3 {
        let reference = webhooks.next().reference();
        // The one that was in flight during the kill comes once more.
        if !told.contains(&reference) {
            told.push(reference);
        }
    }
    assert_eq!(told, ["order-1", "order-2", "order-3"]);
}
