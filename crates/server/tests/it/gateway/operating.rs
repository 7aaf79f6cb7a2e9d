//! Logs and metrics for operators.

use std::time::Duration;

use super::lab::{lab, pay};

#[tokio::test]
async fn metrics_parse_as_prometheus_text_and_count_the_requests() {
    let (_site, _upstream, gateway) = lab(&["--on-server-error", "retry"]).await;
    gateway.send(pay("{}")).await;
    gateway.send(pay("{}")).await;
    gateway.send(pay("[]")).await;
    gateway.send(pay("{}").without("idempotency-key")).await;
    let text = gateway.admin("/metrics").await.body;
    let lines = String::from_utf8(text.to_vec()).expect("it is text");
    let scrape =
        prometheus_parse::Scrape::parse(lines.lines().map(|line| Ok(line.to_owned()))).expect("it parses");
    let value = |name: &str, label: (&str, &str)| {
        scrape.samples.iter().find_map(|sample| {
            let found = sample.metric == name && sample.labels.get(label.0) == Some(label.1);
            match &sample.value {
                prometheus_parse::Value::Counter(value) | prometheus_parse::Value::Gauge(value) if found => {
                    Some(*value)
                }
                prometheus_parse::Value::Untyped(value) if found => Some(*value),
                _ => None,
            }
        })
    };
    let claims = |outcome| value("idempotency_claims_total", ("outcome", outcome));
    assert_eq!((claims("executed"), claims("replayed")), (Some(1.0), Some(1.0)));
    assert_eq!((claims("mismatch"), claims("refused")), (Some(1.0), Some(1.0)));
    assert_eq!(value("idempotency_replays_total", ("operation", "unmatched")), Some(1.0));
    assert_eq!(value("idempotency_fingerprint_mismatch_total", ("tenant", "local")), Some(1.0));
    assert_eq!(value("semel_build_info", ("version", env!("CARGO_PKG_VERSION"))), Some(1.0));
    assert_eq!(value("idempotency_new_keys_total", ("tenant", "local")), Some(1.0));
    assert_eq!(value("idempotency_duplicates_total", ("tenant", "local")), Some(1.0));
    for histogram in
        ["idempotency_added_seconds", "idempotency_execution_seconds", "idempotency_store_seconds"]
    {
        assert!(scrape.samples.iter().any(|sample| sample.metric == histogram), "{histogram}");
    }
}

#[tokio::test]
async fn secrets_never_reach_logs_or_metrics() {
    let (site, _upstream, mut gateway) = lab(&["--timeout", "200ms"]).await;
    let canary = "canary-5f3a9c1e7b2d4860";
    let request = || {
        pay(&format!(r#"{{"card":"{canary}-body"}}"#))
            .set("idempotency-key", format!("{canary}-key"))
            .with("authorization", format!("Bearer {canary}-credential"))
            .with("cookie", format!("session={canary}-cookie"))
            .target(format!("/payments/{canary}-path?query={canary}-query"))
    };
    gateway.send(request().with("x-request-id", format!("{canary}-key"))).await;
    gateway.send(request().with("x-request-id", format!("{canary}-credential"))).await;
    gateway.send(request().body(format!("{canary}-other"))).await;
    gateway.send(request().set("idempotency-key", format!("{canary} malformed"))).await;
    gateway.send(request().set("idempotency-key", format!("{canary}-slow")).doing("gate")).await;
    gateway.send(request().method("GET")).await;
    // A failing store is logged, too.
    let blocked = site.block_store();
    let failed = gateway.send(request().set("idempotency-key", format!("{canary}-no-store"))).await;
    assert_eq!(failed.problem().0, 503);
    drop(blocked);
    let metrics = gateway.admin("/metrics").await.body;
    gateway.terminate();
    gateway.ended().await;
    while !gateway.log().contains("stopped") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let log = gateway.log();
    assert!(log.contains("idempotency_replay") && log.contains("keyHashPrefix"), "{log}");
    assert!(log.contains("\"code\":\"INVALID_IDEMPOTENCY_KEY\""), "a refusal says which: {log}");
    // A path without a rule is named in logs, without its query; in metrics it never is.
    assert!(!log.replace(&format!("/payments/{canary}-path\""), "").contains("canary"), "{log}");
    assert!(!String::from_utf8_lossy(&metrics).contains("canary"));
}

#[tokio::test]
async fn every_decision_is_one_structured_event() {
    let (_site, _upstream, gateway) = lab(&[]).await;
    gateway.send(pay("{}")).await;
    gateway.send(pay("{}")).await;
    // The log is read by another thread: wait for its last line.
    while !gateway.log().contains("idempotency_replay") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let log = gateway.log();
    let events: Vec<serde_json::Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["idempotency_claim", "idempotency_settled", "idempotency_replay"], "{log}");
    for event in &events {
        assert_eq!((&event["operation"], &event["caller"]), (&"unmatched".into(), &"local".into()));
        assert_eq!(event["keyHashPrefix"].as_str().map(str::len), Some(8));
    }
}

#[tokio::test]
async fn leases_that_ended_are_swept_in_the_background() {
    let (site, upstream) = (super::lab::Site::new(), super::lab::Upstream::start().await);
    let file = "[maintenance]\nsweep_interval = \"100ms\"\nreap_interval = \"100ms\"\n";
    let mut first = site.start_with(upstream.address, file, &["--lease", "300ms", "--ttl", "1s"]);
    first.send(pay("{}").set("idempotency-key", "settled-and-expired-soon")).await;
    let address = first.address;
    let cut_off = tokio::spawn(async move {
        let _ = tokio::spawn(pay("{}").doing("gate").to(address)).await;
    });
    upstream.begun().await;
    upstream.begun().await;
    first.kill();
    cut_off.await.expect("the client notices");
    let _second = site.start_with(upstream.address, file, &[]);
    while site.states() != ["unknown"] {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
