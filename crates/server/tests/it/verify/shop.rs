//! Payment service that fulfils the contract by itself, or violates it in exactly one way.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Duration of a payment: long enough for duplicates to arrive, and for a client to disconnect meanwhile.
const PAYING: Duration = Duration::from_millis(40);

/// Fault of a shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// No fault.
    None,
    /// Ignores keys.
    IgnoresKeys,
    /// Looks a key up, pays, and only then stores it.
    ChecksThenActs,
    /// Does not compare requests.
    NoFingerprint,
    /// Compares requests as bytes, and runs different spellings.
    RunsOtherSpellings,
    /// Shares keys among callers.
    SharesCallers,
    /// Replays with other bytes.
    ChangesBytes,
    /// Replays with another header.
    ChangesHeaders,
    /// Forgets a payment whose client has disconnected.
    ForgetsWithItsClient,
    /// Replays a payment to a GET.
    ReplaysToGet,
    /// Refuses every retry, and fulfils everything else.
    RefusesRetries,
    /// Answers without any name, so that they cannot be told apart.
    SaysNothing,
}

/// Shop on a free port.
pub(crate) struct Shop {
    pub(crate) address: SocketAddr,
    flaw: Flaw,
    payments: AtomicUsize,
    known: Mutex<HashMap<(String, String), Known>>,
}

#[derive(Clone)]
enum Known {
    Running,
    Paid { request: String, number: usize },
}

impl Shop {
    pub(crate) async fn open(flaw: Flaw) -> Arc<Shop> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let shop = Arc::new(Shop {
            address: listener.local_addr().expect("it is bound"),
            flaw,
            payments: AtomicUsize::new(0),
            known: Mutex::default(),
        });
        let app = Router::new()
            .route("/payments", post(pay).get(list))
            .route("/count", get(async |State(shop): State<Arc<Shop>>| shop.payments().to_string()))
            .with_state(shop.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        shop
    }

    /// Returns the number of payments.
    pub(crate) fn payments(&self) -> usize {
        self.payments.load(Ordering::SeqCst)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_payment(&self) -> usize {
        self.payments.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn receipt(&self, number: usize, replayed: bool) -> Response {
        if self.flaw == Flaw::SaysNothing {
            return "paid".into_response();
        }
        let changed = |flaw| if replayed && self.flaw == flaw { " again" } else { "" };
        let location = format!("/payments/{number}");
        let note = format!("thanks{}", changed(Flaw::ChangesHeaders));
        let body = format!("{{\"paid\":\"yes{}\"}}", changed(Flaw::ChangesBytes));
        let headers = [
            ("location", location.as_str()),
            ("x-note", note.as_str()),
            ("idempotency-expires", "Fri, 31 Dec 2100 00:00:00 GMT"),
        ];
        let mut response = (StatusCode::CREATED, headers, body).into_response();
        if replayed {
            response.headers_mut().insert("idempotency-replayed", "true".parse().expect("it is a value"));
        }
        response
    }
}

fn problem(status: u16, title: &str) -> Response {
    let body = json!({ "type": "about:blank", "title": title, "status": status }).to_string();
    let headers = [("content-type", "application/problem+json"), ("retry-after", "0")];
    (StatusCode::from_u16(status).expect("it is a status"), headers, body).into_response()
}

/// Returns the key of a request, if it has a well-formed one.
fn key_of(headers: &HeaderMap) -> Result<String, Box<Response>> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(Box::new(problem(400, "one key is needed")));
    };
    let text = line.to_str().unwrap_or_default();
    let key = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    if key.is_empty() || key.len() > 255 {
        return Err(Box::new(problem(400, "this is not a key")));
    }
    Ok(key.to_owned())
}

async fn list(State(shop): State<Arc<Shop>>, method: Method, headers: HeaderMap) -> Response {
    assert_eq!(method, Method::GET);
    let Ok(key) = key_of(&headers) else { return "[]".into_response() };
    match shop.known().get(&(caller(&headers), key)) {
        Some(Known::Paid { number, .. }) if shop.flaw == Flaw::ReplaysToGet => shop.receipt(*number, true),
        _ => "[]".into_response(),
    }
}

fn caller(headers: &HeaderMap) -> String {
    headers.get("x-user").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn pay(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    if shop.flaw == Flaw::IgnoresKeys {
        tokio::time::sleep(PAYING).await;
        return shop.receipt(shop.make_payment(), false);
    }
    let key = match key_of(&headers) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };
    let owner = if shop.flaw == Flaw::SharesCallers { String::new() } else { caller(&headers) };
    let mut record = (owner, key);
    let mut request = match serde_json::from_slice::<Value>(&body) {
        Ok(document) => document.to_string(),
        Err(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    if shop.flaw == Flaw::RunsOtherSpellings && !body.starts_with(b"{\"") {
        record.1.push_str(" in another spelling");
    }
    if shop.flaw == Flaw::NoFingerprint {
        request = String::new();
    }
    if let Some(answer) = shop.answer_from_memory(&record, &request) {
        return answer;
    }
    match shop.flaw {
        Flaw::ChecksThenActs => {
            tokio::time::sleep(PAYING).await;
            let number = shop.make_payment();
            shop.known().insert(record, Known::Paid { request, number });
            shop.receipt(number, false)
        }
        Flaw::ForgetsWithItsClient => {
            let forget = Forget { shop: shop.clone(), record: record.clone() };
            let number = shop.make_payment();
            tokio::time::sleep(PAYING).await;
            shop.known().insert(record, Known::Paid { request, number });
            std::mem::forget(forget);
            shop.receipt(number, false)
        }
        _ => {
            let paying = shop.clone();
            let payment = tokio::spawn(async move {
                tokio::time::sleep(PAYING).await;
                let number = paying.make_payment();
                paying.known().insert(record, Known::Paid { request, number });
                number
            });
            shop.receipt(payment.await.expect("it does not panic"), false)
        }
    }
}

impl Shop {
    /// Returns the answer for a known key; claims an unknown one in the same step.
    fn answer_from_memory(&self, record: &(String, String), request: &str) -> Option<Response> {
        let mut known = self.known();
        match known.get(record) {
            Some(Known::Running) => Some(problem(409, "still running")),
            Some(Known::Paid { .. }) if self.flaw == Flaw::RefusesRetries => {
                Some(problem(409, "a duplicate"))
            }
            Some(Known::Paid { request: first, .. }) if first != request => {
                Some(problem(422, "the key belongs to another request"))
            }
            Some(Known::Paid { number, .. }) => Some(self.receipt(*number, true)),
            None => {
                if self.flaw != Flaw::ChecksThenActs {
                    known.insert(record.clone(), Known::Running);
                }
                None
            }
        }
    }
}

/// Forgets a payment when it is dropped, like a handler whose client disconnected.
struct Forget {
    shop: Arc<Shop>,
    record: (String, String),
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.shop.known().remove(&self.record);
    }
}
