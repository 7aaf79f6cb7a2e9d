//! Facts in a response about the way in which its command was answered, for the service around the layer.

use axum::body::Body;
use semel_http::{AnswerDecision, AnswerFacts};
use tower::ServiceExt;

use crate::lab::{Lab, Send, app, pay};

impl Lab {
    /// Returns the decision on a request, from a layer that is called without a socket.
    async fn seen(&self, request: Send) -> Option<AnswerDecision> {
        let service = app(self.effects.clone()).layer(self.layer.clone());
        let response = service.oneshot(request.into_request().map(Body::new)).await.expect("it is answered");
        AnswerFacts::of(&response).decision
    }
}

#[tokio::test]
async fn a_second_attempt_is_told_from_a_first() {
    let lab = Lab::new().await;
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Executed));
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Replayed));
    assert_eq!(lab.seen(pay("[]")).await, Some(AnswerDecision::Mismatch));

    let lab = Lab::new().await;
    assert_eq!(lab.seen(pay("{}").doing("not-executed")).await, Some(AnswerDecision::Executed));
    assert_eq!(lab.seen(pay("{}").doing("not-executed")).await, Some(AnswerDecision::Reacquired));
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Reacquired));

    let lab = Lab::new().await;
    assert_eq!(lab.seen(pay("{}").doing("outcome-unknown")).await, Some(AnswerDecision::Executed));
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Unknown));
    assert_eq!(lab.count(), 1);
}
