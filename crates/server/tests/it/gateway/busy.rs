//! Busiest callers and most repeated keys: requests to a whole gateway, and the two pages of its admin listener.

use serde_json::{Value, json};

use super::lab::{Gateway, Send, Site, Upstream, pay};

const FILE: &str = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                    tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n\
                    [[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n";

fn of(caller: &str, key: &str) -> Send {
    pay("{}").set("idempotency-key", key).with("x-tenant", "acme").with("x-caller", caller)
}

/// Sends a request, and asserts the status of its answer.
async fn send(gateway: &Gateway, request: Send, status: u16) {
    let reply = gateway.send(request).await;
    assert_eq!(reply.status, status, "{reply:?}");
}

/// Returns the rows of a page, without the path of the minutes: the test may run over the end of one.
fn in_both_minutes(row: &Value) -> Value {
    let sum = |name: &str| {
        let of = |minute: &str| row[minute][name].as_u64().unwrap_or_else(|| panic!("{row}"));
        of("thisMinute") + of("lastMinute")
    };
    json!({
        "tenant": row["tenant"], "caller": row["caller"],
        "newKeys": sum("newKeys"), "mismatches": sum("mismatches"), "refusals": sum("refusals"),
    })
}

#[tokio::test]
async fn the_pages_of_busy_callers_and_hot_keys_count_the_requests_of_a_gateway() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, FILE, &[]);
    for number in 0..3 {
        send(&gateway, of("shop", &format!("canary-key-of-the-shop-{number}")), 201).await;
    }
    for _ in 0..4 {
        send(&gateway, of("shop", "canary-key-of-the-shop-1"), 201).await;
    }
    send(&gateway, of("shop", "canary-key-of-the-shop-2"), 201).await;
    send(&gateway, of("shop", "canary-key-of-the-shop-0").body("[]"), 422).await;
    send(&gateway, of("shop", "short"), 400).await;
    send(&gateway, of("shop", "").without("idempotency-key"), 400).await;
    send(&gateway, of("till", "canary-key-of-the-till"), 201).await;

    let page = gateway.admin("/admin/v1/callers").await.json();
    let rows: Vec<Value> = page["callers"].as_array().into_iter().flatten().map(in_both_minutes).collect();
    let expected = json!([
        { "tenant": "acme", "caller": "shop", "newKeys": 3, "mismatches": 1, "refusals": 2 },
        { "tenant": "acme", "caller": "till", "newKeys": 1, "mismatches": 0, "refusals": 0 },
    ]);
    assert_eq!(Value::Array(rows), expected, "the busiest first: {page}");
    let first = gateway.admin("/admin/v1/callers?limit=1").await.json();
    assert_eq!(first["callers"].as_array().map(Vec::len), Some(1), "{first}");

    let records = gateway.admin("/admin/v1/records?caller=shop").await.json();
    let digest = |number: usize| records["records"][number]["keyHashPrefix"].clone();
    let page = gateway.admin("/admin/v1/hot-keys").await.json();
    let hot = |number: usize, duplicates: u64| {
        json!({
            "tenant": "acme", "caller": "shop", "operation": "payments.create",
            "keyHashPrefix": digest(number), "duplicates": duplicates,
        })
    };
    let keys = page["keys"].as_array().cloned().unwrap_or_default();
    assert_eq!(keys[..1], [hot(1, 4)], "the most repeated first: {page}");
    assert!(keys.contains(&hot(2, 1)), "{page}");
    assert!(!keys.iter().any(|key| key["caller"] == "till"), "it sent no key twice: {page}");
    let first = gateway.admin("/admin/v1/hot-keys?limit=1").await.json();
    assert_eq!(first["keys"], json!([hot(1, 4)]));
    assert!(!page.to_string().contains("canary"), "digests only: {page}");
}
