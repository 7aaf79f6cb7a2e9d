//! Service behind the gateway: makes effects and counts them, is slow, declines, refuses, and leaves outcomes unknown.
//!
//! The run starts it; the gateway calls it, for commands and for look-ups. It deduplicates nothing: every call of a command
//! that takes effect is one more effect in the book.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use semel_testkit::Chance;
use semel_testkit::breaking::{Answered, BrokenOff};
use serde_json::{Value, json};

use crate::book::{Book, Number, number};

/// Command whose outcome stays unknown: its look-ups say "processing" for ever.
pub(crate) const NEVER_KNOWN: Number = 5;
/// Path of the commands.
pub(crate) const PATH: &str = "/payments";
/// Path of the ledger, for look-ups.
pub(crate) const LEDGER: &str = "/ledger/";

/// Behaviour of the service in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Pay,
    Slow,
    Decline,
    Refuse,
    ErrorAfter,
    BreakAfter,
    BreakBefore,
}

impl Mood {
    fn draw(number: Number, chance: &mut Chance) -> Mood {
        if number == NEVER_KNOWN {
            return Mood::BreakAfter;
        }
        match chance.below(1000) {
            0..100 => Mood::Slow,
            100..160 => Mood::Decline,
            160..210 => Mood::Refuse,
            210..220 => Mood::ErrorAfter,
            220..225 => Mood::BreakAfter,
            // Its outcome is known only when the quarantine has ended.
            225..228 => Mood::BreakBefore,
            _ => Mood::Pay,
        }
    }
}

/// The service of one run.
pub(crate) struct Upstream {
    pub(crate) seed: u64,
    pub(crate) book: Arc<Book>,
}

impl Upstream {
    /// Answers one request of the gateway.
    pub(crate) async fn answer(self: Arc<Upstream>, request: Request<Incoming>) -> Answered {
        if request.method() == Method::GET {
            return Ok(self.look_up(request.uri().path()));
        }
        let operation = request.headers().get("semel-operation-id").and_then(|value| value.to_str().ok());
        let operation = operation.unwrap_or_default().to_owned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let Some(number) = number(&body) else {
            self.book.mistake(format!("the upstream cannot read {:?}", String::from_utf8_lossy(&body)));
            return Err(BrokenOff);
        };
        let (mood, mut chance, answer) = self.carry_out(number, &operation);
        if mood == Mood::Slow {
            tokio::time::sleep(chance.millis(20, 500)).await;
        }
        let (status, body) = answer.ok_or(BrokenOff)?;
        let mut response = as_json(status, &body);
        if mood == Mood::Refuse {
            response.headers_mut().insert("semel-outcome", http::HeaderValue::from_static("not-executed"));
        }
        Ok(response)
    }

    /// Does what the mood says, and writes it down, before any wait. Returns the answer, if there is to be one.
    fn carry_out(&self, number: Number, operation: &str) -> (Mood, Chance, Option<(u16, Value)>) {
        let mut pages = self.book.pages();
        pages.operations.insert(operation.to_owned(), number);
        let command = pages.command(number);
        let mut chance = Chance::of(self.seed, &format!("upstream {number} {}", command.calls));
        let mood = Mood::draw(number, &mut chance);
        command.calls += 1;
        command.events.push(format!("upstream: call {} as {operation}: {mood:?}", command.calls));
        if !command.operations.iter().any(|one| one == operation) {
            command.operations.push(operation.to_owned());
        }
        let paid = |command: &mut crate::book::Command| {
            let effect = format!("effect-{number}-{}", command.effects.len());
            command.effects.push(effect.clone());
            let body = entry(number, operation, &effect);
            command.answers.push((201, body.clone()));
            body
        };
        let answer = match mood {
            Mood::Pay | Mood::Slow => Some((201, paid(command))),
            Mood::Decline => {
                let body = json!({"declined": number});
                command.answers.push((402, body.clone()));
                Some((402, body))
            }
            Mood::Refuse => Some((503, json!({"refused": number}))),
            Mood::ErrorAfter => {
                paid(command);
                Some((500, json!({"broken": number})))
            }
            Mood::BreakAfter => {
                paid(command);
                None
            }
            Mood::BreakBefore => None,
        };
        (mood, chance, answer)
    }

    /// Answers a look-up of the gateway: the effect under an operation id.
    fn look_up(&self, path: &str) -> Response<Full<Bytes>> {
        let operation = path.strip_prefix(LEDGER).unwrap_or_default();
        let pages = self.book.pages();
        let number = pages.operations.get(operation).copied();
        if number == Some(NEVER_KNOWN) {
            return as_json(200, &json!({"reference": operation, "status": "processing"}));
        }
        let command = number.and_then(|number| pages.commands.get(&number));
        let found = command.and_then(|command| {
            command.answers.iter().find(|(_, body)| body["reference"] == operation).map(|(_, body)| body)
        });
        match found {
            Some(entry) => as_json(200, entry),
            None => as_json(404, &json!({"unknown": operation})),
        }
    }
}

/// Returns the ledger's entry about an effect, which is also the answer to its command.
fn entry(number: Number, operation: &str, effect: &str) -> Value {
    json!({"n": number, "effect": effect, "reference": operation, "status": "captured"})
}

fn as_json(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(status).expect("statuses of this file are valid");
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
