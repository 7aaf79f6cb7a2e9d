//! Asynchronous commands: answered at once, executed by the gateway's own worker, and completed across
//! crashes.

use std::time::Duration;

use tokio::net::TcpListener;

use super::lab::{Gateway, Reply, Send, Site, Upstream, lab, pay, problem};

const ASYNC: [&str; 2] = ["--mode", "async"];

/// Number of commands that a gateway executes at a time.
const PLACES: usize = 16;

fn key(number: usize) -> String {
    format!("a-key-of-its-own-{number:04}")
}

fn numbered(number: usize) -> Send {
    pay("{}").set("idempotency-key", key(number))
}

async fn operation(gateway: &Gateway, accepted: &Reply) -> serde_json::Value {
    let address = accepted.header("location").expect("it says where to ask");
    let reply = gateway.send(pay("").method("GET").target(address).without("idempotency-key")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// Waits until an operation is in this state, and returns it.
async fn becomes(gateway: &Gateway, accepted: &Reply, state: &str) -> serde_json::Value {
    loop {
        let operation = operation(gateway, accepted).await;
        if operation["state"] == state {
            return operation;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Takes all places of a gateway's worker, with commands that continue when the gate opens.
async fn fill(gateway: &Gateway, upstream: &Upstream) -> Vec<Reply> {
    let mut running = Vec::new();
    for number in 0..PLACES {
        let accepted = gateway.send(numbered(number).doing("gate")).await;
        assert_eq!(accepted.status, 202);
        upstream.begun().await;
        running.push(accepted);
    }
    running
}

#[tokio::test]
async fn a_command_is_accepted_carried_out_and_replayed() {
    let (site, _upstream, gateway) = lab(&ASYNC).await;
    let request = || pay("{}").with("authorization", "Bearer canary").with("traceparent", "7");
    let accepted = gateway.send(request()).await;
    assert_eq!(accepted.status, 202);
    assert_eq!(accepted.header("retry-after"), Some("1"));
    let id = accepted.operation_id().expect("it is named").to_owned();
    assert_eq!(accepted.json()["operationId"], id);
    let done = becomes(&gateway, &accepted, "succeeded").await;
    assert_eq!(done["result"]["status"], 201);
    let last = gateway.send(request()).await;
    assert_eq!((last.status.as_u16(), &last.body[..]), (201, &b"1:{}"[..]));
    assert!(last.replayed());
    for (name, value) in [
        ("seen-semel-operation-id", &*id),
        ("seen-semel-attempt", "1"),
        ("seen-semel-tenant", "local"),
        ("seen-semel-caller", "local"),
        ("seen-idempotency-key", super::lab::KEY),
        ("seen-x-forwarded-host", "lab"),
        ("seen-traceparent", "7"),
        ("seen-content-length", "2"),
        ("seen-via", "1.1 semel"),
    ] {
        assert_eq!(last.header(name), Some(value), "{name}");
    }
    assert_eq!(last.header("seen-authorization"), None, "it is not kept");
    assert_eq!(site.column("SELECT CAST(count(*) AS text) FROM semel_requests"), ["0"]);
    let metrics = String::from_utf8(gateway.admin("/metrics").await.body.to_vec()).expect("it is text");
    for outcome in ["accepted", "executed", "replayed"] {
        let line = format!("idempotency_claims_total{{operation=\"unmatched\",outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn hundreds_of_duplicates_are_one_call() {
    let (_site, upstream, gateway) = lab(&ASYNC).await;
    let racing: Vec<_> =
        (0..300).map(|_| tokio::spawn(pay("{}").doing("gate").to(gateway.address))).collect();
    upstream.begun().await;
    let mut ids = std::collections::HashSet::new();
    for reply in racing {
        let reply = reply.await.expect("it is answered");
        assert_eq!(reply.status, 202);
        ids.insert(reply.operation_id().map(str::to_owned));
    }
    assert_eq!(ids.len(), 1);
    upstream.open_gate();
    let accepted = gateway.send(pay("{}")).await;
    if accepted.status == 202 {
        becomes(&gateway, &accepted, "succeeded").await;
    }
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn killed_with_commands_that_wait_and_run_the_next_gateway_runs_only_those_that_waited() {
    let arguments = [&ASYNC[..], &["--lease", "500ms"]].concat();
    let (site, upstream, mut first) = lab(&arguments).await;
    let running = fill(&first, &upstream).await;
    let mut waiting = Vec::new();
    for number in 100..105 {
        waiting.push(first.send(numbered(number)).await);
    }
    let again = first.send(numbered(100)).await;
    assert_eq!((again.status.as_u16(), &again.json()["state"]), (202, &"claimed".into()));
    let other = first.send(numbered(100).body("[]")).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    first.kill();
    let second = site.start(upstream.address, &arguments);
    for accepted in &waiting {
        assert_eq!(becomes(&second, accepted, "succeeded").await["attempt"], 1);
    }
    for accepted in &running {
        becomes(&second, accepted, "unknown").await;
    }
    let retry = second.send(numbered(0)).await;
    assert_eq!(retry.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert!(second.send(numbered(100)).await.replayed());
    assert_eq!(upstream.seen(), PLACES + waiting.len(), "each was called once");
}

#[tokio::test]
async fn killed_at_any_moment_an_accepted_command_comes_to_one_end() {
    let arguments = [&ASYNC[..], &["--lease", "500ms"]].concat();
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut lost = 0;
    for round in 0..10 {
        let mut gateway = site.start(upstream.address, &arguments);
        let before = upstream.effects();
        let accepted = gateway.send(numbered(round)).await;
        assert_eq!(accepted.status, 202);
        tokio::time::sleep(Duration::from_micros(200 * round as u64)).await;
        gateway.kill();
        let second = site.start(upstream.address, &arguments);
        let state = loop {
            let state = operation(&second, &accepted).await["state"].clone();
            if state == "succeeded" || state == "unknown" {
                break state;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let effects = upstream.effects() - before;
        assert!(
            effects == 1 || (effects == 0 && state == "unknown"),
            "round {round}: {state}, {effects} effects"
        );
        lost += usize::from(state == "unknown");
    }
    println!("10 kills, {lost} of them while the command ran, at most one effect each");
}

#[tokio::test]
async fn an_upstream_that_is_away_is_tried_again_until_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let site = Site::new();
    let gateway = site.start(address, &ASYNC);
    let accepted = gateway.send(pay("{}")).await;
    assert_eq!(accepted.status, 202);
    while operation(&gateway, &accepted).await["attempt"] == 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let waiting = operation(&gateway, &accepted).await;
    assert_eq!(waiting["reason"], "not_executed", "{waiting}");
    let upstream = Upstream::start_on(TcpListener::bind(address).await.expect("it is free again"));
    becomes(&gateway, &accepted, "succeeded").await;
    let last = gateway.send(pay("{}")).await;
    let attempt = last.header("seen-semel-attempt").and_then(|attempt| attempt.parse::<u32>().ok());
    assert!(attempt.is_some_and(|attempt| attempt > 1), "{attempt:?}");
    assert_eq!((last.status.as_u16(), upstream.seen()), (201, 1));
}

#[tokio::test]
async fn command_not_started_in_time_is_run_by_a_retry() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = "[[operation]]\nname = \"soon\"\nmatch = \"POST /soon\"\nstart_within = \"300ms\"\n";
    let gateway = site.start_with(upstream.address, file, &ASYNC);
    let running = fill(&gateway, &upstream).await;
    let soon = || numbered(100).target("/soon");
    let late = gateway.send(soon()).await;
    assert_eq!(late.status, 202);
    assert_eq!(becomes(&gateway, &late, "failed_retryable").await["reason"], "never_started");
    assert_eq!(upstream.seen(), PLACES);
    upstream.gate.add_permits(PLACES);
    for accepted in &running {
        becomes(&gateway, accepted, "succeeded").await;
    }
    let last = loop {
        let again = gateway.send(soon()).await;
        if again.status != 202 {
            break again;
        }
    };
    assert!(last.replayed(), "{last:?}");
    assert_ne!(last.header("seen-semel-attempt"), Some("1"));
    assert_eq!(upstream.seen(), PLACES + 1);
}

#[tokio::test]
async fn two_gateways_carry_out_each_command_once() {
    let (site, upstream, first) = lab(&ASYNC).await;
    let second = site.start(upstream.address, &ASYNC);
    let mut sent = Vec::new();
    for number in 0..100 {
        for gateway in [&first, &second] {
            sent.push(tokio::spawn(numbered(number).to(gateway.address)));
        }
    }
    for reply in sent {
        let reply = reply.await.expect("it is answered");
        assert!(reply.status == 202 || reply.replayed(), "{reply:?}");
        if reply.status == 202 {
            assert_eq!(becomes(&first, &reply, "succeeded").await["attempt"], 1);
        }
    }
    assert_eq!((upstream.seen(), upstream.effects()), (100, 100));
}

/// Returns true if any stored request contains this text.
fn keeps(site: &Site, what: &str) -> bool {
    let found = match site.is_postgres() {
        true => format!("position('{what}'::bytea in request) > 0"),
        false => format!("instr(request, CAST('{what}' AS BLOB)) > 0"),
    };
    let count = format!("SELECT CAST(count(*) AS text) FROM semel_requests WHERE {found}");
    site.column(&count) != ["0"]
}

#[tokio::test]
async fn credentials_are_kept_only_where_an_operation_wants_them_and_not_for_long() {
    for wanted in [false, true] {
        let (site, upstream) = (Site::new(), Upstream::start().await);
        let file = format!(
            "[[operation]]\nname = \"payments\"\nmatch = \"POST /payments\"\nmode = \"async\"\n\
             store_credentials = {wanted}\n"
        );
        let gateway = site.start_with(upstream.address, &file, &[]);
        let told = site.semel().args(["config", "check"]).output().expect("the program runs");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let kept =
            if wanted { "every field, credentials included" } else { "accept, accept-*, baggage, content-*" };
        assert!(
            told.contains(&format!(
                "\"payments\": fields of a request that are kept until a worker has executed it: {kept}"
            )),
            "{told}"
        );
        fill(&gateway, &upstream).await;
        let secret = || {
            let credentials = [
                "cookie",
                "cf-access-jwt-assertion",
                "x-goog-iap-jwt-assertion",
                "x-amzn-oidc-data",
                "x-amzn-oidc-accesstoken",
                "ocp-apim-subscription-key",
                "x-auth-request-access-token",
                "x-of-our-own",
            ];
            let request = numbered(100).with("authorization", "Bearer canary");
            let request = credentials.iter().fold(request, |request, name| request.with(name, "a=canary"));
            request.with("x-api-key", "semel_canary_of_our_own")
        };
        let accepted = gateway.send(secret()).await;
        assert_eq!(accepted.status, 202);
        assert!(keeps(&site, &key(100)), "the look finds what is there");
        assert_eq!(keeps(&site, "canary"), wanted);
        assert!(!keeps(&site, "semel_canary"), "our own keys are nobody's business");
        if !site.is_postgres() {
            let in_files = std::fs::read_dir(site.folder.path()).expect("it can be listed").any(|file| {
                let bytes = std::fs::read(file.expect("it is there").path()).expect("it reads");
                bytes.windows(6).any(|window| window == b"canary")
            });
            assert_eq!(in_files, wanted);
        }
        upstream.gate.add_permits(PLACES);
        becomes(&gateway, &accepted, "succeeded").await;
        let last = gateway.send(secret()).await;
        assert_eq!(last.header("seen-authorization").is_some(), wanted);
        assert_eq!(last.header("seen-x-api-key"), None);
        assert!(!keeps(&site, &key(100)) && !keeps(&site, "canary"), "no worker needs it any more");
    }
}

#[tokio::test]
async fn a_business_reference_is_taken_while_its_command_waits() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = "[[operation]]\nname = \"payments\"\nmatch = \"POST /payments\"\nmode = \"async\"\n\
                business_reference = \"/order\"\n";
    let gateway = site.start_with(upstream.address, file, &[]);
    let accepted = gateway.send(pay(r#"{"order": 7}"#).doing("gate")).await;
    let other = gateway.send(pay(r#"{"order": 7}"#).set("idempotency-key", key(1))).await;
    assert_eq!(other.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    assert_eq!(other.json()["operationId"], accepted.json()["operationId"]);
    upstream.open_gate();
    becomes(&gateway, &accepted, "succeeded").await;
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_termination_waits_for_running_async_commands_and_starts_no_others() {
    let (site, upstream, mut gateway) = lab(&ASYNC).await;
    fill(&gateway, &upstream).await;
    let waiting = gateway.send(numbered(100)).await;
    gateway.terminate();
    while gateway.admin("/readyz").await.status != 503 {
        tokio::task::yield_now().await;
    }
    assert_eq!(gateway.send(numbered(200)).await.problem(), problem(503, "SHUTTING_DOWN"));
    upstream.gate.add_permits(PLACES);
    assert!(gateway.ended().await.success());
    assert_eq!(upstream.seen(), PLACES);
    let second = site.start(upstream.address, &ASYNC);
    for number in 0..PLACES {
        assert!(second.send(numbered(number)).await.replayed());
    }
    becomes(&second, &waiting, "succeeded").await;
    assert_eq!(upstream.seen(), PLACES + 1);
}

#[tokio::test]
async fn a_termination_abandons_running_async_commands_as_unknown() {
    let arguments = [&ASYNC[..], &["--drain", "100ms"]].concat();
    let (site, upstream, mut gateway) = lab(&arguments).await;
    let accepted = gateway.send(pay("{}").doing("gate")).await;
    upstream.begun().await;
    gateway.terminate();
    assert_eq!(gateway.ended().await.code(), Some(1), "a command is left unknown");
    let second = site.start(upstream.address, &arguments);
    assert_eq!(operation(&second, &accepted).await["state"], "unknown");
    assert_eq!(second.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_worker_goes_on_when_its_store_is_back() {
    let (site, upstream, gateway) = lab(&ASYNC).await;
    let before = gateway.send(numbered(1)).await;
    becomes(&gateway, &before, "succeeded").await;
    let blocked = site.block_store();
    assert_eq!(gateway.send(numbered(2)).await.problem().0, 503, "nothing is accepted that is not kept");
    drop(blocked);
    let accepted = loop {
        let reply = gateway.send(numbered(2)).await;
        if reply.status == 202 {
            break reply;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    becomes(&gateway, &accepted, "succeeded").await;
    assert_eq!(upstream.seen(), 2);
}
