//! Rides: commands of three steps, killed between every two of them.

use payments::service::stand::Point;
use serde_json::{Value, json};

use crate::http::{Request, get, post};
use crate::process::{Provider, folder};
use crate::service::{Make, Place, Service, both, eventually, operation_id};

both!(
    a_ride_is_booked_charged_and_its_receipt_sent,
    a_ride_whose_card_declines_is_booked_and_declined,
    a_ride_is_killed_between_any_two_steps_and_charged_once,
);

/// Points at which a ride can be killed.
const POINTS: [Point; 5] = [
    Point::InTransaction,
    Point::BeforeCharge,
    Point::AfterCharge,
    Point::InSettlement,
    Point::AfterSettlement,
];

fn ride(card: &str) -> Request {
    let asked = json!({ "from": "home", "to": "the sea", "amount": 1200, "currency": "EUR", "card": card });
    post("/rides", &asked).header("X-User", "alice").header("Idempotency-Key", "key-of-the-ride-1")
}

/// Returns the ride of this operation, once its receipt is sent.
fn with_receipt(service: &Service, id: &str) -> Value {
    let request = get(&format!("/rides/ride_{id}")).header("X-User", "alice");
    eventually("the receipt is sent", || {
        Some(service.send(&request).json()).filter(|ride| ride["receipts"] != 0)
    })
}

fn a_ride_is_booked_charged_and_its_receipt_sent(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &[]);
    let booked = service.outcome(&ride("4242424242424242"));
    let id = operation_id(&booked);
    assert_eq!((booked.status, &booked.json()["status"]), (201, &json!("paid")));
    assert_eq!(booked.header("location"), Some(format!("/rides/ride_{id}").as_str()));
    let again = service.outcome(&ride("4242424242424242"));
    assert_eq!((again.header("idempotency-replayed"), &again.body), (Some("true"), &booked.body));
    let seen = with_receipt(&service, &id);
    assert_eq!((&seen["status"], &seen["receipts"]), (&json!("paid"), &json!(1)));
    assert_eq!(seen["charge"], provider.ledger()[0]["id"]);
    assert_eq!(provider.ledger().len(), 1);
    let phases = service.operation(&id)["phases"].clone();
    let names: Vec<_> = phases.as_array().expect("it has some").iter().map(|phase| &phase["name"]).collect();
    assert_eq!(names, ["ride", "charge", "receipt"], "{phases}");
    let bob = get(&format!("/rides/ride_{id}")).header("X-User", "bob");
    assert_eq!(service.send(&bob).status, 404);
    let wrong = post("/rides", &json!({ "from": "home" })).header("X-User", "alice");
    assert_eq!(service.send(&wrong.header("Idempotency-Key", "key-of-the-ride-2")).status, 400);
}

fn a_ride_whose_card_declines_is_booked_and_declined(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &[]);
    let declined = service.outcome(&ride("4000000000000002"));
    assert_eq!((declined.status, &declined.json()["status"]), (402, &json!("declined")));
    assert_eq!(service.outcome(&ride("4000000000000002")).body, declined.body);
    assert_eq!(place.count("SELECT count(*) FROM semel_outbox"), 0, "no receipt");
    assert_eq!(provider.ledger().len(), 1);
}

fn a_ride_is_killed_between_any_two_steps_and_charged_once(make: Make<'_>) {
    std::thread::scope(|scope| {
        let places = POINTS.map(|point| (point, folder()));
        let rides: Vec<_> = places
            .into_iter()
            .map(|(point, folder)| {
                let place = make(&folder);
                scope.spawn(move || killed_at(point, &folder, &place))
            })
            .collect();
        rides.into_iter().for_each(|ride| ride.join().expect("it is charged once"));
    });
}

/// Kills a ride at this point, on a day on which answers get lost as well.
fn killed_at(point: Point, folder: &tempfile::TempDir, place: &Place) {
    let provider = Provider::start(folder, &["--switches", r#"{"drop_response": 1, "error_after": 1}"#]);
    let quick = ["--timeout", "300ms"];
    let killed = Service::start_to_stand(place, &provider, &quick, Some(point));
    let waiting = ride("4242424242424242").begin(&killed.address).expect("it listens");
    killed.until_it_stands(point);
    killed.kill();
    drop(waiting);
    let service = Service::start(place, &provider, &quick);
    let booked = service.outcome(&ride("4242424242424242"));
    assert_eq!((booked.status, &booked.json()["status"]), (201, &json!("paid")), "{point:?}");
    let charges = provider.ledger();
    assert_eq!((charges.len(), &charges[0]["id"]), (1, &booked.json()["charge"]), "{point:?}");
    assert_eq!(with_receipt(&service, &operation_id(&booked))["receipts"], 1, "{point:?}");
    let rides = place.count("SELECT count(*) FROM rides");
    let open = place.count("SELECT count(*) FROM semel_records WHERE state <> 'succeeded'");
    assert_eq!((rides, open), (1, 0), "{point:?}");
}
