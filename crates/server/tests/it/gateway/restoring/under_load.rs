//! A restore under load: clients retry every command until it has a final answer, while the store is set back beneath them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use semel_testkit::Chance;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::lab::{Gateway, Site, pay};
use super::{back_up, done, put_back, run};

const RULES: &str = "witness = \"witness\"\n\
    [defaults]\nlease = \"1s\"\ntimeout = \"500ms\"\nquarantine_margin = \"500ms\"\nlate_answer = \"500ms\"\n\
    [maintenance]\nsweep_interval = \"100ms\"\n\
    [[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n";

/// Number of clients.
const CLIENTS: usize = 6;
/// Number of commands in each part of the test, at least.
const PART: usize = 40;

/// Service that charges once for each request, and remembers what it has charged for.
#[derive(Default)]
struct Ledger(Mutex<HashMap<String, usize>>);

impl Ledger {
    fn charges(&self) -> HashMap<String, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn charge(State(ledger): State<Arc<Ledger>>, body: Bytes) -> (StatusCode, String) {
    let body: Value = serde_json::from_slice(&body).expect("the gateway passes bodies on");
    let order = body["order"].as_str().expect("clients name their orders").to_owned();
    // Some calls run while the store is set back.
    tokio::time::sleep(Duration::from_millis(20)).await;
    *ledger.0.lock().unwrap_or_else(PoisonError::into_inner).entry(order.clone()).or_default() += 1;
    (StatusCode::CREATED, format!("charged for {order}"))
}

/// The world of clients: the gateway that they reach now, if any.
struct World {
    gateway: Mutex<Option<SocketAddr>>,
    /// Commands, each with whether it is over.
    begun: Mutex<HashMap<String, bool>>,
    stops: AtomicBool,
}

impl World {
    fn leads_to(&self, gateway: Option<&Gateway>) {
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = gateway.map(|gateway| gateway.address);
    }

    fn finished(&self) -> usize {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).values().filter(|is_over| **is_over).count()
    }

    /// Returns the commands that are pursued now.
    fn pursued(&self) -> Vec<String> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.iter().filter(|(_, is_over)| !**is_over).map(|(order, _)| order.clone()).collect()
    }
}

/// Sends commands one after the other, each until it is created or replayed.
async fn client(world: Arc<World>, number: usize) {
    let mut chance = Chance::of(7, &format!("client {number}"));
    for command in 0.. {
        if world.stops.load(Ordering::SeqCst) {
            return;
        }
        let order = format!("order-of-client-{number:02}-{command:04}");
        let mark = |is_over| {
            let mut begun = world.begun.lock().unwrap_or_else(PoisonError::into_inner);
            begun.insert(order.clone(), is_over);
        };
        mark(false);
        loop {
            let address = *world.gateway.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(address) = address {
                let request =
                    pay(&format!("{{\"order\":\"{order}\"}}")).set("idempotency-key", order.clone());
                // A client that gets no answer retries, as with a refusal.
                let answered = tokio::spawn(async move { request.to(address).await }).await;
                if answered.is_ok_and(|reply| reply.status == 201) {
                    break;
                }
            }
            tokio::time::sleep(chance.millis(5, 60)).await;
        }
        mark(true);
    }
}

/// Waits until so many commands are over. On a slow machine, leases expire before the answers come.
async fn over(world: &World, site: &Site, ledger: &Ledger, count: usize) {
    while world.finished() < count {
        settle(site, ledger);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns what the file of the witness says.
fn memory(site: &Site) -> String {
    std::fs::read_to_string(site.folder.path().join("witness")).expect("it is written at the start")
}

/// Settles every unknown command by the service's own books.
fn settle(site: &Site, ledger: &Ledger) {
    let unknown = "SELECT state FROM semel_records WHERE state = 'unknown' LIMIT 1";
    if site.column(unknown).is_empty() {
        return;
    }
    let listed = run(site, &["records", "list", "--state", "unknown", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
    let unknown = listed.as_array().cloned().unwrap_or_default();
    for record in unknown {
        let id = record["operationId"].as_str().expect("it has one").to_owned();
        let hash = record["keyHashPrefix"].as_str().expect("it has one").to_owned();
        let charged = ledger.charges().into_keys().find(|order| key_hash_prefix(order) == hash);
        let reason = ["--reason", "the service's books"];
        let resolve = ["records", "resolve", &id];
        match charged {
            Some(order) => {
                let body = site.folder.path().join("found");
                std::fs::write(&body, format!("charged for {order}")).expect("there is room");
                let body = body.to_str().expect("it is text");
                let verdict = ["--verdict", "executed", "--status", "201", "--body", body];
                // Its executor may have been faster.
                let _ = run(site, &[&resolve[..], &verdict, &reason].concat());
            }
            None => {
                // Refused during the quarantine.
                let _ = run(site, &[&resolve[..], &["--verdict", "not-executed"], &reason].concat());
            }
        }
    }
}

fn key_hash_prefix(key: &str) -> String {
    let rules = semel_core::KeyRules::default();
    rules.parse([key.as_bytes()]).expect("it is a key").expect("there is one").hash_prefix()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_retry_through_a_restore_are_charged_once_each() {
    let ledger = Arc::new(Ledger::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let upstream = listener.local_addr().expect("it is bound");
    let app = Router::new().fallback(charge).with_state(ledger.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let site = Site::new();
    let gateway = site.start_with(upstream, RULES, &[]);
    let world =
        Arc::new(World { gateway: Mutex::default(), begun: Mutex::default(), stops: AtomicBool::new(false) });
    world.leads_to(Some(&gateway));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(world.clone(), number));
    }
    over(&world, &site, &ledger, PART).await;
    let mut gateway = gateway;
    if site.is_postgres() {
        // A copy by template wants no other connection.
        world.leads_to(None);
        gateway.kill();
        back_up(&site);
        gateway = site.start_with(upstream, RULES, &[]);
        world.leads_to(Some(&gateway));
    } else {
        back_up(&site);
    }
    let remembered = memory(&site);
    over(&world, &site, &ledger, world.finished() + PART).await;
    while memory(&site) == remembered {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.leads_to(None);
    gateway.kill();
    put_back(&site);
    let lost = ledger.charges().len();
    let gateway = site.start_with(upstream, RULES, &[]);
    gateway.logs("idempotency_store_behind").await;
    world.leads_to(Some(&gateway));
    // Every client meets the fence with the command that it pursues, or with a new one.
    let refused = "idempotency_held_total{operation=\"payments.create\"}";
    while gateway.counted(refused).await.is_none_or(|count| count < 3 * CLIENTS as u64) {
        settle(&site, &ledger);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    done(&site, &["hold", "add", "--look-up-first", "payments.create", "--reason", "the service's books"]);
    // No other command can have run in the lost time and still be retried.
    let exposed = world.pursued();
    while world.pursued().iter().any(|order| exposed.contains(order)) {
        settle(&site, &ledger);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    done(&site, &["hold", "lift", "--store-fence", "--reason", "every open command is settled"]);
    let goal = world.finished() + PART;
    while world.finished() < goal || !world.pursued().is_empty() {
        world.stops.store(world.finished() >= goal, Ordering::SeqCst);
        settle(&site, &ledger);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("no client panics");
    }
    let charges = ledger.charges();
    let twice: Vec<_> = charges.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let all = world.finished();
    assert_eq!(charges.len(), all, "every command ran");
    let records = site.column("SELECT count(*) || '' FROM semel_records").remove(0);
    assert!(records.parse::<usize>().is_ok_and(|records| records < all), "{records} of {all}: some are lost");
    assert!(lost >= 2 * PART, "{lost} ran before the restore");
}
