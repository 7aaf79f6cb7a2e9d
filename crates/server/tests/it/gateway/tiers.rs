//! Operations that require a store of a tier: at the gateway's start, and while its database changes.

use std::time::Duration;

use semel_testkit::postgres::Cluster;

use super::lab::{Site, Upstream, pay, problem};

const FILE: &str = r#"
[[operation]]
name = "payments.create"
match = "POST /payments"
needs_tier = 1
"#;

#[tokio::test]
async fn a_gateway_on_a_store_that_promises_less_does_not_start() {
    let site = Site::new();
    std::fs::write(site.folder.path().join("semel.toml"), FILE).expect("there is room");
    let here = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    for (command, arguments) in [("serve", &here[..]), ("doctor", &[])] {
        let mut program = site.semel();
        let output = program.arg(command).args(arguments).env("SEMEL_STORE", "memory:").output();
        let output = output.expect("the program runs");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(!output.status.success(), "{command}: {told}");
        assert!(told.contains("payments.create"), "{command}: {told}");
        let needs = "it needs a store of tier 1 (`needs_tier`), and the store promises tier 3";
        assert!(told.contains(needs), "{command}: {told}");
    }
}

/// Sweeps read the tier again ten seconds after the last time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_does_not_run_while_the_database_is_below_its_tier() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let set = |value: &str| {
        let statement = format!("ALTER SYSTEM SET synchronous_commit = '{value}'");
        cluster.server().sql("postgres", &statement).expect("it can be set");
        cluster.server().sql("postgres", "SELECT pg_reload_conf()").expect("it is heard");
    };
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = format!("{FILE}\n[maintenance]\nsweep_interval = \"100ms\"\n");
    let gateway = site.start_in(upstream.address, &file, &[], &[("SEMEL_STORE", &database.url())]);
    let keyed = |number: usize| pay("{}").set("idempotency-key", format!("\"payment-0000000000-{number}\""));
    assert_eq!(gateway.send(keyed(0)).await.status, 201);

    let answers = async |value: &str, status: u16, first: usize| {
        set(value);
        for number in first..first + 600 {
            let reply = gateway.send(keyed(number)).await;
            if reply.status == status {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the gateway did not notice in half a minute");
    };
    let refused = answers("off", 503, 1).await;
    assert_eq!(refused.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("needs a store of tier 1, and the store promises tier 2"), "{detail}");
    let ran = upstream.seen();
    assert_eq!(gateway.send(keyed(10_000)).await.status, 503);
    assert!(gateway.send(keyed(0)).await.replayed(), "replays are answered");
    assert_eq!(upstream.seen(), ran, "nothing runs");
    let refunds = gateway.send(keyed(10_001).target("/refunds")).await;
    assert_eq!(refunds.status, 201, "an operation that needs nothing goes on");

    answers("on", 201, 20_000).await;
    assert_eq!(gateway.send(keyed(10_000)).await.status, 201, "the key was never taken");
}
