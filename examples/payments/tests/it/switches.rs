//! Each fault, for one request and then no more.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{NoAnswer, get, put};
use crate::process::{Provider, charge, folder};

/// Returns the number of charges after a request on such a day, and checks that the retry gets an answer and charges
/// nothing more.
fn charged_then_retried(switch: &str, expect: impl FnOnce(&Provider)) -> usize {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    provider.switch(&json!({ switch: 1 }));
    expect(&provider);
    let charged = provider.find("order-1").len();
    assert_eq!(provider.switches()[switch], false, "it is used up");
    let retry = provider.send(&charge("order-1", "k-1"));
    assert_eq!(retry.status, 201);
    assert_eq!(retry.header("idempotent-replayed").is_some(), charged == 1);
    assert_eq!(provider.find("order-1").len(), 1);
    charged
}

#[test]
fn refuse_answers_503_and_charges_nothing() {
    let charged = charged_then_retried("refuse", |provider| {
        let answer = provider.send(&charge("order-1", "k-1"));
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    });
    assert_eq!(charged, 0);
}

#[test]
fn error_before_answers_500_and_charges_nothing() {
    let charged = charged_then_retried("error_before", |provider| {
        assert_eq!(provider.send(&charge("order-1", "k-1")).status, 500);
    });
    assert_eq!(charged, 0);
}

#[test]
fn error_after_answers_500_and_has_charged() {
    let charged = charged_then_retried("error_after", |provider| {
        assert_eq!(provider.send(&charge("order-1", "k-1")).status, 500);
    });
    assert_eq!(charged, 1);
}

#[test]
fn drop_response_has_charged_and_closes_the_connection() {
    let charged = charged_then_retried("drop_response", |provider| {
        assert_eq!(provider.try_send(&charge("order-1", "k-1")).err(), Some(NoAnswer::Closed));
    });
    assert_eq!(charged, 1);
}

#[test]
fn timeout_after_charging_has_charged_and_says_nothing_until_the_client_gives_up() {
    let charged = charged_then_retried("timeout_after_charging", |provider| {
        let waiting = charge("order-1", "k-1").begin(&provider.address).expect("it listens");
        while provider.switches()["timeout_after_charging"] != false {
            std::thread::yield_now();
        }
        assert_eq!(said_so_far(waiting), Err(ErrorKind::WouldBlock), "neither an answer nor an end");
    });
    assert_eq!(charged, 1);
}

/// Returns the bytes that a client has received when it gives up.
fn said_so_far(mut stream: TcpStream) -> Result<usize, ErrorKind> {
    stream.set_nonblocking(true).expect("it can be set");
    stream.read(&mut [0]).map_err(|error| error.kind())
}

#[test]
fn decline_declines_every_card_and_a_retry_hears_the_same() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    provider.switch(&json!({ "decline": 1 }));
    let (first, retry) = (provider.send(&charge("order-1", "k-1")), provider.send(&charge("order-1", "k-1")));
    assert_eq!((first.status, retry.status), (402, 402));
    assert_eq!(provider.find("order-1")[0]["status"], "declined");
    assert_eq!(provider.send(&charge("order-2", "k-2")).status, 201, "it is used up");
    provider.switch(&json!({ "decline": true }));
    assert_eq!(provider.send(&charge("order-1", "k-1")).status, 402);
    for number in 3..6 {
        assert_eq!(provider.send(&charge("order", &format!("k-{number}"))).status, 402);
    }
    provider.switch(&json!({ "decline": false }));
    assert_eq!(provider.send(&charge("order-6", "k-6")).status, 201);
}

#[test]
fn slow_has_charged_before_it_waits() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    provider.switch(&json!({ "slow": { "ms": 300, "next": 1 } }));
    let begun = Instant::now();
    assert_eq!(provider.send(&charge("order-1", "k-1")).status, 201);
    assert!(begun.elapsed() >= Duration::from_millis(300), "no answer comes before");
    assert_eq!(provider.switches()["slow"], 0);
    provider.switch(&json!({ "slow": 30_000 }));
    let waiting = charge("order-2", "k-2").begin(&provider.address).expect("it listens");
    while provider.find("order-2").is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(said_so_far(waiting), Err(ErrorKind::WouldBlock));
}

#[test]
fn fault_switches_of_the_provider_fire_one_after_another() {
    let folder = folder();
    let provider =
        Provider::start(&folder, &["--switches", "{\"refuse\": 1, \"error_before\": 2, \"error_after\": 1}"]);
    let statuses: Vec<u16> = (0..5).map(|_| provider.send(&charge("order-1", "k-1")).status).collect();
    assert_eq!(statuses, [503, 500, 500, 500, 201]);
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn a_part_of_the_switches_can_be_set_and_all_are_shown() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    provider.switch(&json!({ "decline": 3 }));
    provider.switch(&json!({ "slow": 250, "lose_webhooks": true }));
    let expected = json!({
        "slow": 250, "refuse": false, "error_before": false, "decline": 3, "timeout_after_charging": false,
        "drop_response": false, "error_after": false, "lose_webhooks": true, "double_webhooks": false,
        "shuffle_webhooks": false,
    });
    assert_eq!(provider.switches(), expected);
    let shown = provider.send(&put("/switches", &expected));
    assert_eq!((shown.status, shown.json()), (200, expected.clone()), "what is shown can be set");
    let wrong = provider.send(&put("/switches", &json!({ "decline": false, "declines": true })));
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("no switch \\\"declines\\\""), "{wrong:?}");
    assert_eq!(provider.send(&get("/switches")).json(), expected, "nothing was changed");
}
