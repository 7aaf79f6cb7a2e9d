//! Payments, on either database: charged once for each key, and each outcome is final.

use std::collections::BTreeSet;

use payments::provider::signature;
use semel::protocol::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::http::{Request, get, post};
use crate::process::{Provider, folder};
use crate::receiver::SECRET;
use crate::service::{Make, Service, both, eventually, operation_id, order, payment};

both!(
    a_payment_is_taken_at_once_charged_once_and_its_outcome_is_replayed,
    a_declined_payment_stays_declined_and_keeps_its_reference,
    a_reference_is_paid_once_under_whatever_key_and_however_late,
    concurrent_requests_with_one_key_pay_once,
    an_invalid_order_leaves_nothing_and_its_key_can_be_reused,
    a_payment_that_takes_too_long_is_unknown_until_it_is_known,
    a_webhook_settles_a_payment_and_is_believed_only_if_it_is_signed,
    a_payment_that_is_unknown_is_looked_for_at_the_provider,
    a_payment_is_shown_to_its_own_caller_only,
);

fn with(mut order: Value, field: &str, value: Value) -> Value {
    order[field] = value;
    order
}

fn a_payment_is_taken_at_once_charged_once_and_its_outcome_is_replayed(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    // The worker does not run yet.
    let service = Service::start(&place, &provider, &["--worker", "off"]);
    let request = payment("key-of-the-order", &order());
    let first = service.send(&request);
    let id = operation_id(&first);
    assert_eq!((first.status, &first.json()["status"]), (202, &json!("pending")), "{first:?}");
    let path = format!("/.well-known/semel/operations/{id}");
    assert_eq!((first.header("location"), first.header("retry-after")), (Some(path.as_str()), Some("1")));
    let again = service.send(&request);
    assert_eq!(
        (again.status, operation_id(&again), again.header("location")),
        (202, id.clone(), Some(path.as_str()))
    );
    assert_eq!(provider.ledger(), [Value::Null; 0]);

    let _worker = Service::start(&place, &provider, &["--worker", "only"]);
    let last = service.outcome(&request);
    assert_eq!((last.status, last.header("idempotency-replayed")), (201, Some("true")));
    let paid = last.json();
    assert_eq!(
        (&paid["status"], &paid["id"], &paid["card"]),
        (&json!("captured"), &first.json()["id"], &json!("4242"))
    );
    let charges = provider.ledger();
    assert_eq!(charges.len(), 1);
    assert_eq!((&charges[0]["reference"], &charges[0]["id"]), (&json!(id), &paid["charge"]));
    assert_eq!(last.header("location"), Some(format!("/payments/pay_{id}").as_str()));
    let operation = service.operation(&id);
    assert_eq!((&operation["state"], &operation["result"]["status"]), (&json!("succeeded"), &json!(201)));
    assert_eq!(service.send(&get(&format!("{path}/result")).header("X-User", "alice")).json(), paid);
    assert_eq!(service.payments(), [paid]);
    let other = service.send(&payment("key-of-the-order", &with(order(), "amount", json!(1))));
    assert_eq!((other.status, provider.ledger().len()), (422, 1), "the key is this order's");
}

fn a_declined_payment_stays_declined_and_keeps_its_reference(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &[]);
    let order = with(order(), "reference", json!("invoice-7"));
    let poor = with(order.clone(), "card", json!("4000000000000002"));
    let declined = service.outcome(&payment("first-key-of-invoice-7", &poor));
    assert_eq!((declined.status, &declined.json()["status"]), (402, &json!("declined")));
    assert_eq!(service.outcome(&payment("first-key-of-invoice-7", &poor)).body, declined.body);
    let other_card = service.send(&payment("second-key-of-invoice-7", &order));
    let told = (other_card.status, other_card.json()["code"].clone());
    assert_eq!(told, (409, json!("DUPLICATE_BUSINESS_REFERENCE")), "a payment of it is committed");
    let order = with(order, "reference", json!("invoice-7, second try"));
    assert_eq!(service.outcome(&payment("third-key-of-invoice-7", &order)).status, 201, "another card");
    let statuses: Vec<_> = provider.ledger().iter().map(|charge| charge["status"].clone()).collect();
    assert_eq!(statuses, ["declined", "captured"]);
    let listed: Vec<_> = service.payments().iter().map(|payment| payment["status"].clone()).collect();
    assert_eq!(listed, ["captured", "declined"], "the newest first");
}

fn a_reference_is_paid_once_under_whatever_key_and_however_late(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &["--ttl", "300ms"]);
    let order = with(order(), "reference", json!("invoice-7"));
    let first = service.send(&payment("first-key-of-invoice-7", &order));
    let is_duplicate = |key: &str| {
        let answer = service.send(&payment(key, &order));
        (answer.status, answer.json()["code"].clone()) == (409, json!("DUPLICATE_BUSINESS_REFERENCE"))
    };
    assert!(is_duplicate("second-key-of-invoice-7"), "while the first one runs");
    let id = operation_id(&first);
    let path = format!("/.well-known/semel/operations/{id}");
    eventually("the key is forgotten", || {
        (service.send(&get(&path).header("X-User", "alice")).status == 404).then_some(())
    });
    assert!(is_duplicate("first-key-of-invoice-7"), "the same key is new again");
    assert!(is_duplicate("third-key-of-invoice-7"));
    let charges = provider.ledger();
    assert_eq!((charges.len(), &charges[0]["reference"]), (1, &json!(id)));
}

fn concurrent_requests_with_one_key_pay_once(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let services = [Service::start(&place, &provider, &[]), Service::start(&place, &provider, &[])];
    let request = payment("key-of-the-order", &order());
    let addresses = [&services[0].address, &services[1].address];
    let statuses: BTreeSet<u16> = std::thread::scope(|scope| {
        let request = &request;
        let sending: Vec<_> = (0..12)
            .map(|number| {
                let address = addresses[number % 2];
                scope.spawn(move || request.send(address).expect("it is answered").status)
            })
            .collect();
        sending.into_iter().map(|sent| sent.join().expect("it is answered")).collect()
    });
    assert!(statuses.is_subset(&BTreeSet::from([201, 202, 409])), "{statuses:?}");
    let paid: Vec<_> = services.iter().map(|service| service.outcome(&request)).collect();
    assert_eq!((paid[0].status, &paid[0].body), (201, &paid[1].body));
    assert_eq!((provider.ledger().len(), services[0].payments().len()), (1, 1));
}

fn an_invalid_order_leaves_nothing_and_its_key_can_be_reused(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &[]);
    for (field, wrong) in [
        ("amount", json!(0)),
        ("amount", json!("12")),
        ("currency", json!("eur")),
        ("card", json!("")),
        ("card", json!("4242-4242")),
        ("reference", json!("")),
        ("reference", json!("x".repeat(201))),
        ("tip", json!(1)),
    ] {
        let answer = service.send(&payment("key-of-the-order", &with(order(), field, wrong)));
        assert_eq!(answer.status, 400, "{answer:?}");
        let why = answer.json()["error"].as_str().map(str::to_owned).unwrap_or_default();
        assert!(why.contains(field) || why.contains("line 1"), "{why}");
    }
    assert_eq!(service.send(&payment("short", &order())).status, 400, "the key is too short");
    assert_eq!(service.send(&post("/payments", &order()).header("X-User", "alice")).status, 400, "no key");
    let nobody = post("/payments", &order()).header("Idempotency-Key", "key-of-the-order");
    assert_eq!(service.send(&nobody).status, 401);
    assert_eq!((service.payments().len(), provider.ledger().len()), (0, 0));
    assert_eq!(service.outcome(&payment("key-of-the-order", &order())).status, 201);
}

fn a_payment_that_takes_too_long_is_unknown_until_it_is_known(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &["--switches", "{\"refuse\": true}"]));
    let service = Service::start(&place, &provider, &["--patience", "200ms"]);
    let request = payment("key-of-the-order", &order());
    let id = operation_id(&service.send(&request));
    let unknown =
        eventually("it is unknown", || Some(service.send(&request)).filter(|answer| answer.status == 409));
    assert_eq!(unknown.json()["code"], "IDEMPOTENCY_OUTCOME_UNKNOWN");
    assert_eq!(service.operation(&id)["state"], "unknown");
    provider.switch(&json!({ "refuse": false }));
    assert_eq!(service.outcome(&request).status, 201, "its message goes on being tried");
    assert_eq!(provider.ledger().len(), 1);
}

/// Returns a webhook about a charge, signed this long ago.
fn webhook(secret: &str, age: i64, event: &str, body: &Value) -> Request {
    let now = SystemClock.now().as_millis() / 1000;
    let signature = signature(secret, now - age, event, &body.to_string());
    post("/webhooks/provider", body).header("Semel-Event-Id", event).header("Semel-Signature", &signature)
}

fn a_webhook_settles_a_payment_and_is_believed_only_if_it_is_signed(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &["--worker", "off"]);
    let request = payment("key-of-the-order", &order());
    let id = operation_id(&service.send(&request));
    let charge =
        json!({ "id": "ch_1", "reference": id, "amount": 1200, "currency": "EUR", "status": "captured" });
    let told = json!({ "id": "evt_1", "type": "charge.captured", "createdAt": "", "data": charge });
    let unsigned = post("/webhooks/provider", &told);
    for forged in [
        unsigned.clone(),
        unsigned.clone().header("Semel-Event-Id", "evt_1").header("Semel-Signature", "t=1,v1=00"),
        webhook("a guess", 0, "evt_1", &told),
        webhook(SECRET, 600, "evt_1", &told),
        webhook(SECRET, -600, "evt_1", &told),
    ] {
        assert_eq!(service.send(&forged).status, 401);
    }
    let mut other = told.clone();
    (other["data"]["amount"], other["id"]) = (json!(1), json!("evt_0"));
    assert_eq!(service.send(&webhook(SECRET, 0, "evt_0", &other)).status, 200, "it is kept");
    assert_eq!(service.send(&request).status, 202, "it is not this payment, and does not count");

    for answer in ["taken", "seen"] {
        let heard = service.send(&webhook(SECRET, 0, "evt_1", &told));
        assert_eq!((heard.status, heard.json()), (200, json!({ answer: true })));
    }
    let paid = service.outcome(&request);
    assert_eq!((paid.status, &paid.json()["charge"]), (201, &json!("ch_1")));
    let mut late = told.clone();
    (late["data"]["status"], late["type"], late["id"]) =
        (json!("declined"), json!("charge.declined"), json!("evt_2"));
    assert_eq!(service.send(&webhook(SECRET, 0, "evt_2", &late)).status, 200);
    assert_eq!(service.outcome(&request).body, paid.body, "the first word counts");
    let mut strange = told;
    strange["data"]["reference"] = json!("order-1 of somebody else");
    assert_eq!(service.send(&webhook(SECRET, 0, "evt_1", &strange)).status, 404);
}

/// The worker's call is refused permanently, so its message is dead and the payment unknown; yet the provider has a
/// charge.
fn a_payment_that_is_unknown_is_looked_for_at_the_provider(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &["--worker", "off"]);
    let request = payment("key-of-the-order", &order());
    let id = operation_id(&service.send(&request));
    let refused = crate::process::charge("somebody else's", &format!("{id}:charge"));
    assert_eq!(provider.send(&refused).status, 201, "the worker's key is taken");
    let _worker = Service::start(&place, &provider, &["--worker", "only"]);
    let unknown =
        eventually("it is unknown", || Some(service.send(&request)).filter(|answer| answer.status == 409));
    assert_eq!(unknown.json()["code"], "IDEMPOTENCY_OUTCOME_UNKNOWN");
    assert_eq!(service.payments()[0]["status"], "pending");
    let charged = provider.send(&crate::process::charge(&id, "another key")).json();
    let paid = service.outcome(&request);
    assert_eq!((paid.status, &paid.json()["charge"]), (201, &charged["id"]));
    assert_eq!(service.payments(), [paid.json()], "the payment and the answer say the same");
}

fn a_payment_is_shown_to_its_own_caller_only(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &[]);
    service.subscribe(&provider);
    let request = payment("key-of-the-order", &order());
    let paid = service.outcome(&request).json();
    let path = format!("/payments/{}", paid["id"].as_str().expect("it has one"));
    assert_eq!(service.send(&get(&path).header("X-User", "alice")).json(), paid);
    assert_eq!(service.send(&get(&path).header("X-User", "bob")).status, 404);
    assert_eq!(service.send(&get("/payments").header("X-User", "bob")).json(), json!([]));
    assert_eq!(service.send(&get(&path)).status, 401);
    let bob =
        post("/payments", &order()).header("X-User", "bob").header("Idempotency-Key", "key-of-the-order");
    assert_eq!(service.outcome(&bob).status, 201, "a key belongs to its caller");
    assert_eq!(provider.ledger().len(), 2);
}
