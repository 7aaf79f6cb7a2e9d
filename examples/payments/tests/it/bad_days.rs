//! The proof: every fault of the provider, and a `kill -9` between every two steps of a payment. In the end the
//! provider's ledger and the service's payments agree, every payment was charged once or declined, and none is open.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use payments::service::stand::Point;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Request, Response, get};
use crate::process::{Provider, charge, folder};
use crate::service::{Make, Place, Service, both, eventually, operation_id, order, payment};

/// Number of cells tested concurrently.
const AT_ONCE: usize = 8;

/// A short timeout, so that a killed worker is soon replaced.
const QUICK: [&str; 2] = ["--timeout", "300ms"];

const UNDELIVERED: &str = "SELECT count(*) FROM semel_outbox WHERE state <> 'delivered'";

/// A bad day: its name, the provider's switches, and true if the provider sends events.
type Day = (&'static str, &'static str, bool);

const DAYS: [Day; 11] = [
    ("a good day", "{}", false),
    ("refuse", r#"{"refuse": 1}"#, false),
    ("error_before", r#"{"error_before": 2}"#, false),
    ("decline", r#"{"decline": true}"#, false),
    ("slow", r#"{"slow": {"ms": 1000, "next": 2}}"#, false),
    ("timeout_after_charging", r#"{"timeout_after_charging": 2}"#, false),
    ("drop_response", r#"{"drop_response": 2}"#, false),
    ("error_after", r#"{"error_after": 2}"#, false),
    ("lose_webhooks", r#"{"lose_webhooks": true, "drop_response": 1}"#, true),
    ("double_webhooks", r#"{"double_webhooks": true, "drop_response": 1}"#, true),
    ("shuffle_webhooks", r#"{"shuffle_webhooks": true, "drop_response": 1}"#, true),
];

/// Final state of a cell.
struct Seen {
    charges: usize,
    time: Duration,
}

/// Returns two payments, one of them with a card that declines.
fn payments() -> [Request; 2] {
    let mut poor = order();
    poor["card"] = json!("4000000000000002");
    [payment("key-of-the-first-order", &order()), payment("key-of-the-second-order", &poor)]
}

/// Returns true if the serving process is killed at this point, and false if the worker is.
fn serves(point: Point) -> bool {
    matches!(point, Point::InTransaction | Point::AfterCommit)
}

/// Makes payments on such a day, with a kill at this point; then everything recovers.
fn cell(day: Day, point: Point, make: Make<'_>) -> Seen {
    let begun = Instant::now();
    let (_, switches, tells) = day;
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &["--switches", switches]));
    let stand = serves(point).then_some(point);
    let service = Service::start_to_stand(&place, &provider, &["--worker", "off"], stand);
    if tells {
        service.subscribe(&provider);
    }
    let payments = payments();
    let (service, answers) = if serves(point) {
        killed_while_serving(service, point, &place, &provider, &payments)
    } else {
        let answers: Vec<_> = payments.iter().map(|payment| service.send(payment)).collect();
        assert!(answers.iter().all(|answer| answer.status == 202), "{answers:?}");
        let worker = ["--worker", "only", QUICK[0], QUICK[1]];
        let killed = Service::start_to_stand(&place, &provider, &worker, Some(point));
        // Or a webhook was faster than the worker, which then has nothing to settle.
        let is_over = || tells && place.count(UNDELIVERED) == 0;
        eventually("the worker stands", || (killed.stands(point) || is_over()).then_some(()));
        killed.kill();
        (service, answers)
    };
    if tells {
        service.subscribe(&provider);
    }
    let _worker = Service::start(&place, &provider, &["--worker", "only", QUICK[0], QUICK[1]]);
    let outcomes: Vec<_> = payments.iter().map(|payment| service.outcome(payment)).collect();
    for answer in &answers {
        let known = outcomes.iter().any(|outcome| operation_id(outcome) == operation_id(answer));
        assert!(known, "a promise that was given is kept: {answer:?}");
    }
    let declined = if day.0 == "decline" { [402, 402] } else { [201, 402] };
    assert_eq!(outcomes.iter().map(|outcome| outcome.status).collect::<Vec<_>>(), declined);
    let charges = agreement(&service, &provider, &place);
    assert_eq!(charges, outcomes.iter().filter(|outcome| outcome.status == 201).count());
    Seen { charges, time: begun.elapsed() }
}

/// Kills the service at this point while both payments are in progress. Another one takes its place.
fn killed_while_serving(
    service: Service,
    point: Point,
    place: &Place,
    provider: &Provider,
    payments: &[Request],
) -> (Service, Vec<Response>) {
    let address = service.address.clone();
    std::thread::scope(|scope| {
        let sending: Vec<_> =
            payments.iter().map(|payment| scope.spawn(|| payment.send(&address).ok())).collect();
        service.until_it_stands(point);
        service.kill();
        let answers = sending.into_iter().filter_map(|sent| sent.join().expect("it ends")).collect();
        (Service::start(place, provider, &["--worker", "off"]), answers)
    })
}

/// Waits until nothing is in progress, and compares the two books. Returns the number of charges.
fn agreement(service: &Service, provider: &Provider, place: &Place) -> usize {
    eventually("every message is delivered", || (place.count(UNDELIVERED) == 0).then_some(()));
    eventually("every webhook is told", || {
        let events = provider.send(&get("/events")).lines();
        events.iter().all(|event| event["state"] != "unsent").then_some(())
    });
    let open = "SELECT count(*) FROM semel_records WHERE state NOT IN ('succeeded', 'failed_final')";
    assert_eq!(place.count(open), 0, "no key is left open");
    let theirs: BTreeMap<String, Value> = provider
        .ledger()
        .into_iter()
        .map(|charge| (format!("pay_{}", charge["reference"].as_str().expect("it is text")), charge))
        .collect();
    let ours: BTreeMap<String, Value> = service
        .payments()
        .into_iter()
        .map(|payment| (payment["id"].as_str().expect("it is text").to_owned(), payment))
        .collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    assert_eq!(provider.ledger().len(), theirs.len(), "nobody is charged twice");
    assert!(ours.keys().eq(theirs.keys()), "ours: {ours:?}, theirs: {theirs:?}");
    for (id, payment) in &ours {
        for (our, their) in
            [("charge", "id"), ("amount", "amount"), ("currency", "currency"), ("status", "status")]
        {
            assert_eq!(payment[our], theirs[id][their], "{our} of {id}");
        }
    }
    theirs.values().filter(|charge| charge["status"] == "captured").count()
}

/// Result of each cell, by day and point; `None` if it failed.
type Proof = BTreeMap<(&'static str, &'static str), Option<Seen>>;

/// Tests these cells, prints their results, and fails if any did.
#[allow(clippy::print_stdout, reason = "the table is what it is for")]
fn prove(title: &str, cells: &[(Day, Point)], make: fn(&TempDir) -> Place) {
    let begun = Instant::now();
    let (queue, proof) = (Mutex::new(cells.iter()), Mutex::new(Proof::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("nobody panics with it").next();
                    let Some((day, point)) = next else { return };
                    let tried = std::panic::catch_unwind(AssertUnwindSafe(|| cell(*day, *point, &make)));
                    proof.lock().expect("nobody panics with it").insert((day.0, point.name()), tried.ok());
                }
            });
        }
    });
    let proof = proof.into_inner().expect("nobody panicked with it");
    let seconds = begun.elapsed().as_secs_f32();
    println!("\n{title}: charges and seconds of each cell, {seconds:.1} s in all\n{}", table(&proof));
    let failed: Vec<_> = proof.iter().filter(|(_, seen)| seen.is_none()).map(|(cell, _)| cell).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(proof.len(), cells.len());
}

/// Formats a table: a line for each day, a column for each point.
fn table(proof: &Proof) -> String {
    let mut table = format!("{:22}", "");
    table.extend(Point::ALL.map(|point| format!(" {:>16}", point.name())));
    for (day, ..) in DAYS {
        table.push_str(&format!("\n{day:22}"));
        for point in Point::ALL {
            let text = match proof.get(&(day, point.name())) {
                Some(Some(seen)) => format!("ok {} {:.1}", seen.charges, seen.time.as_secs_f32()),
                Some(None) => "FAILED".to_owned(),
                None => String::new(),
            };
            table.push_str(&format!(" {text:>16}"));
        }
    }
    table
}

#[test]
fn every_bad_day_with_a_kill_at_every_point_charges_once_on_sqlite() {
    let points = |day| Point::ALL.into_iter().map(move |point| (day, point));
    let cells: Vec<_> = DAYS.into_iter().flat_map(points).collect();
    prove("SQLite", &cells, Place::sqlite);
}

#[test]
fn every_bad_day_and_every_point_once_charges_once_on_postgres() {
    let cells: Vec<_> = DAYS
        .into_iter()
        .enumerate()
        .map(|(number, day)| (day, Point::ALL[number % Point::ALL.len()]))
        .collect();
    prove("PostgreSQL", &cells, |_| Place::postgres());
}

both!(
    a_worker_killed_after_the_provider_charged_does_not_charge_again,
    a_worker_that_sleeps_through_its_lease_changes_nothing_when_it_wakes,
    a_service_killed_while_it_believes_a_webhook_is_told_again,
);

/// The threat "worker replay": the provider has charged, and the result is not stored.
fn a_worker_killed_after_the_provider_charged_does_not_charge_again(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let service = Service::start(&place, &provider, &["--worker", "off"]);
    let request = payment("key-of-the-order", &order());
    let id = operation_id(&service.send(&request));
    let only = ["--worker", "only", QUICK[0], QUICK[1]];
    for _ in 0..2 {
        let worker = Service::start_to_stand(&place, &provider, &only, Some(Point::AfterCharge));
        worker.until_it_stands(Point::AfterCharge);
        worker.kill();
        let charged = provider.find(&id);
        assert_eq!((charged.len(), &charged[0]["status"]), (1, &json!("captured")));
        assert_eq!(service.payments()[0]["status"], "pending", "nobody here knows of it");
    }
    let _worker = Service::start(&place, &provider, &only);
    let paid = service.outcome(&request);
    assert_eq!((paid.status, &paid.json()["charge"]), (201, &provider.ledger()[0]["id"]));
    assert_eq!(provider.ledger().len(), 1, "three workers have asked for it under one key");
}

/// A worker that lost its lease is still sending, and still believes that it holds it.
fn a_worker_that_sleeps_through_its_lease_changes_nothing_when_it_wakes(make: Make<'_>) {
    let folder = folder();
    let slow = r#"{"slow": {"ms": 200, "next": 1}}"#;
    let (place, provider) = (make(&folder), Provider::start(&folder, &["--switches", slow]));
    let service = Service::start(&place, &provider, &["--worker", "off"]);
    let only = ["--worker", "only", "--timeout", "500ms"];
    let zombie = Service::start(&place, &provider, &only);
    let request = payment("key-of-the-order", &order());
    service.send(&request);
    eventually("the provider has charged", || provider.ledger().pop());
    zombie.signal("STOP");
    let worker = Service::start(&place, &provider, &only);
    let paid = service.outcome(&request);
    eventually("the message is delivered", || {
        (place.count("SELECT count(*) FROM semel_outbox WHERE state = 'delivered'") == 1).then_some(())
    });
    worker.kill();
    let before = place.count("SELECT max(epoch) FROM semel_outbox");
    zombie.signal("CONT");
    // It works again once it has completed another payment.
    let other = payment("key-of-another-order", &order());
    service.send(&other);
    assert_eq!(service.outcome(&other).status, 201);
    assert_eq!(service.outcome(&request).body, paid.body);
    let after = place.count(
        "SELECT max(epoch) FROM semel_outbox WHERE created_at = (SELECT min(created_at) FROM semel_outbox)",
    );
    assert_eq!((provider.ledger().len(), before), (2, after));
}

/// There is no worker; the provider's events settle its charges.
fn a_service_killed_while_it_believes_a_webhook_is_told_again(make: Make<'_>) {
    let folder = folder();
    let (place, provider) = (make(&folder), Provider::start(&folder, &[]));
    let off = ["--worker", "off"];
    let service = Service::start_to_stand(&place, &provider, &off, Some(Point::InSettlement));
    service.subscribe(&provider);
    let request = payment("key-of-the-order", &order());
    let id = operation_id(&service.send(&request));
    let charged = provider.send(&charge(&id, &format!("{id}:charge"))).json();
    service.until_it_stands(Point::InSettlement);
    service.kill();
    let service = Service::start(&place, &provider, &off);
    service.subscribe(&provider);
    let paid = service.outcome(&request);
    assert_eq!((paid.status, &paid.json()["charge"]), (201, &charged["id"]));
    assert_eq!((service.payments(), provider.ledger().len()), (vec![paid.json()], 1));
}
