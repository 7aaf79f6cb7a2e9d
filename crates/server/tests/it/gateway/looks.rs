//! Look-ups of many commands by one request to the admin listener.

use serde_json::{Value, json};

use super::admin::refusal;
use super::lab::problem;
use super::reconciling::{Bank, SHORT, keyed, settings, site};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_has_many_commands_looked_for_and_hears_of_each() {
    let (site, bank) = (site(), Bank::start().await);
    // The gateway's own look-up is an hour away.
    let file = settings(&bank, "", "").replace("20ms", "1h");
    let gateway = site.start_with(bank.address, &file, &SHORT);
    let mut ids = Vec::new();
    for (key, what) in [("captured", "hang"), ("nothing", "hang nothing"), ("settled", "")] {
        gateway.send(keyed(key).doing(what)).await;
        ids.push(bank.arrived().await);
    }
    let nobody = "01a1df32-caa3-786d-a196-45c465f24292";
    let look = async |body: Value| {
        let request = gateway.ask("POST", "/admin/v1/records/reconcile").body(body.to_string());
        request.to(gateway.admin).await
    };
    let wanted = json!([ids[0], ids[1], ids[2], nobody]);
    let reply = look(json!({ "reason": "ticket 7", "operationIds": wanted })).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let document = reply.json();
    let results = document["results"].as_array().expect("it is a list");
    let told: Vec<_> = results.iter().map(|result| (&result["operationId"], &result["outcome"])).collect();
    let outcomes = ["resolved", "again", "not_unknown", "absent"].map(|outcome| json!(outcome));
    let expected: Vec<_> = wanted.as_array().into_iter().flatten().zip(&outcomes).collect();
    assert_eq!(told, expected, "one result for each, in their order: {document}");
    assert_eq!(
        (&document["resolved"], &document["unknown"], &document["others"]),
        (&json!(1), &json!(1), &json!(2)),
        "{document}"
    );
    let mut looks = bank.looks();
    looks.sort();
    let mut expected = vec![ids[0].clone(), ids[1].clone()];
    expected.sort();
    assert_eq!(looks, expected, "only unknown commands are looked for");
    let noted =
        site.column("SELECT who || ' ' || action || ': ' || why FROM semel_audit WHERE who = 'local'");
    assert_eq!(noted, ["local reconcile: ticket 7"; 2], "one note for each look-up");
    gateway.logs("done in part").await;

    for (body, hint) in [
        (json!({ "operationIds": [ids[0]] }), "`reason` is missing"),
        (json!({ "reason": "r" }), "must be a list"),
        (json!({ "reason": "r", "operationIds": [] }), "from 1 to 1000"),
        (json!({ "reason": "r", "operationIds": vec![ids[0].as_str(); 1001] }), "from 1 to 1000"),
        (json!({ "reason": "r", "operationIds": [ids[0], 7] }), "list of texts"),
        (json!({ "reason": "r", "operationIds": [ids[0], "x"] }), "element 2"),
        (json!({ "reason": "r", "operationIds": [ids[0], ids[0]] }), "named twice"),
    ] {
        let reply = look(body.clone()).await;
        assert_eq!(refusal(&reply), problem(400, "MALFORMED_REQUEST"), "{hint}");
        let detail = reply.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains(hint), "{hint}: {detail}");
    }
    assert_eq!(bank.looks().len(), 2, "a request that cannot be used looks for nothing");
}
