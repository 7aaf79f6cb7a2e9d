//! Fuzz target of provider events: believed only if signed, and read like a second reader does.
//!
//! The input is header lines, an empty line, and the body. `SIGN` in a header stands for the right signature, `FORGE`
//! for one with another key.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::transition::Proof;
use semel_core::{Clock, Evidence, JsonPointer, LookUpAnswer, OperationName, Statement, Timestamp};
use semel_flow::reconcile::webhook::{EventReading, Scheme};
use semel_flow::reconcile::{
    NoLookUp, Received, Reconciler, ReconcilerOptions, Refused, WebhookSource, Webhooks,
};
use semel_stores::MemoryStore;
use sha2::{Digest, Sha256};

use crate::choices::Choices;
use crate::json::{self, Json};

const KEY: &[u8] = b"a secret of the provider";
const FORMER_KEY: &[u8] = b"a secret that is being replaced";
const OTHER_KEY: &[u8] = b"a secret of somebody else";

/// Present time in seconds, and maximum distance of a signature's time from it.
const NOW: i64 = 1_790_000_000;
const TOLERANCE: i64 = 300;

/// Checks that unsigned events are not believed, and that signed ones have the same meaning each time.
pub fn check(input: &[u8]) {
    let (head, body) = split(input);
    let choices = &mut Choices::of(input);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
    for scheme in [Scheme::Semel, Scheme::Stripe, Scheme::body()] {
        let headers = headers(head, body, &scheme);
        runtime.block_on(check_event(&scheme, &headers, body, choices));
    }
}

async fn check_event(scheme: &Scheme, headers: &HeaderMap, body: &[u8], choices: &mut Choices) {
    let (received, statements) = receive_twice(scheme, headers, body).await;
    if !is_signed(scheme, headers, body) {
        assert!(matches!(received, Received::Refused(Refused::NotSigned(_))), "{received:?} and not signed");
        assert!(statements.is_empty());
        return;
    }
    check_reading(scheme, headers, body, &received, &statements);
    // The same event at another gateway has the same meaning.
    assert_eq!(receive_twice(scheme, headers, body).await, (received, statements));
    let altered = alter(body, choices);
    let (received, statements) = receive_twice(scheme, headers, &altered).await;
    assert!(matches!(received, Received::Refused(Refused::NotSigned(_))), "another body was believed");
    assert!(statements.is_empty());
}

/// Sends an event to a gateway without records, twice. Returns the result of the first, and the stored statements.
async fn receive_twice(scheme: &Scheme, headers: &HeaderMap, body: &[u8]) -> (Received, Vec<Statement>) {
    let store = Arc::new(MemoryStore::with_clock(Still));
    let options = ReconcilerOptions::default();
    let reconciler = Reconciler::new(store.clone(), store.clone(), Arc::new(NoLookUp), options);
    let webhooks = Webhooks::new(Arc::new(reconciler)).with_clock(Still);
    let webhooks = webhooks.source(source(scheme)).expect("it can be used");
    let received = webhooks.receive("provider", headers, body).await;
    let statements = kept(&store).await;
    let again = webhooks.receive("provider", headers, body).await;
    match &received {
        Received::Kept => assert_eq!(again, Received::Seen),
        Received::Ignored | Received::Refused(_) => assert_eq!(again, received),
        Received::Taken | Received::Seen => panic!("{received:?} at the first time, of no command"),
    }
    assert_eq!(statements.len(), usize::from(received == Received::Kept));
    assert_eq!(kept(&store).await, statements, "what came again changed something");
    assert!(received.status().is_success() != matches!(received, Received::Refused(_)));
    assert!(json::read(received.body().as_bytes()).is_some(), "{}", received.body());
    (received, statements)
}

async fn kept(store: &MemoryStore) -> Vec<Statement> {
    let mut statements = Vec::new();
    for command in store.commands_with_evidence(None, 9).await.expect("memory answers") {
        let page = store.open_statements(command, None, 9).await.expect("memory answers");
        statements.extend(page.statements);
    }
    statements
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(NOW * 1000)
    }
}

fn pointer(text: &str) -> JsonPointer {
    JsonPointer::parse(text).expect("it is a pointer")
}

fn source(scheme: &Scheme) -> WebhookSource {
    let reading = EventReading {
        event_id: (*scheme != Scheme::Semel).then(|| pointer("/id")),
        operation_id: pointer("/data/reference"),
        attempt: None,
        verdict: pointer("/type"),
        executed: vec!["captured".into()],
        failed: vec!["declined".into()],
        not_executed: Some((vec!["cancelled".into()], Proof::ProviderTombstone)),
        response: Some(pointer("/data")),
        response_status: StatusCode::CREATED,
        failed_status: StatusCode::PAYMENT_REQUIRED,
    };
    let operations = vec![OperationName::new("payments.create").expect("it is a name")];
    let tolerance = Duration::from_secs(TOLERANCE.unsigned_abs());
    WebhookSource::new("provider", vec![FORMER_KEY.to_vec(), KEY.to_vec()], operations, reading)
        .scheme(scheme.clone())
        .tolerance(tolerance)
        .step("charge")
        .keep_unknown(true)
}

/// Checks the meaning of a signed event with a reader of our own.
fn check_reading(
    scheme: &Scheme,
    headers: &HeaderMap,
    body: &[u8],
    received: &Received,
    statements: &[Statement],
) {
    let document = json::read(body).filter(|document| !document.repeats());
    let kind = document.as_ref().and_then(|document| text(document, &["type"]));
    let is_verdict =
        kind.as_deref().is_some_and(|kind| ["captured", "declined", "cancelled"].contains(&kind));
    match received {
        Received::Ignored => assert!(document.is_some() && !is_verdict, "a verdict was ignored"),
        Received::Kept => {
            let document = document.expect("what is believed can be read");
            let [statement] = statements else { panic!("{statements:?}") };
            let said = match statement.found() {
                LookUpAnswer::Executed(result) if result.status == 201 => "captured",
                LookUpAnswer::Failed(result) if result.status == 402 => "declined",
                LookUpAnswer::NotExecuted(Proof::ProviderTombstone) => "cancelled",
                other => panic!("{other:?}"),
            };
            assert_eq!(kind.as_deref(), Some(said));
            let event_id = match scheme {
                Scheme::Semel => one(headers, "semel-event-id").map(str::to_owned),
                Scheme::Stripe | Scheme::Body(_) => text(&document, &["id"]),
            };
            assert_eq!(Some(&statement.event_id), event_id.as_ref());
            let reference = text(&document, &["data", "reference"]).expect("it names its command");
            let (command, step) = reference.split_once(':').unwrap_or((&reference, "charge"));
            let hex =
                |text: &str| text.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_lowercase();
            assert_eq!((hex(command), step), (hex(&statement.operation_id.to_string()), "charge"));
        }
        Received::Refused(Refused::Unreadable(why)) => assert!(!why.is_empty()),
        Received::Refused(Refused::UnknownOperation) => assert!(is_verdict),
        other => panic!("{other:?} to an event that is signed"),
    }
}

/// Returns the string, number or truth value at this path, as a word; a number only where its spelling is unambiguous.
fn text(document: &Json, path: &[&str]) -> Option<String> {
    let found = path.iter().try_fold(document, |value, name| match value {
        Json::Object(members) => members.iter().find(|(member, _)| member == name).map(|(_, value)| value),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => None,
    });
    match found? {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => {
            let spelled =
                semel_core::json::canonicalize(number.as_bytes(), semel_core::json::Numbers::Exact, &[]);
            spelled.ok().and_then(|bytes| String::from_utf8(bytes).ok())
        }
        Json::Bool(value) => Some(value.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

fn split(input: &[u8]) -> (&[u8], &[u8]) {
    let end = input.windows(2).position(|window| window == b"\n\n");
    end.map_or((input, b""), |end| (&input[..end], &input[end + 2..]))
}

/// Returns the header lines that can be sent at all.
fn headers(head: &[u8], body: &[u8], scheme: &Scheme) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
        {
            headers.append(name, value);
        }
    }
    let Some(pieces) = signed_bytes(scheme, &headers, body) else { return headers };
    for value in headers.values_mut() {
        let Ok(text) = value.to_str() else { continue };
        let text = text.replace("SIGN", &hmac(KEY, &pieces)).replace("FORGE", &hmac(OTHER_KEY, &pieces));
        *value = HeaderValue::from_str(&text).expect("hex is text");
    }
    headers
}

/// Returns the bytes that a signature of this scheme covers.
fn signed_bytes(scheme: &Scheme, headers: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    Some(match scheme {
        Scheme::Semel => {
            let (time, _) = timed(one(headers, "semel-signature")?)?;
            [time.as_bytes(), b".", one(headers, "semel-event-id")?.as_bytes(), b".", body].concat()
        }
        Scheme::Stripe => [timed(one(headers, "stripe-signature")?)?.0.as_bytes(), b".", body].concat(),
        Scheme::Body(_) => body.to_vec(),
    })
}

/// Verifies the signature independently.
fn is_signed(scheme: &Scheme, headers: &HeaderMap, body: &[u8]) -> bool {
    let right = |signature: &str, bytes: &[u8]| {
        [KEY, FORMER_KEY].iter().any(|key| signature.eq_ignore_ascii_case(&hmac(key, bytes)))
    };
    let Some(bytes) = signed_bytes(scheme, headers, body) else { return false };
    let name = match scheme {
        Scheme::Semel => "semel-signature",
        Scheme::Stripe => "stripe-signature",
        Scheme::Body(name) => {
            let value = one(headers, name.as_str()).and_then(|value| value.strip_prefix("sha256="));
            return value.is_some_and(|signature| right(signature, &bytes));
        }
    };
    let Some((time, signatures)) = one(headers, name).and_then(timed) else { return false };
    // No more than eight signatures are tried, and a second is lost where times are cut to seconds.
    let is_fresh =
        time.parse::<i64>().is_ok_and(|time| (time - NOW).unsigned_abs() <= TOLERANCE.unsigned_abs() + 1);
    is_fresh && signatures.iter().take(8).any(|signature| right(signature, &bytes))
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values: Vec<_> = headers.get_all(name).iter().collect();
    let [value] = values[..] else { return None };
    value.to_str().ok()
}

fn timed(header: &str) -> Option<(&str, Vec<&str>)> {
    let parts: Vec<(&str, &str)> = header.split(',').filter_map(|part| part.trim().split_once('=')).collect();
    let of =
        |wanted: &str| parts.iter().filter(|(name, _)| *name == wanted).map(|(_, value)| *value).collect();
    let (times, signatures): (Vec<&str>, Vec<&str>) = (of("t"), of("v1"));
    match times[..] {
        [time] if !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some((time, signatures))
        }
        _ => None,
    }
}

/// Returns the HMAC-SHA256 (RFC 2104), in hex.
fn hmac(key: &[u8], bytes: &[u8]) -> String {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let keyed = |pad: u8, bytes: &[u8]| {
        let key = block.map(|byte| byte ^ pad);
        Sha256::new().chain_update(key).chain_update(bytes).finalize()
    };
    let digest = keyed(0x5c, &keyed(0x36, bytes));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a changed body.
fn alter(body: &[u8], choices: &mut Choices) -> Vec<u8> {
    let mut altered = body.to_vec();
    match choices.below(3) {
        0 if !altered.is_empty() => drop(altered.pop()),
        1 if !altered.is_empty() => {
            let at = choices.below(altered.len());
            altered[at] ^= 1 << choices.below(8);
        }
        _ => altered.push(b' '),
    }
    altered
}
