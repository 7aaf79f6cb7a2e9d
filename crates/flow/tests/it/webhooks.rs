//! Events of providers: verified if they are signed and fresh, stored before they are answered, used once.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use semel_core::transition::Proof;
use semel_core::{Change, Clock, JsonPointer, OperationId, OperationName, Record, StateName, SystemClock};
use semel_flow::outbox::http::signature;
use semel_flow::reconcile::webhook::{EventReading, MAX_EVENT, NotSigned, Scheme, SourceError};
use semel_flow::reconcile::{NoLookUp, Received, Refused, WebhookSource, Webhooks};
use semel_testkit::sample;

use crate::lab::{Kept, Lab, both, stored};
use crate::reconcile::{lost, now_is, processing, reconciler, state_of, unknown};

both!(
    an_event_settles_an_unknown_at_once_and_once,
    an_event_before_the_end_is_used_when_it_is_needed,
    an_event_after_the_end_is_kept_and_changes_nothing,
    an_event_that_is_not_believed_leaves_nothing_behind,
    an_event_about_another_operation_is_refused,
    an_event_about_another_step_is_refused,
    an_event_before_its_record_is_kept_where_that_is_allowed,
    an_event_signed_with_either_of_two_secrets_is_accepted,
    bodies_of_events_are_not_stored_if_disabled,
);

const KEY: &[u8] = b"a secret of the provider";

fn pointer(text: &str) -> JsonPointer {
    JsonPointer::parse(text).expect("tests use pointers")
}

fn reading() -> EventReading {
    EventReading {
        event_id: Some(pointer("/id")),
        operation_id: pointer("/data/reference"),
        attempt: Some(pointer("/attempt")),
        verdict: pointer("/type"),
        executed: vec!["charge.captured".into()],
        failed: vec!["charge.declined".into()],
        not_executed: Some((vec!["charge.cancelled".into()], Proof::ProviderTombstone)),
        response: Some(pointer("/data")),
        response_status: StatusCode::CREATED,
        failed_status: StatusCode::PAYMENT_REQUIRED,
    }
}

fn source(operation: &str) -> WebhookSource {
    let operation = OperationName::new(operation).expect("tests use names");
    WebhookSource::new("provider", vec![KEY.to_vec()], vec![operation], reading()).step("charge")
}

fn webhooks(kept: &Kept, source: WebhookSource) -> Webhooks {
    let reconciler = Arc::new(reconciler(kept, Arc::new(NoLookUp)));
    Webhooks::new(reconciler).source(source).expect("it can be used")
}

fn event(id: &str, kind: &str, about: OperationId) -> String {
    format!(r#"{{"id":"{id}","type":"{kind}","data":{{"reference":"{about}:charge","amount":5}}}}"#)
}

fn seconds() -> i64 {
    SystemClock.now().as_millis() / 1000
}

/// Returns the headers of an event that is signed with this key at this second.
fn signed_at(key: &[u8], seconds: i64, id: &str, body: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("semel-event-id", HeaderValue::from_str(id).expect("it is text"));
    let signature = signature(key, seconds, id, body.as_bytes());
    headers.insert("semel-signature", HeaderValue::from_str(&signature).expect("it is text"));
    headers
}

/// Sends a valid event.
async fn send(webhooks: &Webhooks, id: &str, kind: &str, about: &Record) -> Received {
    let body = event(id, kind, about.operation_id);
    webhooks.receive("provider", &signed_at(KEY, seconds(), id, &body), body.as_bytes()).await
}

async fn kept_events(lab: &impl Lab) -> i64 {
    lab.number("SELECT count(*) FROM semel_evidence").await
}

async fn an_event_settles_an_unknown_at_once_and_once(lab: impl Lab) {
    let kept = lab.kept().await;
    let webhooks = webhooks(&kept, source("payments.create"));
    for (key, kind, state, status) in [
        ("captured", "charge.captured", StateName::Succeeded, Some(201)),
        ("declined", "charge.declined", StateName::FailedFinal, Some(402)),
        ("cancelled", "charge.cancelled", StateName::FailedRetryable, None),
    ] {
        let record = unknown(&kept, key).await;
        assert_eq!(send(&webhooks, key, kind, &record).await, Received::Taken);
        let settled = now_is(&kept, &record).await;
        assert_eq!(settled.head.state.name(), state);
        assert_eq!(settled.result.as_ref().map(|result| result.status), status);
        assert_eq!(send(&webhooks, key, kind, &record).await, Received::Seen, "a replay is harmless");
        assert_eq!(now_is(&kept, &record).await, settled);
    }
    let record = unknown(&kept, "other").await;
    assert_eq!(send(&webhooks, "other", "charge.updated", &record).await, Received::Ignored);
    assert_eq!((state_of(&kept, &record).await, kept_events(&lab).await), (StateName::Unknown, 3));
}

async fn an_event_before_the_end_is_used_when_it_is_needed(lab: impl Lab) {
    let kept = lab.kept().await;
    let webhooks = webhooks(&kept, source("payments.create"));
    let record = processing(&kept, "k").await;
    assert_eq!(send(&webhooks, "e1", "charge.captured", &record).await, Received::Taken);
    assert_eq!(state_of(&kept, &record).await, StateName::Processing);
    lost(&kept, &record).await;
    assert_eq!(reconciler(&kept, Arc::new(NoLookUp)).once().await.by_evidence, 1);
    let expected = format!(r#"{{"amount":5,"reference":"{}:charge"}}"#, record.operation_id);
    assert_eq!(stored(&now_is(&kept, &record).await), (201, expected.into()));
    // A deferred command has no executor: a statement about it counts at once.
    let deferred = processing(&kept, "deferred").await;
    let defer = Change::defer(deferred.head.fence(), Duration::from_secs(60));
    kept.store().apply(&deferred.id, &defer).await.expect("the store answers");
    assert_eq!(send(&webhooks, "e2", "charge.declined", &deferred).await, Received::Taken);
    assert_eq!(state_of(&kept, &deferred).await, StateName::FailedFinal);
    // An executor whose lease has expired counts as silent, even before a sweep.
    let silent = processing(&kept, "silent").await;
    kept.shift_clock(Duration::from_secs(120));
    assert_eq!(send(&webhooks, "e3", "charge.captured", &silent).await, Received::Taken);
    assert_eq!(state_of(&kept, &silent).await, StateName::Succeeded);
}

async fn an_event_after_the_end_is_kept_and_changes_nothing(lab: impl Lab) {
    let kept = lab.kept().await;
    let webhooks = webhooks(&kept, source("payments.create"));
    let record = processing(&kept, "k").await;
    let complete = Change::complete(record.head.fence(), sample::created("answered"));
    kept.store().apply(&record.id, &complete).await.expect("the store answers");
    let before = now_is(&kept, &record).await;
    assert_eq!(send(&webhooks, "e1", "charge.captured", &record).await, Received::Taken);
    assert_eq!(send(&webhooks, "e2", "charge.declined", &record).await, Received::Taken);
    assert_eq!(now_is(&kept, &record).await, before);
    let done = "SELECT count(*) FROM semel_evidence WHERE outcome IN ('confirmed', 'contradicted')";
    assert_eq!(lab.number(done).await, 2);
}

async fn an_event_that_is_not_believed_leaves_nothing_behind(lab: impl Lab) {
    let kept = lab.kept().await;
    let webhooks = webhooks(&kept, source("payments.create"));
    let record = unknown(&kept, "k").await;
    let body = event("e1", "charge.captured", record.operation_id);
    let refused = async |headers: &HeaderMap, body: &str| {
        let received = webhooks.receive("provider", headers, body.as_bytes()).await;
        let status = received.status().as_u16();
        let Received::Refused(why) = received else { panic!("{received:?}") };
        (status, why)
    };
    let good = signed_at(KEY, seconds(), "e1", &body);
    let wrong = (401, Refused::NotSigned(NotSigned::Wrong));
    let forged = signed_at(b"somebody else's secret", seconds(), "e1", &body);
    assert_eq!(refused(&forged, &body).await, wrong);
    assert_eq!(refused(&good, &body.replace(":5", ":6")).await, wrong, "another amount");
    assert_eq!(refused(&HeaderMap::new(), &body).await, (401, Refused::NotSigned(NotSigned::Missing)));
    let out_of_time = (401, Refused::NotSigned(NotSigned::OutOfTime));
    for apart in [-400, 400] {
        let old = signed_at(KEY, seconds() + apart, "e1", &body);
        assert_eq!(refused(&old, &body).await, out_of_time, "{apart} seconds");
    }
    let large = format!("{body}{}", " ".repeat(MAX_EVENT));
    let signed = signed_at(KEY, seconds(), "e1", &large);
    assert_eq!(refused(&signed, &large).await, (413, Refused::TooLarge));
    for unreadable in [
        "",
        "<html>",
        r#"{"id":"e1","type":"charge.captured"}"#,
        r#"{"type":"charge.captured","data":{"reference":"x"}}"#,
        r#"{"id":"","type":"charge.captured","data":{"reference":"x"}}"#,
        r#"{"id":"e1","id":"e2","type":"charge.captured","data":{"reference":"x"}}"#,
    ] {
        let signed = signed_at(KEY, seconds(), "e1", unreadable);
        let (status, why) = refused(&signed, unreadable).await;
        assert!(status == 400 && matches!(why, Refused::Unreadable(_)), "{unreadable}: {status} {why:?}");
    }
    let nobody = webhooks.receive("nobody", &good, body.as_bytes()).await;
    assert_eq!(nobody, Received::Refused(Refused::UnknownSource));
    assert_eq!((state_of(&kept, &record).await, kept_events(&lab).await), (StateName::Unknown, 0));
    // The same event, as it was sent, is accepted.
    assert_eq!(webhooks.receive("provider", &good, body.as_bytes()).await, Received::Taken);
}

async fn an_event_about_another_step_is_refused(lab: impl Lab) {
    let kept = lab.kept().await;
    let record = unknown(&kept, "k").await;
    for source in [source("payments.create").step("refund"), {
        let operation = OperationName::new("payments.create").expect("tests use names");
        WebhookSource::new("provider", vec![KEY.to_vec()], vec![operation], reading())
    }] {
        let webhooks = webhooks(&kept, source);
        let sent = send(&webhooks, "e1", "charge.captured", &record).await;
        assert_eq!(sent, Received::Refused(Refused::UnknownOperation));
    }
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown);
}

async fn an_event_about_another_operation_is_refused(lab: impl Lab) {
    let kept = lab.kept().await;
    let webhooks = webhooks(&kept, source("refunds.create"));
    let record = unknown(&kept, "k").await;
    let refused = Received::Refused(Refused::UnknownOperation);
    assert_eq!(send(&webhooks, "e1", "charge.captured", &record).await, refused);
    let nobody = Record { operation_id: OperationId::from_bytes([7; 16]), ..record.clone() };
    assert_eq!(send(&webhooks, "e2", "charge.captured", &nobody).await, refused, "which looks the same");
    let foreign = event("e3", "charge.captured", record.operation_id)
        .replace(&record.operation_id.to_string(), "order-17");
    let headers = signed_at(KEY, seconds(), "e3", &foreign);
    assert_eq!(webhooks.receive("provider", &headers, foreign.as_bytes()).await, refused);
    assert_eq!((state_of(&kept, &record).await, kept_events(&lab).await), (StateName::Unknown, 0));
}

async fn an_event_before_its_record_is_kept_where_that_is_allowed(lab: impl Lab) {
    let kept = lab.kept().await;
    let own = webhooks(&kept, source("payments.create").keep_unknown(true));
    let claim = sample::claim("k");
    let body = event("e1", "charge.captured", claim.operation_id);
    let early = own.receive("provider", &signed_at(KEY, seconds(), "e1", &body), body.as_bytes()).await;
    assert_eq!((early.status().as_u16(), early), (202, Received::Kept));
    let answer = kept.store().claim(&claim).await.expect("the store answers");
    let record = lost(&kept, &answer.record.expect("it was just made")).await;
    assert_eq!(record.operation_id, claim.operation_id);
    // Even then, a source may speak about its own operations only.
    let foreign = Arc::new(reconciler(&kept, Arc::new(NoLookUp)));
    let _foreign = Webhooks::new(foreign.clone()).source(source("refunds.create")).expect("it can be used");
    assert_eq!(foreign.use_evidence_about(record.operation_id).await.expect("the store answers"), None);
    assert_eq!(state_of(&kept, &record).await, StateName::Unknown);
    let body = event("e2", "charge.captured", claim.operation_id);
    let again = own.receive("provider", &signed_at(KEY, seconds(), "e2", &body), body.as_bytes()).await;
    assert_eq!((again, state_of(&kept, &record).await), (Received::Taken, StateName::Succeeded));
}

async fn an_event_signed_with_either_of_two_secrets_is_accepted(lab: impl Lab) {
    let kept = lab.kept().await;
    let operation = OperationName::new("payments.create").expect("it is one");
    let keys = vec![b"the secret that comes".to_vec(), KEY.to_vec()];
    let webhooks = webhooks(
        &kept,
        WebhookSource::new("provider", keys.clone(), vec![operation], reading()).step("charge"),
    );
    for (number, key) in keys.iter().enumerate() {
        let (record, id) = (unknown(&kept, &format!("k{number}")).await, format!("e{number}"));
        let body = event(&id, "charge.captured", record.operation_id);
        let headers = signed_at(key, seconds(), &id, &body);
        assert_eq!(webhooks.receive("provider", &headers, body.as_bytes()).await, Received::Taken);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_gets_503_while_the_store_is_read_only() {
    let lab = crate::lab::Postgres::new().await;
    let kept = lab.kept().await;
    let webhooks = webhooks(&kept, source("payments.create"));
    let record = unknown(&kept, "k").await;
    let read_only = |setting: &str| {
        let name = lab.database.name();
        let change = format!("ALTER DATABASE \"{name}\" {setting}");
        lab.database.server().sql("postgres", &change).expect("the server takes it");
        lab.database.terminate_backends().expect("the server ends them");
    };
    read_only("SET default_transaction_read_only = on");
    let away = send(&webhooks, "e1", "charge.captured", &record).await;
    assert_eq!((away.status().as_u16(), away), (503, Received::Refused(Refused::Unavailable)));
    read_only("RESET default_transaction_read_only");
    let mut received = send(&webhooks, "e1", "charge.captured", &record).await;
    for _ in 0..400 {
        if received.status().is_success() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        received = send(&webhooks, "e1", "charge.captured", &record).await;
    }
    assert_eq!(received, Received::Taken, "and it was not kept the first time");
}

#[tokio::test]
async fn a_source_that_could_not_be_trusted_is_refused() {
    let lab = crate::lab::Sqlite::new();
    let kept = lab.kept().await;
    let refused = |source: WebhookSource| {
        let webhooks = Webhooks::new(Arc::new(reconciler(&kept, Arc::new(NoLookUp))));
        webhooks.source(source).err().expect("it is refused")
    };
    let operation = || vec![OperationName::new("payments.create").expect("it is one")];
    let with = |keys: Vec<Vec<u8>>, reading| WebhookSource::new("p", keys, operation(), reading);
    let name = || "p".to_owned();
    assert_eq!(refused(with(vec![], reading())), SourceError::NoKey(name()));
    assert_eq!(refused(with(vec![b"short".to_vec()], reading())), SourceError::ShortKey(name(), 5));
    let nothing = WebhookSource::new("p", vec![KEY.to_vec()], vec![], reading());
    assert_eq!(refused(nothing), SourceError::NoOperations(name()));
    let nameless = EventReading { event_id: None, ..reading() };
    let stripe = with(vec![KEY.to_vec()], nameless).scheme(Scheme::Stripe);
    assert_eq!(refused(stripe), SourceError::NoEventId(name()));
    let quarantine = EventReading { not_executed: Some((vec!["x".into()], Proof::Quarantine)), ..reading() };
    assert_eq!(refused(with(vec![KEY.to_vec()], quarantine)), SourceError::Quarantine(name()));
    let status = EventReading { failed_status: StatusCode::OK, ..reading() };
    assert_eq!(refused(with(vec![KEY.to_vec()], status)), SourceError::Status(name()));
}

async fn bodies_of_events_are_not_stored_if_disabled(lab: impl Lab) {
    let kept = lab.kept().await;
    let webhooks = webhooks(&kept, source("payments.create").keep_bodies(false));
    for (kind, status) in [("charge.captured", 201), ("charge.declined", 402)] {
        let record = unknown(&kept, kind).await;
        assert_eq!(send(&webhooks, kind, kind, &record).await, Received::Taken);
        let result = now_is(&kept, &record).await.result.expect("it is settled");
        assert_eq!((result.status, result.response.decode().expect("it reads").body), (status, None));
    }
    assert_eq!(lab.number("SELECT count(*) FROM semel_evidence WHERE length(response) > 40").await, 0);
}
