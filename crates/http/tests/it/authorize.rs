//! Denied callers get nothing: no execution, and no stored response.

use std::sync::{Arc, Mutex};

use http::HeaderValue;
use http::request::Parts;
use semel_core::{OperationName, Principal};
use semel_http::{Builder, Denied, Operation};

use crate::lab::{Lab, Reply, Send, pay, problem};

/// Authorization hook: its answer, and the questions that it got.
#[derive(Default)]
struct Judge {
    says: Mutex<Option<Denied>>,
    asked: Mutex<Vec<String>>,
}

impl Judge {
    fn put_into(self: &Arc<Judge>, builder: Builder) -> Builder {
        let judge = self.clone();
        builder.authorize(move |principal: &Principal, operation: &OperationName, request: &Parts| {
            let question = format!("{} {operation} {}", principal.caller(), request.method);
            judge.asked.lock().expect("nobody panics with it").push(question);
            let says = judge.says.lock().expect("nobody panics with it").clone();
            async move {
                tokio::task::yield_now().await;
                says.map_or(Ok(()), Err)
            }
        })
    }

    fn say(&self, says: Option<Denied>) {
        *self.says.lock().expect("nobody panics with it") = says;
    }

    /// Returns the questions since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("nobody panics with it"))
    }
}

async fn lab() -> (Lab, Arc<Judge>) {
    let judge = Arc::new(Judge::default());
    let lab = Lab::with(|builder| {
        judge.put_into(builder).operation(Operation::new("payments.create", "POST /payments"))
    });
    (lab.await, judge)
}

fn page_of(reply: &Reply) -> Send {
    let id = reply.operation_id().expect("it is named");
    pay("").method("GET").target(format!("/.well-known/semel/operations/{id}")).without("idempotency-key")
}

fn result_of(reply: &Reply) -> Send {
    let id = reply.operation_id().expect("it is named");
    page_of(reply).target(format!("/.well-known/semel/operations/{id}/result"))
}

#[tokio::test]
async fn caller_without_permission_gets_no_replay() {
    let (lab, judge) = lab().await;
    let first = lab.send(pay("{}")).await;
    assert!(lab.send(pay("{}")).await.replayed(), "from memory");
    assert_eq!(lab.send(page_of(&first)).await.json()["state"], "succeeded");
    assert_eq!(lab.send(result_of(&first)).await.body, first.body);
    let create = "alice payments.create POST".to_owned();
    let page = "alice payments.create GET".to_owned();
    assert_eq!(judge.asked(), [create.clone(), create.clone(), page.clone(), page.clone()], "every time");

    judge.say(Some(Denied::Forbidden));
    let claims = lab.count_claims();
    for request in [pay("{}"), pay("{\"another\":1}"), page_of(&first), result_of(&first)] {
        assert_eq!(lab.send(request).await.problem(), problem(403, "FORBIDDEN"));
    }
    assert_eq!(judge.asked(), [create.clone(), create, page.clone(), page]);
    assert_eq!((lab.count(), claims.available_permits()), (1, 0), "nothing is claimed");

    // Another process has an empty cache, and reveals nothing from its store.
    let elsewhere = lab.second_with(|builder| {
        judge.put_into(builder).operation(Operation::new("payments.create", "POST /payments"))
    });
    let elsewhere = elsewhere.await;
    assert_eq!(pay("{}").to(elsewhere).await.problem(), problem(403, "FORBIDDEN"));
    judge.say(None);
    assert!(pay("{}").to(elsewhere).await.replayed());
    assert!(lab.send(pay("{}")).await.replayed(), "once they may again");
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn unreachable_authorizer_means_503_and_nothing_runs() {
    let (lab, judge) = lab().await;
    judge.say(Some(Denied::Unavailable));
    let reply = lab.send(pay("{}")).await;
    assert_eq!(reply.problem(), problem(503, "AUTHORIZATION_UNAVAILABLE"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(lab.count(), 0);
    judge.say(None);
    let first = lab.send(pay("{}")).await;
    assert_eq!((first.status.as_u16(), lab.count()), (201, 1), "the key was never taken");
    judge.say(Some(Denied::Unavailable));
    for request in [pay("{}"), page_of(&first), result_of(&first)] {
        assert_eq!(lab.send(request).await.problem(), problem(503, "AUTHORIZATION_UNAVAILABLE"));
    }
}

#[tokio::test]
async fn a_challenge_reaches_the_client() {
    let (lab, judge) = lab().await;
    let challenge = Some(HeaderValue::from_static("Bearer scope=\"payments\""));
    judge.say(Some(Denied::Unauthenticated { challenge }));
    let reply = lab.send(pay("{}")).await;
    assert_eq!(reply.problem(), problem(401, "UNAUTHENTICATED"));
    assert_eq!(reply.header("www-authenticate"), Some("Bearer scope=\"payments\""));
    assert_eq!(lab.count(), 0);
}

#[tokio::test]
async fn authorizer_is_not_asked_about_strangers_and_their_operations() {
    let (lab, judge) = lab().await;
    let first = lab.send(pay("{}")).await;
    judge.asked();
    assert_eq!(lab.send(page_of(&first).set("x-user", "bob")).await.status, 404);
    assert_eq!(lab.send(pay("{}").without("x-user")).await.status, 401);
    assert_eq!(lab.send(pay("").method("GET").without("idempotency-key")).await.status, 201);
    assert_eq!(judge.asked(), Vec::<String>::new());
}
