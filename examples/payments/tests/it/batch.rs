//! Many payments in one request, on either database: each is made once, and each has its own outcome.

use payments::service::stand::Point;
use serde_json::{Value, json};

use crate::http::{Request, Response, post};
use crate::process::{Provider, folder};
use crate::service::{Make, Service, both, eventually, order, payment};

both!(
    each_payment_of_a_batch_has_its_own_outcome_and_the_batch_is_replayed_once_all_have,
    a_batch_whose_process_is_killed_goes_on_where_it_was,
    a_batch_that_is_wrong_as_a_whole_is_refused_as_a_whole,
);

fn batch(items: &Value) -> Request {
    let request = post("/payments:batch", &json!({ "items": items }));
    request.header("X-User", "alice").header("Idempotency-Key", "key-of-the-whole-batch")
}

/// Returns a payment with a name, and these changes.
fn item(name: &str, different: &Value) -> Value {
    let mut item = order();
    item["clientItemId"] = json!(name);
    let different = different.as_object().expect("it has members").clone();
    item.as_object_mut().expect("it has members").extend(different);
    item
}

/// Retries the request until nothing is left to do.
fn outcome(service: &Service, request: &Request) -> Response {
    eventually("the batch is done", || service.try_send(request).ok().filter(|answer| answer.status == 200))
}

/// Returns name, outcome and status of each item.
fn outcomes(answer: &Response) -> Vec<(String, String, Value)> {
    let answer = answer.json();
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let items = answer["items"].as_array().expect("it is a list").iter();
    items.map(|item| (text(&item["clientItemId"]), text(&item["outcome"]), item["status"].clone())).collect()
}

fn each_payment_of_a_batch_has_its_own_outcome_and_the_batch_is_replayed_once_all_have(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &[]);
    let mut single = order();
    single["reference"] = json!("invoice-7");
    assert_eq!(service.outcome(&payment("key-of-invoice-7", &single)).status, 201);
    let request = batch(&json!([
        item("good", &json!({})),
        item("poor", &json!({ "card": "4000000000000002" })),
        item("paid-before", &json!({ "reference": "invoice-7" })),
        item("wrong", &json!({ "amount": 0 })),
        item("new", &json!({ "reference": "invoice-8" })),
    ]));
    let done = outcome(&service, &request);
    let expected = [
        ("good", "succeeded", json!(201)),
        ("poor", "failed", json!(402)),
        ("paid-before", "duplicate", Value::Null),
        ("wrong", "failed", json!(400)),
        ("new", "succeeded", json!(201)),
    ];
    let expected = expected.map(|(name, outcome, status)| (name.to_owned(), outcome.to_owned(), status));
    assert_eq!(outcomes(&done), expected);
    let again = service.send(&request);
    assert_eq!((again.header("idempotency-replayed"), &again.body), (Some("true"), &done.body));
    let statuses: Vec<_> = provider.ledger().iter().map(|charge| charge["status"].clone()).collect();
    assert_eq!(statuses.iter().filter(|status| *status == "captured").count(), 3, "{statuses:?}");
    assert_eq!(service.payments().len(), 4);
}

fn a_batch_whose_process_is_killed_goes_on_where_it_was(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let items: Vec<_> = (0..12).map(|number| item(&format!("item-{number}"), &json!({}))).collect();
    let request = batch(&json!(items));
    for point in [Point::InTransaction, Point::AfterCommit] {
        let killed = Service::start_to_stand(&place, &provider, &["--worker", "off"], Some(point));
        // A retry meanwhile, or while the lease of the killed process lasts, is told to come back.
        let waiting = eventually("it is begun", || {
            request.begin(&killed.address).ok().filter(|_| killed.stands(point))
        });
        killed.kill();
        drop(waiting);
    }
    let service = Service::start(&place, &provider, &[]);
    let done = outcome(&service, &request);
    assert!(outcomes(&done).iter().all(|(_, outcome, _)| outcome == "succeeded"), "{done:?}");
    assert_eq!((provider.ledger().len(), service.payments().len()), (12, 12));
}

fn a_batch_that_is_wrong_as_a_whole_is_refused_as_a_whole(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &[]);
    let twice = json!([item("a", &json!({})), item("a", &json!({}))]);
    let refused = service.send(&batch(&twice));
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("INVALID_BULK_REQUEST")));
    assert_eq!((provider.ledger().len(), service.payments().len()), (0, 0));
}
