//! Pages below `/.well-known/semel/`.

use semel_core::problem::ProblemKind;

use crate::lab::{Lab, Send, pay, problem};

fn ask(target: &str) -> Send {
    pay("").method("GET").target(target).without("idempotency-key")
}

#[tokio::test]
async fn an_operation_is_shown_to_its_own_caller_only() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}")).await;
    let id = first.operation_id().expect("it is named").to_owned();
    let target = format!("/.well-known/semel/operations/{id}");
    let document = lab.send(ask(&target)).await.json();
    assert_eq!(document["operationId"], id);
    assert_eq!(document["operation"], "POST /payments");
    assert_eq!(document["state"], "succeeded");
    assert_eq!(document["reason"], "answered");
    assert_eq!(document["result"]["status"], 201);
    assert_eq!(document["result"]["location"], "/payments/1");
    for member in ["createdAt", "updatedAt", "expiresAt"] {
        let moment = document[member].as_str().expect("it is a time");
        assert!(semel_core::Timestamp::from_rfc3339(moment).is_some(), "{member}: {moment}");
    }
    let result = lab.send(ask(&format!("{target}/result"))).await;
    assert_eq!((result.status, &result.body), (first.status, &first.body));

    let absent = lab.send(ask("/.well-known/semel/operations/0190d1f0-7c5e-7000-8000-00000000ffff")).await;
    assert_eq!(absent.problem(), problem(404, "OPERATION_NOT_FOUND"));
    for foreign in [ask(&target).set("x-user", "bob"), ask(&target).with("x-tenant", "globex")] {
        let reply = lab.send(foreign.clone()).await;
        assert_eq!(
            (reply.status, &reply.body),
            (absent.status, &absent.body),
            "foreign and absent are alike"
        );
    }
    let result = format!("{target}/result");
    assert_eq!(lab.send(ask(&result).set("x-user", "bob")).await.body, absent.body);
    assert_eq!(lab.send(ask(&target).without("x-user")).await.problem(), problem(401, "UNAUTHENTICATED"));
    let nonsense = lab.send(ask("/.well-known/semel/operations/../../etc")).await;
    assert_eq!(nonsense.problem().0, 400, "it has no form");
    assert_eq!(lab.send(ask("/.well-known/semel/operations/etc/passwd")).await.problem().0, 404);
    assert_eq!(lab.count(), 1, "none of these reached the handler");
}

#[tokio::test]
async fn an_operation_without_a_result_says_so() {
    let lab = Lab::new().await;
    lab.send(pay("{}").doing("panic-after")).await;
    let id = lab.send(pay("{}")).await.json()["operationId"].as_str().expect("it is named").to_owned();
    let target = format!("/.well-known/semel/operations/{id}");
    let document = lab.send(ask(&target)).await.json();
    assert_eq!((&document["state"], &document["reason"]), (&"unknown".into(), &"panicked".into()));
    assert!(document["result"].is_null() && document["expiresAt"].is_null());
    let result = lab.send(ask(&format!("{target}/result"))).await;
    assert_eq!(result.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
}

#[tokio::test]
async fn an_operation_resource_refuses_post_with_405() {
    let lab = Lab::new().await;
    let reply = lab.send(pay("{}").target("/.well-known/semel/operations/x")).await;
    assert_eq!((reply.status.as_u16(), reply.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(lab.count(), 0);
}

#[tokio::test]
async fn every_problem_is_described_where_it_links_to() {
    let lab = Lab::new().await;
    for kind in ProblemKind::ALL {
        let page =
            lab.send(ask(&format!("/.well-known/semel/problems/{}", kind.slug())).without("x-user")).await;
        assert_eq!(page.status, 200);
        assert!(String::from_utf8_lossy(&page.body).contains(kind.code()));
    }
    assert_eq!(lab.send(ask("/.well-known/semel/problems/nonsense")).await.status, 404);
}
