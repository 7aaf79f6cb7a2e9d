//! Quotas of the gateway: for tenants and callers, for several gateways on one store, and under a flood.

use std::sync::Arc;
use std::time::Duration;

use super::lab::{Gateway, Reply, Send, Site, Upstream, pay, problem};

const TRUSTED: &str = "
[identity]
source          = \"trusted-headers\"
trusted_proxies = [\"127.0.0.1\"]
tenant_header   = \"X-Tenant\"
caller_header   = \"X-Caller\"
";

fn by(tenant: &str, number: usize) -> Send {
    let request = pay("{}").set("idempotency-key", format!("limited-key-number-{number}"));
    request.with("x-tenant", tenant).with("x-caller", "web")
}

fn start(site: &Site, upstream: &Upstream, limits: &str) -> Gateway {
    site.start_with(upstream.address, &format!("{TRUSTED}\n{limits}"), &[])
}

fn is_over_quota(reply: &Reply) -> bool {
    reply.status == 429 && reply.problem() == problem(429, "IDEMPOTENCY_KEY_QUOTA_EXCEEDED")
}

#[tokio::test]
async fn a_tenant_over_its_new_key_quota_is_refused_and_counted() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let limits = "[limits]\ntenant_new_keys = \"3/d\"\n[[limit]]\ntenant = \"large\"\nnew_keys = \"5/d\"\n";
    let gateway = start(&site, &upstream, limits);
    for number in 0..6 {
        assert_eq!(is_over_quota(&gateway.send(by("small", number)).await), number >= 3, "{number}");
        assert_eq!(is_over_quota(&gateway.send(by("large", number)).await), number >= 5, "{number}");
    }
    assert_eq!(upstream.effects(), 8);
    let refused = gateway.send(by("small", 9)).await;
    let wait: u64 = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("it says when");
    assert!((1..=24 * 3600).contains(&wait), "{wait}");
    assert!(gateway.send(by("small", 0)).await.replayed(), "what is known is answered");
    let metrics = String::from_utf8(gateway.admin("/metrics").await.body.to_vec()).expect("it is text");
    for (tenant, count) in [("small", 4), ("large", 1)] {
        let labels = format!("{{whose=\"tenant\",limit=\"new_keys\",tenant=\"{tenant}\"}}");
        let counted = format!("idempotency_quota_exceeded_total{labels} {count}");
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[tokio::test]
async fn keys_that_are_kept_count_in_every_gateway_and_after_a_restart() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let limits = "[limits]\ncaller_active_keys = 4\ncaller_stored_bytes = \"1MiB\"\n";
    let first = start(&site, &upstream, limits);
    for number in 0..4 {
        assert_eq!(first.send(by("acme", number)).await.status, 201);
    }
    assert!(is_over_quota(&first.send(by("acme", 4)).await));
    let second = start(&site, &upstream, limits);
    assert!(is_over_quota(&second.send(by("acme", 5)).await));
    assert_eq!(second.send(by("globex", 5)).await.status, 201);
    let output = site.semel().args(["records", "list", "--tenant", "acme", "--json"]).output();
    let output = output.expect("the program runs");
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let id = listed[0]["operationId"].as_str().expect("it is named").to_owned();
    drop((first, second));
    let purge = ["records", "purge", &id, "--reason", "to make room"];
    assert!(site.semel().args(purge).status().expect("the program runs").success());
    let third = start(&site, &upstream, limits);
    // A purge leaves a tombstone, which is kept, too.
    assert!(is_over_quota(&third.send(by("acme", 6)).await));
    assert_eq!(upstream.effects(), 5);
}

#[tokio::test]
async fn two_gateways_on_one_store_share_a_rate_within_a_tolerance() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let limits = "[limits]\ntenant_new_keys = \"40/d\"\n";
    let gateways = [start(&site, &upstream, limits), start(&site, &upstream, limits)];
    let (mut number, mut refused_in_a_row) = (0, 0);
    while refused_in_a_row < 10 {
        for gateway in &gateways {
            number += 1;
            let refused = is_over_quota(&gateway.send(by("acme", number)).await);
            refused_in_a_row = if refused { refused_in_a_row + 1 } else { 0 };
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(number < 400, "nothing is limited");
    }
    // Each gateway alone would admit 40; they share their counts every second.
    assert!((40..75).contains(&upstream.effects()), "{} of 40", upstream.effects());
}

#[tokio::test]
async fn a_flood_of_one_tenant_takes_no_command_from_another() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let limits = "[limits]\ntenant_new_keys = \"20/d\"\ntenant_lookups = \"200/d\"\n[[limit]]\ntenant = \"calm\"\n\
                  new_keys = \"100/s\"\nlookups = \"100/s\"\n";
    let gateway = Arc::new(start(&site, &upstream, limits));
    let floods: Vec<_> = (0..8)
        .map(|lane| {
            let gateway = gateway.clone();
            tokio::spawn(async move {
                let mut let_in = 0;
                for number in 0..100 {
                    let reply = gateway.send(by("loud", lane * 1000 + number)).await;
                    let_in += usize::from(reply.status == 201);
                    assert!(matches!(reply.status.as_u16(), 201 | 429), "{reply:?}");
                }
                let_in
            })
        })
        .collect();
    for number in 0..20 {
        assert_eq!(gateway.send(by("calm", number)).await.status, 201, "{number}");
    }
    let mut let_in = 0;
    for flood in floods {
        let_in += flood.await.expect("it ends");
    }
    assert_eq!((let_in, upstream.effects()), (20, 40));
    // A tenant over its look-up rate does not reach the store any more: the answer says so.
    let late = gateway.send(by("loud", 0)).await;
    assert_eq!(late.problem(), problem(429, "LOOKUP_QUOTA_EXCEEDED"));
}

/// Returns the quotas of a tenant, as `semel quotas list` prints them.
fn quotas(site: &Site, tenant: &str) -> serde_json::Value {
    let list = ["quotas", "list", "--tenant", tenant, "--json"];
    let output = site.semel().args(list).output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// A restarted gateway, after SIGTERM or SIGKILL, refuses for as long as its predecessor would have.
async fn a_used_up_quota_outlasts_a_restart(site: Site) {
    let upstream = Upstream::start().await;
    let limits = "[limits]\ntenant_new_keys = \"4/d\"\ntenant_lookups = \"100/d\"\ncaller_active_keys = 9\n";
    let mut gateway = start(&site, &upstream, limits);
    for number in 0..4 {
        assert_eq!(gateway.send(by("acme", number)).await.status, 201);
    }
    let wait = |reply: &Reply| -> u64 {
        assert!(is_over_quota(reply), "{reply:?}");
        reply.header("retry-after").and_then(|wait| wait.parse().ok()).expect("it says when")
    };
    let before = wait(&gateway.send(by("acme", 4)).await);
    gateway.terminate();
    assert!(gateway.ended().await.success());
    let mut gateway = start(&site, &upstream, limits);
    let after = wait(&gateway.send(by("acme", 5)).await);
    // One key is regained every six hours. The report rounds to a second, and time passes.
    assert!(after <= before && after + 600 > before && before <= 6 * 3600, "{before} and then {after}");
    assert!(gateway.send(by("acme", 0)).await.replayed(), "what is known is answered");
    assert_eq!(gateway.send(by("globex", 0)).await.status, 201, "others are not concerned");
    gateway.kill();
    let gateway = start(&site, &upstream, limits);
    wait(&gateway.send(by("acme", 6)).await);
    assert_eq!(upstream.effects(), 5);

    let listed = quotas(&site, "acme");
    let [tenant, caller] = listed.as_array().expect("it is a list").as_slice() else { panic!("{listed}") };
    assert_eq!((&tenant["tenant"], &tenant["caller"]), (&"acme".into(), &serde_json::Value::Null));
    assert_eq!((&tenant["newKeys"]["left"], &tenant["newKeys"]["limit"]), (&0.into(), &4.into()));
    assert!(tenant["newKeys"]["wholeAt"].is_string() && tenant["activeKeys"].is_null(), "{tenant}");
    assert!(tenant["lookups"]["left"].as_u64().is_some_and(|left| (80..100).contains(&left)), "{tenant}");
    assert_eq!((&caller["caller"], &caller["activeKeys"]["kept"]), (&"web".into(), &4.into()));
    assert!(!listed.to_string().contains("limited-key-number"), "no key is shown");
    assert_eq!(quotas(&site, "nobody"), serde_json::json!([]));
    let table = site.semel().args(["quotas", "list"]).output().expect("it runs");
    let table = String::from_utf8(table.stdout).expect("it is text");
    assert!(table.contains("0 of 4") && table.contains("4 of 9"), "{table}");
}

#[tokio::test]
async fn a_used_up_quota_outlasts_a_restart_on_sqlite() {
    a_used_up_quota_outlasts_a_restart(Site::new()).await;
}

#[tokio::test]
async fn a_used_up_quota_outlasts_a_restart_on_postgresql() {
    a_used_up_quota_outlasts_a_restart(Site::on_postgres()).await;
}
